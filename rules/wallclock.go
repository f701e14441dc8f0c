package rules

import (
	"maps"
	"math"
	"sync/atomic"
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
	p := periodAt(unix, loc)
	return wallClock{loc: loc, furthest: max(unix+p.offset, p.peak), offset: p.offset, changes: p.until}
}

// period is the time between two changes of a zone's offset.
type period struct {
	since, until int64 // Unix times, half-open
	offset       int64
	peak         int64 // highest reading shown in the day before it
}

// periods remembers them by zone and by a stretch of time: looking one up in zone data costs as much as a whole Check may.
// Zone data is constant, so this is no state that anybody could notice. The map is replaced, never changed.
var periods atomic.Pointer[map[stretch]period]

type stretch struct {
	loc *time.Location
	at  int64 // Unix time >> stretchBits
}

const (
	stretchBits = 20 // 12 days
	maxPeriods  = 4096
)

func periodAt(unix int64, loc *time.Location) period {
	known := periods.Load()
	if known != nil {
		if p, ok := (*known)[stretch{loc, unix >> stretchBits}]; ok && p.since <= unix && unix < p.until {
			return p
		}
	}
	return lookUpPeriod(unix, loc, known)
}

func lookUpPeriod(unix int64, loc *time.Location, known *map[stretch]period) period {
	t := time.Unix(unix, 0).In(loc)
	_, offset := t.Zone()
	since, until := t.ZoneBounds()
	p := period{since: math.MinInt64, until: math.MaxInt64, offset: int64(offset), peak: math.MinInt64}
	if !until.IsZero() {
		p.until = until.Unix()
	}
	if !since.IsZero() {
		p.since = since.Unix()
	}
	for !since.IsZero() && p.since-since.Unix() < maxSetBack {
		before := since.Add(-time.Second) // the last second before a change
		_, offset := before.Zone()
		p.peak = max(p.peak, before.Unix()+int64(offset))
		since, _ = before.ZoneBounds()
	}
	remember(stretch{loc, unix >> stretchBits}, p, known)
	return p
}

func remember(at stretch, p period, known *map[stretch]period) {
	var more map[stretch]period
	switch {
	case known == nil || len(*known) >= maxPeriods:
		more = make(map[stretch]period)
	default:
		if _, ok := (*known)[at]; ok {
			return // the offset changes within the stretch; whoever came first stays
		}
		more = maps.Clone(*known)
	}
	more[at] = p
	periods.CompareAndSwap(known, &more) // who loses comes again
}

// firstInstant is the first instant at which the wall clock of loc (nil: UTC) shows the reading or more. For a reading in
// a gap that is the end of the gap, for one that occurs twice its first occurrence.
func firstInstant(reading int64, loc *time.Location) time.Time {
	if loc == nil || loc == time.UTC {
		return time.Unix(reading, 0).UTC()
	}
	for from := reading - maxOffset; ; { // certainly earlier
		p := periodAt(from, loc)
		if at := max(from, reading-p.offset); at < p.until {
			return time.Unix(at, 0).UTC()
		}
		from = p.until
	}
}
