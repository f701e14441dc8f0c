package campaign

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"
	_ "time/tzdata" // zones must be the same on every machine

	"github.com/robfig/cron/v3"
)

// Cron is a cron expression in a time zone. Its slots are the wall clock times that the expression names, as instants: a
// time that a zone leaves out (spring, a skipped day) is the first instant after the gap, one that comes twice (autumn) is
// the first of the two, and several that fall on one instant are one slot.
type Cron struct {
	minute, hour, dom, month, dow uint64
	anyDay                        bool          // day of month or day of week is *: both must match, otherwise either
	every                         time.Duration // of @every: slots are its multiples since 1970, so that all schedulers agree
	zone                          *time.Location
}

const (
	maxCronLength = 200
	cronStar      = 1 << 63 // how the parser marks a field that is * or ?
)

// searchDays is how far Next looks before it says never. The rarest expressions, the 29th of February on a given weekday,
// wait 40 years where a century that is no leap year lies between.
const searchDays = 41 * 366

// ParseCron reads an expression of five fields (minute, hour, day of month, month, day of week) or @hourly, @daily,
// @midnight, @weekly, @monthly, @yearly, @annually, @every DURATION. What never fires or fires faster than once a minute is
// refused, and so is a zone within the expression.
func ParseCron(expr string, zone *time.Location) (c *Cron, err error) {
	expr = strings.TrimSpace(expr)
	if err := screenCron(expr); err != nil {
		return nil, err
	}
	defer func() { // the parser is known to panic on what it did not expect
		if p := recover(); p != nil {
			c, err = nil, fmt.Errorf("%q is no cron expression", clip(expr))
		}
	}()
	parsed, err := cron.ParseStandard(expr)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", clip(expr), err)
	}
	c = &Cron{zone: zone}
	switch s := parsed.(type) {
	case *cron.SpecSchedule:
		c.minute, c.hour, c.dom, c.month, c.dow = s.Minute, s.Hour, s.Dom, s.Month, s.Dow
		c.anyDay = s.Dom&cronStar != 0 || s.Dow&cronStar != 0
	case cron.ConstantDelaySchedule:
		c.every = s.Delay
	default:
		return nil, fmt.Errorf("%q: this kind of schedule is not supported", clip(expr))
	}
	if c.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("%q never fires: there is no such day", clip(expr))
	}
	return c, nil
}

// screenCron refuses what the parser would panic on or accept though it should not.
func screenCron(expr string) error {
	switch {
	case expr == "":
		return errors.New("empty; write five fields, such as \"0 9 * * MON\", or @daily")
	case len(expr) > maxCronLength:
		return fmt.Errorf("longer than %d characters", maxCronLength)
	case strings.Contains(expr, "TZ="):
		return fmt.Errorf("%q names a zone; set schedule.timezone instead", clip(expr))
	case strings.HasPrefix(expr, "@every"):
		return screenEvery(expr)
	case strings.HasPrefix(expr, "@"):
		return nil
	}
	fields := strings.Fields(expr)
	if len(fields) == 6 {
		return fmt.Errorf("%q has a sixth field, for seconds: it could fire faster than once a minute; write five", clip(expr))
	}
	for _, f := range fields {
		if strings.Trim(f, ",") == "" || strings.Contains(f, ",,") || strings.HasPrefix(f, ",") || strings.HasSuffix(f, ",") {
			return fmt.Errorf("%q: a value is missing beside a comma in %q", clip(expr), clip(f))
		}
	}
	return nil
}

func screenEvery(expr string) error {
	text := strings.TrimSpace(strings.TrimPrefix(expr, "@every"))
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q: %q is no duration such as 90m or 6h", clip(expr), clip(text))
	}
	if d < time.Minute {
		return fmt.Errorf("%q fires faster than once a minute", clip(expr))
	}
	return nil
}

// Next is the first slot after the given instant, in UTC, or zero where there is none.
func (c *Cron) Next(after time.Time) time.Time {
	if c.every > 0 {
		step := int64(c.every / time.Second)
		n := after.Unix()
		n -= ((n % step) + step) % step
		return time.Unix(n+step, 0).UTC()
	}
	// Wall times up to the one that the clock shows have come, or were jumped over, already: only later ones can be slots.
	// Some of them may have come too, in the first pass through an overlap.
	wall := wallOf(after, c.zone)
	date := wall.Truncate(day)
	from := int(wall.Sub(date)/time.Minute) + 1
	for range searchDays {
		if c.matchesDate(date) {
			if slot := c.firstOn(date, from, after); !slot.IsZero() {
				return slot
			}
		}
		date, from = date.Add(day), 0
	}
	return time.Time{}
}

// firstOn is the first slot after the given instant among the wall times of one date, from the given minute of the day on.
func (c *Cron) firstOn(date time.Time, from int, after time.Time) time.Time {
	for h := from / 60; h < 24; h++ {
		if c.hour&(1<<h) == 0 {
			continue
		}
		minutes := c.minute &^ cronStar
		if h == from/60 {
			minutes &= ^uint64(0) << (from % 60)
		}
		for ; minutes != 0; minutes &= minutes - 1 {
			m := bits.TrailingZeros64(minutes)
			slot := instantOf(date.Add(time.Duration(h)*time.Hour+time.Duration(m)*time.Minute), c.zone)
			if slot.After(after) {
				return slot
			}
		}
	}
	return time.Time{}
}

// matchesDate follows cron: where both the day of month and the day of week are restricted, either will do.
func (c *Cron) matchesDate(date time.Time) bool {
	if c.month&(1<<date.Month()) == 0 {
		return false
	}
	dom := c.dom&(1<<date.Day()) != 0
	dow := c.dow&(1<<date.Weekday()) != 0
	if c.anyDay {
		return dom && dow
	}
	return dom || dow
}

// wallOf is what clocks in a zone show at t, written as if it were UTC.
func wallOf(t time.Time, zone *time.Location) time.Time {
	_, offset := t.In(zone).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// instantOf is the first instant at which clocks in the zone show wall (written as if it were UTC), or the first instant
// after the gap where they never do.
func instantOf(wall time.Time, zone *time.Location) time.Time {
	guess := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(), zone)
	start, end := guess.ZoneBounds()
	near := [3]time.Time{guess, guess, guess} // an instant of the period of one offset before, of this one, and of the next
	if !start.IsZero() {
		near[0] = start.Add(-1)
	}
	if !end.IsZero() {
		near[2] = end
	}
	var first time.Time
	for _, t := range near {
		_, offset := t.Zone()
		candidate := wall.Add(-time.Duration(offset) * time.Second)
		if wallOf(candidate, zone).Equal(wall) && (first.IsZero() || candidate.Before(first)) {
			first = candidate
		}
	}
	if !first.IsZero() {
		return first
	}
	// In a gap: it is at the start or at the end of the period that the guess fell into.
	if !start.IsZero() && wallOf(start, zone).After(wall) && !wallOf(start.Add(-1), zone).After(wall) {
		return start.UTC()
	}
	return end.UTC()
}
