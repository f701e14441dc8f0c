package quantity_test

import (
	"math"
	"testing"

	"postbit/internal/quantity"
)

func TestDigits(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 4112009: "4,112,009", -1: "-1", -999: "-999", -1000: "-1,000",
		math.MinInt64: "-9,223,372,036,854,775,808"} {
		if got := quantity.Digits(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestOneIsNotMany(t *testing.T) {
	for n, want := range map[int]string{0: "0 users are", 1: "1 user is", 2: "2 users are", 4112009: "4,112,009 users are", -1: "-1 users are"} {
		if got := quantity.Of(n, "user") + " " + quantity.Verb(n, "is", "are"); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
