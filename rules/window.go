package rules

import "time"

// Window is a part of the day and a set of weekdays on the recipient's wall clock. It is half-open, may cross midnight
// (then it belongs to the day on which it opens), and its zero value is always open.
type Window struct {
	From, To uint16 // minutes after local midnight, 0..1440; From == To == 0: the whole day
	Days     Days
}

// Days is a set of weekdays, bit 1<<time.Weekday; 0 means every day.
type Days uint8

// Has reports whether the day belongs to the set.
func (d Days) Has(day time.Weekday) bool { return d == 0 || d&(1<<day) != 0 }

const (
	secondsPerDay = 24 * 60 * 60

	// A window that does not open within this many days never does: of the days of the week each comes at least once, and
	// a clock change swallows a window at most once in a while.
	openingHorizon = 400
)

// bounds are the seconds after local midnight of the day on which the window opens; the end may lie on the next day.
func (w Window) bounds() (from, to int64) {
	from, to = int64(w.From)*60, int64(w.To)*60
	if to <= from {
		to += secondsPerDay
	}
	return from, to
}

// Open reports whether the window is open at now on the clock of loc (nil: UTC).
//
// It goes by the furthest that the wall clock has come (see wallClock), not by what the clock shows. So a time that
// occurs twice opens or closes the window once, at its first occurrence, and a time that does not exist opens it at the
// next instant that does.
func (w Window) Open(now time.Time, loc *time.Location) bool {
	return w == (Window{}) || w.openAt(readWallClock(now, loc).furthest)
}

func (w Window) openAt(reading int64) bool {
	day := floorDiv(reading, secondsPerDay)
	second := reading - day*secondsPerDay
	from, to := w.bounds()
	if second >= from && second < to && w.Days.Has(weekday(day)) {
		return true
	}
	return second+secondsPerDay < to && w.Days.Has(weekday(day-1))
}

// NextOpening is the first instant, not before now, at which the window is open: now itself where it is open already. The
// zero time says that it never opens. The result is in UTC.
func (w Window) NextOpening(now time.Time, loc *time.Location) time.Time {
	if w == (Window{}) {
		return now.UTC()
	}
	clock := readWallClock(now, loc)
	if w.openAt(clock.furthest) {
		return now.UTC()
	}
	return w.nextOpening(clock)
}

// nextOpening is the first opening after now, where the window is shut.
func (w Window) nextOpening(clock wallClock) time.Time {
	today := floorDiv(clock.furthest, secondsPerDay)
	from, to := w.bounds()
	for day := today; day < today+openingHorizon; day++ {
		opens, shuts := day*secondsPerDay+from, day*secondsPerDay+to
		if opens <= clock.furthest || !w.Days.Has(weekday(day)) { // over for today, or not its day
			continue
		}
		if at := opens - clock.offset; at < clock.changes { // as nearly always: the clock is not changed until then
			return time.Unix(at, 0).UTC()
		}
		start := firstInstant(opens, clock.loc)
		if start.Before(firstInstant(shuts, clock.loc)) {
			return start
		}
		// The whole window lies in a gap of the clock, it does not open on this day.
	}
	return time.Time{}
}

// weekday of a day counted from 1970-01-01, a Thursday.
func weekday(day int64) time.Weekday {
	n := (day + int64(time.Thursday)) % 7
	if n < 0 {
		n += 7
	}
	return time.Weekday(n)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
