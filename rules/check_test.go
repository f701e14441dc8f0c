package rules

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}

const day = 24 * time.Hour

// A Tuesday.
var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func TestCheck(t *testing.T) {
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	open := Window{From: 9 * 60, To: 20 * 60}
	shut := Window{From: 20 * 60, To: 23 * 60}
	opens := time.Date(2026, 12, 1, 20, 0, 0, 0, time.UTC)
	send := Decision{Outcome: Send}
	skip := func(r Rule) Decision { return Decision{Outcome: Skip, Rule: r} }
	tests := []struct {
		name string
		r    Recipient // AddressOK is set for all but those of the rule address
		m    Message
		want Decision
	}{
		{"nothing to object to", Recipient{}, Message{}, send},

		{"expired: a run goes until its end", Recipient{}, Message{ExpiresAt: now.Add(time.Nanosecond)}, send},
		{"expired: at its end", Recipient{}, Message{ExpiresAt: now}, skip(Expired)},
		{"expired: after its end", Recipient{}, Message{ExpiresAt: ago(time.Hour)}, skip(Expired)},
		{"expired comes before all others", Recipient{Suppressed: true, Unreadable: true}, Message{ExpiresAt: now}, skip(Expired)},

		{"suppressed", Recipient{Suppressed: true}, Message{}, skip(Suppressed)},
		{"suppressed comes before unreadable", Recipient{Suppressed: true, Unreadable: true}, Message{}, skip(Suppressed)},
		{"unreadable", Recipient{Unreadable: true, HasBit: true}, Message{Repeat: Never}, skip(Unreadable)},

		{"until_first_open: never sent", Recipient{FirstAt: ago(day), LastAt: ago(day)}, Message{}, send},
		{"until_first_open: sent, never opened any mail", Recipient{HasBit: true}, Message{}, skip(AlreadySent)},
		{"until_first_open: sent, opened some mail", Recipient{HasBit: true, OpenFirstAt: ago(day)}, Message{}, send},
		{"until_first_open: only the last open is known", Recipient{HasBit: true, OpenLastAt: ago(day)}, Message{}, send},
		{"never: sent and opened", Recipient{HasBit: true, OpenFirstAt: ago(day)}, Message{Repeat: Never}, skip(AlreadySent)},
		{"never: not sent", Recipient{}, Message{Repeat: Never}, send},
		{"always: sent", Recipient{HasBit: true}, Message{Repeat: Always}, send},
		{"the bit of a claim that this run holds", Recipient{HasBit: true, HoldsClaim: true}, Message{}, send},
		{"the bit of a claim that this run holds, repeat never", Recipient{HasBit: true, HoldsClaim: true}, Message{Repeat: Never}, send},

		{"inactive: never mailed", Recipient{}, Message{InactiveAfter: 90 * day}, send},
		{"inactive: opened just in time", Recipient{FirstAt: ago(900 * day), LastAt: ago(day), OpenFirstAt: ago(800 * day), OpenLastAt: ago(90 * day)}, Message{InactiveAfter: 90 * day}, send},
		{"inactive: opened too long ago", Recipient{FirstAt: ago(900 * day), OpenLastAt: ago(90*day + time.Millisecond)}, Message{InactiveAfter: 90 * day}, skip(Inactive)},
		{"inactive: first mail long ago, never opened", Recipient{FirstAt: ago(91 * day), LastAt: ago(day)}, Message{InactiveAfter: 90 * day}, skip(Inactive)},
		{"inactive: first mail lately, not opened yet", Recipient{FirstAt: ago(89 * day), LastAt: ago(day)}, Message{InactiveAfter: 90 * day}, send},
		{"inactive: the first mail long ago, opened lately", Recipient{FirstAt: ago(900 * day), OpenLastAt: ago(day)}, Message{InactiveAfter: 90 * day}, send},
		{"inactive: only the last mail is known, and it is old", Recipient{LastAt: ago(91 * day)}, Message{InactiveAfter: 90 * day}, skip(Inactive)},
		{"inactive: off", Recipient{FirstAt: ago(900 * day)}, Message{}, send},
		{"inactive: the first mail ever is this run's own claim", Recipient{HoldsClaim: true, HasBit: true, FirstAt: ago(2 * time.Hour), LastAt: ago(2 * time.Hour)}, Message{InactiveAfter: time.Hour}, send},

		{"min_gap: too soon", Recipient{LastAt: ago(day - time.Millisecond)}, Message{MinGap: day}, skip(MinGap)},
		{"min_gap: long enough", Recipient{LastAt: ago(day)}, Message{MinGap: day}, send},
		{"min_gap: never mailed", Recipient{}, Message{MinGap: day}, send},
		{"min_gap: only the first mail is known", Recipient{FirstAt: ago(time.Hour)}, Message{MinGap: day}, skip(MinGap)},
		{"min_gap: the last mail lies ahead of the clock", Recipient{LastAt: now.Add(time.Hour)}, Message{MinGap: time.Minute}, skip(MinGap)},
		{"min_gap: the last mail is the claim that this run holds", Recipient{LastAt: ago(time.Minute), HoldsClaim: true}, Message{MinGap: day}, send},
		{"inactive comes before min_gap", Recipient{FirstAt: ago(91 * day), LastAt: ago(time.Hour)}, Message{InactiveAfter: 90 * day, MinGap: day}, skip(Inactive)},

		{"time_of_day: open", Recipient{}, Message{Window: open}, send},
		{"time_of_day: shut", Recipient{}, Message{Window: shut}, Decision{Defer, TimeOfDay, opens}},
		{"time_of_day: shut until the run has expired", Recipient{}, Message{Window: shut, ExpiresAt: opens}, skip(Expired)},
		{"time_of_day: opens just before the run expires", Recipient{}, Message{Window: shut, ExpiresAt: opens.Add(time.Nanosecond)}, Decision{Defer, TimeOfDay, opens}},
		{"time_of_day holds for who has a claim, too", Recipient{HoldsClaim: true, HasBit: true}, Message{Window: shut}, Decision{Defer, TimeOfDay, opens}},
		{"time_of_day comes last", Recipient{HasBit: true}, Message{Window: shut}, skip(AlreadySent)},
		{"time_of_day on his own clock", Recipient{Zone: zone(t, "Asia/Tokyo")}, Message{Window: shut}, send}, // 21:00 there
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.r.AddressOK = true
			if got := Check(&tt.r, &tt.m, now); got != tt.want {
				t.Fatalf("%s %s %s, want %s %s %s", got.Outcome, got.Rule, got.Until, tt.want.Outcome, tt.want.Rule, tt.want.Until)
			}
		})
	}
	t.Run("address", func(t *testing.T) {
		if got := Check(&Recipient{Suppressed: true}, &Message{}, now); got != skip(Address) {
			t.Fatal(got)
		}
	})
}

var zones = []string{
	"UTC", "Europe/Berlin", "Europe/London", "America/New_York", "America/Santiago", "America/Sao_Paulo", "America/St_Johns",
	"Asia/Kolkata", "Asia/Kathmandu", "Asia/Tehran", "Asia/Tokyo", "Australia/Adelaide", "Australia/Lord_Howe", "Pacific/Auckland", "Pacific/Chatham",
	"Pacific/Apia", "Pacific/Kiritimati", "Pacific/Marquesas", "Africa/Casablanca", "Africa/Cairo", "Antarctica/Troll", "Asia/Gaza", "America/Havana", "Asia/Beirut",
}

func genZone(t *rapid.T) *time.Location {
	loc, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func genInstant(t *rapid.T, label string) time.Time {
	if rapid.IntRange(0, 3).Draw(t, label+" is zero") == 0 {
		return time.Time{}
	}
	return now.Add(time.Duration(rapid.Int64Range(-200*24*60, 24*60).Draw(t, label)) * time.Minute)
}

func genWindow(t *rapid.T) Window {
	if rapid.IntRange(0, 4).Draw(t, "no window") == 0 {
		return Window{Days: Days(rapid.IntRange(0, 127).Draw(t, "days"))}
	}
	// Often on the hour or close to it: that is where clocks change.
	minute := rapid.OneOf(rapid.IntRange(0, 24*60-1), rapid.Map(rapid.IntRange(0, 47), func(n int) int { return n * 30 }))
	w := Window{From: uint16(minute.Draw(t, "from")), To: uint16(minute.Draw(t, "to")), Days: Days(rapid.IntRange(0, 127).Draw(t, "days"))}
	if w.To == 0 {
		w.To = 24 * 60
	}
	if w.From == w.To {
		w.To++
	}
	return w
}

func genRecipient(t *rapid.T) Recipient {
	flag := func(label string, oneIn int) bool { return rapid.IntRange(1, oneIn).Draw(t, label) == 1 }
	return Recipient{
		AddressOK: !flag("no address", 8), Suppressed: flag("suppressed", 8), Unreadable: flag("unreadable", 8),
		HasBit: flag("bit", 2), Zone: genZone(t), HoldsClaim: flag("claim", 4),
		FirstAt: genInstant(t, "first"), LastAt: genInstant(t, "last"), OpenFirstAt: genInstant(t, "open first"), OpenLastAt: genInstant(t, "open last"),
	}
}

func genMessage(t *rapid.T) Message {
	hours := func(label string, most int) time.Duration {
		return time.Duration(max(0, rapid.IntRange(-most, most).Draw(t, label))) * time.Hour
	}
	m := Message{
		Repeat: Repeat(rapid.IntRange(0, 2).Draw(t, "repeat")), InactiveAfter: hours("inactive", 24*120), MinGap: hours("gap", 48), Window: genWindow(t),
	}
	if h := rapid.IntRange(-5, 48).Draw(t, "expires"); h != 48 {
		m.ExpiresAt = now.Add(time.Duration(h) * time.Hour)
	}
	return m
}

// Check and Explain are two ways of saying one thing.
func TestExplainAgreesWithCheck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, m := genRecipient(t), genMessage(t)
		d := Check(&r, &m, now)
		findings := Explain(&r, &m, now)
		if len(findings) != int(TimeOfDay) {
			t.Fatalf("%d findings", len(findings))
		}
		first := None
		for i, f := range findings {
			if f.Rule != Rule(i+1) || f.Why == "" || len(f.Facts) == 0 {
				t.Fatalf("finding %d: %+v", i, f)
			}
			if f.Objects && first == None {
				first = f.Rule
			}
		}
		switch d.Outcome {
		case Send:
			if first != None {
				t.Fatalf("sent, but %s objects", first)
			}
		case Defer:
			if first != TimeOfDay || !d.Until.After(now) || !m.Window.Open(d.Until, r.Zone) || !m.ExpiresAt.IsZero() && !d.Until.Before(m.ExpiresAt) {
				t.Fatalf("deferred until %s, but %s objects", d.Until, first)
			}
		case Skip:
			if first != d.Rule && !(first == TimeOfDay && d.Rule == Expired) {
				t.Fatalf("skipped by %s, but %s objects", d.Rule, first)
			}
		}
		if d.Outcome != Defer && !d.Until.IsZero() {
			t.Fatal("a time beside a final decision")
		}
	})
}

func TestExplainSaysHowOldForPeople(t *testing.T) {
	for _, c := range []struct {
		age  time.Duration
		want string
	}{
		{61841324 * time.Nanosecond, "the last mail is 62ms old"}, // the clock knows more than the database keeps
		{200 * time.Nanosecond, "the last mail is 0s old"},
		{61 * time.Second, "the last mail is 1m 1s old"},
		{25*time.Hour + time.Minute, "the last mail is 1d 1h old"},
	} {
		findings := Explain(&Recipient{LastAt: now.Add(-c.age)}, &Message{MinGap: 2 * day}, now)
		i := slices.IndexFunc(findings, func(f Finding) bool { return f.Rule == MinGap })
		if got := findings[i].Why; got != c.want {
			t.Errorf("%v: %s, want %s", c.age, got, c.want)
		}
	}
}

// A deferred recipient of whom nothing else changes is sent to when his turn comes.
func TestDeferredIsSentAtItsTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, loc := genNow(t)
		r, m := Recipient{AddressOK: true, Zone: loc}, Message{Window: genWindow(t)}
		d := Check(&r, &m, now)
		if d.Outcome == Send {
			return
		}
		if d.Outcome != Defer {
			t.Fatalf("%s by %s", d.Outcome, d.Rule)
		}
		if again := Check(&r, &m, d.Until); again.Outcome != Send {
			t.Fatalf("at %s: %s by %s", d.Until, again.Outcome, again.Rule)
		}
	})
}

// checks are the ways through Check, from the shortest to the longest.
func checks(t testing.TB) map[string]func() {
	berlin := zone(t, "Europe/Berlin")
	good := Recipient{AddressOK: true, HasBit: true, Zone: berlin, FirstAt: now.Add(-20 * day), LastAt: now.Add(-2 * day), OpenFirstAt: now.Add(-9 * day), OpenLastAt: now.Add(-3 * day)}
	all := Message{InactiveAfter: 90 * day, MinGap: day, Window: Window{From: 9 * 60, To: 20 * 60, Days: 0b111110}, ExpiresAt: now.Add(36 * time.Hour)}
	sent := good
	sent.OpenFirstAt, sent.OpenLastAt = time.Time{}, time.Time{}
	shut := all
	shut.Window.From = 15 * 60
	summer := time.Date(2031, 7, 1, 12, 0, 0, 0, time.UTC)
	long := all
	long.ExpiresAt, long.InactiveAfter = time.Time{}, 0
	return map[string]func(){
		"already_sent": func() { Check(&sent, &all, now) },
		"send":         func() { Check(&good, &all, now) },
		"defer":        func() { Check(&good, &shut, now) },
		"far_ahead":    func() { Check(&good, &long, summer) }, // years behind the last change that the zone file lists
	}
}

func TestCheckAllocatesNothing(t *testing.T) {
	for name, check := range checks(t) {
		if n := testing.AllocsPerRun(1000, check); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	for name, check := range checks(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				check()
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mchecks/s")
		})
	}
}
