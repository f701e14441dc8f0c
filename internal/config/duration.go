package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

var units = []struct {
	name byte
	d    time.Duration
}{{'w', 7 * 24 * time.Hour}, {'d', 24 * time.Hour}, {'h', time.Hour}, {'m', time.Minute}, {'s', time.Second}}

// ParseDuration reads whole numbers with the units w d h m s, the larger first: "90d", "1h30m". A day has 24 hours.
func ParseDuration(s string) (time.Duration, error) {
	var total time.Duration
	rest, unit := s, 0
	for rest != "" {
		digits := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
		if digits <= 0 {
			return 0, fmt.Errorf("%q is no duration; write a number and a unit, such as 30s, 5m, 36h, 90d or 2w", s)
		}
		n, err := strconv.ParseInt(rest[:digits], 10, 64)
		for unit < len(units) && units[unit].name != rest[digits] {
			unit++
		}
		if unit == len(units) {
			return 0, fmt.Errorf("%q is no duration: the units are w d h m s, each at most once and the larger first", s)
		}
		if err != nil || n > math.MaxInt64/int64(units[unit].d) || total > math.MaxInt64-time.Duration(n)*units[unit].d {
			return 0, fmt.Errorf("%q is too long a duration; the longest is 292 years", s)
		}
		total += time.Duration(n) * units[unit].d
		rest, unit = rest[digits+1:], unit+1
	}
	if s == "" {
		return 0, fmt.Errorf("a duration is missing, such as 30s, 5m, 36h, 90d or 2w")
	}
	return total, nil
}

// FormatDuration is the inverse of ParseDuration, for whole seconds; "0s" for nothing.
func FormatDuration(d time.Duration) string {
	if d < time.Second {
		return "0s"
	}
	var b strings.Builder
	for _, u := range units {
		if n := d / u.d; n > 0 && (u.name != 'w' || d%u.d == 0) {
			fmt.Fprintf(&b, "%d%c", n, u.name)
			d -= n * u.d
		}
	}
	return b.String()
}
