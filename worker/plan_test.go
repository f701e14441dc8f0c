package worker

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/logtest"
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
	log     logtest.Buffer

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
