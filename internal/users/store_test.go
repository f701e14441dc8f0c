package users

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"postbit/internal/minimongo/mongotest"
)

func TestConfigIsChecked(t *testing.T) {
	db := mongotest.DB(t)
	tests := []struct {
		name string
		cfg  Config
		want string // in the error; empty: fine
	}{
		{"defaults", Config{}, ""},
		{"nested", Config{Email: "a.b", Bits: "c.d", State: "c.e"}, ""},
		{"position in a path that is read", Config{Email: "emails.0.address"}, ""},
		{"position in a path that is written", Config{Bits: "a.0"}, "can't lie in _id or in an array"},
		{"state in _id", Config{State: "_id.x"}, "can't lie in _id"},
		{"bits in the state", Config{Bits: "postbit.bits"}, "lie in each other"},
		{"empty part", Config{Email: "a..b"}, "no path of a field"},
		{"operator", Config{LastAt: "$where"}, "no path of a field"},
		{"suppressed_when without values", Config{SuppressedWhen: map[string][]any{"x": {}}}, "lists no values"},
		{"suppressed_when without a field", Config{SuppressedWhen: map[string][]any{"": {1}}}, "empty field"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(db.Collection("users"), tt.cfg)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestFields(t *testing.T) {
	s := parser(t, Config{Email: "profile.email", LastAt: "mail.last", SuppressedWhen: map[string][]any{"state": {"x"}}})
	got := s.Fields([]string{"name", "profile", "orders.0.total", "_id", "name.first", "", "bad..path", "$where"})
	var paths []string
	for _, e := range got {
		paths = append(paths, e.Key)
	}
	want := []string{"mail.last", "name", "orders", "postbit", "profile", "state", "timezone", "tpls_sent_at_least_once"}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Fatal(diff)
	}
}

func TestLoad(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	oid := bson.NewObjectID()
	ids := []any{1, 2.5, int64(7), "a", "b", d("x", 1), d("x", 2), oid, true, noon}
	var docs []bson.D
	var list []bson.RawValue
	for i, id := range ids {
		docs = append(docs, d("_id", id, "n", i, "plan", "free", "email", "a@example.com", "secret", "x"))
		list = append(list, value(t, id))
	}
	f.insert(docs...)
	f.insert(d("_id", 5, "plan", "free"), d("_id", "aa", "plan", "free")) // between the others, but not on the list
	f.set("b", d("$set", d("plan", "paid")))                              // has left the audience
	if _, err := f.coll.DeleteOne(t.Context(), d("_id", 2.5)); err != nil {
		t.Fatal(err)
	}
	us, err := f.store.Load(t.Context(), d("plan", "free"), list, []string{"n"}, bit)
	if err != nil {
		t.Fatal(err)
	}
	var got []int32
	for _, u := range us {
		got = append(got, u.Doc.Lookup("n").Int32())
		if _, err := u.Doc.LookupErr("secret"); err == nil {
			t.Error("a field that nobody asked for was loaded")
		}
		if !u.Recipient.AddressOK {
			t.Error("no address")
		}
	}
	if diff := cmp.Diff([]int32{0, 2, 3, 5, 6, 7, 8, 9}, got); diff != "" {
		t.Fatal(diff)
	}
	narrow := d("plan", "free", "_id", d("$in", bson.A{1, "a", "b"})) // an audience that names ids
	if us, err := f.store.Load(t.Context(), narrow, list, nil, bit); err != nil || len(us) != 2 {
		t.Fatal(us, err)
	}
	if us, err := f.store.Load(t.Context(), d("plan", "none"), list, nil, bit); err != nil || len(us) != 0 {
		t.Fatal(us, err)
	}
	if us, err := f.store.Load(t.Context(), nil, nil, nil, bit); err != nil || len(us) != 0 {
		t.Fatal(us, err)
	}
}

// Documents of one load must not lie over each other, whatever their sizes.
func TestArena(t *testing.T) {
	var a arena
	var copies []bson.Raw
	var want []string
	for i := range 200 {
		doc := strings.Repeat(string(rune('a'+i%26)), i*i%90000)
		copies = append(copies, a.copy([]byte(doc)))
		want = append(want, doc)
		if i%3 == 0 {
			a.copy([]byte(strings.Repeat("?", 1+i*1000)))
			a.undo()
		}
	}
	for i := range copies {
		if string(copies[i]) != want[i] {
			t.Fatalf("document %d was overwritten", i)
		}
		if cap(copies[i]) != len(copies[i]) {
			t.Fatalf("appending to document %d would overwrite the next", i)
		}
	}
}

func TestEach(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	var docs []bson.D
	for i := range 1200 {
		docs = append(docs, d("_id", i, "even", i%2 == 0))
	}
	f.insert(docs...)
	n := 0
	err := f.store.Each(t.Context(), d("even", true), nil, bit, func(u *User) error { n++; return nil })
	if err != nil || n != 600 {
		t.Fatal(n, err)
	}
	stop := errors.New("stop")
	n = 0
	err = f.store.Each(t.Context(), nil, nil, bit, func(u *User) error {
		if n++; n == 3 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || n != 3 {
		t.Fatal(n, err)
	}
}

func TestGet(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	f.insert(d("_id", 1, "plan", "free"))
	if _, err := f.store.Get(t.Context(), value(t, 2), nil, bit); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	in, err := f.store.InAudience(t.Context(), d("plan", "free"), value(t, 1))
	if err != nil || !in {
		t.Fatal(in, err)
	}
	in, err = f.store.InAudience(t.Context(), d("plan", "paid"), value(t, 1))
	if err != nil || in {
		t.Fatal(in, err)
	}
}

func TestFind(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{Email: "contact.email"})
	oid := bson.NewObjectID()
	uuid := bson.Binary{Subtype: 4, Data: []byte("0123456789abcdef")}
	f.insert(
		d("_id", oid, "contact", d("email", "one@example.com")),
		d("_id", 42), d("_id", "43"), d("_id", 44.0), d("_id", "44"),
		d("_id", "ann", "contact", d("email", "twice@example.com")),
		d("_id", "bob", "contact", d("email", "twice@example.com")),
		d("_id", "0123456789abcdef01234567"),
		d("_id", "at@home"), d("_id", "int:5"), d("_id", uuid),
		d("_id", "lower", "contact", d("email", "mixed@example.com")),
	)
	tests := []struct {
		ref  string
		want any
		err  error
	}{
		{oid.Hex(), oid, nil},
		{"oid:" + oid.Hex(), oid, nil},
		{"0123456789abcdef01234567", "0123456789abcdef01234567", nil},
		{"42", 42, nil},
		{"int:42", 42, nil},
		{"str:42", nil, ErrNotFound},
		{"43", "43", nil},
		{"44", 44.0, nil},
		{"str:44", "44", nil},
		{"ann", "ann", nil},
		{"one@example.com", oid, nil},
		{"Mixed@Example.com", "lower", nil},
		{"str:at@home", "at@home", nil},
		{"at@home", nil, ErrNotFound},
		{"str:int:5", "int:5", nil},
		{"uuid:30313233-3435-3637-3839-616263646566", uuid, nil},
		{"nobody", nil, ErrNotFound},
		{"", nil, ErrNotFound},
	}
	for _, tt := range tests {
		t.Run(tt.ref, func(t *testing.T) {
			got, err := f.store.Find(t.Context(), tt.ref)
			if !errors.Is(err, tt.err) {
				t.Fatal(err)
			}
			if tt.err == nil && !got.Equal(value(t, tt.want)) {
				t.Fatalf("%v, want %v", got, tt.want)
			}
			if tt.err == nil { // what is printed is read again
				again, err := f.store.Find(t.Context(), FormatID(got))
				if err != nil || !again.Equal(got) {
					t.Fatalf("%q is read as %v, %v", FormatID(got), again, err)
				}
			}
		})
	}
	for _, ref := range []string{"oid:12", "int:x", "int:99999999999999999999", "uuid:12"} {
		if _, err := f.store.Find(t.Context(), ref); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", ref, err)
		}
	}
	var ambiguous *AmbiguousError
	if _, err := f.store.Find(t.Context(), "twice@example.com"); !errors.As(err, &ambiguous) || len(ambiguous.IDs) != 2 || !strings.Contains(err.Error(), "ann, bob") {
		t.Fatal(err)
	}
}

func TestSuppress(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	later := noon.Add(time.Hour)
	state := func(status string, at time.Time) bson.D { return d("status", status, "status_at", at) }
	tests := []struct {
		name   string
		doc    bson.D
		status string
		want   any // the state afterwards
		err    error
	}{
		{"nothing there", d(), Unsubscribed, state(Unsubscribed, later), nil},
		{"a state of null", d("postbit", nil), Bounced, state(Bounced, later), nil},
		{"beside what is there", d("postbit", d("last_at", noon)), Complained, d("last_at", noon, "status", Complained, "status_at", later), nil},
		{"an empty status", d("postbit", d("status", "", "status_at", noon)), Bounced, state(Bounced, later), nil},
		{"a status of null", d("postbit", d("status", nil, "status_at", noon)), Bounced, state(Bounced, later), nil},
		{"the same again keeps its date", d("postbit", state(Bounced, noon)), Bounced, state(Bounced, noon), nil},
		{"a complaint outranks a bounce", d("postbit", state(Bounced, noon)), Complained, state(Complained, later), nil},
		{"a complaint outranks an unsubscription", d("postbit", state(Unsubscribed, noon)), Complained, state(Complained, later), nil},
		{"the person's wish outranks a bounce", d("postbit", state(Bounced, noon)), Unsubscribed, state(Unsubscribed, later), nil},
		{"a bounce does not hide the person's wish", d("postbit", state(Unsubscribed, noon)), Bounced, state(Unsubscribed, noon), nil},
		{"nothing outranks a complaint", d("postbit", state(Complained, noon)), Unsubscribed, state(Complained, noon), nil},
		{"an unknown status stays", d("postbit", state("paused", noon)), Bounced, state("paused", noon), nil},
		{"a state that is a string", d("postbit", "x"), Bounced, "x", ErrStateShape},
		{"a state that is an array", d("postbit", bson.A{1}), Bounced, bson.A{1}, ErrStateShape},
		{"a status that is a number", d("postbit", d("status", 5)), Bounced, d("status", 5), ErrStateShape},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f.t = t
			f.insert(append(d("_id", i), tt.doc...))
			for range 2 {
				if err := f.store.Suppress(t.Context(), value(t, i), tt.status, later); !errors.Is(err, tt.err) {
					t.Fatal(err)
				}
			}
			doc, err := f.coll.FindOne(t.Context(), d("_id", i)).Raw()
			if err != nil {
				t.Fatal(err)
			}
			if got, want := canonical(t, doc), canonical(t, raw(t, d("_id", i, "postbit", tt.want))); got != want {
				t.Fatalf("%s, want %s", got, want)
			}
		})
	}
	if err := f.store.Suppress(t.Context(), value(t, "nobody"), Bounced, noon); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	if err := f.store.Suppress(t.Context(), value(t, 1), "angry", noon); err == nil {
		t.Fatal("an unknown word was written")
	}
}

func TestUnsuppress(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	f.insert(d("_id", 1), d("_id", 2, "postbit", nil), d("_id", 3, "postbit", "x"), d("_id", 4, "postbit", d("status", Complained, "status_at", noon, "last_at", noon)))
	for id, want := range map[int]error{1: nil, 2: nil, 3: ErrStateShape, 4: nil, 5: ErrNotFound} {
		if err := f.store.Unsuppress(t.Context(), value(t, id)); !errors.Is(err, want) {
			t.Errorf("user %d: %v", id, err)
		}
	}
	if u := f.get(4); u.Recipient.Suppressed || !u.Recipient.LastAt.Equal(noon) {
		t.Fatalf("%+v", u.Recipient)
	}
}

func TestOpened(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	early, late := noon.Add(-time.Hour), noon.Add(time.Hour)
	f.insert(
		d("_id", "new"), d("_id", "null", "postbit", nil), d("_id", "string", "postbit", "x"), d("_id", "array", "postbit", bson.A{}),
		d("_id", "earlier", "postbit", d("open_first_at", early, "open_last_at", early)),
		d("_id", "later", "postbit", d("open_first_at", late, "open_last_at", late)),
	)
	var opens []Open
	for _, id := range []string{"string", "new", "null", "gone", "array", "earlier", "later"} {
		opens = append(opens, Open{User: value(t, id), First: noon, Last: noon.Add(time.Minute)})
	}
	for range 2 { // a chunk may be delivered again
		passed, err := f.store.Opened(t.Context(), opens)
		if err != nil || passed != 3 {
			t.Fatalf("%d passed over, %v", passed, err)
		}
	}
	for id, want := range map[string][2]time.Time{
		"new":     {noon, noon.Add(time.Minute)},
		"null":    {noon, noon.Add(time.Minute)},
		"earlier": {early, noon.Add(time.Minute)},
		"later":   {noon, late},
	} {
		r := f.get(id).Recipient
		if !r.OpenFirstAt.Equal(want[0]) || !r.OpenLastAt.Equal(want[1]) {
			t.Errorf("%s: %s to %s", id, r.OpenFirstAt, r.OpenLastAt)
		}
	}
	if n, err := f.store.Opened(t.Context(), nil); n != 0 || err != nil {
		t.Fatal(n, err)
	}
}

func TestSample(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{})
	for i := range 30 {
		f.insert(d("_id", i, "email", "a@example.com", "timezone", "UTC"))
	}
	f.set(0, d("$set", d("postbit", d("last_at", noon), "tpls_sent_at_least_once", blob(0, 1))))
	f.set(1, d("$set", d("tpls_sent_at_least_once", blob(0, 1), "timezone", "Mars/Base")))
	f.set(29, d("$set", d("tpls_sent_at_least_once", "x", "email", 5)))
	shape, err := f.store.Sample(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	want := &Shape{Sampled: 10, BadBits: 1, HasBits: 2, BitsNoDate: 1, BitsNoOpen: 2, BadAddress: 1, UnknownZone: 1, state: "postbit"}
	if diff := cmp.Diff(want, shape, cmp.AllowUnexported(Shape{})); diff != "" {
		t.Fatal(diff)
	}
	if shape.Err() != nil {
		t.Fatal(shape.Err())
	}
	f.set(28, d("$set", d("postbit", d("status", 5))))
	shape, err = f.store.Sample(t.Context(), 1000)
	if err != nil || shape.Sampled != 30 || !errors.Is(shape.Err(), ErrStateShape) {
		t.Fatal(shape, err)
	}
	if want := "postbit of 1 of 30 users sampled (28)"; !strings.Contains(shape.Err().Error(), want) {
		t.Fatal(shape.Err())
	}
}

func TestBitsInUse(t *testing.T) {
	f := open(t, mongotest.DB(t), Config{Bits: "mail.sent"})
	for i, v := range []any{blob(0, 0, 3), blob(2, 3), nil, "x", d("0", 128), blob(0, 4000)} {
		f.insert(d("_id", i, "mail", d("sent", v)))
	}
	f.insert(d("_id", "none"))
	all, err := f.store.BitsInUse(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int]int64{0: 2, 3: 2, 4000: 1}, all); diff != "" {
		t.Fatal(diff)
	}
	some, err := f.store.BitsInUse(t.Context(), []int{3, 7})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int]int64{3: 2}, some); diff != "" {
		t.Fatal(diff)
	}
}

func TestFormatID(t *testing.T) {
	for _, tt := range []struct {
		id   any
		want string
	}{
		{42, "42"}, {int64(1) << 40, "1099511627776"}, {"ann", "ann"}, {"42", "str:42"}, {"a@b", "str:a@b"}, {"int:5", "str:int:5"},
		{bson.Binary{Subtype: 4, Data: []byte("0123456789abcdef")}, "uuid:30313233-3435-3637-3839-616263646566"},
		{2.5, `{"$numberDouble":"2.5"}`}, {44.0, "44"},
	} {
		if got := FormatID(value(t, tt.id)); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.id, got, tt.want)
		}
	}
	if got := FormatID(bson.RawValue{Type: bson.TypeInt32}) + FormatID(bson.RawValue{}); got != "(broken id)" {
		t.Errorf("%q", got)
	}
}

func TestEachLeavesNothingBehind(t *testing.T) {
	db := mongotest.DB(t)
	f := open(t, db, Config{})
	var docs []bson.D
	for i := range 3000 {
		docs = append(docs, d("_id", i))
	}
	f.insert(docs...)
	before := goleak.IgnoreCurrent() // with the driver's own
	stop := errors.New("stop")
	for _, at := range []int{0, 1, 700, 2999} {
		n := 0
		err := f.store.Each(t.Context(), nil, nil, bit, func(*User) error {
			if n == at {
				return stop
			}
			n++
			return nil
		})
		if !errors.Is(err, stop) || n != at {
			t.Fatal(n, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := f.store.Each(ctx, nil, nil, bit, func(*User) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := f.store.Each(t.Context(), d("$nonsense", 1), nil, bit, nil); err == nil {
		t.Fatal("a query that is none")
	}
	goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("postbit/internal/minimongo.(*conn).serve"))
}

// The finder against a set, with ids in any order, twice, and unknown.
func TestFinder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 20).Draw(t, "n")
		f := finder{}
		left := map[int32]int{}
		for i := range n {
			f.ids = append(f.ids, int32ID(int32(2*i)))
			left[int32(2*i)] = i
		}
		for _, id := range rapid.SliceOf(rapid.Int32Range(-1, 41)).Draw(t, "ids") {
			place, ok := left[id]
			got, taken := f.take(int32ID(id))
			if taken != ok || ok && got != place {
				t.Fatalf("%d: place %d, %v, not %d, %v", id, got, taken, place, ok)
			}
			if ok && !f.taken(place) {
				t.Fatalf("place %d is not taken", place)
			}
			delete(left, id)
		}
	})
}

func int32ID(n int32) bson.RawValue {
	return bson.RawValue{Type: bson.TypeInt32, Value: binary.LittleEndian.AppendUint32(nil, uint32(n))}
}
