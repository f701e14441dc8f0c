package campaign

import (
	"errors"
	"fmt"
	"time"
)

// Recurring reports whether the schedule is by cron.
func (s Schedule) Recurring() bool { return s.Cron != "" }

// ByHand reports whether there is no schedule.
func (s Schedule) ByHand() bool { return s.Cron == "" && s.At.IsZero() }

// Zone is the schedule's time zone; UTC where none is named.
func (s Schedule) Zone() (*time.Location, error) {
	if s.Timezone == "" {
		return time.UTC, nil
	}
	if s.Timezone == "Local" {
		return nil, errors.New("Local is another zone on every machine; name one such as Europe/Berlin")
	}
	zone, err := time.LoadLocation(s.Timezone)
	if err != nil {
		return nil, fmt.Errorf("%q is no time zone; name one such as Europe/Berlin", clip(s.Timezone))
	}
	return zone, nil
}

// Slots returns the function that gives the first slot after an instant, in UTC; zero where there is none.
func (s Schedule) Slots() (next func(after time.Time) time.Time, err error) {
	switch {
	case s.Cron != "":
		zone, err := s.Zone()
		if err != nil {
			return nil, err
		}
		c, err := ParseCron(s.Cron, zone)
		if err != nil {
			return nil, err
		}
		return c.Next, nil
	case !s.At.IsZero():
		return func(after time.Time) time.Time {
			if s.At.After(after) {
				return s.At.UTC()
			}
			return time.Time{}
		}, nil
	}
	return func(time.Time) time.Time { return time.Time{} }, nil
}

// Next is the first slot after an instant, in UTC; zero where there is none.
func (s Schedule) Next(after time.Time) (time.Time, error) {
	next, err := s.Slots()
	if err != nil {
		return time.Time{}, err
	}
	return next(after), nil
}
