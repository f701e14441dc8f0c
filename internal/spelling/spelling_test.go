package spelling

import (
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		limit int
		want  int
	}{
		{"", "", 9, 0}, {"subject", "subject", 9, 0}, {"subjct", "subject", 9, 1}, {"subjeect", "subject", 9, 1}, {"subjekt", "subject", 9, 1},
		{"sbuject", "subject", 9, 1}, {"ca", "abc", 9, 3}, {"", "abc", 9, 3}, {"kitten", "sitting", 9, 3}, {"kitten", "sitting", 3, 3}, {"kitten", "sitting", 2, 2},
		{strings.Repeat("x", 1<<20), "subject", 9, 9},
	} {
		for _, pair := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			if got := distance(pair[0], pair[1], c.limit); got != c.want {
				t.Errorf("%.20q to %.20q: %d, want %d", pair[0], pair[1], got, c.want)
			}
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"at", "cron", "name", "subject", "timezone", "expires_after", "inactive_after"}
	for word, want := range map[string]string{
		"subjcet": "subject", "naem": "name", "inactive_afer": "inactive_after", "inactivity_after": "inactive_after", "tz": "", "time_zone": "timezone", "att": "at",
		"audience": "", "x": "", "": "", "expire_aftr": "expires_after",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if got := Nearest("nam", []string{"same", "name", "game"}); got != "name" {
		t.Errorf("%q", got)
	}
	if got := Hint("subjcet", known) + Hint("audience", known); got != "; subject?" {
		t.Errorf("%q", got)
	}
}
