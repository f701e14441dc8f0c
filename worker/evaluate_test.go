package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/bitfield"
	"postbit/internal/campaign"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/users"
	"postbit/rules"
)

// evaluationRun is a run of a campaign that has every rule, started on a Tuesday at 09:00 UTC.
func evaluationRun() *campaign.Run {
	return &campaign.Run{StartedAt: testStart, Spec: campaign.Spec{
		Name: "winback", Audience: `{"plan":"free"}`, ExpiresAfter: 10 * time.Hour,
		Rules: campaign.RuleSet{Window: rules.Window{From: 9 * 60, To: 20 * 60}, InactiveAfter: 90 * 24 * time.Hour, MinGap: 24 * time.Hour},
	}}
}

// outcomes is a user for every outcome of evaluationRun.
func outcomes() map[string]bson.D {
	ago := func(d time.Duration) time.Time { return testStart.Add(-d) }
	const day = 24 * time.Hour
	state := func(kv ...any) bson.E {
		d := bson.D{}
		for i := 0; i < len(kv); i += 2 {
			d = append(d, bson.E{Key: kv[i].(string), Value: kv[i+1]})
		}
		return bson.E{Key: "postbit", Value: d}
	}
	bits := bson.E{Key: "tpls_sent_at_least_once", Value: bson.Binary{Data: bitfield.With(nil, testBit)}}
	user := func(changes ...bson.E) bson.D {
		d := bson.D{{Key: "plan", Value: "free"}, {Key: "email", Value: "zoë@example.com"}, {Key: "timezone", Value: "Europe/Berlin"}}
		for _, c := range changes {
			for i := range d {
				if d[i].Key == c.Key {
					d[i].Value, c.Key = c.Value, ""
				}
			}
			if c.Key != "" {
				d = append(d, c)
			}
		}
		return d
	}
	return map[string]bson.D{
		"send":                    user(),
		"send_again":              user(bits, state("first_at", ago(9*day), "last_at", ago(2*day), "open_first_at", ago(8*day), "open_last_at", ago(8*day))),
		"send_unknown_zone":       user(bson.E{Key: "timezone", Value: "Mars/Base"}),
		"address":                 user(bson.E{Key: "email", Value: "zoë@@example.com"}),
		"address_number":          user(bson.E{Key: "email", Value: 7}),
		"suppressed":              user(state("status", "complained", "status_at", ago(day))),
		"unreadable_bits":         user(bson.E{Key: "tpls_sent_at_least_once", Value: "81 80"}),
		"unreadable_state":        user(bson.E{Key: "postbit", Value: "mine"}),
		"already_sent":            user(bits, state("first_at", ago(9*day), "last_at", ago(9*day))),
		"inactive":                user(state("first_at", ago(91*day), "last_at", ago(2*day))),
		"min_gap":                 user(state("first_at", ago(3*time.Hour), "last_at", ago(3*time.Hour))),
		"defer":                   user(bson.E{Key: "timezone", Value: "America/New_York"}),
		"expired":                 user(bson.E{Key: "timezone", Value: "Pacific/Auckland"}), // his window opens when the run is over
		"left":                    user(bson.E{Key: "plan", Value: "paid"}),
		"left_though_he_complied": user(bson.E{Key: "plan", Value: "paid"}, state("status", "bounced")),
	}
}

// wantOutcome is what the name of a user of outcomes says.
func wantOutcome(name string) (decision, rule string) {
	first, _, _ := strings.Cut(name, "_")
	switch {
	case first == "send":
		return "send", ""
	case first == "defer":
		return "defer", "time_of_day"
	case first == "already" || first == "min":
		return "skip", name
	}
	return "skip", first
}

func (h *house) insertOutcomes() {
	h.t.Helper()
	var docs []any
	for name, d := range outcomes() {
		docs = append(docs, append(bson.D{{Key: "_id", Value: name}}, d...))
	}
	_, err := h.coll.InsertMany(h.ctx, docs)
	h.check(err)
}

func stringID(s string) bson.RawValue {
	typ, v, err := bson.MarshalValue(s)
	if err != nil {
		panic(err)
	}
	return bson.RawValue{Type: typ, Value: v}
}

// Load, Each, Get and Explain must not disagree about anybody.
func TestEvaluateOutcomes(t *testing.T) {
	h := newHouse(t)
	h.insertOutcomes()
	run := evaluationRun()
	e, err := NewEvaluator(run, template(testBit), []string{"name"}, h.users)
	h.check(err)
	each := map[string]rules.Decision{}
	h.check(e.Each(h.ctx, testStart, func(u *users.User, d rules.Decision) error {
		each[users.FormatID(u.ID)] = d
		return nil
	}))
	for name := range outcomes() {
		t.Run(name, func(t *testing.T) {
			decision, rule := wantOutcome(name)
			x, err := Explain(t.Context(), run, template(testBit), h.users, stringID(name), testStart)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if x.Rule != nil {
				got = *x.Rule
			}
			if x.Decision != decision || got != rule {
				t.Errorf("explained as %s %s, want %s %s", x.Decision, got, decision, rule)
			}
			if (x.Until != nil) != (decision == "defer") {
				t.Errorf("until %v", x.Until)
			}
			loaded := loadAll(t, e, []bson.RawValue{stringID("a"), stringID(name), stringID("zz")}, nil)
			if !loaded[0].Left || !loaded[2].Left {
				t.Fatalf("%v", loaded)
			}
			if loaded[1].Left != (rule == "left") {
				t.Fatalf("left: %v", loaded[1].Left)
			}
			d, ok := each[name]
			if ok != (rule != "left") {
				t.Fatalf("in the audience: %v", ok)
			}
			if !ok {
				return
			}
			if d != loaded[1].Decision || d.Outcome.String() != decision || d.Outcome != rules.Send && d.Rule.String() != rule {
				t.Errorf("each %v, load %v, want %s %s", d, loaded[1].Decision, decision, rule)
			}
		})
	}
}

// loadAll gives what Load says about each of the ids.
func loadAll(t *testing.T, e *Evaluator, ids []bson.RawValue, holds func(int) bool) []Evaluated {
	t.Helper()
	out := make([]Evaluated, len(ids))
	rest, err := e.Load(t.Context(), ids, holds, testStart, func(i int, u *users.User, d rules.Decision) bool {
		if u == nil {
			out[i].Left = true
			return false
		}
		out[i].User, out[i].Decision = *u, d
		return true
	})
	if err != nil || rest != nil {
		t.Fatal(rest, err)
	}
	return out
}

// Of a batch in which few may be sent to much is read at once; of one in which most may, no more than is sent to soon.
func TestEvaluatorAtOnce(t *testing.T) {
	for _, c := range []struct{ mailable, want int }{{1000, 128}, {999, 128}, {640, 200}, {512, 250}, {500, 250}, {1, 250}, {0, 250}} {
		var e Evaluator
		e.mailable.Store(int32(c.mailable))
		if got := e.AtOnce(); got != c.want {
			t.Errorf("%d of a thousand may be sent to: %d at once, want %d", c.mailable, got, c.want)
		}
	}
}

func TestEvaluateWhoHoldsAClaim(t *testing.T) {
	h := newHouse(t)
	h.insertOutcomes()
	e, err := NewEvaluator(evaluationRun(), template(testBit), nil, h.users)
	h.check(err)
	ids := []bson.RawValue{stringID("already_sent"), stringID("min_gap"), stringID("suppressed")}
	for holder := range ids {
		got := loadAll(t, e, ids, func(i int) bool { return i == holder })
		for i := range got {
			want := rules.Skip
			if i == holder && i < 2 {
				want = rules.Send // his bit and his last mail are this run's own
			}
			if got[i].Decision.Outcome != want {
				t.Errorf("%s, claimed: %v: %s", users.FormatID(ids[i]), i == holder, got[i].Decision.Outcome)
			}
		}
	}
}

func TestRehearse(t *testing.T) {
	h := newHouse(t)
	h.insertOutcomes()
	before := h.dump()
	var seen []int64
	r, err := Rehearse(h.ctx, &evaluationRun().Spec, template(testBit), h.users, testStart, func(n int64) { seen = append(seen, n) })
	h.check(err)
	opening := time.Date(2026, 12, 1, 14, 0, 0, 0, time.UTC) // 09:00 in New York
	want := &Rehearsal{Campaign: "winback", Template: "winback7", At: testStart, WouldSend: 3, FirstOpening: &opening, LastOpening: &opening,
		Counts: campaign.Counts{Audience: 13, Checked: 13, Deferred: 1, UnknownZone: 1, Skipped: map[string]int64{
			"expired": 1, "address": 2, "suppressed": 1, "unreadable": 2, "already_sent": 1, "inactive": 1, "min_gap": 1, "left": 0, "superseded": 0, "cancelled": 0,
		}}}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Fatal(diff)
	}
	sum := r.WouldSend + r.Counts.Deferred
	for _, n := range r.Counts.Skipped {
		sum += n
	}
	if sum != r.Counts.Checked {
		t.Fatalf("%d checked, %d accounted for", r.Counts.Checked, sum)
	}
	if diff := cmp.Diff([]int64{13}, seen); diff != "" {
		t.Fatal(diff)
	}
	if after := h.dump(); after != before {
		t.Fatalf("a rehearsal has written\n%s\nwas\n%s", after, before)
	}
}

// dump is everything in the database.
func (h *house) dump() string {
	h.t.Helper()
	names, err := h.db.ListCollectionNames(h.ctx, bson.D{})
	h.check(err)
	var out strings.Builder
	for _, name := range names {
		cur, err := h.db.Collection(name).Find(h.ctx, bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
		h.check(err)
		for cur.Next(h.ctx) {
			fmt.Fprintln(&out, name, cur.Current)
		}
		h.check(cur.Err())
	}
	return out.String()
}

func TestRehearseReportsProgressAndStops(t *testing.T) {
	h := newHouse(t)
	h.insertUsers(2500)
	spec := campaign.Spec{Name: "all", Audience: "{}", ExpiresAfter: time.Hour}
	var seen []int64
	_, err := Rehearse(h.ctx, &spec, template(testBit), h.users, testStart, func(n int64) { seen = append(seen, n) })
	h.check(err)
	if diff := cmp.Diff([]int64{1000, 2000, 2500}, seen); diff != "" {
		t.Fatal(diff)
	}
	ctx, cancel := context.WithCancel(h.ctx)
	_, err = Rehearse(ctx, &spec, template(testBit), h.users, testStart, func(int64) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// insertUsers inserts n users of an ordinary kind; their ids are the numbers from 0.
func (h *house) insertUsers(n int) { h.check(insertOrdinary(h.ctx, h.coll, n)) }

func insertOrdinary(ctx context.Context, coll *mongo.Collection, n int) error {
	zones := []string{"Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Sydney"}
	for i := 0; i < n; i += 5000 {
		var docs []any
		for j := i; j < min(n, i+5000); j++ {
			docs = append(docs, bson.D{
				{Key: "_id", Value: j}, {Key: "email", Value: fmt.Sprintf("user%d@example.com", j)}, {Key: "name", Value: "User of the sample"},
				{Key: "timezone", Value: zones[j%len(zones)]}, {Key: "plan", Value: "free"}, {Key: "created_at", Value: testStart.AddDate(-1, 0, -j%300)},
				{Key: "tpls_sent_at_least_once", Value: bson.Binary{Data: bitfield.With(nil, j%148)}},
				{Key: "postbit", Value: bson.D{
					{Key: "first_at", Value: testStart.AddDate(0, -2, 0)}, {Key: "last_at", Value: testStart.AddDate(0, 0, -3)},
					{Key: "runs", Value: bson.Binary{Data: make([]byte, 16)}}, {Key: "open_last_at", Value: testStart.AddDate(0, 0, -2)},
				}},
			})
		}
		if _, err := coll.InsertMany(ctx, docs); err != nil {
			return err
		}
	}
	return nil
}

func TestExplainUnknownUser(t *testing.T) {
	h := newHouse(t)
	_, err := Explain(h.ctx, evaluationRun(), template(testBit), h.users, stringID("nobody"), testStart)
	if !errors.Is(err, users.ErrNotFound) {
		t.Fatal(err)
	}
}

// The shape of explain is an interface: testdata/explain holds it for a user of every outcome. UPDATE_GOLDEN=1 writes it anew.
func TestExplainGolden(t *testing.T) {
	h := newHouse(t)
	h.insertOutcomes()
	run := evaluationRun()
	for name := range outcomes() {
		t.Run(name, func(t *testing.T) {
			x, err := Explain(t.Context(), run, template(testBit), h.users, stringID(name), testStart)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(x, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			file := filepath.Join("testdata", "explain", name+".json")
			if os.Getenv("UPDATE_GOLDEN") == "1" {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

// BenchmarkEvaluate compares loading and evaluating users with a bare cursor over the same documents: the whole audience, as
// rehearse does it, and by batches, as dispatch does. POSTBIT_TEST_MONGO_URI names the server.
func BenchmarkEvaluate(b *testing.B) {
	const n = 20000
	db := mongotest.DB(b)
	coll := db.Collection("users")
	if err := insertOrdinary(b.Context(), coll, n); err != nil {
		b.Fatal(err)
	}
	store, err := users.New(coll, users.Config{})
	if err != nil {
		b.Fatal(err)
	}
	run := evaluationRun()
	e, err := NewEvaluator(run, template(testBit), []string{"name"}, store)
	if err != nil {
		b.Fatal(err)
	}
	ids := make([]bson.RawValue, n)
	for i := range ids {
		typ, v, err := bson.MarshalValue(i)
		if err != nil {
			b.Fatal(err)
		}
		ids[i] = bson.RawValue{Type: typ, Value: v}
	}
	rate := func(name string, f func() int) {
		b.Run(name, func(b *testing.B) {
			cpu := -cpuTime()
			for b.Loop() {
				if got := f(); got != n {
					b.Fatalf("%d of %d users", got, n)
				}
			}
			cpu += cpuTime()
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "users/s")
			b.ReportMetric(float64(cpu.Nanoseconds())/float64(n)/float64(b.N), "cpu-ns/user") // the server's too, where it is in this process
		})
	}
	projection := store.Fields([]string{"name"})
	bare := func(filter bson.D) (seen int) {
		cur, err := coll.Find(b.Context(), filter, options.Find().SetProjection(projection).SetBatchSize(1000))
		if err != nil {
			b.Fatal(err)
		}
		defer cur.Close(b.Context())
		for cur.Next(b.Context()) {
			seen++
		}
		if cur.Err() != nil {
			b.Fatal(cur.Err())
		}
		return seen
	}
	rate("audience/bare_cursor", func() int { return bare(bson.D{{Key: "plan", Value: "free"}}) })
	rate("audience/evaluated", func() (seen int) {
		if err := e.Each(b.Context(), testStart, func(*users.User, rules.Decision) error { seen++; return nil }); err != nil {
			b.Fatal(err)
		}
		return seen
	})
	for _, size := range []int{128, users.LoadAtOnce} {
		batches := func(f func(ids []bson.RawValue) int) func() int {
			return func() (seen int) {
				for i := 0; i < n; i += size {
					seen += f(ids[i:min(n, i+size)])
				}
				return seen
			}
		}
		rate(fmt.Sprintf("batches_of_%d/bare_cursor", size), batches(func(ids []bson.RawValue) int {
			return bare(bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}, {Key: "plan", Value: "free"}})
		}))
		rate(fmt.Sprintf("batches_of_%d/evaluated", size), batches(func(ids []bson.RawValue) int {
			seen := 0
			_, err := e.Load(b.Context(), ids, nil, testStart, func(_ int, u *users.User, d rules.Decision) bool {
				seen++
				return d.Outcome == rules.Send
			})
			if err != nil {
				b.Fatal(err)
			}
			return seen
		}))
	}
}
