package scheduler

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	limiter "postbit/internal/limits"
	"postbit/internal/minimongo/mongotest"
)

// story is what schedulers do in the life of two runs: one starts, is planned and sends, a newer one supersedes it, and is done. Every step is
// taken by the scheduler that the test puts there.
type story struct {
	*world
	step func(what func(*Scheduler) error)
}

func (s *story) fire()      { s.step(func(x *Scheduler) error { return x.Fire(s.t.Context()) }) }
func (s *story) feed()      { s.step(func(x *Scheduler) error { return x.Feed(s.t.Context()) }) }
func (s *story) reconcile() { s.step(func(x *Scheduler) error { return x.Reconcile(s.t.Context()) }) }

func (s *story) tell() {
	s.apply("x", `{ cron: "0 * * * *" }`, `limits: { rate: ["1000000/h"] }`)
	s.clk.Advance(time.Minute) // 09:00
	s.fire()
	first := s.run("x@2026-12-01T09:00:00Z")
	s.feed()
	s.plan(first, 1, 2, false)
	s.reconcile() // sending
	s.feed()
	s.pass(first, 1, campaign.Sent, s.clk.Now(), false)
	s.reconcile() // settles

	s.clk.Advance(time.Hour)
	s.fire() // and supersedes
	second := s.run("x@2026-12-01T10:00:00Z")
	s.feed()
	s.pass(first, 2, campaign.Skipped("superseded"), s.clk.Now(), true)
	s.reconcile() // closes the plan, ends the first
	s.reconcile()
	s.feed()
	s.plan(second, 1, 3, false)
	if err := s.batches.InsertEnd(s.t.Context(), second, 4); err != nil { // the planner dies before it says so
		s.t.Fatal(err)
	}
	s.reconcile()
	s.feed()
	for n := 1; n <= 3; n++ {
		s.pass(second, n, campaign.Sent, s.clk.Now(), n > 1)
	}
	s.reconcile() // settles, and is done
	s.reconcile()
}

// expect holds the end of the story against what it has to be.
func (s *story) expect() {
	s.t.Helper()
	type ended struct {
		ID, State                        string
		Planned                          int
		PlanDone                         bool
		Audience, Checked, Sent, Skipped int64
	}
	var got []ended
	for _, id := range s.ids("x") {
		r := s.run(id)
		got = append(got, ended{r.ID, string(r.State), r.Planned, r.PlanDone, r.Counts.Audience, r.Counts.Checked, r.Counts.Sent, r.Counts.Skipped["superseded"]})
		for _, n := range []int{1, r.Planned} {
			b, err := s.batches.Get(s.t.Context(), r, n)
			if err != nil || b.Pass != 1 || b.Unsettled() != nil {
				s.t.Errorf("batch %s: %v, or not settled", campaign.BatchID(id, n), err)
			}
		}
		if head, _, err := s.batches.Last(s.t.Context(), r); err != nil || !head.End || head.N != r.Planned+1 {
			s.t.Errorf("%s ends at %+v, %v", id, head, err)
		}
	}
	want := []ended{
		{"x@2026-12-01T09:00:00Z", "superseded", 2, true, 4, 4, 2, 2},
		{"x@2026-12-01T10:00:00Z", "done", 3, true, 6, 6, 6, 0},
	}
	if d := cmp.Diff(want, got); d != "" {
		s.t.Error(d)
	}
	c, err := s.runs.Get(s.t.Context(), "x")
	if err != nil || !c.NextAt.Equal(start.Add(2*time.Hour+time.Minute)) || !c.LastAt.Equal(start.Add(time.Hour+time.Minute)) {
		s.t.Errorf("next at %s, last %s, %v", c.NextAt, c.LastAt, err)
	}
	tasks := s.queue.waiting()
	wantTasks := map[string]bool{}
	for _, run := range want {
		for n := 1; n <= run.Planned; n++ {
			wantTasks[fmt.Sprintf("%s/%d/1", run.ID, n)] = true
		}
	}
	for _, id := range tasks {
		delete(wantTasks, id)
	}
	if len(wantTasks) > 0 {
		s.t.Errorf("never enqueued: %v of %v", wantTasks, tasks)
	}
	if d := cmp.Diff([]string{want[0].ID, want[1].ID}, s.queue.plans); d != "" {
		s.t.Errorf("plans: %s", d)
	}
}

// newStory is a story whose schedulers meet trouble at the nth of their commands; 0: they meet none.
func newStory(t *testing.T, nth int, x mongotest.Trouble, heard func(command bson.Raw)) (*story, *mongotest.Troubled) {
	srv, db := mongotest.Server(t)
	s := &story{world: newWorldOn(t, db, start)}
	s.config.Limits = limiter.New(db.Collection(limiter.Collection), s.clk)
	s.Scheduler = New(s.config)
	other := New(s.config)
	trouble := x.Inject(srv, nth, heard)
	s.step = func(what func(*Scheduler) error) {
		t.Helper()
		trouble.Step(t, func() error { return what(s.Scheduler) }, func() error { return what(other) })
	}
	return s, trouble
}

// ofAScheduler are the commands of Fire, Feed and Reconcile, and what each is for.
var ofAScheduler = map[string]string{
	"find campaigns":            "whose slot has come",
	"insert runs":               "a run of that slot",
	"update campaigns":          "the schedule goes on to the next slot",
	"find runs":                 "what is unfinished; newer and older runs of the campaign",
	"update runs":               "superseding, the states, the plan, the counts, the end",
	"find limits":               "whether there is room",
	"find batches.2026.12":      "what is due, what is unsettled, the last batch, progress",
	"aggregate batches.2026.12": "how many batches are new and open, progress",
	"update batches.2026.12":    "settling",
	"insert batches.2026.12":    "the end marker of a run that ends",
}

// sample is how many commands share one story: under the race detector, which makes everything slow, every fifth meets trouble.
var sample = 1

// Each command of a scheduler meets each trouble. Its loop, or another scheduler, takes the step again, and nothing comes of it.
func TestEveryCommandOfASchedulerFailsInEveryWay(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for many reconnections")
	}
	var said mongotest.Commands
	s, _ := newStory(t, 0, mongotest.Trouble{}, said.Count)
	s.tell()
	s.expect()
	said.Expect(t, ofAScheduler)
	times := 0
	for _, n := range said.Times() {
		times += n
	}
	for way, x := range mongotest.Troubles {
		t.Run(way, func(t *testing.T) {
			// All at once: after a lost connection the driver waits half a second.
			places := make(chan struct{}, 16)
			var running sync.WaitGroup
			defer running.Wait()
			for nth := 1; nth <= times; nth += sample {
				places <- struct{}{}
				running.Go(func() {
					defer func() { <-places }()
					t.Run(fmt.Sprint(nth), func(t *testing.T) {
						s, trouble := newStory(t, nth, x, nil)
						s.tell()
						if !trouble.Over() {
							t.Error("it met no trouble")
						}
						s.feed()
						s.reconcile()
						s.expect()
					})
				})
			}
		})
	}
}
