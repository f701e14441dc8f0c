package campaign

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MaxDuration is the longest duration a campaign file may name: ten years.
const MaxDuration = 3650 * day

const day = 24 * time.Hour

var durationUnits = []struct {
	letter byte
	length time.Duration
}{{'w', 7 * day}, {'d', day}, {'h', time.Hour}, {'m', time.Minute}, {'s', time.Second}}

// ParseDuration reads durations as campaign files write them: whole numbers with a unit s, m, h, d (24 hours, whatever the
// clocks do) or w, also several, the longer unit first ("1d12h"). At most MaxDuration.
func ParseDuration(s string) (time.Duration, error) {
	var total time.Duration
	rest, unit := s, 0
	for rest != "" {
		digits := 0
		for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
			digits++
		}
		if digits == 0 || digits == len(rest) {
			return 0, badDuration(s)
		}
		for unit < len(durationUnits) && durationUnits[unit].letter != rest[digits] {
			unit++
		}
		if unit == len(durationUnits) {
			return 0, badDuration(s)
		}
		length := durationUnits[unit].length
		n, err := strconv.ParseInt(rest[:digits], 10, 64)
		if err != nil || n > int64(MaxDuration/length) || total+time.Duration(n)*length > MaxDuration {
			return 0, fmt.Errorf("%q is longer than ten years", clip(s))
		}
		total += time.Duration(n) * length
		rest, unit = rest[digits+1:], unit+1
	}
	if s == "" {
		return 0, badDuration(s)
	}
	return total, nil
}

func badDuration(s string) error {
	return fmt.Errorf("%q is no duration; write a whole number and one of s m h d w, such as 90d, 36h or 1d12h", clip(s))
}

// FormatDuration writes d so that ParseDuration reads it, in the fewest units; parts of a second are cut.
func FormatDuration(d time.Duration) string {
	if d < time.Second {
		return "0s"
	}
	var b strings.Builder
	for _, u := range durationUnits {
		if u.letter == 'w' && d%u.length != 0 {
			continue // 90d says more than 12w6d
		}
		if n := d / u.length; n > 0 {
			fmt.Fprintf(&b, "%d%c", n, u.letter)
			d -= n * u.length
		}
	}
	return b.String()
}

// clip shortens outside text for an error message.
func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
