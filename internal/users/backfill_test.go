package users

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/bitfield"
	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
)

func day(n int) time.Time { return time.Date(2026, 1, n, 8, 0, 0, 0, time.UTC) }

func bitsOf(indexes ...int) (b []byte) {
	for _, i := range indexes {
		b = bitfield.With(b, i)
	}
	return b
}

func TestMerge(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	runs := bson.Binary{Data: []byte("run-oneerun-zero")}
	dates := History{FirstAt: day(2), LastAt: day(5), OpenFirstAt: day(3), OpenLastAt: day(4)}
	with := func(bits []byte) History {
		h := dates
		h.Bits = bits
		return h
	}
	both := d("first_at", day(2), "last_at", day(5), "open_first_at", day(3), "open_last_at", day(4))
	tests := []struct {
		name string
		doc  bson.D
		h    History
		want bson.D
		m    Merged // State, Added, Dates, LastStays, StateStays
	}{
		{"no field yet", d(), History{Bits: bitsOf(0, 9)}, d("tpls_sent_at_least_once", blob(0, 0, 9)), Merged{State: MergeChanged, Added: bitsOf(0, 9)}},
		{"null", d("tpls_sent_at_least_once", nil), History{Bits: bitsOf(0)}, d("tpls_sent_at_least_once", blob(0, 0)), Merged{State: MergeChanged, Added: bitsOf(0)}},
		{"nothing that isn't there", d("tpls_sent_at_least_once", blob(0, 0, 9)), History{Bits: bitsOf(9)}, d("tpls_sent_at_least_once", blob(0, 0, 9)), Merged{State: MergeSame}},
		{"a longer blob stays long", d("tpls_sent_at_least_once", bson.Binary{Data: []byte{0, 0, 0, 0}}), History{Bits: bitsOf(0)},
			d("tpls_sent_at_least_once", bson.Binary{Data: []byte{0x80, 0, 0, 0}}), Merged{State: MergeChanged, Added: bitsOf(0)}},
		{"subtype 2 stays", d("tpls_sent_at_least_once", blob(2, 1)), History{Bits: bitsOf(0)}, d("tpls_sent_at_least_once", blob(2, 0, 1)), Merged{State: MergeChanged, Added: bitsOf(0)}},
		{"the object form", d("tpls_sent_at_least_once", d("0", 129)), History{Bits: bitsOf(1)}, d("tpls_sent_at_least_once", blob(0, 0, 1, 7)), Merged{State: MergeChanged, Added: bitsOf(1)}},
		{"a string for a field", d("tpls_sent_at_least_once", "x"), with(bitsOf(0)), d("tpls_sent_at_least_once", "x"), Merged{State: MergeUnreadable}},
		{"an array for a field", d("tpls_sent_at_least_once", bson.A{1, math.NaN()}), with(bitsOf(0)), d("tpls_sent_at_least_once", bson.A{1, math.NaN()}), Merged{State: MergeUnreadable}},
		{"dates where there are none", d(), dates, d("postbit", both), Merged{State: MergeChanged, Dates: true}},
		{"a state of null", d("postbit", nil), with(bitsOf(7)), d("postbit", both, "tpls_sent_at_least_once", blob(0, 7)), Merged{State: MergeChanged, Added: bitsOf(7), Dates: true}},
		{"a state that is a string", d("postbit", "x"), with(bitsOf(7)), d("postbit", "x", "tpls_sent_at_least_once", blob(0, 7)), Merged{State: MergeChanged, Added: bitsOf(7), StateStays: true}},
		{"dates that move", d("postbit", d("first_at", day(3), "last_at", day(4), "open_first_at", day(4), "open_last_at", day(4))), dates,
			d("postbit", d("first_at", day(2), "last_at", day(5), "open_first_at", day(3), "open_last_at", day(4))), Merged{State: MergeChanged, Dates: true}},
		{"first never later, last never earlier", d("postbit", d("first_at", day(1), "last_at", day(9), "open_first_at", day(1), "open_last_at", day(9))), dates,
			d("postbit", d("first_at", day(1), "last_at", day(9), "open_first_at", day(1), "open_last_at", day(9))), Merged{State: MergeSame}},
		{"last_at of a claim stays", d("postbit", d("first_at", day(4), "last_at", day(4), "runs", runs)), dates,
			d("postbit", d("first_at", day(2), "last_at", day(4), "runs", runs, "open_first_at", day(3), "open_last_at", day(4))), Merged{State: MergeChanged, Dates: true, LastStays: true}},
		{"null and Go's zero time are never", d("postbit", d("first_at", nil, "last_at", nil, "open_first_at", time.Time{}, "open_last_at", nil)), dates, d("postbit", both), Merged{State: MergeChanged, Dates: true}},
		{"a status stays", d("postbit", d("status", "bounced")), dates,
			d("postbit", d("status", "bounced", "last_at", day(5), "first_at", day(2), "open_first_at", day(3), "open_last_at", day(4))), Merged{State: MergeChanged, Dates: true}},
		{"nothing at all", d(), History{}, d(), Merged{State: MergeSame}},
	}
	for i, tt := range slices.Concat(tests, tests) {
		merge, way := f.store.Merge, "read first"
		if i >= len(tests) {
			merge, way = mergeNew(f.store), "guessed"
		}
		t.Run(tt.name+", "+way, func(t *testing.T) {
			f.insert(append(d("_id", i), tt.doc...))
			tt.h.ID = value(t, i)
			for round := range 2 { // again: nothing changes
				for _, write := range []bool{false, true} {
					out, err := merge(t.Context(), []History{tt.h}, write)
					if err != nil {
						t.Fatal(err)
					}
					got := out[0]
					if isNew := len(tt.doc) == 0 && (round == 0 || len(tt.want) == 0); got.New != isNew {
						t.Errorf("round %d, write %v: new is %v", round, write, got.New)
					}
					got.ID, got.Bits, got.Err, got.New = bson.RawValue{}, nil, nil, false
					want := tt.m
					if round == 1 && want.State == MergeChanged {
						want = Merged{State: MergeSame, LastStays: want.LastStays, StateStays: want.StateStays}
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatalf("round %d, write %v: %s", round, write, diff)
					}
					if !write && round == 0 {
						if got, want := canonical(t, f.raw(i)), canonical(t, raw(t, append(d("_id", i), tt.doc...))); got != want {
							t.Fatalf("a dry run has written: %s, was %s", got, want)
						}
					}
				}
			}
			if got, want := canonical(t, f.raw(i)), canonical(t, raw(t, append(d("_id", i), tt.want...))); got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
		})
	}
}

// mergeNew is MergeNew where it writes.
func mergeNew(s *Store) func(context.Context, []History, bool) ([]Merged, error) {
	return func(ctx context.Context, hs []History, write bool) ([]Merged, error) {
		if !write {
			return s.Merge(ctx, hs, false)
		}
		return s.MergeNew(ctx, hs)
	}
}

func (f *fixture) raw(id any) bson.Raw {
	f.t.Helper()
	doc, err := f.coll.FindOne(f.t.Context(), d("_id", id)).Raw()
	if err != nil {
		f.t.Fatal(err)
	}
	return doc
}

func TestMergeFindsIDs(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	f.insert(d("_id", int32(5)), d("_id", float64(6)), d("_id", "7"), d("_id", "665544332211009988776655"))
	h := func(id, otherwise any) History {
		h := History{ID: value(t, id), Bits: bitsOf(1)}
		if otherwise != nil {
			h.Else = value(t, otherwise)
		}
		return h
	}
	oid, _ := bson.ObjectIDFromHex("665544332211009988776655")
	out, err := f.store.Merge(t.Context(), []History{h(int64(5), "5"), h(int64(6), "6"), h(int64(7), "7"), h(oid, oid.Hex()), h(int64(8), "8"), h(int64(7), nil)}, true)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"5", "6", "str:7", "str:665544332211009988776655", "", ""}
	for i, m := range out {
		if FormatID(m.ID) != want[i] || (m.State == MergeMissing) != (want[i] == "") {
			t.Errorf("%d: %s, %d; want %q", i, FormatID(m.ID), m.State, want[i])
		}
	}
}

// Claims, setters of other services and a merge, all at once on the same users: no bit is lost, and every claim that was won is one.
func TestMergeAmongClaimsAndSetters(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	const n = 40
	hs := make([]History, n)
	for i := range hs {
		f.insert(d("_id", i))
		hs[i] = History{ID: value(t, i), Bits: bitsOf(10, 11, 12), FirstAt: day(1), LastAt: day(2)}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for bit := range 4 { // runs, each of its own template
		wg.Go(func() {
			run := RunID{'r', byte('0' + bit)}
			for i := range n {
				for {
					u, err := f.store.Get(ctx, value(t, i), nil, bit)
					if err != nil {
						t.Error(err)
						return
					}
					out, err := f.store.Claim(ctx, []User{u}, bit, run, day(20))
					if err != nil || out[0].State == Unconfirmed {
						t.Errorf("claim of %d by %d: %v %v", i, bit, out[0].State, err)
						return
					}
					if out[0].State == Claimed {
						break
					}
				}
			}
		})
	}
	for bit := 20; bit < 22; bit++ { // services that know nothing of claims
		wg.Go(func() {
			for i := range n {
				for done := false; !done && ctx.Err() == nil; {
					u := f.get(i)
					filter := d("_id", i, "tpls_sent_at_least_once", d("$exists", false))
					if u.Bits() != nil {
						filter = d("_id", i, "tpls_sent_at_least_once", bson.Binary{Data: u.Bits()})
					}
					res, err := f.coll.UpdateOne(ctx, filter, d("$set", d("tpls_sent_at_least_once", bson.Binary{Data: bitfield.With(u.Bits(), bit)})))
					if err != nil {
						t.Error(err)
						return
					}
					done = res.MatchedCount == 1
				}
			}
		})
	}
	for _, merge := range []func(context.Context, []History, bool) ([]Merged, error){f.store.Merge, mergeNew(f.store), mergeNew(f.store)} {
		wg.Go(func() {
			if _, err := merge(ctx, hs, true); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	want := bitsOf(0, 1, 2, 3, 10, 11, 12, 20, 21)
	for i := range n {
		u := f.get(i)
		if diff := cmp.Diff(want, u.Bits()); diff != "" {
			t.Errorf("user %d: %s", i, diff)
		}
		if !u.Recipient.FirstAt.Equal(day(1)) || u.Recipient.LastAt.Before(day(20)) {
			t.Errorf("user %d: first %v, last %v", i, u.Recipient.FirstAt, u.Recipient.LastAt)
		}
	}
}

// A claim and a merge, the one between the read and the write of the other: the claim is lost and not unconfirmed, so the user is
// evaluated again; and a claim that was won keeps its name.
func TestMergeBesideAClaim(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	for i, state := range []any{nil, d("last_at", day(1)), d("first_at", day(1), "last_at", day(1), "runs", bson.Binary{Data: []byte("run-oneerun-zero")})} {
		f.insert(d("_id", i, "postbit", state))
		u := f.get(i)
		h := History{ID: value(t, i), Bits: bitsOf(9), FirstAt: day(1), LastAt: day(8)}
		if _, err := f.store.Merge(t.Context(), []History{h}, true); err != nil {
			t.Fatal(err)
		}
		run := RunID{9}
		out, err := f.store.Claim(t.Context(), []User{u}, 3, run, day(7))
		if err != nil || out[0].State != Lost {
			t.Fatalf("state %d: %v %v", i, out[0].State, err)
		}
		out, err = f.store.Claim(t.Context(), []User{out[0].Fresh}, 3, run, day(7))
		if err != nil || out[0].State != Claimed {
			t.Fatalf("state %d, again: %v %v", i, out[0].State, err)
		}
		h.LastAt, h.Bits = day(30), bitsOf(9, 10)
		if _, err := f.store.Merge(t.Context(), []History{h}, true); err != nil {
			t.Fatal(err)
		}
		if got := f.get(i); !got.Recipient.LastAt.Equal(out[0].Claim.LastAt) {
			t.Errorf("state %d: the claim's name has moved to %v", i, got.Recipient.LastAt)
		}
		if err := f.store.TakeBack(t.Context(), []Claim{out[0].Claim}); err != nil {
			t.Fatal(err)
		}
		after := f.get(i)
		if diff := cmp.Diff(bitsOf(9, 10), after.Bits()); diff != "" {
			t.Errorf("state %d, after the claim was taken back: %s", i, diff)
		}
	}
}

// passing are faults after which a command is worth giving again.
var passing = map[string]minimongo.Fault{
	"lost before":         {Before: minimongo.Action{Drop: true}},
	"lost after":          {After: minimongo.Action{Drop: true}},
	"refused for a while": {Before: minimongo.Action{Error: &minimongo.Error{Code: 91, Message: "shutting down"}}},
}

// Every command of a merge fails once, in each way in which it can; the outcome is the same.
func TestMergeThroughFaults(t *testing.T) {
	for name, action := range passing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for nth := 1; nth <= 2; nth++ {
				srv, f := openServer(t)
				var hs []History
				for i := range 5 {
					f.insert(d("_id", i, "tpls_sent_at_least_once", blob(0, i)))
					hs = append(hs, History{ID: value(t, i), Bits: bitsOf(9), LastAt: day(3), FirstAt: day(3)})
				}
				action.Nth, action.Times = nth, 2
				remove := srv.Inject(action)
				out, err := f.store.Merge(t.Context(), hs, true)
				remove()
				if err != nil {
					t.Fatal(err)
				}
				for i, m := range out {
					if m.State != MergeChanged {
						t.Errorf("user %d: %d", i, m.State)
					}
					if u := f.get(i); !bitfield.Has(u.Bits(), 9) || !bitfield.Has(u.Bits(), i) || !u.Recipient.LastAt.Equal(day(3)) {
						t.Errorf("user %d: %x %v", i, u.Bits(), u.Recipient.LastAt)
					}
				}
			}
		})
	}
}

func TestMergeOfARefusedDocument(t *testing.T) {
	srv, f := openServer(t)
	f.insert(d("_id", 1))
	srv.Inject(minimongo.Fault{Command: "update", Times: -1, Before: minimongo.Action{Error: &minimongo.Error{Code: 13, Message: "not authorized"}}})
	if _, err := f.store.Merge(t.Context(), []History{{ID: value(t, 1), Bits: bitsOf(1)}}, true); !errors.Is(err, ErrRefused) {
		t.Fatal(err)
	}
}

func TestConvert(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	f.insert(d("_id", 0, "tpls_sent_at_least_once", bson.A{1, 2}), d("_id", 1, "tpls_sent_at_least_once", blob(0, 5)), d("_id", 2),
		d("_id", 3, "tpls_sent_at_least_once", bson.A{"no"}), d("_id", 4, "tpls_sent_at_least_once", bson.A{}))
	ids := make([]bson.RawValue, 6)
	for i := range ids {
		ids[i] = value(t, i)
	}
	out, err := f.store.Convert(t.Context(), ids, func(array bson.RawValue) (bits []byte, ok bool) {
		ok = true
		EachElement(array, func(v bson.RawValue) {
			n, is := v.Int32OK()
			if ok = ok && is; ok {
				bits = bitfield.With(bits, int(n))
			}
		})
		return bits, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []MergeState{MergeChanged, MergeSame, MergeSame, MergeUnreadable, MergeChanged, MergeMissing}
	for i, m := range out {
		if m.State != want[i] {
			t.Errorf("%d: %d, want %d", i, m.State, want[i])
		}
	}
	if u := f.get(0); cmp.Diff(bitsOf(1, 2), u.Bits()) != "" || u.Recipient.Unreadable {
		t.Errorf("%x", u.Bits())
	}
	if u := f.get(3); !u.Recipient.Unreadable {
		t.Error("an array with unknown names was converted")
	}
}
