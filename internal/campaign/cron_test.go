package campaign

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestCronRefused(t *testing.T) {
	for _, c := range []struct{ name, expr, why string }{
		{"never: 30 February", "0 0 30 2 *", "never fires"},
		{"never: 31 of short months", "0 0 31 2,4,6,9,11 *", "never fires"},
		{"zone alone, on which the parser panics", "TZ=Europe/Berlin", "schedule.timezone"},
		{"zone before fields", "TZ=Europe/Berlin 0 9 * * *", "schedule.timezone"},
		{"the other prefix", "CRON_TZ=Asia/Tokyo 0 9 * * *", "schedule.timezone"},
		{"blanks before the zone", "  TZ=UTC", "schedule.timezone"},
		{"every 0 seconds", "@every 0s", "faster than once a minute"},
		{"every 10 seconds", "@every 10s", "faster than once a minute"},
		{"every negative hour", "@every -1h", "faster than once a minute"},
		{"every nothing", "@every", "no duration"},
		{"six fields", "* * * * * *", "faster than once a minute"},
		{"six fields once a day", "0 0 9 * * *", "seconds"},
		{"seven fields", "0 0 9 * * * 2026", "expected exactly 5 fields"},
		{"four fields", "0 9 * *", "expected exactly 5 fields"},
		{"empty", "", "empty"},
		{"blanks", "   ", "empty"},
		{"unknown name", "@often", "unrecognized"},
		{"minute 60", "60 * * * *", "above maximum"},
		{"step 0", "*/0 * * * *", "step"},
		{"no value at all", ", * * * *", "comma"},
		{"value missing", "1,,2 * * * *", "comma"},
		{"backwards", "0 9 * * FRI-MON", "beyond end"},
		{"very long", strings.Repeat("0,", 200) + "0 * * * *", "longer than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseCron(c.expr, time.UTC)
			if err == nil || !strings.Contains(err.Error(), c.why) {
				t.Fatalf("ParseCron(%q): %v; want an error with %q", c.expr, err, c.why)
			}
		})
	}
}

func TestCronNext(t *testing.T) {
	for _, c := range []struct {
		name, expr, zone, after string
		want                    []string
	}{
		{"every day at nine", "0 9 * * *", "UTC", "2026-12-01T09:00:00Z", []string{"2026-12-02T09:00:00Z", "2026-12-03T09:00:00Z"}},
		{"just before the slot", "0 9 * * *", "UTC", "2026-12-01T08:59:59.999Z", []string{"2026-12-01T09:00:00Z"}},
		{"spring: 02:30 does not exist", "30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z",
			[]string{"2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"}},
		{"autumn: 02:30 comes twice", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		{"asked between the two 02:30", "30 2 * * *", "Europe/Berlin", "2026-10-25T01:00:00Z", []string{"2026-10-26T01:30:00Z"}},
		{"a whole hour in the gap is one slot, and 03:00 the same", "*/20 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-29T01:20:00Z", "2026-03-29T01:40:00Z", "2026-03-30T00:00:00Z"}},
		{"midnight that does not exist", "0 0 * * *", "America/Santiago", "2026-09-05T12:00:00Z",
			[]string{"2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"}},
		{"a gap of half an hour", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z",
			[]string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"}},
		{"a day that was skipped", "0 9 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z",
			[]string{"2011-12-29T19:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T19:00:00Z"}},
		{"another one", "30 12 * * *", "Pacific/Kwajalein", "1993-08-19T12:00:00Z",
			[]string{"1993-08-20T00:30:00Z", "1993-08-21T00:30:00Z", "1993-08-21T12:00:00Z", "1993-08-22T00:30:00Z"}},
		{"half-hour zone, spring in October", "30 2 * * *", "Australia/Adelaide", "2026-10-02T12:00:00Z",
			[]string{"2026-10-02T17:00:00Z", "2026-10-03T16:30:00Z", "2026-10-04T16:00:00Z"}},
		{"half an hour comes twice", "45 1 * * *", "Australia/Lord_Howe", "2026-04-03T18:00:00Z",
			[]string{"2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"}},
		{"autumn in April", "30 2 * * *", "Pacific/Auckland", "2026-04-03T18:00:00Z",
			[]string{"2026-04-04T13:30:00Z", "2026-04-05T14:30:00Z"}},
		{"clocks back across midnight", "30 23 * * *", "America/Havana", "2026-10-31T12:00:00Z",
			[]string{"2026-11-01T03:30:00Z", "2026-11-02T04:30:00Z"}},
		{"a zone of 45 minutes", "0 9 * * MON", "Asia/Kathmandu", "2026-12-01T00:00:00Z", []string{"2026-12-07T03:15:00Z"}},
		{"day of month or day of week", "0 0 13 * FRI", "UTC", "2026-02-01T00:00:00Z",
			[]string{"2026-02-06T00:00:00Z", "2026-02-13T00:00:00Z", "2026-02-20T00:00:00Z"}},
		{"29 February, over a century without one", "0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", []string{"2104-02-29T00:00:00Z"}},
		{"@weekly", "@weekly", "UTC", "2026-12-01T00:00:00Z", []string{"2026-12-06T00:00:00Z"}},
		{"@every is counted from 1970, not from the start of a process", "@every 6h", "UTC", "2026-12-01T07:00:00Z",
			[]string{"2026-12-01T12:00:00Z", "2026-12-01T18:00:00Z"}},
		{"@every before 1970", "@every 1h", "UTC", "1969-12-31T22:30:00Z", []string{"1969-12-31T23:00:00Z"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cron, err := ParseCron(c.expr, zone(t, c.zone))
			if err != nil {
				t.Fatal(err)
			}
			at, err := time.Parse(time.RFC3339Nano, c.after)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				at = cron.Next(at)
				if got := at.Format(time.RFC3339Nano); got != want {
					t.Fatalf("next slot is %s, want %s", got, want)
				}
			}
		})
	}
}

// judgeField is one field of an expression, as the judge below reads it: nothing of it is shared with the parser.
type judgeField struct {
	star bool
	set  [60]bool
}

func readField(text string, low, high int) judgeField {
	var f judgeField
	for part := range strings.SplitSeq(text, ",") {
		spread, stepText, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			step, _ = strconv.Atoi(stepText)
		}
		from, to := low, high
		if spread != "*" {
			a, b, ranged := strings.Cut(spread, "-")
			from, _ = strconv.Atoi(a)
			to = from
			if ranged {
				to, _ = strconv.Atoi(b)
			} else if stepped {
				to = high
			}
		} else if step == 1 {
			f.star = true
		}
		for v := from; v <= to; v += step {
			f.set[v] = true
		}
	}
	return f
}

// seen is a wall time, and the instant (in Unix minutes) at which the clock shows it for the first time or jumps over it.
type seen struct {
	at                                int64
	minute, hour, day, month, weekday uint8
}

// yearOnTheWall looks at the clock on the wall every minute of a year.
func yearOnTheWall(loc *time.Location, from time.Time) []seen {
	wall := func(t time.Time) int64 {
		_, offset := t.In(loc).Zone()
		return (t.Unix() + int64(offset)) / 60
	}
	year := make([]seen, 0, 366*24*60)
	var date seen
	latest := wall(from.Add(-time.Minute)) // no wall time up to it can come for the first time
	for t := from; t.Before(from.AddDate(1, 0, 0)); t = t.Add(time.Minute) {
		for w := wall(t); latest < w; {
			latest++
			if latest%(24*60) == 0 || len(year) == 0 {
				l := time.Unix(latest*60, 0).UTC()
				date = seen{day: uint8(l.Day()), month: uint8(l.Month()), weekday: uint8(l.Weekday())}
			}
			date.at, date.minute, date.hour = t.Unix()/60, uint8(latest%60), uint8(latest/60%24)
			year = append(year, date)
		}
	}
	return year
}

// slotsOf are the instants at which an expression fires.
func slotsOf(expr string, year []seen) []time.Time {
	texts := strings.Fields(expr)
	minute, hour := readField(texts[0], 0, 59), readField(texts[1], 0, 23)
	dom, month, dow := readField(texts[2], 1, 31), readField(texts[3], 1, 12), readField(texts[4], 0, 6)
	var slots []time.Time
	latest := int64(-1)
	for _, w := range year {
		if !minute.set[w.minute] || !hour.set[w.hour] || !month.set[w.month] {
			continue
		}
		inMonth, inWeek := dom.set[w.day], dow.set[w.weekday]
		fires := inMonth || inWeek
		if dom.star || dow.star {
			fires = inMonth && inWeek
		}
		if fires && w.at != latest {
			slots = append(slots, time.Unix(w.at*60, 0).UTC())
			latest = w.at
		}
	}
	return slots
}

// zones with clocks that do something odd within the year that starts at the time beside them.
var oddYears = []struct{ zone, from string }{
	{"UTC", "2026-01-01"},
	{"Europe/Berlin", "2026-01-01"},
	{"America/Santiago", "2026-01-01"},    // midnight is left out
	{"America/Havana", "2026-01-01"},      // midnight is left out, and comes back at one
	{"Australia/Lord_Howe", "2026-01-01"}, // by half an hour
	{"Asia/Kathmandu", "1985-06-01"},      // +5:30 to +5:45
	{"Asia/Pyongyang", "2018-01-01"},      // half an hour, at 23:30
	{"Pacific/Apia", "2011-06-01"},        // 2011-12-30 is left out
	{"Africa/Casablanca", "2026-01-01"},   // back for Ramadan
	{"Antarctica/Troll", "2026-01-01"},    // two hours
	{"Atlantic/Azores", "2026-01-01"},     // midnight is left out, and comes twice
	{"Pacific/Kwajalein", "1993-03-01"},   // 1993-08-21 is left out: from 12 hours behind to 12 ahead
	{"Australia/Adelaide", "2026-01-01"},  // +9:30 and +10:30, in the southern summer
	{"Pacific/Chatham", "2026-01-01"},     // +12:45 and +13:45
	{"America/St_Johns", "2006-01-01"},    // -3:30 and -2:30, at one minute past midnight
	{"America/New_York", "2026-01-01"},
	{"Pacific/Auckland", "2026-01-01"},
}

// TestCronAgainstTheWall compares all slots of a year with those that a walk over its minutes finds, for drawn expressions.
func TestCronAgainstTheWall(t *testing.T) {
	fixed := []string{"30 2 * * *", "0 0 * * *", "*/30 22-23,0-4 * * *", "59 23 * * *", "0 1 * * 0", "7 */2 1-7 * 1"}
	value := func(low, high int) *rapid.Generator[string] {
		n := rapid.IntRange(low, high)
		return rapid.OneOf(
			rapid.Just("*"),
			rapid.Custom(func(t *rapid.T) string { return strconv.Itoa(n.Draw(t, "n")) }),
			rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("%d,%d", n.Draw(t, "n"), n.Draw(t, "n")) }),
			rapid.Custom(func(t *rapid.T) string {
				a, b := n.Draw(t, "n"), n.Draw(t, "n")
				return fmt.Sprintf("%d-%d", min(a, b), max(a, b))
			}),
			rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("*/%d", rapid.IntRange(1, high).Draw(t, "step")) }),
			rapid.Custom(func(t *rapid.T) string {
				return fmt.Sprintf("%d/%d", n.Draw(t, "n"), rapid.IntRange(1, high).Draw(t, "step"))
			}),
		)
	}
	drawn := rapid.Custom(func(t *rapid.T) string {
		return strings.Join([]string{
			value(0, 59).Draw(t, "minute"), value(0, 23).Draw(t, "hour"), value(1, 28).Draw(t, "day"),
			value(1, 12).Draw(t, "month"), value(0, 6).Draw(t, "weekday"),
		}, " ")
	})
	for i, odd := range oddYears {
		t.Run(odd.zone, func(t *testing.T) {
			loc := zone(t, odd.zone)
			from, err := time.Parse(time.DateOnly, odd.from)
			if err != nil {
				t.Fatal(err)
			}
			year := yearOnTheWall(loc, from)
			exprs := fixed
			for seed := range 2 {
				exprs = append(slices.Clip(exprs), drawn.Example(100*i+seed))
			}
			for _, expr := range exprs {
				compareYear(t, expr, loc, from, slotsOf(expr, year))
			}
		})
	}
}

func compareYear(t *testing.T, expr string, loc *time.Location, from time.Time, want []time.Time) {
	t.Helper()
	c, err := ParseCron(expr, loc)
	if err != nil {
		t.Fatal(err)
	}
	to := from.AddDate(1, 0, 0)
	at := from.Add(-time.Second)
	for i := 0; ; i++ {
		at = c.Next(at)
		if i == len(want) {
			if !at.IsZero() && at.Before(to) {
				t.Fatalf("%q: there is a slot at %s, and should be none", expr, at)
			}
			return
		}
		if !at.Equal(want[i]) {
			t.Fatalf("%q: slot %d is %s, want %s", expr, i, at, want[i])
		}
	}
}

// TestCronNextFromAnywhere: the slot after any instant is the first one after it, wherever the search begins.
func TestCronNextFromAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		odd := rapid.SampledFrom(oddYears).Draw(t, "zone")
		loc, err := time.LoadLocation(odd.zone)
		if err != nil {
			t.Fatal(err)
		}
		expr := rapid.SampledFrom([]string{"*/10 * * * *", "30 2 * * *", "0 0 * * *", "59 23 * * *"}).Draw(t, "expr")
		c, err := ParseCron(expr, loc)
		if err != nil {
			t.Fatal(err)
		}
		year, _ := time.Parse(time.DateOnly, odd.from)
		at := year.Add(time.Duration(rapid.Int64Range(0, int64(365*24*time.Hour)).Draw(t, "at")))
		next := c.Next(at)
		if !next.After(at) {
			t.Fatalf("the slot after %s is %s", at, next)
		}
		if again := c.Next(next.Add(-1)); !again.Equal(next) {
			t.Fatalf("the slot just before %s leads to %s", next, again)
		}
		between := at.Add(time.Duration(rapid.Int64Range(0, int64(next.Sub(at))-1).Draw(t, "between")))
		if again := c.Next(between); !again.Equal(next) {
			t.Fatalf("from %s the next slot is %s, from %s it is %s", at, next, between, again)
		}
	})
}

func FuzzParseCron(f *testing.F) {
	for _, s := range []string{"0 9 * * MON", "@daily", "TZ=", "CRON_TZ=x", "@every 1h", "* * * * * *", "*/0 0 0 0 0", "?", "1-2-3 * * * *", "0 0 30 2 *"} {
		f.Add(s)
	}
	berlin := zone(f, "Europe/Berlin")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseCron(s, berlin)
		if err != nil {
			return
		}
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for range 3 {
			next := c.Next(at)
			if next.IsZero() || next.Sub(at) < time.Minute && at.Second() == 0 {
				t.Fatalf("%q: after %s comes %s", s, at, next)
			}
			at = next
		}
	})
}
