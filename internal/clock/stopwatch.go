package clock

import "time"

// stepped is by how much a machine's wall clock may have moved more, or less, than the monotonic one, before neither is believed.
const stepped = time.Second

// Stopwatch measures how much time has passed on this machine, by two clocks. The monotonic one is not stepped, but stands while the
// machine sleeps; the wall clock goes on, but may be stepped.
type Stopwatch struct {
	Mono func() time.Time // with a monotonic reading
	Wall func() time.Time // without
}

// Machine is the stopwatch of this machine.
func Machine() Stopwatch {
	return Stopwatch{Mono: time.Now, Wall: func() time.Time { return time.Now().Round(0) }}
}

// Moment is a reading of a stopwatch.
type Moment struct{ Mono, Wall time.Time }

// Now reads both clocks.
func (w Stopwatch) Now() Moment { return Moment{w.Mono(), w.Wall()} }

// Since is the time that has passed by each clock.
func (m Moment) Since(earlier Moment) (mono, wall time.Duration) {
	return m.Mono.Sub(earlier.Mono), m.Wall.Sub(earlier.Wall)
}

// Agrees reports whether both clocks have gone alike since: that the wall clock was not stepped, and the machine has not slept.
func (m Moment) Agrees(earlier Moment) bool {
	mono, wall := m.Since(earlier)
	return (wall - mono).Abs() <= stepped
}
