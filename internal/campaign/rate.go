package campaign

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MaxRate is the largest number of mails that one rate may name.
const MaxRate = 1_000_000_000

var rateUnits = []struct {
	name string
	per  time.Duration
}{
	{"s", time.Second},
	{"min", time.Minute},
	{"h", time.Hour},
	{"d", 24 * time.Hour},
}

// ParseRate reads "40/min", "20/s", "2000/h" or "5000/d": at most so many mails in any window of that length. A day is 24 hours.
func ParseRate(s string) (Rate, error) {
	count, unit, ok := strings.Cut(strings.TrimSpace(s), "/")
	if !ok {
		return Rate{}, fmt.Errorf("rate %q: write a number and a window, as in 40/min, 20/s, 2000/h, 5000/d", s)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(count), 10, 63)
	if err != nil || n < 1 || n > MaxRate {
		return Rate{}, fmt.Errorf("rate %q: %q is not a whole number from 1 to %d", s, count, MaxRate)
	}
	unit = strings.TrimSpace(unit)
	for _, u := range rateUnits {
		if u.name == unit {
			return Rate{N: int64(n), Per: u.per}, nil
		}
	}
	return Rate{}, fmt.Errorf("rate %q: window %q is unknown; s, min, h or d", s, unit)
}

// String is the form that ParseRate reads, for the windows it knows.
func (r Rate) String() string {
	for _, u := range rateUnits {
		if u.per == r.Per {
			return strconv.FormatInt(r.N, 10) + "/" + u.name
		}
	}
	return strconv.FormatInt(r.N, 10) + "/" + r.Per.String()
}
