package rules

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// walker is the plainest reading of the rules for windows: it goes through the minutes one by one and looks at the clock on
// the wall. It knows no arithmetic of zones.
type walker struct {
	w      Window
	loc    *time.Location
	minute time.Time
	shown  time.Time // the latest date and time that the clock has shown
}

func newWalker(w Window, loc *time.Location, from time.Time) *walker {
	x := &walker{w: w, loc: loc, minute: from.Truncate(time.Minute).Add(-30 * time.Hour)}
	for x.minute.Before(from.Truncate(time.Minute)) {
		x.next()
	}
	x.look()
	return x
}

func (x *walker) next() {
	x.look()
	x.minute = x.minute.Add(time.Minute)
}

// look reads date and time off the wall, as if they stood in UTC, and keeps them unless the clock has shown later ones.
func (x *walker) look() {
	l := x.minute.In(x.loc)
	wall := time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC)
	if wall.After(x.shown) {
		x.shown = wall
	}
}

func (x *walker) open() bool {
	x.look()
	from, to := int(x.w.From), int(x.w.To)
	minute := x.shown.Hour()*60 + x.shown.Minute()
	today, yesterday := x.w.Days.Has(x.shown.Weekday()), x.w.Days.Has((x.shown.Weekday()+6)%7)
	switch {
	case from == 0 && to == 0:
		return today
	case from < to:
		return today && minute >= from && minute < to
	}
	return today && minute >= from || yesterday && minute < to
}

// transitions around which windows are tried: spring and autumn in both hemispheres, half-hour changes, midnight that does not
// exist or comes twice, a skipped day, changes of standard time.
var transitions = []struct {
	zone string
	at   string
}{
	{"Europe/Berlin", "2026-03-29T01:00:00Z"},
	{"Europe/Berlin", "2026-10-25T01:00:00Z"},
	{"America/New_York", "2026-03-08T07:00:00Z"},
	{"America/New_York", "2026-11-01T06:00:00Z"},
	{"America/Santiago", "2026-09-06T04:00:00Z"}, // midnight does not exist
	{"America/Santiago", "2026-04-05T03:00:00Z"}, // midnight to 23:00
	{"Australia/Lord_Howe", "2026-10-03T15:30:00Z"},
	{"Australia/Lord_Howe", "2026-04-04T15:00:00Z"},
	{"Australia/Adelaide", "2026-10-03T16:30:00Z"},
	{"Pacific/Auckland", "2026-09-26T14:00:00Z"},
	{"Pacific/Chatham", "2026-04-04T14:00:00Z"},
	{"Pacific/Apia", "2011-12-30T10:00:00Z"}, // December 30 does not exist
	{"Pacific/Kwajalein", "1993-08-21T12:00:00Z"},
	{"America/Havana", "2026-11-01T05:00:00Z"},
	{"Asia/Tehran", "2022-09-21T19:30:00Z"},
	{"Africa/Casablanca", "2026-02-15T02:00:00Z"},
	{"Antarctica/Troll", "2026-03-29T01:00:00Z"}, // by two hours
	{"Asia/Pyongyang", "2018-05-04T15:00:00Z"},
	{"Asia/Kathmandu", "1985-12-31T18:30:00Z"},
}

func genNow(t *rapid.T) (time.Time, *time.Location) {
	if rapid.Bool().Draw(t, "near a change") {
		x := rapid.SampledFrom(transitions).Draw(t, "change")
		loc, err := time.LoadLocation(x.zone)
		if err != nil {
			t.Fatal(err)
		}
		return at(x.at).Add(time.Duration(rapid.IntRange(-30*60*60, 30*60*60).Draw(t, "seconds")) * time.Second), loc
	}
	return time.Unix(rapid.Int64Range(at("2005-01-01T00:00:00Z").Unix(), at("2045-01-01T00:00:00Z").Unix()).Draw(t, "now"), 0).UTC(), genZone(t)
}

func TestWindowAgainstTheWalker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, loc := genNow(t)
		w := genWindow(t)
		x := newWalker(w, loc, now)
		if got, want := w.Open(now, loc), x.open(); got != want {
			t.Fatalf("%s in %s at %s: open is %v, the clock on the wall says %v", w, loc, now.In(loc), got, want)
		}
		next := w.NextOpening(now, loc)
		if w.Open(now, loc) {
			if !next.Equal(now) {
				t.Fatalf("it is open at %s, next opening %s", now, next)
			}
			return
		}
		for limit := now.Add(9 * day); x.minute.Before(limit); x.next() {
			if !x.minute.Before(now) && x.open() {
				if !next.Equal(x.minute) {
					t.Fatalf("%s in %s at %s opens at %s, not at %s", w, loc, now.In(loc), x.minute.In(loc), next.In(loc))
				}
				return
			}
		}
		if !next.After(now.Add(9*day - time.Minute)) {
			t.Fatalf("%s in %s at %s does not open within 9 days, but at %s is said", w, loc, now.In(loc), next.In(loc))
		}
	})
}

// However often the clock shows a time, a window never opens twice within half a day.
func TestWindowOpensOnceADay(t *testing.T) {
	for _, x := range transitions {
		loc := zone(t, x.zone)
		for from := uint16(0); from < 24*60; from += 15 {
			for _, length := range []uint16{15, 45, 90, 600} {
				w := Window{From: from, To: (from + length) % (24 * 60)}
				if w.To == 0 {
					w.To = 24 * 60
				}
				var last time.Time
				was := true // an opening before the walk is not counted
				for m := at(x.at).Add(-14 * time.Hour); m.Before(at(x.at).Add(14 * time.Hour)); m = m.Add(15 * time.Minute) {
					is := w.Open(m, loc)
					if is && !was {
						if m.Sub(last) < 12*time.Hour {
							t.Fatalf("%s in %s opens at %s and again at %s", w, x.zone, last.In(loc), m.In(loc))
						}
						last = m
					}
					was = is
				}
			}
		}
	}
}

func TestWindowCases(t *testing.T) {
	window := func(s, days string) Window {
		w, err := ParseWindow(s)
		if err != nil {
			t.Fatal(err)
		}
		if days != "" {
			if w.Days, err = ParseDays(days); err != nil {
				t.Fatal(err)
			}
		}
		return w
	}
	tests := []struct {
		name string
		w    Window
		zone string
		now  string // with the zone's own offset, to be read beside the window
		open bool
		next string
	}{
		{"half-open: the first minute", window("09:00-21:00", ""), "UTC", "2026-12-01T09:00:00Z", true, ""},
		{"half-open: the minute before", window("09:00-21:00", ""), "UTC", "2026-12-01T08:59:59Z", false, "2026-12-01T09:00:00Z"},
		{"half-open: the last instant", window("09:00-21:00", ""), "UTC", "2026-12-01T20:59:59Z", true, ""},
		{"half-open: the end", window("09:00-21:00", ""), "UTC", "2026-12-01T21:00:00Z", false, "2026-12-02T09:00:00Z"},
		{"until midnight", window("20:00-24:00", ""), "UTC", "2026-12-01T23:59:59Z", true, ""},
		{"midnight is the next day", window("20:00-24:00", ""), "UTC", "2026-12-02T00:00:00Z", false, "2026-12-02T20:00:00Z"},
		{"the whole day, but not on Sunday", Window{Days: 0b1111110}, "Europe/Berlin", "2026-12-06T00:00:00+01:00", false, "2026-12-07T00:00:00+01:00"},
		{"a fraction of a second before the opening", window("09:00-21:00", ""), "UTC", "2026-12-01T08:59:59.999Z", false, "2026-12-01T09:00:00Z"},

		// C6
		{"C6: Friday's window ends on Saturday 06:00", window("21:00-06:00", "mon-fri"), "Asia/Kolkata", "2026-12-05T05:59:59+05:30", true, ""},
		{"C6: and not later", window("21:00-06:00", "mon-fri"), "Asia/Kolkata", "2026-12-05T06:00:00+05:30", false, "2026-12-07T21:00:00+05:30"},
		{"C6: Saturday evening is shut", window("21:00-06:00", "mon-fri"), "Asia/Kolkata", "2026-12-05T22:00:00+05:30", false, "2026-12-07T21:00:00+05:30"},
		{"C6: Monday before dawn belongs to Sunday", window("21:00-06:00", "mon-fri"), "Asia/Kolkata", "2026-12-07T03:00:00+05:30", false, "2026-12-07T21:00:00+05:30"},
		{"C6: Friday evening", window("21:00-06:00", "mon-fri"), "Asia/Kolkata", "2026-12-04T21:00:00+05:30", true, ""},

		{"spring: an opening that does not exist is the end of the gap", window("02:30-09:00", ""), "Europe/Berlin", "2026-03-29T01:59:59+01:00", false, "2026-03-29T03:00:00+02:00"},
		{"spring: open from there", window("02:30-09:00", ""), "Europe/Berlin", "2026-03-29T03:00:00+02:00", true, ""},
		{"spring: a window inside the gap does not open", window("02:15-02:45", ""), "Europe/Berlin", "2026-03-29T03:00:00+02:00", false, "2026-03-30T02:15:00+02:00"},
		{"autumn: opens the first time", window("02:30-09:00", ""), "Europe/Berlin", "2026-10-25T02:30:00+02:00", true, ""},
		{"autumn: stays open when the clock is set back", window("02:30-09:00", ""), "Europe/Berlin", "2026-10-25T02:10:00+01:00", true, ""},
		{"autumn: shuts the first time", window("21:00-02:30", ""), "Europe/Berlin", "2026-10-25T02:30:00+02:00", false, "2026-10-25T21:00:00+01:00"},
		{"autumn: does not open again when the clock is set back", window("21:00-02:30", ""), "Europe/Berlin", "2026-10-25T02:10:00+01:00", false, "2026-10-25T21:00:00+01:00"},
		{"autumn: a window inside the hour opens once", window("02:15-02:45", ""), "Europe/Berlin", "2026-10-25T02:20:00+01:00", false, "2026-10-26T02:15:00+01:00"},
		{"autumn: a window that ends with the hour is open for both", window("01:00-03:00", ""), "Europe/Berlin", "2026-10-25T02:59:59+01:00", true, ""},

		{"Santiago: midnight does not exist", window("00:00-06:00", ""), "America/Santiago", "2026-09-05T23:59:59-04:00", false, "2026-09-06T01:00:00-03:00"},
		{"Santiago: it is Sunday's window", window("00:00-06:00", "sun"), "America/Santiago", "2026-09-06T01:00:00-03:00", true, ""},
		{"Santiago: 23:00 to midnight comes twice, opened once", window("23:00-24:00", "sat"), "America/Santiago", "2026-04-04T23:30:00-04:00", true, ""},
		{"Lord Howe: half an hour does not exist", window("02:10-05:00", ""), "Australia/Lord_Howe", "2026-10-04T01:59:00+10:30", false, "2026-10-04T02:30:00+11:00"},
		{"Apia: a day that does not exist has no window", window("09:00-17:00", ""), "Pacific/Apia", "2011-12-29T17:00:00-10:00", false, "2011-12-31T09:00:00+14:00"},
		{"Kwajalein: a day that does not exist has no window", window("09:00-17:00", ""), "Pacific/Kwajalein", "1993-08-20T17:00:00-12:00", false, "1993-08-22T09:00:00+12:00"},
		{"Kwajalein: Friday's night goes on across it, but not beyond the morning", window("21:00-06:00", "fri"), "Pacific/Kwajalein", "1993-08-22T00:00:00+12:00", false, "1993-08-27T21:00:00+12:00"},
		{"Lord Howe: half an hour comes twice, opened once", window("01:40-01:50", ""), "Australia/Lord_Howe", "2026-04-05T01:45:00+10:30", false, "2026-04-06T01:40:00+10:30"},
		{"Adelaide: spring in a half-hour zone", window("02:30-09:00", ""), "Australia/Adelaide", "2026-10-04T01:59:59+09:30", false, "2026-10-04T03:00:00+10:30"},
		{"Auckland: autumn in April, shuts the first time", window("21:00-02:30", ""), "Pacific/Auckland", "2026-04-05T02:10:00+12:00", false, "2026-04-05T21:00:00+12:00"},
		{"St John's: 00:01 to 23:01 of the day before, shut the first time", window("23:00-24:00", ""), "America/St_Johns", "2006-10-28T23:30:00-03:30", false, "2006-10-29T23:00:00-03:30"},
		{"Kathmandu: a quarter of an hour", window("09:00-17:00", ""), "Asia/Kathmandu", "2026-12-01T08:59:00+05:45", false, "2026-12-01T09:00:00+05:45"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			now, loc := at(tt.now), zone(t, tt.zone)
			if local := now.In(loc).Format(time.RFC3339); local != now.Truncate(time.Second).Format(time.RFC3339) {
				t.Fatalf("the test says %s, the zone %s", tt.now, local)
			}
			if got := tt.w.Open(now, loc); got != tt.open {
				t.Errorf("open: %v", got)
			}
			want := now
			if !tt.open {
				want = at(tt.next)
			}
			if got := tt.w.NextOpening(now, loc); !got.Equal(want) {
				t.Errorf("opens at %s, want %s", got.In(loc), want.In(loc))
			}
		})
	}
}

// A year of a window, quarter of an hour by quarter of an hour, against the walker: whether it is open, and when it opens next.
func TestAYearOfWindows(t *testing.T) {
	windows := []Window{
		{From: 9 * 60, To: 17 * 60}, {From: 21 * 60, To: 6 * 60}, {From: 0, To: 2 * 60}, {From: 2*60 + 15, To: 2*60 + 45},
		{From: 2*60 + 30, To: 24 * 60}, {From: 23 * 60, To: 60, Days: 1 << time.Sunday}, {Days: 1<<time.Saturday | 1<<time.Friday},
	}
	for _, year := range []struct{ zone, from string }{
		{"Europe/Berlin", "2026-01-01T00:00:00Z"}, {"America/Santiago", "2026-01-01T00:00:00Z"}, {"America/Havana", "2026-01-01T00:00:00Z"},
		{"Australia/Lord_Howe", "2026-01-01T00:00:00Z"}, {"Australia/Adelaide", "2026-01-01T00:00:00Z"}, {"Pacific/Chatham", "2026-01-01T00:00:00Z"},
		{"Pacific/Apia", "2011-06-01T00:00:00Z"}, {"Pacific/Kwajalein", "1993-03-01T00:00:00Z"}, {"Asia/Kathmandu", "1985-06-01T00:00:00Z"},
		{"Africa/Casablanca", "2026-01-01T00:00:00Z"}, {"Antarctica/Troll", "2026-01-01T00:00:00Z"}, {"Asia/Pyongyang", "2018-01-01T00:00:00Z"},
	} {
		t.Run(year.zone, func(t *testing.T) {
			t.Parallel()
			loc, from := zone(t, year.zone), at(year.from)
			for _, w := range windows {
				const step = 15 * time.Minute
				var shown time.Time
				was, says := false, time.Time{} // what NextOpening has said while it was shut
				for now := from.Add(-26 * time.Hour); now.Before(from.AddDate(1, 0, 0)); now = now.Add(step) {
					l := now.In(loc)
					if wall := time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC); wall.After(shown) {
						shown = wall
					}
					if now.Before(from) {
						continue
					}
					open := (&walker{w: w, loc: loc, minute: now, shown: shown}).open()
					if got := w.Open(now, loc); got != open {
						t.Fatalf("%s at %s: open is %v, the clock on the wall says %v", w, l, got, open)
					}
					switch {
					case open && !was && !says.IsZero() && !says.Equal(now):
						t.Fatalf("%s opens at %s, and %s was said", w, l, says.In(loc))
					case open:
						says = time.Time{}
					case says.IsZero() || now.Minute() == 0 && now.Hour()%6 == 0: // said again now and then
						next := w.NextOpening(now, loc)
						if !says.IsZero() && !next.Equal(says) {
							t.Fatalf("%s at %s opens at %s, and %s was said before", w, l, next.In(loc), says.In(loc))
						}
						says = next
					}
					was = open
				}
			}
		})
	}
}

func TestNilZoneIsUTC(t *testing.T) {
	w := Window{From: 9 * 60, To: 10 * 60}
	if !w.Open(at("2026-12-01T09:30:00Z"), nil) || !w.NextOpening(at("2026-12-01T11:00:00Z"), nil).Equal(at("2026-12-02T09:00:00Z")) {
		t.Fatal("a recipient without a zone is in UTC")
	}
}

func TestParseWindow(t *testing.T) {
	good := map[string]Window{
		"09:00-21:00": {From: 540, To: 1260}, "21:00-06:00": {From: 1260, To: 360}, "00:00-24:00": {To: 1440}, "9:00 - 10:30": {From: 540, To: 630},
		"23:59-00:00": {From: 1439}, "22:00-24:00": {From: 1320, To: 1440},
	}
	for s, want := range good {
		if got, err := ParseWindow(s); err != nil || got != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "-", "09:00", "09:00-", "-09:00", "9-17", "09:00-21:60", "24:00-06:00", "25:00-26:00", "09:00-09:00", "00:00-00:00", "09:00-24:01", "0９:00-10:00", "09:0-10:00", "09:00-21:00 mon", "+9:00-10:00"} {
		if w, err := ParseWindow(s); err == nil {
			t.Errorf("%q is read as %s", s, w)
		}
	}
}

func TestParseDays(t *testing.T) {
	good := map[string]string{
		"mon-fri": "mon-fri", "mon,wed": "mon,wed", "sat-sun": "sat,sun", "fri-mon": "mon,fri-sun", "Monday, WED - fri": "mon,wed-fri", "sun": "sun", "mon-sun": "mon-sun", "wed-tue": "mon-sun", "mon,mon": "mon",
	}
	for s, want := range good {
		if got, err := ParseDays(s); err != nil || got.String() != want {
			t.Errorf("%q: %s, %v; want %s", s, got, err, want)
		}
	}
	for _, s := range []string{"", ",", "mon-", "-fri", "mo", "mon..fri", "mon-fri-sun", "montag", "1-5"} {
		if d, err := ParseDays(s); err == nil {
			t.Errorf("%q is read as %s", s, d)
		}
	}
}

func TestWindowIsReadAsItIsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := genWindow(t)
		if w.Days == 0 {
			w.Days = 0x7f // every day, said in full
		}
		s := w.String()
		hours, days := s[:11], s[12:]
		got, err := ParseWindow(hours)
		if err != nil {
			t.Fatal(err)
		}
		if got.Days, err = ParseDays(days); err != nil {
			t.Fatal(err)
		}
		if w.From == 0 && w.To == 0 {
			w.To = 24 * 60
		}
		if got != w {
			t.Fatalf("%q is read as %+v, was %+v", s, got, w)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("09:00-21:00")
	f.Add("mon-fri,sun")
	f.Fuzz(func(t *testing.T, s string) {
		if w, err := ParseWindow(s); err == nil && (w.From >= 24*60 || w.To > 24*60 || w.From == w.To) {
			t.Fatalf("%q is read as %+v", s, w)
		}
		if d, err := ParseDays(s); err == nil && (d == 0 || d > 0x7f) {
			t.Fatalf("%q is read as %d", s, d)
		}
	})
}

func TestNames(t *testing.T) {
	want := []string{"none", "expired", "address", "suppressed", "unreadable", "already_sent", "inactive", "min_gap", "time_of_day"}
	for i, name := range want {
		if got := Rule(i).String(); got != name {
			t.Errorf("rule %d is %s, want %s", i, got, name)
		}
	}
	for _, r := range []Repeat{UntilFirstOpen, Never, Always} {
		if got, err := ParseRepeat(r.String()); err != nil || got != r {
			t.Errorf("%s is read as %s, %v", r, got, err)
		}
	}
	if r, err := ParseRepeat(""); err != nil || r != UntilFirstOpen {
		t.Error("the default is until_first_open")
	}
	if _, err := ParseRepeat("sometimes"); err == nil {
		t.Error("sometimes is no repeat")
	}
}
