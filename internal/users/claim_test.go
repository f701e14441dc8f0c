package users

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/bitfield"
	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
)

const bit = 12

var (
	noon  = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	ours  = RunID{'o', 'u', 'r', 's', 'r', 'u', 'n', '1'}
	rival = RunID{'r', 'i', 'v', 'a', 'l', 'r', 'u', 'n'}
	other = RunID{'o', 't', 'h', 'e', 'r', 'r', 'u', 'n'}
)

type fixture struct {
	t     testing.TB
	coll  *mongo.Collection
	store *Store
}

func open(t testing.TB, db *mongo.Database, cfg Config) *fixture {
	t.Helper()
	coll := db.Collection("users")
	store, err := New(coll, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{t, coll, store}
}

// openServer is for tests of faults, which only a minimongo makes.
func openServer(t testing.TB) (*minimongo.Server, *fixture) {
	t.Helper()
	server, db := mongotest.Server(t)
	return server, open(t, db, Config{})
}

func (f *fixture) insert(docs ...bson.D) {
	f.t.Helper()
	many := make([]any, len(docs))
	for i, d := range docs {
		many[i] = d
	}
	if _, err := f.coll.InsertMany(f.t.Context(), many); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) get(id any) User {
	f.t.Helper()
	u, err := f.store.Get(f.t.Context(), value(f.t, id), nil, bit)
	if err != nil {
		f.t.Fatal(err)
	}
	return u
}

func (f *fixture) set(id any, update bson.D) {
	f.t.Helper()
	res, err := f.coll.UpdateOne(f.t.Context(), bson.D{{Key: "_id", Value: id}}, update)
	if err != nil || res.MatchedCount != 1 {
		f.t.Fatalf("update of %v: %v, %v", id, res, err)
	}
}

// claim claims for a run, as a rival or another template's run would, and must succeed.
func (f *fixture) claim(id any, bit int, run RunID) Claim {
	f.t.Helper()
	res, err := f.store.Claim(f.t.Context(), []User{f.get(id)}, bit, run, noon)
	if err != nil || res[0].State != Claimed {
		f.t.Fatalf("claim of %v by %s: %v, %v", id, run, res, err)
	}
	return res[0].Claim
}

func value(t testing.TB, v any) bson.RawValue {
	t.Helper()
	if v == nil {
		return bson.RawValue{Type: bson.TypeNull}
	}
	typ, data, err := bson.MarshalValue(v)
	if err != nil {
		t.Fatal(err)
	}
	return bson.RawValue{Type: typ, Value: data}
}

func d(kv ...any) bson.D {
	out := bson.D{}
	for i := 0; i < len(kv); i += 2 {
		out = append(out, bson.E{Key: kv[i].(string), Value: kv[i+1]})
	}
	return out
}

func blob(subtype byte, indexes ...int) bson.Binary {
	b := bson.Binary{Subtype: subtype, Data: []byte{}}
	for _, i := range indexes {
		b.Data = bitfield.With(b.Data, i)
	}
	return b
}

// What a claim writes, by what stands in the document.
func TestClaimWrites(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	old := noon.Add(-48 * time.Hour)
	future := noon.Add(time.Hour)
	runs := func(a, b RunID) bson.Binary { return bson.Binary{Data: append(a[:], b[:]...)} }
	tests := []struct {
		name string
		doc  bson.D
		want bson.D // bits and state afterwards
	}{
		{"nothing there", d(),
			d("tpls_sent_at_least_once", blob(0, bit), "postbit", d("first_at", noon, "last_at", noon, "runs", runs(ours, RunID{})))},
		{"all null", d("tpls_sent_at_least_once", nil, "postbit", nil),
			d("tpls_sent_at_least_once", blob(0, bit), "postbit", d("first_at", noon, "last_at", noon, "runs", runs(ours, RunID{})))},
		{"empty state", d("postbit", d()),
			d("postbit", d("first_at", noon, "last_at", noon, "runs", runs(ours, RunID{})), "tpls_sent_at_least_once", blob(0, bit))},
		{"state of nulls", d("postbit", d("first_at", nil, "last_at", nil, "status", nil, "runs", nil)),
			d("postbit", d("first_at", noon, "last_at", noon, "status", nil, "runs", runs(ours, RunID{})), "tpls_sent_at_least_once", blob(0, bit))},
		{"claimed before by another run", d("tpls_sent_at_least_once", blob(0, 3), "postbit", d("first_at", old, "last_at", old, "runs", runs(other, rival))),
			d("tpls_sent_at_least_once", blob(0, 3, bit), "postbit", d("first_at", old, "last_at", noon, "runs", runs(ours, other)))},
		{"last_at ahead of the clock", d("postbit", d("first_at", old, "last_at", future)),
			d("postbit", d("first_at", old, "last_at", future.Add(time.Millisecond), "runs", runs(ours, RunID{})), "tpls_sent_at_least_once", blob(0, bit))},
		{"subtype 2 is kept", d("tpls_sent_at_least_once", blob(2, 200)),
			d("tpls_sent_at_least_once", blob(2, 200, bit), "postbit", d("first_at", noon, "last_at", noon, "runs", runs(ours, RunID{})))},
		{"a long blob is not shortened", d("tpls_sent_at_least_once", bson.Binary{Data: make([]byte, 700)}),
			d("tpls_sent_at_least_once", bson.Binary{Data: bitfield.With(make([]byte, 700), bit)}, "postbit", d("first_at", noon, "last_at", noon, "runs", runs(ours, RunID{})))},
		{"the object form becomes a Binary", d("tpls_sent_at_least_once", d("0", 129, "1", 128)),
			d("tpls_sent_at_least_once", blob(0, 0, 7, 8, bit), "postbit", d("first_at", noon, "last_at", noon, "runs", runs(ours, RunID{})))},
		{"a bit that is set stays as it is", d("tpls_sent_at_least_once", d("1", 8)),
			d("tpls_sent_at_least_once", d("1", 8), "postbit", d("first_at", noon, "last_at", noon, "runs", runs(ours, RunID{})))},
		{"opens and an empty status stay", d("postbit", d("open_last_at", old, "status", "", "later", 1)),
			d("postbit", d("open_last_at", old, "status", "", "later", 1, "first_at", noon, "last_at", noon, "runs", runs(ours, RunID{})), "tpls_sent_at_least_once", blob(0, bit))},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f.t = t
			f.insert(append(d("_id", i), tt.doc...))
			before := f.get(i)
			res, err := f.store.Claim(t.Context(), []User{before}, bit, ours, noon)
			if err != nil || res[0].State != Claimed {
				t.Fatalf("%v, %v", res, err)
			}
			if c := res[0].Claim; c.Before != before.Recipient.HasBit || c.Run != ours || c.Bit != bit {
				t.Errorf("claim %+v", c)
			}
			raw, err := f.coll.FindOne(t.Context(), d("_id", i)).Raw()
			if err != nil {
				t.Fatal(err)
			}
			want, err := bson.Marshal(append(d("_id", i), tt.want...))
			if err != nil {
				t.Fatal(err)
			}
			if got, want := canonical(t, raw), canonical(t, want); got != want {
				t.Fatalf("after the claim\n%s, want\n%s", got, want)
			}
			after := f.get(i)
			if !after.Recipient.HasBit || !after.Recipient.LastAt.Equal(res[0].Claim.LastAt) || after.Recipient.Unreadable {
				t.Errorf("read again: %+v", after.Recipient)
			}
		})
	}
}

// canonical prints a document with its keys sorted: where a server puts a new field is its own affair.
func canonical(t *testing.T, doc bson.Raw) string {
	t.Helper()
	elements, err := doc.Elements()
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, e := range elements {
		text := e.Value().String()
		if inner, ok := e.Value().DocumentOK(); ok {
			text = canonical(t, inner)
		}
		parts = append(parts, e.Key()+": "+text)
	}
	slices.Sort(parts)
	return "{" + strings.Join(parts, ", ") + "}"
}

// Everything that can happen to one claim while its reply is lost, or while others write to the user.
func TestClaimOutcomes(t *testing.T) {
	status := d("$set", d("postbit.status", Unsubscribed))
	tests := []struct {
		name   string
		doc    bson.D
		before func(f *fixture) // between reading the user and the claim
		after  func(f *fixture) // between the claim, whose reply is lost, and its being issued again; nil: no reply is lost
		late   bool             // the first claim is applied only after the other one was answered
		want   ClaimState
	}{
		{name: "nobody else", want: Claimed},
		{name: "reply lost after it was applied", after: func(*fixture) {}, want: Claimed},
		{name: "reply lost, then another template's claim", after: func(f *fixture) { f.claim(1, 99, other) }, want: Claimed},
		{name: "reply lost, then two other claims",
			after: func(f *fixture) { f.claim(1, 99, other); f.claim(1, 98, rival) }, want: Unconfirmed},
		{name: "a rival of the same template was first", before: func(f *fixture) { f.claim(1, bit, rival) }, want: Lost},
		{name: "another template's run was first", before: func(f *fixture) { f.claim(1, 99, other) }, want: Lost},
		{name: "another template's run was first, to a user mailed before",
			doc:    d("postbit", d("last_at", noon.Add(-time.Hour), "runs", bson.Binary{Data: append(append([]byte{}, "anything"...), "whatever"...)})),
			before: func(f *fixture) { f.claim(1, 99, other) }, want: Lost},
		{name: "two other runs were first", before: func(f *fixture) { f.claim(1, 99, other); f.claim(1, 98, rival) }, want: Lost},
		{name: "the user unsubscribed", before: func(f *fixture) { f.set(1, status) }, want: Lost},
		{name: "another service set a bit", before: func(f *fixture) { f.set(1, d("$set", d("tpls_sent_at_least_once", blob(0, 5)))) }, want: Lost},
		{name: "the state became null", before: func(f *fixture) { f.set(1, d("$set", d("postbit", nil))) }, want: Lost},
		{name: "the state became a string", before: func(f *fixture) { f.set(1, d("$set", d("postbit", "x"))) }, want: Lost},
		{name: "the user was deleted", before: func(f *fixture) { f.coll.DeleteOne(f.t.Context(), d("_id", 1)) }, want: Gone},
		{name: "reply lost and then unsubscribed", after: func(f *fixture) { f.set(1, status) }, want: Claimed},
		{name: "reply lost and applied only after the second was answered", after: func(*fixture) {}, late: true, want: Claimed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server, f := openServer(t)
			f.insert(append(d("_id", 1), tt.doc...))
			u := f.get(1)
			if tt.before != nil {
				tt.before(f)
			}
			release := make(chan struct{})
			var wg sync.WaitGroup
			if tt.after != nil {
				first := minimongo.Fault{Command: "update"}
				if tt.late {
					first.Before = minimongo.Action{Hangup: true, Wait: release}
				} else { // what comes after it happens as it is issued again, and before that is applied
					first.After = minimongo.Action{Drop: true}
					again := make(chan struct{})
					server.Inject(minimongo.Fault{Command: "update", Nth: 2, Reached: func() { close(again) }, Before: minimongo.Action{Wait: release}})
					wg.Go(func() {
						<-again
						tt.after(f)
						close(release)
					})
				}
				server.Inject(first)
			}
			res, err := f.store.Claim(t.Context(), []User{u}, bit, ours, noon)
			if err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			if res[0].State != tt.want {
				t.Fatalf("%s, want %s", res[0].State, tt.want)
			}
			if tt.late {
				was := f.get(1)
				close(release)
				// The first claim now finds that it no longer matches: the document stays as it is.
				f.claim(1, 99, other)
				if now := f.get(1); now.was.runs != [2]RunID{other, ours} {
					t.Fatalf("runs %q after %q", now.was.runs, was.was.runs)
				}
			}
			if tt.want == Lost {
				if res[0].Fresh.ID.Type == 0 || res[0].Fresh.was.lastTime != f.get(1).was.lastTime {
					t.Fatal("a lost claim must give the user as he is now")
				}
			}
		})
	}
}

// A lost claim, evaluated again and claimed with the fresh user.
func TestClaimAgainAfterLosing(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	f.insert(d("_id", 1, "email", "a@example.com", "name", "Ann", "postbit", d()))
	us, err := f.store.Load(t.Context(), nil, []bson.RawValue{value(t, 1)}, []string{"name"}, bit)
	if err != nil {
		t.Fatal(err)
	}
	f.claim(1, 99, other)
	res, err := f.store.Claim(t.Context(), us, bit, ours, noon)
	if err != nil || res[0].State != Lost {
		t.Fatalf("%v %v", res, err)
	}
	if name, ok := res[0].Fresh.Doc.Lookup("name").StringValueOK(); !ok || name != "Ann" {
		t.Fatal("the fresh user lacks the template's fields")
	}
	res, err = f.store.Claim(t.Context(), []User{res[0].Fresh}, bit, ours, noon)
	if err != nil || res[0].State != Claimed {
		t.Fatalf("%v %v", res, err)
	}
	if got := res[0].Claim.LastAt; !got.Equal(noon.Add(time.Millisecond)) {
		t.Fatalf("claimed at %s, the other at %s", got, noon)
	}
}

// Many rivals on many users: one of them gets each, and never more than one.
func TestClaimRivals(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	const n, rivals = 64, 6
	var docs []bson.D
	var ids []bson.RawValue
	for i := range n {
		docs = append(docs, d("_id", i))
		ids = append(ids, value(t, i))
	}
	f.insert(docs...)
	us, err := f.store.Load(t.Context(), nil, ids, nil, bit)
	if err != nil || len(us) != n {
		t.Fatal(len(us), err)
	}
	var mu sync.Mutex
	winners := map[string]RunID{}
	var wg sync.WaitGroup
	for r := range rivals {
		wg.Go(func() {
			run := RunID{'r', byte('0' + r)}
			res, err := f.store.Claim(t.Context(), us, bit, run, noon)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, x := range res {
				switch x.State {
				case Claimed:
					if w, ok := winners[idKey(x.Claim.ID)]; ok {
						t.Errorf("%s went to %q and to %q", FormatID(x.Claim.ID), w, run)
					}
					winners[idKey(x.Claim.ID)] = run
				case Lost:
					if !x.Fresh.Recipient.HasBit {
						t.Errorf("%s was lost, but the bit is clear", FormatID(x.Claim.ID))
					}
				default:
					t.Errorf("%s: %s", FormatID(x.Claim.ID), x.State)
				}
			}
		})
	}
	wg.Wait()
	if len(winners) != n {
		t.Fatalf("%d of %d users were claimed", len(winners), n)
	}
	for i := range n {
		if u := f.get(i); u.was.runs[0] != winners[idKey(u.ID)] {
			t.Errorf("user %d: the document names %q, the winner is %q", i, u.was.runs[0], winners[idKey(u.ID)])
		}
	}
}

func TestClaimDuringAnOutage(t *testing.T) {
	shutdown := &minimongo.Error{Code: 91, Message: "shutting down"}
	t.Run("it ends", func(t *testing.T) {
		server, f := openServer(t)
		f.insert(d("_id", 1))
		u := f.get(1)
		server.Inject(minimongo.Fault{Command: "update", Times: 3, Before: minimongo.Action{Error: shutdown}})
		server.Inject(minimongo.Fault{Command: "find", Times: 2, Before: minimongo.Action{Drop: true}})
		res, err := f.store.Claim(t.Context(), []User{u}, bit, ours, noon)
		if err != nil || res[0].State != Claimed {
			t.Fatalf("%v %v", res, err)
		}
	})
	t.Run("a reply that never comes", func(t *testing.T) {
		server, f := openServer(t)
		f.insert(d("_id", 1))
		u := f.get(1)
		f.store.attempt = 50 * time.Millisecond
		stuck := make(chan struct{})
		server.Inject(minimongo.Fault{Command: "update", Before: minimongo.Action{Wait: stuck}})
		res, err := f.store.Claim(t.Context(), []User{u}, bit, ours, noon)
		close(stuck)
		if err != nil || res[0].State != Claimed {
			t.Fatalf("%v %v", res, err)
		}
		if f.claim(1, 99, other); f.get(1).was.runs != [2]RunID{other, ours} {
			t.Fatal("the command that was given up has claimed him again")
		}
	})
	t.Run("it outlasts the context", func(t *testing.T) {
		server, f := openServer(t)
		f.insert(d("_id", 1))
		u := f.get(1)
		ctx, cancel := context.WithCancel(t.Context())
		var once sync.Once
		server.Inject(minimongo.Fault{Command: "update", Times: -1, Reached: func() { once.Do(cancel) }, Before: minimongo.Action{Error: shutdown}})
		res, err := f.store.Claim(ctx, []User{u}, bit, ours, noon)
		if err != nil || res[0].State != Unconfirmed {
			t.Fatalf("%v %v", res, err)
		}
	})
	t.Run("the context had ended before", func(t *testing.T) {
		_, f := openServer(t)
		f.insert(d("_id", 1))
		u := f.get(1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.store.Claim(ctx, []User{u}, bit, ours, noon); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if f.get(1).Recipient.HasBit {
			t.Fatal("claimed all the same")
		}
	})
	t.Run("the server refuses", func(t *testing.T) {
		server, f := openServer(t)
		f.insert(d("_id", 1))
		u := f.get(1)
		server.Inject(minimongo.Fault{Command: "update", Before: minimongo.Action{Error: &minimongo.Error{Code: 13, Message: "not authorized"}}})
		if _, err := f.store.Claim(t.Context(), []User{u}, bit, ours, noon); !errors.Is(err, ErrRefused) {
			t.Fatal(err)
		}
	})
	t.Run("the server refuses after a reply was lost", func(t *testing.T) {
		server, f := openServer(t)
		f.insert(d("_id", 1))
		u := f.get(1)
		server.Inject(minimongo.Fault{Command: "update", After: minimongo.Action{Drop: true}})
		server.Inject(minimongo.Fault{Command: "update", Nth: 2, Times: -1, Before: minimongo.Action{Error: &minimongo.Error{Code: 13, Message: "not authorized"}}})
		res, err := f.store.Claim(t.Context(), []User{u}, bit, ours, noon)
		if err != nil || res[0].State != Unconfirmed {
			t.Fatalf("%v %v", res, err)
		}
	})
}

func TestClaimOfUnreadable(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	f.insert(d("_id", 1, "tpls_sent_at_least_once", "x"), d("_id", 2))
	if _, err := f.store.Claim(t.Context(), []User{f.get(1), f.get(2)}, bit, ours, noon); err == nil {
		t.Fatal("claimed what can't be read")
	}
	if f.get(2).Recipient.HasBit {
		t.Fatal("an error must change nothing")
	}
}
