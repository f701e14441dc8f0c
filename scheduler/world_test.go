package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/logtest"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/queue"
)

// world is everything around schedulers: a database, a clock that stands, a queue that remembers, and a worker that does
// what a test tells it.
type world struct {
	t       *testing.T
	db      *mongo.Database
	clk     *clock.Clock
	runs    *campaign.Store
	batches *campaign.Batches
	queue   *fakeQueue
	log     *logtest.Buffer
	config  Config
	*Scheduler

	templates map[string]campaign.TemplateInfo
	settled   settlings
}

// settlings remembers what was settled ("run/n"), by however many schedulers.
type settlings struct {
	mu   sync.Mutex
	list []string
}

func (s *settlings) add(batch string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, batch)
}

var start = time.Date(2026, 12, 1, 8, 59, 0, 0, time.UTC)

func newWorld(t *testing.T, at time.Time) *world { return newWorldOn(t, mongotest.DB(t), at) }

func newWorldOn(t *testing.T, db *mongo.Database, at time.Time) *world {
	t.Helper()
	w := &world{t: t, db: db, clk: clock.At(at), queue: &fakeQueue{}, log: &logtest.Buffer{},
		templates: map[string]campaign.TemplateInfo{"t": {Exists: true, Snapshot: raw(t, bson.D{{Key: "_id", Value: "t"}})}}}
	w.runs, w.batches = campaign.NewStore(w.db), campaign.NewBatches(w.db, w.clk)
	if err := w.runs.EnsureIndexes(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.config = Config{
		DB: w.db, Runs: w.runs, Batches: w.batches, Templates: w, Clock: w.clk, Queue: w.queue, Settle: w.settle,
		Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{ReplaceAttr: noTime})),
	}
	w.Scheduler = New(w.config)
	return w
}

func raw(t *testing.T, d bson.D) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TemplateInfo makes the world a registry of templates.
func (w *world) TemplateInfo(_ context.Context, name string) (campaign.TemplateInfo, error) {
	if name == "trouble" {
		return campaign.TemplateInfo{}, errors.New("the database is away")
	}
	return w.templates[name], nil
}

func (w *world) settle(ctx context.Context, r *campaign.Run, n int) error {
	b, err := w.batches.Get(ctx, r, n)
	if err != nil {
		return err
	}
	w.settled.add(campaign.BatchID(r.ID, n))
	d := b.Unsettled()
	if d == nil {
		return nil // another scheduler was here
	}
	return w.batches.MarkApplied(ctx, r, n, d.Pass)
}

// apply makes an active campaign of a file; more is appended to it.
func (w *world) apply(name, schedule string, more ...string) {
	w.t.Helper()
	text := "name: " + name + "\ntemplate: t\naudience: {}\n"
	if schedule != "" {
		text += "schedule: " + schedule + "\n"
	}
	for _, line := range more {
		text += line + "\n"
	}
	w.applyText(text)
}

func (w *world) applyText(text string) {
	w.t.Helper()
	s, err := campaign.ParseFile("x.yaml", []byte(text))
	if err != nil {
		w.t.Fatal(err)
	}
	next, err := s.Schedule.Next(w.clk.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	c := campaign.Campaign{Name: s.Name, Spec: s, State: campaign.StateActive, NextAt: next}
	if _, err := w.db.Collection("campaigns", campaign.Durable()).InsertOne(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) do(step func(context.Context) error) {
	w.t.Helper()
	if err := step(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) manual(name string) *campaign.Run {
	w.t.Helper()
	r, err := w.StartManual(w.t.Context(), name, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) run(id string) *campaign.Run {
	w.t.Helper()
	r, err := w.runs.Run(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// ids are the runs of a campaign, the earliest slot first.
func (w *world) ids(name string) []string {
	w.t.Helper()
	runs, err := w.runs.Runs(w.t.Context(), name, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	ids := []string{}
	for i := range runs {
		ids = append(ids, runs[len(runs)-1-i].ID)
	}
	return ids
}

// plan gives a run batches from..to of two users each, as a planner does; closed puts the end marker behind them.
func (w *world) plan(r *campaign.Run, from, to int, closed bool) {
	w.t.Helper()
	for n := from; n <= to; n++ {
		ids := make([]bson.RawValue, 2)
		for i := range ids {
			t, data, err := bson.MarshalValue(2*n + i)
			if err != nil {
				w.t.Fatal(err)
			}
			ids[i] = bson.RawValue{Type: t, Value: data}
		}
		if err := w.batches.Insert(w.t.Context(), r, n, ids); err != nil {
			w.t.Fatal(err)
		}
	}
	if closed {
		if err := w.batches.InsertEnd(w.t.Context(), r, to+1); err != nil {
			w.t.Fatal(err)
		}
		if err := w.runs.SetPlanned(w.t.Context(), r.ID, to); err != nil {
			w.t.Fatal(err)
		}
	}
}

// pass takes a batch through a pass in which both users get an outcome (campaign.Waiting: they stay, until notBefore).
func (w *world) pass(r *campaign.Run, n int, outcome campaign.Outcome, notBefore time.Time, applied bool) {
	w.t.Helper()
	ctx := w.t.Context()
	o, err := w.batches.Own(ctx, r, n, 0, fmt.Sprintf("worker of %s/%d", r.ID, n))
	if err != nil {
		w.t.Fatal(err)
	}
	var found []campaign.Result
	for i := range o.Users {
		found = append(found, campaign.Result{Index: i, Outcome: outcome})
	}
	d, err := o.StorePass(ctx, campaign.PassEnd{Now: w.clk.Now(), Found: found, NotBefore: notBefore, Visited: true, TookBack: true})
	if err != nil {
		w.t.Fatal(err)
	}
	if d != nil && applied {
		if err := w.batches.MarkApplied(ctx, r, n, d.Pass); err != nil {
			w.t.Fatal(err)
		}
	}
}

func noTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// fakeQueue remembers what is waiting, in order.
type fakeQueue struct {
	mu      sync.Mutex
	plans   []string
	batches []queue.BatchTask
	down    error
}

func (q *fakeQueue) EnqueuePlan(_ context.Context, t queue.PlanTask) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.down != nil {
		return q.down
	}
	for _, p := range q.plans {
		if p == t.Run {
			return nil
		}
	}
	q.plans = append(q.plans, t.Run)
	return nil
}

func (q *fakeQueue) EnqueueBatch(_ context.Context, t queue.BatchTask) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.down != nil {
		return false, q.down
	}
	for _, b := range q.batches {
		if b == t {
			return false, nil
		}
	}
	q.batches = append(q.batches, t)
	return true, nil
}

func (q *fakeQueue) flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.plans, q.batches = nil, nil
}

// waiting are the tasks of batches in the queue: "run/n/pass".
func (q *fakeQueue) waiting() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	ids := []string{}
	for _, b := range q.batches {
		ids = append(ids, b.ID())
	}
	return ids
}
