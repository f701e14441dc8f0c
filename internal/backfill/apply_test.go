package backfill

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.uber.org/goleak"

	"postbit/internal/clock"
	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/users"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

type fixture struct {
	t     testing.TB
	db    *mongo.Database
	coll  *mongo.Collection
	o     Options
	marks *Marks

	missing []string
}

func open(t testing.TB, db *mongo.Database) *fixture {
	t.Helper()
	f := &fixture{t: t, db: db, coll: db.Collection("users")}
	store, err := users.New(f.coll, users.Config{})
	if err != nil {
		t.Fatal(err)
	}
	names, err := NewNames(map[string]int{"welcome": 0, "sale": 7, "winback": 8, "last": 4095})
	if err != nil {
		t.Fatal(err)
	}
	f.o = Options{Users: store, Names: names, Now: now, TempDir: t.TempDir(), Missing: func(user string) error {
		f.missing = append(f.missing, user)
		return nil
	}}
	f.marks = NewMarks(db, "users", clock.At(now))
	return f
}

func (f *fixture) insert(docs ...any) {
	f.t.Helper()
	if _, err := f.coll.InsertMany(f.t.Context(), docs); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) read(src Source) *Log {
	f.t.Helper()
	l, err := Read(f.t.Context(), src, f.o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = l.Close() })
	return l
}

// differ lists who differs from a log, as `user -missing +extra`.
func (f *fixture) differ(l *Log, allowExtra bool) []string {
	f.t.Helper()
	var out []string
	_, err := l.Check(f.t.Context(), f.o, allowExtra, func(d *Difference) error {
		out = append(out, fmt.Sprintf("%s -%x +%x %v", d.User, d.Missing, d.Extra, d.Unreadable))
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return out
}

func e(kv ...any) bson.D {
	out := bson.D{}
	for i := 0; i < len(kv); i += 2 {
		out = append(out, bson.E{Key: kv[i].(string), Value: kv[i+1]})
	}
	return out
}

const sends = `user,template,sent_at,opened_at
1,welcome,2024-01-01T10:00:00Z,2024-01-02T10:00:00Z
ada@example.com,sale,2024-03-01T10:00:00Z,
1,sale,2024-02-01T10:00:00Z,
1,welcome,nonsense,2024-05-01T10:00:00Z
nobody@example.com,sale,2024-03-01T10:00:00Z,
17,sale,2024-03-01T10:00:00Z,
`

func TestApply(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) }) // after the database has gone
	f := open(t, mongotest.DB(t))
	f.insert(e("_id", 1, "email", "ada@example.com"), e("_id", "x", "email", "ADA@example.com "), e("_id", 2, "email", 7), e("_id", 3, "tpls_sent_at_least_once", "broken"))
	l := f.read(file(sends))
	if diff := cmp.Diff(Counts{Rows: 6, BadDates: 1, Users: 4, Emails: 1, SharedWith: 1}, l.Counts); diff != "" {
		t.Error(diff)
	}
	want := &Result{Users: 3, Missing: 1, Changed: 2, Dates: 2, Bits: map[int]int64{0: 1, 7: 2}}
	planned, err := l.Compare(t.Context(), f.o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, planned); diff != "" {
		t.Error(diff)
	}
	if n, err := f.coll.CountDocuments(t.Context(), e("tpls_sent_at_least_once", e("$type", "binData"))); n != 0 || err != nil {
		t.Fatalf("a plan has written: %d %v", n, err)
	}
	got, resumed, err := l.Apply(t.Context(), f.o, f.marks)
	if err != nil || resumed {
		t.Fatal(resumed, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var doc struct {
		Bits  bson.Binary `bson:"tpls_sent_at_least_once"`
		State struct {
			First     time.Time `bson:"first_at"`
			Last      time.Time `bson:"last_at"`
			OpenFirst time.Time `bson:"open_first_at"`
			OpenLast  time.Time `bson:"open_last_at"`
		} `bson:"postbit"`
	}
	if err := f.coll.FindOne(t.Context(), e("_id", 1)).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	s := doc.State
	if fmt.Sprintf("%x", doc.Bits.Data) != "81" || s.First.Month() != 1 || s.Last.Month() != 3 || s.OpenFirst.Day() != 2 || s.OpenLast.Month() != 5 {
		t.Errorf("%+v", doc)
	}
	if diff := cmp.Diff([]string{"nobody@example.com", "17", "17"}, f.missing); diff != "" { // once by the plan, once by the writing
		t.Error(diff)
	}
	again, resumed, err := l.Apply(t.Context(), f.o, f.marks)
	if err != nil || resumed || again.Changed != 0 || again.Same != 2 {
		t.Errorf("once more: %+v %v %v", again, resumed, err)
	}
	if diff := f.differ(l, false); cmp.Diff([]string{"3 - + true"}, diff) != "" {
		t.Error(diff)
	}
}

func TestCheckNamesWhoDiffers(t *testing.T) {
	f := open(t, mongotest.DB(t))
	bin := func(b ...byte) bson.Binary { return bson.Binary{Data: b} }
	f.insert(e("_id", 1, "tpls_sent_at_least_once", bin(0x81)), e("_id", 2, "tpls_sent_at_least_once", bin(0x80)), e("_id", 3, "tpls_sent_at_least_once", bin(0xc0, 0)),
		e("_id", 4, "tpls_sent_at_least_once", bin(0, 0x80)), e("_id", 5, "tpls_sent_at_least_once", bin(0, 0)), e("_id", 6), e("_id", "6", "tpls_sent_at_least_once", bin(1)))
	l := f.read(file("user,template\n1,welcome\n1,sale\n2,sale\n2,welcome\n3,welcome\n6,sale\n"))
	if diff := cmp.Diff([]string{"2 -01 + false", "3 - +4000 false", "6 -01 + false", "str:6 - +01 false", "4 - +0080 false"}, f.differ(l, false)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"2 -01 + false", "6 -01 + false"}, f.differ(l, true)); diff != "" {
		t.Error(diff)
	}
}

func TestReadRefuses(t *testing.T) {
	for _, c := range []struct {
		name, text string
		fault      string
		skipped    int64
	}{
		{"unknown templates", "user,template\n1,welcome\n1,nope\n2,nope\n2,4096\n", "3 times a template is named that postbit does not know: nope (2), 4096 (1)", 3},
		{"no user", "user,template\n1,welcome\n,welcome\n", "log:3: names no user", 1},
		{"no template", "user,template\n1,welcome\n1\n", "(missing) (1)", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := open(t, mongotest.DB(t))
			f.insert(e("_id", 1))
			if _, err := Read(t.Context(), file(c.text), f.o); err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%v, want %q", err, c.fault)
			}
			f.o.SkipUnknown = true
			if l := f.read(file(c.text)); l.Counts.Skipped != c.skipped {
				t.Errorf("%+v", l.Counts)
			}
		})
	}
}

func TestCollection(t *testing.T) {
	f := open(t, mongotest.DB(t))
	oid := bson.NewObjectID()
	f.insert(e("_id", oid), e("_id", 2))
	log := f.db.Collection("sends")
	_, err := log.InsertMany(t.Context(), []any{
		e("to", e("id", oid), "mail", "sale", "at", now.Add(-time.Hour), "ok", true),
		e("to", e("id", oid), "mail", "welcome", "at", now.Add(-time.Minute), "opened", now, "ok", true),
		e("to", e("id", 2.0), "mail", 8, "at", nil, "ok", true),
		e("to", e("id", 2), "mail", "welcome", "ok", false),
	})
	if err != nil {
		t.Fatal(err)
	}
	src := &Collection{Coll: log, Columns: Columns{User: "to.id", Template: "mail", SentAt: "at", OpenedAt: "opened"}, Where: e("ok", true)}
	l := f.read(src)
	if diff := cmp.Diff(Counts{Rows: 3, Users: 2}, l.Counts); diff != "" {
		t.Error(diff)
	}
	if _, _, err := l.Apply(t.Context(), f.o, nil); err != nil {
		t.Fatal(err)
	}
	if diff := f.differ(f.read(file("user,template\n"+oid.Hex()+",sale\n"+oid.Hex()+",welcome\n2,winback\n")), false); diff != nil {
		t.Error(diff)
	}
}

// A big log, ended at each of its commands in turn as if by kill -9, and started again: nothing is missing, nobody is counted twice, and
// what was done is not done again.
func TestInterrupted(t *testing.T) {
	const n = 260
	var text strings.Builder
	text.WriteString("user,template,sent_at\n")
	docs := make([]any, n)
	for i := range docs {
		docs[i] = e("_id", i)
		fmt.Fprintf(&text, "%d,welcome,2024-01-01\n%d,sale,2024-01-02\n", i, i)
	}
	srv, db := mongotest.Server(t)
	f := open(t, db)
	f.o.batch = 20
	f.insert(docs...)
	interrupted, continued := 0, 0
	for nth := 1; ; nth++ {
		if nth > 1 { // as it was
			if _, err := f.coll.UpdateMany(t.Context(), bson.D{}, e("$unset", e("tpls_sent_at_least_once", 1, "postbit", 1))); err != nil {
				t.Fatal(err)
			}
			if err := db.Collection(MarksCollection).Drop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		l := f.read(file(text.String()))
		ctx, kill := context.WithCancel(t.Context())
		remove := srv.Inject(minimongo.Fault{Nth: nth, Reached: kill})
		_, _, err := l.apply(ctx, f.o, f.marks, 2)
		remove()
		kill()
		if err == nil {
			break
		}
		interrupted++
		res, resumed, err := l.apply(t.Context(), f.o, f.marks, 2)
		if err != nil {
			t.Fatal(err)
		}
		if resumed {
			continued++
		}
		if res.Users != n || res.Changed+res.Same != n || res.Changed > n {
			t.Fatalf("killed at %d: %+v", nth, res)
		}
		if diff := f.differ(l, false); diff != nil {
			t.Fatalf("killed at %d: %v", nth, diff[0])
		}
	}
	if interrupted < 20 || continued == 0 {
		t.Errorf("interrupted %d times, went on from a mark %d times", interrupted, continued)
	}
}

func TestAnotherLogDoesNotGoOn(t *testing.T) {
	f := open(t, mongotest.DB(t))
	f.insert(e("_id", 1), e("_id", 2))
	a := f.read(file("user,template\n1,welcome\n2,welcome\n"))
	if a.Fingerprint != f.read(file("user,template\n2,welcome\n1,welcome\n1,welcome\n")).Fingerprint {
		t.Error("the order of rows makes another log")
	}
	b := f.read(file("user,template\n1,welcome\n1,sale\n2,welcome\n"))
	if a.Fingerprint == b.Fingerprint {
		t.Fatal("two logs, one fingerprint")
	}
	m, err := f.marks.begin(t.Context(), a.Fingerprint, "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.marks.keepAt(t.Context(), m, keyOf(val(t, 1)), &Result{Users: 1}); err != nil {
		t.Fatal(err)
	}
	if res, resumed, err := b.Apply(t.Context(), f.o, f.marks); err != nil || resumed || res.Changed != 2 {
		t.Errorf("%+v %v %v", res, resumed, err)
	}
	if res, resumed, err := a.Apply(t.Context(), f.o, f.marks); err != nil || !resumed || res.Users != 2 || res.Same != 1 {
		t.Errorf("%+v %v %v", res, resumed, err)
	}
}

func TestArray(t *testing.T) {
	f := open(t, mongotest.DB(t))
	huge := make(bson.A, 20000)
	for i := range huge {
		huge[i] = []string{"welcome", "sale"}[i%2]
	}
	f.insert(e("_id", 1, "mail", e("sent", bson.A{"welcome", 7, 7.0, "welcome"})), e("_id", 2, "mail", e("sent", "sale")), e("_id", 3, "mail", "x"), e("_id", 4),
		e("_id", 5, "mail", e("sent", huge), "tpls_sent_at_least_once", bson.Binary{Data: []byte{0x01}}), e("_id", 6, "mail", e("sent", bson.A{})),
		e("_id", 7, "mail", e("sent", bson.A{8}), "tpls_sent_at_least_once", bson.A{1}))
	a := Array{Field: "mail.sent"}
	counts, plan, err := a.Plan(t.Context(), f.o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Counts{Rows: 7, Users: 4}, counts); diff != "" {
		t.Error(diff)
	}
	res, err := a.Apply(t.Context(), f.o, counts.Rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Result{plan, res} {
		if r.Users != 4 || r.Changed != 3 || r.Unreadable != 1 || r.Bits[0] != 2 || r.Bits[7] != 2 {
			t.Errorf("%+v", r)
		}
	}
	var differ []string
	_, _, err = a.Check(t.Context(), f.o, false, func(d *Difference) error { differ = append(differ, d.User); return nil })
	if diff := cmp.Diff([]string{"7"}, differ); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if res, err = a.Apply(t.Context(), f.o, counts.Rows); err != nil || res.Changed != 0 || res.Same != 3 {
		t.Errorf("once more: %+v %v", res, err)
	}
}

func TestArrayRefuses(t *testing.T) {
	f := open(t, mongotest.DB(t))
	f.insert(e("_id", 1, "sent", bson.A{"welcome"}), e("_id", 2, "sent", bson.A{"nope", math.NaN(), 4096, -1, nil, bson.A{"welcome"}}))
	_, _, err := Array{"sent"}.Plan(t.Context(), f.o)
	if err == nil || !strings.Contains(err.Error(), "6 times a template is named") {
		t.Fatal(err)
	}
	f.o.SkipUnknown = true
	if _, res, err := (Array{"sent"}).Plan(t.Context(), f.o); err != nil || res.Changed != 1 {
		t.Errorf("%+v %v", res, err)
	}
}

func TestConvertInPlace(t *testing.T) {
	f := open(t, mongotest.DB(t))
	f.insert(e("_id", 1, "tpls_sent_at_least_once", bson.A{"welcome", 8}), e("_id", 2, "tpls_sent_at_least_once", bson.A{"nope", "sale"}), e("_id", 3, "tpls_sent_at_least_once", "x"),
		e("_id", 4, "tpls_sent_at_least_once", bson.Binary{Data: []byte{1}}), e("_id", 5))
	a := Array{Field: "tpls_sent_at_least_once"}
	if _, _, err := a.Plan(t.Context(), f.o); err == nil {
		t.Fatal("an array with an unknown name")
	}
	res, err := a.Apply(t.Context(), f.o, 5) // as if the name had come after the plan
	if err != nil || res.Changed != 1 || res.Unreadable != 2 {
		t.Errorf("%+v %v", res, err)
	}
	f.o.SkipUnknown = true
	if res, err = a.Apply(t.Context(), f.o, 5); err != nil || res.Changed != 1 || res.Unreadable != 1 {
		t.Errorf("%+v %v", res, err)
	}
	l := f.read(file("user,template\n1,welcome\n1,winback\n2,sale\n4,sale\n"))
	if diff := cmp.Diff([]string{"3 - + true"}, f.differ(l, false)); diff != "" {
		t.Error(diff)
	}
}

// What does not fit in memory goes through a file, and the outcome is the same.
func TestReadOnDisk(t *testing.T) {
	f := open(t, mongotest.DB(t))
	var text strings.Builder
	text.WriteString("user,template\n")
	docs := make([]any, 300)
	for i := range docs {
		docs[i] = e("_id", i, "email", fmt.Sprintf("u%d@example.com", i))
		fmt.Fprintf(&text, "u%d@example.com,welcome\n%d,sale\n", i, i)
	}
	f.insert(docs...)
	want := f.read(file(text.String())).Fingerprint
	f.o.memory = 500
	l := f.read(file(text.String()))
	if l.groups.file == nil || l.Fingerprint != want {
		t.Errorf("file %v, %s, want %s", l.groups.file, l.Fingerprint, want)
	}
}
