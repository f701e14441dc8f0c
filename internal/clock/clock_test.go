package clock_test

import (
	"testing"
	"time"

	"postbit/internal/clock"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func TestAStandingClockMovesWhenTold(t *testing.T) {
	c := clock.At(noon.In(time.FixedZone("elsewhere", 3600)))
	if got := c.Now(); !got.Equal(noon) || got.Location() != time.UTC {
		t.Errorf("Now() = %v, want %v in UTC", got, noon)
	}
	c.Advance(90 * time.Minute)
	c.Advance(-30 * time.Minute)
	if got := c.Now(); !got.Equal(noon.Add(time.Hour)) {
		t.Errorf("Now() = %v after an hour", got)
	}
}

func TestCorrectFollowsTheOtherClock(t *testing.T) {
	for _, c := range []struct {
		name              string
		theirs            time.Duration
		roundTrip, wanted time.Duration
	}{
		{"theirs is an hour ahead", time.Hour, 0, time.Hour},
		{"theirs is behind", -5 * time.Second, 0, -5 * time.Second},
		{"the answer was read halfway", time.Minute, 10 * time.Second, 55 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := clock.At(noon)
			off := k.Correct(noon.Add(c.theirs), noon, noon.Add(c.roundTrip))
			if off != c.wanted || !k.Now().Equal(noon.Add(c.wanted)) {
				t.Errorf("off by %v, now %v; want %v", off, k.Now(), c.wanted)
			}
		})
	}
}
