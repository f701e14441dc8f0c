package users

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/bitfield"
	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
)

func TestTakeBack(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	tests := []struct {
		name string
		doc  bson.D
		then func(f *fixture, id int) // after the claim
		want bool                     // the bit afterwards
	}{
		{"it was clear before", d(), nil, false},
		{"it was set before", d("tpls_sent_at_least_once", blob(0, bit)), nil, true},
		{"another claim has followed", d(), func(f *fixture, id int) { f.claim(id, 99, other) }, true},
		{"another service has set a bit since", d(), func(f *fixture, id int) {
			f.set(id, d("$set", d("tpls_sent_at_least_once", blob(0, bit, 500))))
		}, false},
		{"the field can't be read any more", d(), func(f *fixture, id int) { f.set(id, d("$set", d("tpls_sent_at_least_once", "x"))) }, false},
		{"the user is gone", d(), func(f *fixture, id int) { f.coll.DeleteOne(f.t.Context(), d("_id", id)) }, false},
		{"an old blob of subtype 2", d("tpls_sent_at_least_once", blob(2, 1, 300)), nil, false},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f.t = t
			f.insert(append(d("_id", i), tt.doc...))
			c := f.claim(i, bit, ours)
			if tt.then != nil {
				tt.then(f, i)
			}
			before, err := f.coll.FindOne(t.Context(), d("_id", i)).Raw()
			if errors.Is(err, mongo.ErrNoDocuments) {
				if err := f.store.TakeBack(t.Context(), []Claim{c}); err != nil {
					t.Fatal(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // doing it again changes nothing
				if err := f.store.TakeBack(t.Context(), []Claim{c}); err != nil {
					t.Fatal(err)
				}
				u := f.get(i)
				if u.Recipient.HasBit != tt.want {
					t.Fatalf("bit %v, want %v", u.Recipient.HasBit, tt.want)
				}
				was := f.store.Parse(before, bit)
				if len(u.was.blob) != len(was.was.blob) || u.was.bits.Type != was.was.bits.Type || bitfield.Subtype(u.was.bits) != bitfield.Subtype(was.was.bits) {
					t.Fatalf("blob %v was %v", u.was.bits, was.was.bits)
				}
				if u.was.runs != was.was.runs || !u.was.lastTime.Equal(was.was.lastTime) {
					t.Fatal("dates and names of claims must stay")
				}
			}
		})
	}
}

func TestTakeBackManyThroughAnOutage(t *testing.T) {
	server, f := openServer(t)
	var claims []Claim
	for i := range 40 {
		f.insert(d("_id", i, "tpls_sent_at_least_once", blob(0, 7, 300)))
		claims = append(claims, f.claim(i, bit, ours))
	}
	server.Inject(minimongo.Fault{Command: "find", Before: minimongo.Action{Drop: true}})
	server.Inject(minimongo.Fault{Command: "update", After: minimongo.Action{Drop: true}})
	if err := f.store.TakeBack(t.Context(), claims); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if u := f.get(i); u.Recipient.HasBit || bitfield.Count(u.was.blob) != 2 {
			t.Fatalf("user %d: % x", i, u.was.blob)
		}
	}
}

// Once the claim is taken back, a later run of the same template may mail the user.
func TestTakenBackUserCanBeClaimedAgain(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	f.insert(d("_id", 1))
	c := f.claim(1, bit, ours)
	if err := f.store.TakeBack(t.Context(), []Claim{c}); err != nil {
		t.Fatal(err)
	}
	later := f.claim(1, bit, rival)
	if later.Before {
		t.Fatal("the bit was given back, so it was clear before")
	}
	if err := f.store.TakeBack(t.Context(), []Claim{c}); err != nil {
		t.Fatal(err)
	}
	if !f.get(1).Recipient.HasBit {
		t.Fatal("an old claim was taken back from under a new one")
	}
}
