// Package clock is the one source of time of every part of postbit. It is passed in, so that tests stand still, the demo
// can move on to the next opening of a window, and a machine whose clock is wrong can follow the database's.
package clock

import (
	"sync/atomic"
	"time"
)

// Clock tells the time in UTC. The zero value follows the system clock. It is safe for concurrent use and must not be copied.
type Clock struct {
	offset atomic.Int64     // nanoseconds added to the source
	source func() time.Time // nil: the system clock
}

// New returns a clock that follows the system's.
func New() *Clock { return &Clock{} }

// At returns a clock that stands at t until Advance moves it.
func At(t time.Time) *Clock { return &Clock{source: func() time.Time { return t }} }

// Stands reports whether the clock is one of At, which no machine keeps, so that there is nothing to compare it with.
func (c *Clock) Stands() bool { return c.source != nil }

// Now is the current time, UTC, without a monotonic reading.
func (c *Clock) Now() time.Time {
	now := time.Now()
	if c.source != nil {
		now = c.source()
	}
	return now.UTC().Round(0).Add(time.Duration(c.offset.Load()))
}

// Advance moves the clock by d; a negative d moves it back.
func (c *Clock) Advance(d time.Duration) { c.offset.Add(int64(d)) }

// Correct puts the clock right by the answer of another clock that was read between asked and answered (readings of this
// clock), and returns by how much it was off. The truth is taken to lie halfway, so half the round trip is the error.
func (c *Clock) Correct(theirs, asked, answered time.Time) time.Duration {
	off := theirs.Sub(asked.Add(answered.Sub(asked) / 2))
	c.Advance(off)
	return off
}
