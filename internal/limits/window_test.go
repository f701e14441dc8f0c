package limits

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"postbit/internal/campaign"
)

var start = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)

// use is one mail at the SMTP server, at any time within the validity of its grant.
type use struct {
	at time.Time
}

// TestNoWindowIsEverExceeded lets workers ask at random times, with clocks that differ, and use every mail of a grant at a
// random time while it is good. Then it slides a window of each rate's length over all uses.
func TestNoWindowIsEverExceeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) campaign.Rate {
			return campaign.Rate{
				N:   rapid.Int64Range(1, 60).Draw(t, "n"),
				Per: rapid.SampledFrom([]time.Duration{time.Second, 5 * time.Second, time.Minute, time.Hour}).Draw(t, "per"),
			}
		}), 1, 3, func(r campaign.Rate) time.Duration { return r.Per }).Draw(t, "rates")
		doc, now := scopeDoc{}, start
		var uses []use
		for range rapid.IntRange(1, 80).Draw(t, "asks") {
			if rapid.Bool().Draw(t, "long pause") {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(rates[0].Per)).Draw(t, "pause")))
			} else {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(50*time.Millisecond)).Draw(t, "step")))
			}
			var g Grant
			doc, g = doc.take(rates, rapid.IntRange(1, 40).Draw(t, "want"), now)
			for range g.N {
				uses = append(uses, use{now.Add(time.Duration(rapid.Int64Range(0, int64(g.Until.Sub(now))).Draw(t, "used after")))})
			}
		}
		checkWindows(t, uses, rates)
	})
}

func checkWindows(t interface {
	Helper()
	Fatalf(string, ...any)
}, uses []use, rates []campaign.Rate) {
	t.Helper()
	slices.SortFunc(uses, func(a, b use) int { return a.at.Compare(b.at) })
	for _, r := range rates {
		first := 0
		for i, u := range uses {
			for u.at.Sub(uses[first].at) >= r.Per {
				first++
			}
			if n := int64(i - first + 1); n > r.N {
				t.Fatalf("%d mails between %s and %s, %s allows %d", n, uses[first].at, u.at, r, r.N)
			}
		}
	}
}

// TestEveryMailIsSentInTheEnd asks again at Next alone: there is always something to be had, and the rate that is reached
// stays close to the one that was named.
func TestEveryMailIsSentInTheEnd(t *testing.T) {
	for _, c := range []struct {
		rates   []string
		seconds int
		least   int64 // mails in that time
	}{
		{[]string{"40/min"}, 600, 9 * 40},
		{[]string{"20/s"}, 60, 13 * 60},
		{[]string{"40/min", "2000/h", "5000/d"}, 3600, 1950},
		{[]string{"1/min"}, 3600, 56},
	} {
		rates := parse(t, c.rates...)
		doc, now, sent := scopeDoc{}, start, int64(0)
		for end := start.Add(time.Duration(c.seconds) * time.Second); now.Before(end); {
			var g Grant
			doc, g = doc.take(rates, 1000, now)
			sent += int64(g.N)
			if g.N > 0 {
				continue
			}
			if !g.Next.After(now) {
				t.Fatalf("%v: no room at %s, and Next is %s", c.rates, now, g.Next)
			}
			if next := doc.next(rates, now); !next.Equal(g.Next) {
				t.Errorf("%v: Next says %s, the grant %s", c.rates, next, g.Next)
			}
			if before := doc.next(rates, g.Next.Add(-time.Millisecond)); before.IsZero() {
				t.Errorf("%v: room 1 ms before Next", c.rates)
			}
			now = g.Next
		}
		if sent < c.least {
			t.Errorf("%v: %d mails in %d s, want %d at least", c.rates, sent, c.seconds, c.least)
		}
	}
}

func parse(t testing.TB, rates ...string) []campaign.Rate {
	t.Helper()
	var out []campaign.Rate
	for _, s := range rates {
		r, err := campaign.ParseRate(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func TestTake(t *testing.T) {
	day := parse(t, "40/min", "60/h")
	doc, g := scopeDoc{}.take(day, 32, start)
	if g.N != 32 || !g.Until.Equal(start.Add(2*time.Second)) {
		t.Fatalf("first: %+v", g)
	}
	doc, g = doc.take(day, 32, start)
	if g.N != 8 {
		t.Errorf("the minute has room for 8 more: %+v", g)
	}
	if doc.Rev != 2 {
		t.Errorf("two changes, revision %d", doc.Rev)
	}
	same, g := doc.take(day, 32, start.Add(time.Second))
	if g.N != 0 || same.Rev != doc.Rev {
		t.Errorf("nothing is left, so nothing is written: %+v, revision %d", g, same.Rev)
	}
	doc, g = doc.take(day, 32, start.Add(64*time.Second))
	if g.N != 20 {
		t.Errorf("a minute later the hour has room for 20: %+v", g)
	}
	_, g = doc.take(day, 32, start.Add(-time.Hour))
	if g.N != 0 {
		t.Errorf("a worker whose clock is behind gets room that others have taken: %+v", g)
	}
}

func TestValidity(t *testing.T) {
	for rates, want := range map[string]time.Duration{"20/s": 500 * time.Millisecond, "40/min": 2 * time.Second, "5000/d": 2 * time.Second} {
		if got := Validity(parse(t, rates)); got != want {
			t.Errorf("%s: %s, want %s", rates, got, want)
		}
	}
	if got := Validity(parse(t, "5000/d", "20/s")); got != 500*time.Millisecond {
		t.Errorf("the shortest window decides: %s", got)
	}
}

// TestAnotherRate applies a campaign again in mid-run: the new window remembers what the old ones know.
func TestAnotherRate(t *testing.T) {
	doc, _ := scopeDoc{}.take(parse(t, "100/h"), 100, start)
	_, g := doc.take(parse(t, "10/min"), 10, start.Add(time.Second))
	if g.N != 0 {
		t.Errorf("100 went out a second ago, %d more are granted under 10/min", g.N)
	}
	_, g = doc.take(parse(t, "150/h"), 100, start.Add(time.Second))
	if g.N != 50 {
		t.Errorf("150/h leaves 50, %d granted", g.N)
	}
}

func TestDocumentStaysSmall(t *testing.T) {
	rates := parse(t, "1000/s", "10000/min", "100000/h", "1000000/d")
	doc, now := scopeDoc{}, start
	for range 20_000 {
		doc, _ = doc.take(rates, 1, now)
		now = now.Add(7 * time.Second)
	}
	for i, w := range doc.Windows {
		if len(w.Buckets) > buckets+2 {
			t.Errorf("%s: %d buckets", rates[i], len(w.Buckets))
		}
	}
}
