package users

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/minimongo/mongotest"
)

func TestSuppressMany(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	mark := func(status string, n int) bson.D { return d("status", status, "status_at", day(n)) }
	tests := []struct {
		name   string
		doc    bson.D
		status string // empty: take the mark away
		state  MergeState
		want   bson.D
	}{
		{"no state", d(), Bounced, MergeChanged, d("postbit", mark(Bounced, 9))},
		{"null", d("postbit", nil), Bounced, MergeChanged, d("postbit", mark(Bounced, 9))},
		{"a weaker one gives way", d("postbit", mark(Bounced, 1)), Complained, MergeChanged, d("postbit", mark(Complained, 9))},
		{"the same stays with its date", d("postbit", mark(Bounced, 1)), Bounced, MergeSame, d("postbit", mark(Bounced, 1))},
		{"a heavier one stays", d("postbit", mark(Complained, 1)), Unsubscribed, MergeSame, d("postbit", mark(Complained, 1))},
		{"one that nobody knows stays", d("postbit", mark("banned", 1)), Complained, MergeSame, d("postbit", mark("banned", 1))},
		{"an empty one is none", d("postbit", d("status", "")), Bounced, MergeChanged, d("postbit", mark(Bounced, 9))},
		{"null is none", d("postbit", d("status", nil)), Bounced, MergeChanged, d("postbit", mark(Bounced, 9))},
		{"a status that is a number", d("postbit", d("status", 7)), Bounced, MergeUnreadable, d("postbit", d("status", 7))},
		{"a state that is a string", d("postbit", "x"), Bounced, MergeUnreadable, d("postbit", "x")},
		{"dates beside it stay", d("postbit", d("last_at", day(3))), Bounced, MergeChanged, d("postbit", d("last_at", day(3), "status", Bounced, "status_at", day(9)))},
		{"taken away", d("postbit", d("last_at", day(3), "status", Bounced, "status_at", day(1))), "", MergeChanged, d("postbit", d("last_at", day(3)))},
		{"nothing to take away", d("postbit", nil), "", MergeSame, d("postbit", nil)},
	}
	var list []Suppression
	for i, tt := range tests {
		f.insert(append(d("_id", i), tt.doc...))
		list = append(list, Suppression{ID: value(t, i), Status: tt.status, At: day(9)})
	}
	list = append(list, Suppression{ID: value(t, 1000), Status: Bounced})
	out, err := f.store.SuppressMany(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	for i, tt := range tests {
		if out[i].State != tt.state || (tt.state == MergeUnreadable) != errors.Is(out[i].Err, ErrStateShape) {
			t.Errorf("%s: %d %v", tt.name, out[i].State, out[i].Err)
		}
		if got, want := canonical(t, f.raw(i)), canonical(t, raw(t, append(d("_id", i), tt.want...))); got != want {
			t.Errorf("%s: %s\nwant %s", tt.name, got, want)
		}
	}
	if out[len(tests)].State != MergeMissing {
		t.Error("a user who is not there")
	}
	if _, err := f.store.SuppressMany(t.Context(), []Suppression{{ID: value(t, 1), Status: "bored"}}); err == nil {
		t.Error("a status that there is none")
	}
}
