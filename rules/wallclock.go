package rules

import (
	"math"
	"time"
)

// Wall clocks are counted in seconds from 1970-01-01 00:00 local time, as if every day had 24 hours.

const (
	// No zone is or ever was further than this from UTC, in seconds.
	maxOffset = 16 * 60 * 60

	// Clocks went back by at most a day (the date line moved west of Alaska in 1867). Only this long after a change may a
	// clock show less than it has shown before.
	maxSetBack = 25 * 60 * 60
)

// wallClock is what is to be known of the wall clock of a zone at one instant.
type wallClock struct {
	loc *time.Location

	// furthest is the highest reading that the clock has shown up to now. That is what it shows now, save in the hour after
	// it was set back.
	furthest int64

	offset  int64 // seconds east of UTC
	changes int64 // Unix time of the next change of the offset
}

// readWallClock reads the clock of loc (nil: UTC).
func readWallClock(now time.Time, loc *time.Location) wallClock {
	unix := now.Unix()
	if loc == nil || loc == time.UTC {
		return wallClock{loc: time.UTC, furthest: unix, changes: math.MaxInt64}
	}
	t := now.In(loc)
	_, offset := t.Zone()
	since, until := t.ZoneBounds()
	c := wallClock{loc: loc, furthest: unix + int64(offset), offset: int64(offset), changes: math.MaxInt64}
	if !until.IsZero() {
		c.changes = until.Unix()
	}
	for !since.IsZero() && unix-since.Unix() < maxSetBack {
		before := since.Add(-time.Second) // the last second before the change
		_, offset := before.Zone()
		c.furthest = max(c.furthest, before.Unix()+int64(offset))
		since, _ = before.ZoneBounds()
	}
	return c
}

// firstInstant is the first instant at which the wall clock of loc (nil: UTC) shows the reading or more. For a reading in
// a gap that is the end of the gap, for one that occurs twice its first occurrence.
func firstInstant(reading int64, loc *time.Location) time.Time {
	if loc == nil || loc == time.UTC {
		return time.Unix(reading, 0).UTC()
	}
	from := reading - maxOffset // certainly earlier
	for {
		t := time.Unix(from, 0).In(loc)
		_, offset := t.Zone()
		_, end := t.ZoneBounds()
		at := max(from, reading-int64(offset))
		if end.IsZero() || at < end.Unix() {
			return time.Unix(at, 0).UTC()
		}
		from = end.Unix()
	}
}
