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

// machine has a wall clock and a monotonic one, which the test moves.
type machine struct{ wall, mono time.Time }

func (m *machine) clock() *clock.Clock {
	return clock.By(clock.Stopwatch{Mono: func() time.Time { return m.mono }, Wall: func() time.Time { return m.wall }})
}

func (m *machine) pass(d time.Duration)  { m.wall, m.mono = m.wall.Add(d), m.mono.Add(d) }
func (m *machine) step(d time.Duration)  { m.wall = m.wall.Add(d) }
func (m *machine) sleep(d time.Duration) { m.wall = m.wall.Add(d) }

// A clock that was told that it is right does not follow its machine's wall clock where that is stepped.
func TestHold(t *testing.T) {
	for _, c := range []struct {
		name     string
		do       func(m *machine, c *clock.Clock)
		want     time.Duration // after noon
		doubtful bool
	}{
		{"never held: it follows the wall", func(m *machine, c *clock.Clock) { m.pass(time.Minute); m.step(time.Hour) }, 61 * time.Minute, false},
		{"held, and time passes", func(m *machine, c *clock.Clock) { c.Hold(); m.pass(time.Hour) }, time.Hour, false},
		{"held while it was corrected by an hour", func(m *machine, c *clock.Clock) { c.Advance(time.Hour); c.Hold(); m.pass(time.Minute) }, 61 * time.Minute, false},
		{"the wall is stepped ahead", func(m *machine, c *clock.Clock) { c.Hold(); m.pass(time.Minute); m.step(time.Hour) }, time.Minute, true},
		{"the wall is stepped back", func(m *machine, c *clock.Clock) { c.Hold(); m.pass(time.Minute); m.step(-time.Hour) }, time.Minute, true},
		{"the wall is slewed", func(m *machine, c *clock.Clock) { c.Hold(); m.pass(time.Minute); m.step(900 * time.Millisecond) }, time.Minute, false},
		{"the machine slept, and nobody has told the time since", func(m *machine, c *clock.Clock) { c.Hold(); m.sleep(time.Hour) }, 0, true},
		{"the machine slept, and the clock was put right", func(m *machine, c *clock.Clock) { c.Hold(); m.sleep(time.Hour); c.Advance(time.Hour); c.Hold() }, time.Hour, false},
		{"stepped, and held again", func(m *machine, c *clock.Clock) { c.Hold(); m.step(time.Hour); c.Hold(); m.pass(time.Minute) }, time.Minute, false},
		{"held twice", func(m *machine, c *clock.Clock) {
			c.Hold()
			m.pass(time.Minute)
			c.Hold()
			m.step(time.Hour)
			m.pass(time.Minute)
		}, 2 * time.Minute, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &machine{wall: noon, mono: time.Unix(0, 0)}
			k := m.clock()
			c.do(m, k)
			if got := k.Now().Sub(noon); got != c.want {
				t.Errorf("it is noon + %s, want + %s", got, c.want)
			}
			if k.Doubtful() != c.doubtful {
				t.Errorf("doubtful: %t", k.Doubtful())
			}
		})
	}
}

func TestAStandingClockIsNotHeld(t *testing.T) {
	c := clock.At(noon)
	c.Hold()
	c.Advance(time.Hour)
	if c.Doubtful() || !c.Now().Equal(noon.Add(time.Hour)) {
		t.Errorf("%v, doubtful: %t", c.Now(), c.Doubtful())
	}
}
