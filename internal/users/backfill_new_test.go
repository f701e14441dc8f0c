package users

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/minimongo"
)

func TestMergeNewReadsOnlyWhereTheGuessWasWrong(t *testing.T) {
	srv, f := openServer(t)
	var hs []History
	for i := range 20 {
		f.insert(d("_id", i))
		hs = append(hs, History{ID: value(t, i), Bits: bitsOf(i), FirstAt: day(1), LastAt: day(2)})
	}
	var mu sync.Mutex
	var heard, said []string
	srv.Inject(minimongo.Fault{Nth: 1 << 30, Where: func(_ string, cmd bson.Raw) bool {
		elems, _ := cmd.Elements()
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, elems[0].Key())
		return false
	}})
	merge := func(hs []History) (changed int) {
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			said, heard = heard, nil
		}()
		out, err := f.store.MergeNew(t.Context(), hs)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range out {
			if m.State == MergeChanged {
				changed++
			}
		}
		return changed
	}
	if n := merge(hs[:10]); n != 10 || !slices.Equal(said, []string{"update"}) {
		t.Errorf("new users: %d changed by %v", n, said)
	}
	if n := merge(hs[:10]); n != 0 || !slices.Equal(said, []string{"update", "find"}) {
		t.Errorf("the same again: %d changed by %v", n, said)
	}
	if n := merge(hs[5:15]); n != 5 || !slices.Equal(said, []string{"update", "find"}) {
		t.Errorf("a half of them new: %d changed by %v", n, said)
	}
}

// Users of every sort in one batch: each gets what Merge would have given him, and has the outcome that it would have told.
func TestMergeNewOfAMixture(t *testing.T) {
	_, f := openServer(t)
	f.insert(d("_id", 0), d("_id", 1, "tpls_sent_at_least_once", blob(0, 3)), d("_id", 2, "postbit", d("status", "bounced")), d("_id", "4"),
		d("_id", 5, "tpls_sent_at_least_once", "x"), d("_id", 6), d("_id", int64(7)))
	var hs []History
	for i := range 8 {
		hs = append(hs, History{ID: value(t, i), Else: value(t, string(rune('0'+i))), Bits: bitsOf(9), FirstAt: day(3), LastAt: day(3)})
	}
	out, err := f.store.MergeNew(t.Context(), hs)
	if err != nil {
		t.Fatal(err)
	}
	type told struct {
		State MergeState
		New   bool
		Added []byte
		Dates bool
	}
	changed, missing := told{MergeChanged, true, bitsOf(9), true}, told{State: MergeMissing}
	had := changed
	had.New = false
	want := []told{changed, had, had, missing, changed, {State: MergeUnreadable}, changed, changed}
	for i, m := range out {
		if diff := cmp.Diff(want[i], told{m.State, m.New, m.Added, m.Dates}); diff != "" {
			t.Errorf("%d: %s", i, diff)
		}
	}
	for i, want := range map[any]bson.D{
		0: d("_id", 0, "tpls_sent_at_least_once", blob(0, 9), "postbit", d("first_at", day(3), "last_at", day(3))),
		1: d("_id", 1, "tpls_sent_at_least_once", blob(0, 3, 9), "postbit", d("first_at", day(3), "last_at", day(3))),
		2: d("_id", 2, "tpls_sent_at_least_once", blob(0, 9), "postbit", d("status", "bounced", "first_at", day(3), "last_at", day(3))),
		5: d("_id", 5, "tpls_sent_at_least_once", "x"),
	} {
		if got, want := canonical(t, f.raw(i)), canonical(t, raw(t, want)); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// Each command fails, in each way in which it can, twice; everything is written, once, and counts as changed.
func TestMergeNewThroughFaults(t *testing.T) {
	for name, action := range passing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for nth := 1; ; nth++ {
				srv, f := openServer(t)
				var hs []History
				for i := range 5 {
					f.insert(d("_id", i))
					hs = append(hs, History{ID: value(t, i), Bits: bitsOf(9), LastAt: day(3), FirstAt: day(3)})
				}
				var hit atomic.Bool
				action.Nth, action.Times, action.Reached = nth, 2, func() { hit.Store(true) }
				remove := srv.Inject(action)
				out, err := f.store.MergeNew(context.WithoutCancel(t.Context()), hs)
				remove()
				if err != nil {
					t.Fatal(err)
				}
				if !hit.Load() {
					if nth < 2 {
						t.Error("no command was hit")
					}
					return
				}
				for i, m := range out {
					if m.State != MergeChanged {
						t.Errorf("command %d, user %d: %d", nth, i, m.State)
					}
					want := raw(t, d("_id", i, "tpls_sent_at_least_once", blob(0, 9), "postbit", d("first_at", day(3), "last_at", day(3))))
					if got := canonical(t, f.raw(i)); got != canonical(t, want) {
						t.Errorf("command %d: %s", nth, got)
					}
				}
			}
		})
	}
}
