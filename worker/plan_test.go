package worker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"pgregory.net/rapid"

	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/queue"
)

// planning is what a planner works on, and a queue that takes down what it gets.
type planning struct {
	t interface {
		Helper()
		Fatal(...any)
	}
	ctx     context.Context
	clk     *clock.Clock
	runs    *campaign.Store
	batches *campaign.Batches
	users   *mongo.Collection
	log     bytes.Buffer

	mu     sync.Mutex
	queued []string
}

func newPlanning(t *testing.T) *planning {
	t.Helper()
	db := mongotest.DB(t)
	p := &planning{t: t, ctx: t.Context(), clk: clock.At(testStart), runs: campaign.NewStore(db), users: db.Collection("users")}
	p.batches = campaign.NewBatches(db, p.clk)
	if err := p.runs.EnsureIndexes(p.ctx); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *planning) EnqueueBatch(_ context.Context, t queue.BatchTask) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queued = append(p.queued, t.ID())
	return true, nil
}

func (p *planning) planner(window int) *Planner {
	return NewPlanner(PlannerConfig{Runs: p.runs, Batches: p.batches, Users: p.users, Queue: p, Clock: p.clk, Window: window,
		Log: slog.New(slog.NewTextHandler(&p.log, nil))})
}

func (p *planning) start(name, audience string, slot time.Time) *campaign.Run {
	p.t.Helper()
	r := &campaign.Run{ID: campaign.RunID(name, slot), Campaign: name, Slot: slot, StartedAt: slot, State: campaign.RunPlanning,
		Spec: campaign.Spec{Name: name, Audience: audience, ExpiresAfter: time.Hour}}
	copy(r.Short[:4], name)
	binary.BigEndian.PutUint32(r.Short[4:], uint32(slot.Unix()))
	p.ok(p.runs.InsertRun(p.ctx, r))
	return r
}

func (p *planning) ok(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *planning) insert(ids ...any) {
	p.t.Helper()
	docs := make([]any, len(ids))
	for i, id := range ids {
		docs[i] = bson.D{{Key: "_id", Value: id}, {Key: "i", Value: i}}
	}
	_, err := p.users.InsertMany(p.ctx, docs)
	p.ok(err)
}

func numbered(n int) []any {
	ids := make([]any, n)
	for i := range ids {
		ids[i] = i
	}
	return ids
}

func (p *planning) handle(pl *Planner, r *campaign.Run) {
	p.t.Helper()
	p.ok(pl.HandlePlan(p.ctx, queue.PlanTask{Run: r.ID}))
}

// plan is what stands in the batch documents, in order; ended tells whether the end marker is there.
func (p *planning) plan(r *campaign.Run) (batches [][]bson.RawValue, ended bool) {
	p.t.Helper()
	head, ok, err := p.batches.Last(p.ctx, r)
	p.ok(err)
	if !ok {
		return nil, false
	}
	last := head.N
	if head.End {
		last--
	}
	for n := 1; n <= last; n++ {
		b, err := p.batches.Get(p.ctx, r, n)
		p.ok(err)
		batches = append(batches, b.Users)
	}
	return batches, head.End
}

// visit takes a batch through its first pass.
func (p *planning) visit(r *campaign.Run, n int) {
	p.t.Helper()
	o, err := p.batches.Own(p.ctx, r, n, 0, fmt.Sprint("owner of ", n))
	p.ok(err)
	_, err = o.StorePass(p.ctx, campaign.PassEnd{Now: p.clk.Now(), NotBefore: p.clk.Now(), Visited: true})
	p.ok(err)
}

func rawID(v any) bson.RawValue {
	if v == nil {
		return bson.RawValue{Type: bson.TypeNull}
	}
	t, data, err := bson.MarshalValue(v)
	if err != nil {
		panic(err)
	}
	return bson.RawValue{Type: t, Value: data}
}

func sizes(batches [][]bson.RawValue) []int {
	var ns []int
	for _, b := range batches {
		ns = append(ns, len(b))
	}
	return ns
}

func TestPlanCutsBatches(t *testing.T) {
	p := newPlanning(t)
	p.insert(numbered(1234)...)
	r := p.start("x", "{}", testStart)
	p.handle(p.planner(0), r)
	batches, ended := p.plan(r)
	if d := cmp.Diff([]int{500, 500, 234}, sizes(batches)); d != "" || !ended {
		t.Fatal(ended, d)
	}
	for i, id := range slices.Concat(batches...) {
		if id.AsInt64() != int64(i) {
			t.Fatalf("user %d is %s", i, id)
		}
	}
	if d := cmp.Diff([]string{r.ID + "/1/1", r.ID + "/2/1", r.ID + "/3/1"}, p.queued); d != "" {
		t.Fatal(d)
	}
	now, err := p.runs.Run(p.ctx, r.ID)
	p.ok(err)
	if !now.PlanDone || now.Planned != 3 || now.State != campaign.RunPlanning { // only the reconciler moves a run on
		t.Fatalf("%s, planned %d, %v", now.State, now.Planned, now.PlanDone)
	}
	p.handle(p.planner(0), r) // and once more
	if again, _ := p.plan(r); len(again) != 3 {
		t.Fatalf("planned again: %v", sizes(again))
	}
}

func TestPlanOfNobody(t *testing.T) {
	p := newPlanning(t)
	r := p.start("x", "{}", testStart)
	p.handle(p.planner(0), r)
	if batches, ended := p.plan(r); len(batches) != 0 || !ended {
		t.Fatal(sizes(batches), ended)
	}
}

func TestPlanAsksForTheAudience(t *testing.T) {
	p := newPlanning(t)
	for i, at := range []time.Duration{-40 * 24 * time.Hour, -31 * 24 * time.Hour, -29 * 24 * time.Hour, 0} {
		_, err := p.users.InsertOne(p.ctx, bson.D{{Key: "_id", Value: i}, {Key: "created_at", Value: testStart.Add(at)}})
		p.ok(err)
	}
	r := p.start("x", `{"created_at":{"$lt":{"$ago":"30d"}},"_id":{"$ne":0}}`, testStart)
	p.clk.Advance(10 * 24 * time.Hour) // it counts from the start of the run
	p.handle(p.planner(0), r)
	batches, _ := p.plan(r)
	if len(batches) != 1 || len(batches[0]) != 1 || batches[0][0].AsInt64() != 1 {
		t.Fatalf("planned: %v", batches)
	}
}

func TestPlanStopsAtTheWindow(t *testing.T) {
	p := newPlanning(t)
	p.insert(numbered(2200)...)
	r := p.start("x", "{}", testStart)
	pl := p.planner(2)
	is := func(name string, want []int, end bool) {
		t.Helper()
		p.handle(pl, r)
		batches, ended := p.plan(r)
		if d := cmp.Diff(want, sizes(batches)); d != "" || ended != end {
			t.Fatalf("%s: ended %v %s", name, ended, d)
		}
	}
	is("two", []int{500, 500}, false)
	is("nobody has looked at them", []int{500, 500}, false)
	p.visit(r, 1)
	is("one was visited", []int{500, 500, 500}, false)
	p.visit(r, 2)
	p.visit(r, 3)
	is("all were", []int{500, 500, 500, 500, 200}, false)
	is("the window is full", []int{500, 500, 500, 500, 200}, false)
	p.visit(r, 4)
	is("and now the end", []int{500, 500, 500, 500, 200}, true)
}

// oddIDs holds an _id of every type that can be one, in MongoDB's order.
func oddIDs() []any {
	dec := func(s string) bson.Decimal128 {
		d, err := bson.ParseDecimal128(s)
		if err != nil {
			panic(err)
		}
		return d
	}
	return []any{
		bson.MinKey{},
		nil,
		math.NaN(), math.Inf(-1), dec("-1E+400"), int64(math.MinInt64), -1.5, int32(0), dec("0.5"), int64(1), 2.5, int64(math.MaxInt64), math.Inf(1),
		"", "a", "a\x00b", "b", "ünï",
		bson.D{}, bson.D{{Key: "a", Value: 1}}, bson.D{{Key: "a", Value: 2}}, bson.D{{Key: "b", Value: "x"}},
		bson.Binary{}, bson.Binary{Data: []byte{1}}, bson.Binary{Subtype: 4, Data: make([]byte, 16)},
		bson.ObjectID{}, bson.ObjectID{1}, bson.ObjectID{255},
		false, true,
		yearOne - 1, yearOne, bson.DateTime(-1), bson.DateTime(0), bson.DateTime(1 << 40),
		bson.Timestamp{}, bson.Timestamp{T: 1, I: 2},
		bson.MaxKey{},
	}
}

// insertOdd inserts the odd ids, from the last to the first, and returns those that are there. Another server than minimongo may
// know no dates outside of its calendar; and SecantusDB sorts binary data by length, as MongoDB does, but compares it by bytes.
func (p *planning) insertOdd() []any {
	p.t.Helper()
	ids := oddIDs()
	other := os.Getenv(mongotest.EnvURI) != ""
	for i := len(ids) - 1; i >= 0; i-- {
		if b, ok := ids[i].(bson.Binary); ok && other && len(b.Data) < 16 {
			ids = slices.Delete(ids, i, i+1)
			continue
		}
		_, err := p.users.InsertOne(p.ctx, bson.D{{Key: "_id", Value: ids[i]}})
		if err != nil && other {
			ids = slices.Delete(ids, i, i+1)
			continue
		}
		p.ok(err)
	}
	return ids
}

func TestPlanWalksTypeByType(t *testing.T) {
	p := newPlanning(t)
	ids := p.insertOdd()
	r := p.start("x", "{}", testStart)
	p.handle(p.planner(0), r)
	batches, ended := p.plan(r)
	got := slices.Concat(batches...)
	if !ended || len(got) != len(ids) {
		t.Fatalf("%d of %d users, ended %v: %v", len(got), len(ids), ended, got)
	}
	for i, id := range ids {
		if want := rawID(id); !got[i].Equal(want) {
			t.Errorf("user %d is %s, want %s", i, got[i], want)
		}
	}
	for _, b := range batches { // what a worker loads by one range of _id
		for _, id := range b {
			if classOf(id) != classOf(b[0]) {
				t.Fatalf("%s and %s in one batch", b[0], id)
			}
		}
	}
}

// TestPlanResumesBehindAnyID stops after every batch, with users of all types, until the plan ends: everybody is in it once.
func TestPlanResumesBehindAnyID(t *testing.T) {
	p := newPlanning(t)
	var many []any
	for i := range 1300 { // so that a class has several batches
		many = append(many, bson.ObjectID{2, byte(i >> 8), byte(i)}, fmt.Sprintf("u%04d", i))
	}
	p.insert(many...)
	ids := append(p.insertOdd(), many...)
	r := p.start("x", "{}", testStart)
	pl := p.planner(1)
	seen := map[string]int{}
	for n := 1; ; n++ {
		if n > 50 {
			t.Fatal("the plan does not end")
		}
		p.handle(pl, r)
		batches, ended := p.plan(r)
		if ended {
			for _, id := range slices.Concat(batches...) {
				seen[id.String()]++
			}
			break
		}
		if len(batches) != n {
			t.Fatalf("%d batches after %d calls", len(batches), n)
		}
		p.visit(r, n)
	}
	for id, times := range seen {
		if times != 1 {
			t.Errorf("%s is planned %d times", id, times)
		}
	}
	if len(seen) != len(ids) {
		t.Fatalf("%d of %d users", len(seen), len(ids))
	}
}

func TestPlanLongIDs(t *testing.T) {
	p := newPlanning(t)
	var ids []any
	for i := range 200 {
		ids = append(ids, fmt.Sprintf("%04d", i)+strings.Repeat("x", 1000))
	}
	p.insert(ids...)
	r := p.start("x", "{}", testStart)
	p.handle(p.planner(0), r)
	batches, ended := p.plan(r)
	if d := cmp.Diff([]int{64, 64, 64, 8}, sizes(batches)); d != "" || !ended {
		t.Fatal(ended, d)
	}
}

// TestPlanLeavesOutAnIDThatFitsNoBatch is done without a server: not every one takes such an id.
func TestPlanLeavesOutAnIDThatFitsNoBatch(t *testing.T) {
	p := newPlanning(t)
	r := p.start("x", "{}", testStart)
	c := &cutter{planner: p.planner(0), run: r, room: 1}
	large := rawID(strings.Repeat("b", campaign.MaxBatchIDBytes))
	for _, id := range []bson.RawValue{rawID("a"), large, rawID("c"), large} {
		p.ok(c.add(p.ctx, id))
	}
	p.ok(p.batches.EnsureIndexes(p.ctx, r.Slot))
	p.ok(c.flush(p.ctx))
	batches, _ := p.plan(r)
	if d := cmp.Diff([]int{2}, sizes(batches)); d != "" || strings.Count(p.log.String(), "a user is left out") != 2 || !c.last.Equal(large) {
		t.Fatal(d, p.log.String())
	}
}

func TestPlannersRace(t *testing.T) {
	p := newPlanning(t)
	p.insert(numbered(5300)...)
	r := p.start("x", "{}", testStart)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := p.planner(0).HandlePlan(p.ctx, queue.PlanTask{Run: r.ID}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	batches, ended := p.plan(r)
	for i, id := range slices.Concat(batches...) {
		if id.AsInt64() != int64(i) {
			t.Fatalf("user %d is %s", i, id)
		}
	}
	if d := cmp.Diff([]int{500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 300}, sizes(batches)); d != "" || !ended {
		t.Fatal(ended, d)
	}
}

// steered lets a test steer the run just before batch n is inserted.
type steered struct {
	PlanBatches
	n  int
	do func()
}

func (s steered) Insert(ctx context.Context, run *campaign.Run, n int, ids []bson.RawValue) error {
	err := s.PlanBatches.Insert(ctx, run, n, ids)
	if n == s.n {
		s.do()
	}
	return err
}

func TestPlanStopsWhenTheRunIsSteered(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(p *planning, r *campaign.Run) error
	}{
		{"paused", func(p *planning, r *campaign.Run) error { return p.runs.PauseRun(p.ctx, r.ID, "operator", "operator") }},
		{"cancelled", func(p *planning, r *campaign.Run) error { return p.runs.CancelRun(p.ctx, r.ID, "operator") }},
		{"the plan was closed", func(p *planning, r *campaign.Run) error { return p.batches.InsertEnd(p.ctx, r, 3) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlanning(t)
			p.insert(numbered(2500)...)
			r := p.start("x", "{}", testStart)
			pl := p.planner(0)
			pl.Batches = steered{p.batches, 2, func() { p.ok(c.do(p, r)) }}
			p.handle(pl, r)
			if batches, _ := p.plan(r); len(batches) != 2 {
				t.Fatalf("it planned on: %v", sizes(batches))
			}
			p.handle(pl, r)
			if batches, _ := p.plan(r); len(batches) != 2 {
				t.Fatalf("it planned on when asked again: %v", sizes(batches))
			}
		})
	}
}

func TestPlanWaitsForTheOlderRun(t *testing.T) {
	p := newPlanning(t)
	p.insert(numbered(3)...)
	older, newer := p.start("x", "{}", testStart), p.start("x", "{}", testStart.Add(time.Hour))
	p.handle(p.planner(0), newer)
	p.handle(p.planner(0), older) // which is not planned any more
	for _, r := range []*campaign.Run{older, newer} {
		if batches, ended := p.plan(r); len(batches) > 0 || ended {
			t.Fatalf("%s was planned", r.ID)
		}
	}
	_, err := p.runs.EndRun(p.ctx, older.ID, campaign.RunPlanning, campaign.RunSuperseded, campaign.Counts{}, testStart)
	p.ok(err)
	p.handle(p.planner(0), newer)
	if batches, ended := p.plan(newer); len(batches) != 1 || !ended {
		t.Fatal(sizes(batches), ended)
	}
}

func TestPlanOfARefusedQuery(t *testing.T) {
	for _, c := range []struct {
		name, audience string
		visited        bool
		state          campaign.RunState
		paused         bool
	}{
		{"MongoDB refuses it", `{"a":{"$foo":1}}`, false, campaign.RunFailed, false},
		{"it is no query", `{"a":{"$ago":1}}`, false, campaign.RunFailed, false},
		{"after the first batches", `{"a":{"$foo":1}}`, true, campaign.RunPlanning, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlanning(t)
			p.insert(numbered(3)...)
			r := p.start("x", c.audience, testStart)
			if c.visited {
				p.ok(p.batches.Insert(p.ctx, r, 1, []bson.RawValue{rawID(1)}))
			}
			p.handle(p.planner(0), r)
			now, err := p.runs.Run(p.ctx, r.ID)
			p.ok(err)
			if now.State != c.state || (now.Paused != "") != c.paused || !strings.Contains(now.Reason+now.Paused, "the audience cannot be asked for: ") {
				t.Fatalf("%s, %q, paused %q", now.State, now.Reason, now.Paused)
			}
		})
	}
}

func TestPlanOfARunThatIsGone(t *testing.T) {
	p := newPlanning(t)
	if err := p.planner(0).HandlePlan(p.ctx, queue.PlanTask{Run: "x@never"}); err != nil {
		t.Fatal(err)
	}
}

// memory is a plan in memory, for many plans in little time.
type memory struct {
	batches [][]bson.RawValue
	visited int
	end     bool
}

func (m *memory) EnsureIndexes(context.Context, time.Time) error { return nil }

func (m *memory) Insert(_ context.Context, _ *campaign.Run, n int, ids []bson.RawValue) error {
	if n != len(m.batches)+1 || m.end {
		return campaign.ErrBatchExists
	}
	m.batches = append(m.batches, slices.Clone(ids))
	return nil
}

func (m *memory) InsertEnd(_ context.Context, _ *campaign.Run, n int) error {
	if n != len(m.batches)+1 {
		return errors.New("an end that is not behind the last batch")
	}
	m.end = true
	return nil
}

func (m *memory) Last(context.Context, *campaign.Run) (campaign.BatchHead, bool, error) {
	n := len(m.batches)
	switch {
	case m.end:
		return campaign.BatchHead{N: n + 1, End: true}, true, nil
	case n == 0:
		return campaign.BatchHead{}, false, nil
	}
	return campaign.BatchHead{N: n, LastID: m.batches[n-1][len(m.batches[n-1])-1]}, true, nil
}

func (m *memory) Unvisited(context.Context, *campaign.Run) (int, error) {
	return len(m.batches) - m.visited, nil
}

// sameUser is the same for ids that can't be there beside each other: whole numbers of any type. SecantusDB (secantusd-rs) gives an
// int64 that fits as an int32 where _id alone is asked for.
func sameUser(id bson.RawValue) string {
	if f, ok := id.DoubleOK(); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return fmt.Sprint("number ", int64(f))
	}
	if id.Type == bson.TypeInt32 || id.Type == bson.TypeInt64 {
		return fmt.Sprint("number ", id.AsInt64())
	}
	return string(id.Type) + string(id.Value)
}

// TestPlanOfAnyUsers: whoever is in the collection is planned once, whatever the ids, the window and the order of visits.
func TestPlanOfAnyUsers(t *testing.T) {
	p := newPlanning(t)
	id := rapid.OneOf(
		rapid.Map(rapid.Int64(), func(v int64) any { return v }),
		rapid.Map(rapid.Int32(), func(v int32) any { return v }),
		rapid.Map(rapid.Float64(), func(v float64) any {
			if os.Getenv(mongotest.EnvURI) != "" && math.Abs(v) < 1e-100 {
				return 0.5 // secantusd-rs sorts the tiniest behind whole numbers, and compares them as what they are
			}
			return v
		}),
		rapid.Map(rapid.StringN(0, 3, -1), func(v string) any { return v }),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 3, 3), func(v []byte) any { return bson.Binary{Data: v} }),
		rapid.Map(rapid.Byte(), func(v byte) any { return bson.ObjectID{v} }),
		rapid.Map(rapid.Int64Range(-1<<45, 1<<45), func(v int64) any { return bson.DateTime(v) }),
		rapid.Map(rapid.Bool(), func(v bool) any { return v }),
		rapid.Map(rapid.IntRange(0, 9), func(v int) any { return bson.D{{Key: "k", Value: v}} }),
		rapid.Just[any](nil), rapid.Just[any](bson.MinKey{}), rapid.Just[any](bson.MaxKey{}),
		rapid.Map(rapid.StringN(1500, 2000, 8000), func(v string) any { return v }), // so that a batch is full of bytes before it is of users
	)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		p.t = t
		p.ok(p.users.Drop(p.ctx))
		docs := map[string]bool{}
		for _, v := range rapid.SliceOfN(id, 0, 40).Draw(t, "ids") {
			if _, err := p.users.InsertOne(p.ctx, bson.D{{Key: "_id", Value: v}}); mongo.IsDuplicateKeyError(err) {
				continue // 1 and 1.0
			} else {
				p.ok(err)
			}
			docs[sameUser(rawID(v))] = true
		}
		r := p.start("x", "{}", testStart.Add(time.Duration(n)*time.Second))
		defer func() { // so that it is in no other's way, also where this one fails
			_, err := p.runs.EndRun(p.ctx, r.ID, campaign.RunPlanning, campaign.RunDone, campaign.Counts{}, testStart)
			p.ok(err)
		}()
		m := &memory{}
		pl := p.planner(rapid.IntRange(1, 4).Draw(t, "window"))
		pl.Batches = m
		for i := 0; i < 200 && !m.end; i++ {
			p.handle(pl, r)
			m.visited = rapid.IntRange(min(m.visited+1, len(m.batches)), len(m.batches)).Draw(t, "visited")
		}
		if !m.end {
			t.Fatalf("the plan does not end: %v", sizes(m.batches))
		}
		for _, id := range slices.Concat(m.batches...) {
			key := sameUser(id)
			if !docs[key] {
				t.Fatalf("%s is planned twice, or nobody", id)
			}
			delete(docs, key)
		}
		if len(docs) > 0 {
			t.Fatalf("%d users are left out", len(docs))
		}
	})
}

// The audience of a run that expires while it is paused is planned all the same: everybody in it gets an outcome.
func TestPlanOfAPausedRunThatHasExpired(t *testing.T) {
	p := newPlanning(t)
	p.insert(numbered(700)...)
	r := p.start("x", "{}", testStart)
	p.ok(p.runs.PauseRun(p.ctx, r.ID, "operator", "operator"))
	p.handle(p.planner(0), r)
	if batches, ended := p.plan(r); len(batches) > 0 || ended {
		t.Fatalf("paused: %v, ended %t", sizes(batches), ended)
	}
	p.clk.Advance(time.Hour)
	p.handle(p.planner(0), r)
	if batches, ended := p.plan(r); !cmp.Equal(sizes(batches), []int{500, 200}) || !ended {
		t.Fatalf("expired: %v, ended %t", sizes(batches), ended)
	}
}

// A server that sorts by another order than it compares by would have users planned twice: the planner stops, and says so.
func TestPlanRefusesIDsThatDoNotAscend(t *testing.T) {
	binary := func(subtype byte, b ...byte) any { return bson.Binary{Subtype: subtype, Data: b} }
	for _, c := range []struct {
		name string
		a, b any
		want bool
	}{
		{"numbers", int32(1), int32(2), true},
		{"numbers, back", int64(2), int64(1), false},
		{"numbers of two types, back", 2.5, int32(1), false},
		{"numbers of two types", int64(2), 2.5, true},
		{"numbers that are not the same as a double", int64(1<<60 + 1), float64(1 << 60), true},
		{"the same string", "a", "a", false},
		{"strings go by a collation", "b", "A", true},
		{"ObjectIDs", bson.ObjectID{1}, bson.ObjectID{2}, true},
		{"ObjectIDs, back", bson.ObjectID{2}, bson.ObjectID{1}, false},
		{"a longer binary first in bytes", binary(0, 9), binary(0, 1, 1), true},
		{"a shorter one behind it", binary(0, 1, 1), binary(0, 9), false},
		{"subtypes before bytes", binary(0, 9), binary(4, 1), true},
		{"old subtypes count an inner length", binary(0, 1, 1), binary(2, 1), true},
		{"dates", bson.DateTime(-1), bson.DateTime(-2), false},
		{"a type that is not compared here", bson.Timestamp{T: 2}, bson.Timestamp{T: 1}, true},
	} {
		if got := ascends(rawID(c.a), rawID(c.b)); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
	p := newPlanning(t)
	r := p.start("x", "{}", testStart)
	c := &cutter{planner: p.planner(0), run: r, room: 9, last: rawID(int32(7))}
	if err := c.add(p.ctx, rawID(int32(7))); !errors.Is(err, errOrder) || !refused(err) {
		t.Errorf("the same id again: %v", err)
	}
	p.ok(p.batches.Insert(p.ctx, r, 1, []bson.RawValue{rawID(int32(7))}))
	p.ok(c.planner.refuse(p.ctx, r, 1, errOrder))
	now, err := p.runs.Run(p.ctx, r.ID)
	p.ok(err)
	if !strings.Contains(now.Paused, "does not sort") {
		t.Errorf("paused: %q", now.Paused)
	}
	p.clk.Advance(time.Hour)
	p.ok(c.planner.refuse(p.ctx, r, 1, errOrder))
	if _, ended := p.plan(r); !ended {
		t.Error("it has expired, and its plan is not closed")
	}
}
