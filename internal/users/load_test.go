package users

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/minimongo/mongotest"
)

// Load is a Loader's load of everybody who comes, in the order in which they come.
func (s *Store) Load(ctx context.Context, audience bson.D, ids []bson.RawValue, extra []string, bit int) (us []User, err error) {
	l, err := s.Loader(audience, extra, bit)
	if err != nil {
		return nil, err
	}
	for len(ids) > 0 && err == nil {
		var rest []int
		rest, err = l.Load(ctx, ids, func(_ int, u *User) bool {
			if u != nil {
				us = append(us, *u)
			}
			return u != nil
		})
		left := make([]bson.RawValue, len(rest))
		for i, place := range rest {
			left[i] = ids[place]
		}
		ids = left
	}
	return us, err
}

// Every place is answered for once, with the user or with nil, whatever the length of the list and whoever is missing.
func TestLoadPlaces(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	const n = 2*LoadAtOnce + 3
	var docs []bson.D
	var ids []bson.RawValue
	for i := range n {
		ids = append(ids, value(t, i))
		if i%7 != 3 {
			docs = append(docs, d("_id", i, "plan", []string{"free", "paid"}[i%2], "n", i))
		}
	}
	f.insert(docs...)
	l, err := f.store.Loader(d("plan", "free"), []string{"n"}, bit)
	if err != nil {
		t.Fatal(err)
	}
	for _, length := range []int{0, 1, 2, LoadAtOnce - 1, LoadAtOnce, LoadAtOnce + 1, n} {
		called := make([]int, length)
		rest, err := l.Load(t.Context(), ids[:length], func(place int, u *User) bool {
			called[place]++
			if in := place%7 != 3 && place%2 == 0; in != (u != nil) {
				t.Errorf("of %d, place %d: in the audience: %v", length, place, u != nil)
			}
			if u != nil && int(u.Doc.Lookup("n").Int32()) != place {
				t.Errorf("of %d, place %d: %s", length, place, u.Doc)
			}
			return place%3 == 0
		})
		if err != nil || rest != nil {
			t.Fatal(rest, err)
		}
		if slices.ContainsFunc(called, func(times int) bool { return times != 1 }) {
			t.Fatalf("of %d: %v", length, called)
		}
	}
}

// Who is kept stays as he was read, whatever was read after him; who is not costs no memory.
func TestLoadKeeps(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	var docs []bson.D
	var ids []bson.RawValue
	for i := range 200 {
		ids = append(ids, value(t, i))
		docs = append(docs, d("_id", i, "email", fmt.Sprintf("u%d@example.com", i), "name", strings.Repeat("x", i), "tpls_sent_at_least_once", blob(0, i)))
	}
	f.insert(docs...)
	l, err := f.store.Loader(nil, []string{"name"}, bit)
	if err != nil {
		t.Fatal(err)
	}
	var kept []User
	if _, err := l.Load(t.Context(), ids, func(place int, u *User) bool {
		if place%5 == 0 {
			kept = append(kept, *u)
		}
		return place%5 == 0
	}); err != nil {
		t.Fatal(err)
	}
	if len(kept) != 40 {
		t.Fatalf("%d were kept", len(kept))
	}
	for k, u := range kept {
		i := 5 * k
		if err := u.Doc.Validate(); err != nil {
			t.Fatal(err)
		}
		if u.Email != fmt.Sprintf("u%d@example.com", i) || u.ID.Int32() != int32(i) || len(u.Doc.Lookup("name").StringValue()) != i {
			t.Fatalf("user %d was overwritten: %s", i, u.Doc)
		}
		if diff := cmp.Diff([]byte(docs[i][3].Value.(bson.Binary).Data), u.Bits()); diff != "" {
			t.Fatalf("bits of user %d: %s", i, diff)
		}
	}
}

// Fields as large as documents can be do not fill the memory: a load ends early, and says for whom.
func TestLoadEndsEarly(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	const n = 20
	var ids []bson.RawValue
	for i := range n {
		ids = append(ids, value(t, i))
		if i != 4 {
			f.insert(d("_id", i, "name", strings.Repeat("x", keepBytes/4)))
		}
	}
	l, err := f.store.Loader(nil, []string{"name"}, bit)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		keep func(place int) bool
		read int // users
	}{
		{"nobody is kept", func(int) bool { return false }, n - 1},
		{"all are kept", func(int) bool { return true }, 4},
		{"every other is kept", func(place int) bool { return place%2 == 0 }, 8},
	} {
		t.Run(c.what, func(t *testing.T) {
			todo, read := make([]bool, n), 0
			rest, err := l.Load(t.Context(), ids, func(place int, u *User) bool {
				todo[place] = true
				if u == nil {
					return false
				}
				read++
				return c.keep(place)
			})
			if err != nil || read != c.read {
				t.Fatal(read, err)
			}
			for _, place := range rest {
				if todo[place] {
					t.Errorf("place %d was read, and is said not to have been", place)
				}
				todo[place] = true
			}
			if slices.Contains(todo, false) {
				t.Error("somebody is lost", todo)
			}
		})
	}
	long := slices.Clone(ids)
	for i := n; i < LoadAtOnce+5; i++ {
		long = append(long, value(t, i))
	}
	us, err := f.store.Load(t.Context(), nil, long, []string{"name"}, bit)
	if err != nil || len(us) != n-1 {
		t.Fatal(len(us), err)
	}
	rest, err := l.Load(t.Context(), long, func(int, *User) bool { return true })
	if err != nil || len(rest) != len(long)-4 || rest[len(rest)-1] != len(long)-1 {
		t.Fatal(len(rest), err)
	}
}
