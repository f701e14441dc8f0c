package config

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	day := 24 * time.Hour
	for s, want := range map[string]time.Duration{"30s": 30 * time.Second, "5m": 5 * time.Minute, "36h": 36 * time.Hour, "90d": 90 * day,
		"2w": 14 * day, "1w2d3h4m5s": 9*day + 3*time.Hour + 4*time.Minute + 5*time.Second, "0s": 0, "90m": 90 * time.Minute} {
		if got, err := ParseDuration(s); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "5", "m", "-5m", "5 m", "1.5h", "5m1h", "5m5m", "3y", "99999999999999999999s", "20000w", "15000w15000d", "٣s"} {
		if got, err := ParseDuration(s); err == nil {
			t.Errorf("%q: got %v, want an error", s, got)
		}
	}
}

func TestFormatDurationIsTheInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, 9_000_000_000).Draw(t, "seconds")) * time.Second
		s := FormatDuration(d)
		if got, err := ParseDuration(s); err != nil || got != d {
			t.Fatalf("%v -> %s -> %v, %v", d, s, got, err)
		}
	})
}

func FuzzParseDuration(f *testing.F) {
	f.Add("1w2d")
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := ParseDuration(s); err == nil && d < 0 {
			t.Errorf("%q: %v", s, d)
		}
	})
}
