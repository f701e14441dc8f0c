package campaign

import (
	"strings"
	"testing"
	"time"
)

func TestParseRate(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Rate
	}{
		{"40/min", Rate{40, time.Minute}},
		{"20/s", Rate{20, time.Second}},
		{"2000/h", Rate{2000, time.Hour}},
		{"5000/d", Rate{5000, 24 * time.Hour}},
		{" 1 / d ", Rate{1, 24 * time.Hour}},
		{"1000000000/s", Rate{MaxRate, time.Second}},
	} {
		got, err := ParseRate(c.in)
		if err != nil || got != c.want {
			t.Errorf("%q: %v, %v; want %v", c.in, got, err, c.want)
		}
		if again, err := ParseRate(got.String()); err != nil || again != got {
			t.Errorf("%q: %q does not read back: %v, %v", c.in, got.String(), again, err)
		}
	}
}

func TestParseRateRefuses(t *testing.T) {
	for in, why := range map[string]string{
		"":                       "as in 40/min",
		"40":                     "as in 40/min",
		"0/min":                  "whole number",
		"-1/min":                 "whole number",
		"+4/min":                 "whole number",
		"1.5/s":                  "whole number",
		"1000000001/s":           "whole number",
		"99999999999999999999/s": "whole number",
		"/s":                     "whole number",
		"40/week":                `window "week" is unknown`,
		"40/":                    `window "" is unknown`,
		"40/min/h":               `window "min/h" is unknown`,
	} {
		_, err := ParseRate(in)
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v; want an error with %q", in, err, why)
		}
	}
}
