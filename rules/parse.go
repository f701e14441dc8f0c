package rules

import (
	"fmt"
	"strings"
	"time"
)

// ParseWindow reads "09:00-21:00" or, across midnight, "21:00-06:00". The end may be 24:00. The days are those of
// ParseDays, to be set beside it.
func ParseWindow(s string) (Window, error) {
	from, to, ok := strings.Cut(s, "-")
	if !ok {
		return Window{}, fmt.Errorf("window: %.40q is not like 09:00-21:00", s)
	}
	var w Window
	if w.From, ok = parseMinute(from); !ok || w.From == 24*60 {
		return Window{}, fmt.Errorf("window: %.40q does not begin with a time from 00:00 to 23:59", s)
	}
	if w.To, ok = parseMinute(to); !ok {
		return Window{}, fmt.Errorf("window: %.40q does not end with a time from 00:00 to 24:00", s)
	}
	if w.From == w.To {
		return Window{}, fmt.Errorf("window: %.40q is empty; for the whole day leave it out, or say 00:00-24:00", s)
	}
	return w, nil
}

func parseMinute(s string) (uint16, bool) {
	hour, minute, ok := strings.Cut(strings.TrimSpace(s), ":")
	h, hok := parseDigits(hour, 1)
	m, mok := parseDigits(minute, 2)
	if !ok || !hok || !mok || m > 59 || h*60+m > 24*60 {
		return 0, false
	}
	return h*60 + m, true
}

// parseDigits reads least to two decimal digits.
func parseDigits(s string, least int) (n uint16, ok bool) {
	if len(s) < least || len(s) > 2 {
		return 0, false
	}
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint16(c-'0')
	}
	return n, true
}

// ParseDays reads days and ranges of days, "mon-fri", "mon,wed", "fri-mon,wed". Names may be written out and in capitals.
func ParseDays(s string) (Days, error) {
	var days Days
	for part := range strings.SplitSeq(s, ",") {
		first, last, ranged := strings.Cut(part, "-")
		from, err := parseDay(first)
		if err != nil {
			return 0, err
		}
		to := from
		if ranged {
			if to, err = parseDay(last); err != nil {
				return 0, err
			}
		}
		for d := from; ; d = (d + 1) % 7 {
			days |= 1 << d
			if d == to {
				break
			}
		}
	}
	return days, nil
}

func parseDay(s string) (time.Weekday, error) {
	s = strings.ToLower(strings.TrimSpace(s))
	for d := time.Sunday; d <= time.Saturday; d++ {
		name := strings.ToLower(d.String())
		if s == name || s == name[:3] {
			return d, nil
		}
	}
	return 0, fmt.Errorf("days: %.20q is not a day; say mon-fri, or mon,wed", s)
}

// String writes the window as ParseWindow reads it, with its days behind it: "09:00-21:00 mon-fri".
func (w Window) String() string {
	hours := fmt.Sprintf("%02d:%02d-%02d:%02d", w.From/60, w.From%60, w.To/60, w.To%60)
	if w.From == 0 && w.To == 0 {
		hours = "00:00-24:00"
	}
	if w.Days == 0 {
		return hours
	}
	return hours + " " + w.Days.String()
}

// String writes the set as ParseDays reads it; three days or more in a row are a range.
func (d Days) String() string {
	if d&0x7f == 0x7f || d == 0 {
		return "mon-sun"
	}
	var parts []string
	week := [...]time.Weekday{1, 2, 3, 4, 5, 6, 0}
	for i := 0; i < len(week); i++ {
		if !d.Has(week[i]) {
			continue
		}
		first := i
		for i+1 < len(week) && d.Has(week[i+1]) {
			i++
		}
		if i-first < 2 { // one day, or two: name them
			i = first
			parts = append(parts, dayName(week[first]))
			continue
		}
		parts = append(parts, dayName(week[first])+"-"+dayName(week[i]))
	}
	return strings.Join(parts, ",")
}

func dayName(d time.Weekday) string { return strings.ToLower(d.String()[:3]) }
