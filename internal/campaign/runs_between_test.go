package campaign

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRunsBetween(t *testing.T) {
	s := newStore(t)
	for i := range 5 {
		insert(t, s, aRun("winback", noon.AddDate(0, 0, i)), aRun("digest", noon.AddDate(0, 0, i)))
	}
	elsewhere := aRun("winback", noon.Add(time.Hour)) // of mails that others send: nobody dispatched it
	elsewhere.Elsewhere = true
	insert(t, s, elsewhere)
	for _, c := range []struct {
		name        string
		from, until time.Time
		limit       int
		want        []int // days after noon
		all         int64
	}{
		{"all of them", noon, noon.AddDate(0, 0, 5), 10, []int{4, 3, 2, 1, 0}, 5},
		{"as many as may be", noon, noon.AddDate(0, 0, 5), 5, []int{4, 3, 2, 1, 0}, 5},
		{"more than may be", noon, noon.AddDate(0, 0, 5), 2, []int{4, 3}, 5},
		{"the first day is in, the last is not", noon.AddDate(0, 0, 1), noon.AddDate(0, 0, 3), 10, []int{2, 1}, 2},
		{"earlier ones are found however many came since", noon, noon.AddDate(0, 0, 1), 1, []int{0}, 1},
		{"none", noon.AddDate(1, 0, 0), noon.AddDate(2, 0, 0), 10, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			runs, all, err := s.RunsBetween(t.Context(), "winback", c.from, c.until, c.limit)
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			for _, r := range runs {
				got = append(got, int(r.Slot.Sub(noon)/(24*time.Hour)))
			}
			if diff := cmp.Diff(c.want, got); diff != "" || all != c.all {
				t.Errorf("%d in all, want %d; %s", all, c.all, diff)
			}
		})
	}
}
