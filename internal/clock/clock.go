// Package clock is the one source of time of every part of postbit. It is passed in, so that tests stand still, the demo
// can move on to the next opening of a window, and a machine whose clock is wrong can follow the database's.
package clock

import (
	"sync/atomic"
	"time"
)

// Clock tells the time in UTC. The zero value follows the system clock. It is safe for concurrent use and must not be copied.
type Clock struct {
	state  atomic.Pointer[state]
	source func() time.Time // nil: the machine's
	watch  Stopwatch        // zero: this machine's
}

// state is what the time is made of.
type state struct {
	offset time.Duration // added to what the machine says
	held   Moment        // when the time was known to be right, from where on it goes by the monotonic clock; zero: by the wall clock
}

// New returns a clock that follows the system's.
func New() *Clock { return &Clock{} }

// At returns a clock that stands at t until Advance moves it.
func At(t time.Time) *Clock { return &Clock{source: func() time.Time { return t }} }

// By returns a clock that follows a machine with other clocks, for tests.
func By(w Stopwatch) *Clock { return &Clock{watch: w} }

// Stands reports whether the clock is one of At, which no machine keeps, so that there is nothing to compare it with.
func (c *Clock) Stands() bool { return c.source != nil }

// Now is the current time, UTC, without a monotonic reading.
func (c *Clock) Now() time.Time { return c.load().at(c.moment()) }

func (c *Clock) load() state {
	if s := c.state.Load(); s != nil {
		return *s
	}
	return state{}
}

// moment reads the machine's clocks.
func (c *Clock) moment() Moment {
	switch {
	case c.source != nil:
		t := c.source()
		return Moment{t, t}
	case c.watch.Mono != nil:
		return c.watch.Now()
	}
	now := time.Now()
	return Moment{now, now.Round(0)}
}

func (s state) at(m Moment) time.Time {
	now := m.Wall
	if !s.held.Mono.IsZero() {
		now = s.held.Wall.Add(m.Mono.Sub(s.held.Mono))
	}
	return now.UTC().Round(0).Add(s.offset)
}

// change replaces the state by what f makes of it.
func (c *Clock) change(f func(state) state) {
	for {
		was := c.state.Load()
		s := state{}
		if was != nil {
			s = *was
		}
		s = f(s)
		if c.state.CompareAndSwap(was, &s) {
			return
		}
	}
}

// Advance moves the clock by d; a negative d moves it back.
func (c *Clock) Advance(d time.Duration) {
	c.change(func(s state) state { s.offset += d; return s })
}

// Correct puts the clock right by the answer of another clock that was read between asked and answered (readings of this
// clock), and returns by how much it was off. The truth is taken to lie halfway, so half the round trip is the error.
func (c *Clock) Correct(theirs, asked, answered time.Time) time.Duration {
	off := theirs.Sub(asked.Add(answered.Sub(asked) / 2))
	c.Advance(off)
	return off
}

// Hold says that the clock is right now. From here on it goes by the machine's monotonic clock, so that a step of the wall clock does not
// move it. It has to be called again and again, since a monotonic clock drifts, and stands while the machine sleeps.
func (c *Clock) Hold() {
	if c.Stands() {
		return
	}
	c.change(func(s state) state {
		m := c.moment()
		return state{offset: s.at(m).Sub(m.Wall), held: m}
	})
}

// Doubtful reports whether the machine's wall clock has been stepped since Hold, or the machine has slept: which of the two, and so
// what time it is, only another clock can tell.
func (c *Clock) Doubtful() bool {
	s := c.load()
	return !s.held.Mono.IsZero() && !c.moment().Agrees(s.held)
}
