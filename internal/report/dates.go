package report

import (
	"errors"
	"fmt"
	"time"
)

// Range is a range of days, UTC, both included.
type Range struct{ From, To time.Time }

// ErrRange says that somebody asked for a range of days that is none.
var ErrRange = errors.New("range of days")

const (
	defaultDays = 30
	// maxDays is how long a range may be: it touches no more than 120 months.
	maxDays = 3600
)

// ParseRange reads two dates such as 2026-12-01. An empty to is the day of now, an empty from the 29th day before to. The
// error wraps ErrRange.
func ParseRange(from, to string, now time.Time) (Range, error) {
	end, err := parseDay("to", to, now)
	if err != nil {
		return Range{}, err
	}
	begin, err := parseDay("from", from, end.AddDate(0, 0, 1-defaultDays))
	if err != nil {
		return Range{}, err
	}
	switch days := int(end.Sub(begin)/(24*time.Hour)) + 1; {
	case end.Before(begin):
		return Range{}, fmt.Errorf("%w: it ends (%s) before it begins (%s)", ErrRange, end.Format(time.DateOnly), begin.Format(time.DateOnly))
	case days > maxDays:
		return Range{}, fmt.Errorf("%w: %d days; at most %d", ErrRange, days, maxDays)
	}
	return Range{begin, end}, nil
}

func parseDay(what, text string, otherwise time.Time) (time.Time, error) {
	if text == "" {
		return otherwise.UTC().Truncate(24 * time.Hour), nil
	}
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return day, fmt.Errorf("%w: %s: %.40q is no date such as 2026-12-01", ErrRange, what, text)
	}
	return day, nil
}

// Months are the first days of the months that the range touches.
func (r Range) Months() []time.Time {
	var months []time.Time
	for m := time.Date(r.From.Year(), r.From.Month(), 1, 0, 0, 0, 0, time.UTC); !m.After(r.To); m = m.AddDate(0, 1, 0) {
		months = append(months, m)
	}
	return months
}

// whole holds where the months that the range touches hold nothing beside the range. What is to come is nothing.
func (r Range) whole(now time.Time) bool {
	return r.From.Day() == 1 && (r.To.AddDate(0, 0, 1).Day() == 1 || r.To.AddDate(0, 0, 1).After(now))
}
