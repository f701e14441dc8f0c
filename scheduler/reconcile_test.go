package scheduler

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
)

func TestARunFromItsStartToItsEnd(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", "")
	r := w.manual("x")
	is := func(name string, state campaign.RunState, counts campaign.Counts) {
		t.Helper()
		w.do(w.Reconcile)
		now := w.run(r.ID)
		if now.State != state {
			t.Fatalf("%s: %s, want %s", name, now.State, state)
		}
		if d := cmp.Diff(counts, now.Counts); d != "" {
			t.Fatalf("%s: %s", name, d)
		}
	}
	none := map[string]int64{}
	is("not planned", campaign.RunPlanning, campaign.Counts{Skipped: none})
	w.plan(r, 1, 2, false)
	is("the first batches", campaign.RunSending, campaign.Counts{Audience: 4, Skipped: none})
	w.pass(r, 1, campaign.Sent, w.clk.Now(), true)
	w.pass(r, 2, campaign.Waiting, w.clk.Now().Add(time.Hour), true)
	is("two were sent, two wait", campaign.RunSending, campaign.Counts{Audience: 4, Checked: 4, Sent: 2, Deferred: 2, Skipped: none})
	w.pass(r, 2, campaign.Skipped("min_gap"), w.clk.Now(), true)
	skipped := map[string]int64{"min_gap": 2}
	is("the plan is not closed", campaign.RunSending, campaign.Counts{Audience: 4, Checked: 4, Sent: 2, Skipped: skipped})
	w.plan(r, 3, 3, true)
	w.pass(r, 3, campaign.Unconfirmed, w.clk.Now(), true)
	w.clk.Advance(time.Minute)
	is("all is done", campaign.RunDone, campaign.Counts{Audience: 6, Checked: 6, Sent: 2, Unconfirmed: 2, Skipped: skipped})
	if now := w.run(r.ID); !now.EndedAt.Equal(w.clk.Now()) || now.Planned != 3 {
		t.Fatalf("ended at %s with %d batches", now.EndedAt, now.Planned)
	}
}

func TestNobodyInTheAudience(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", "")
	r := w.manual("x")
	w.plan(r, 1, 0, true)
	w.do(w.Reconcile)
	w.states(map[string]campaign.RunState{r.ID: campaign.RunDone})
}

// TestAPlannerDiedBehindItsEndMarker: the marker counts, not the note of it on the run.
func TestAPlannerDiedBehindItsEndMarker(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", "")
	r := w.manual("x")
	w.plan(r, 1, 1, false)
	if err := w.batches.InsertEnd(t.Context(), r, 2); err != nil {
		t.Fatal(err)
	}
	w.pass(r, 1, campaign.Sent, w.clk.Now(), true)
	w.do(w.Reconcile)
	if now := w.run(r.ID); now.State != campaign.RunDone || now.Planned != 1 || !now.PlanDone {
		t.Fatalf("%s, planned %d", now.State, now.Planned)
	}
}

// TestASingleMailWhoseMakerDied has no planner that could put the end marker.
func TestASingleMailWhoseMakerDied(t *testing.T) {
	for _, c := range []struct {
		name    string
		batches int
		after   time.Duration
		want    campaign.RunState
	}{
		{"before the end marker", 1, 0, campaign.RunDone},
		{"before the batch: he may come back", 0, time.Minute, campaign.RunSending},
		{"before the batch, and it has expired", 0, time.Hour, campaign.RunDone},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, start)
			r := &campaign.Run{ID: "send/key", Slot: start, StartedAt: start, State: campaign.RunSending, Planned: 1, PlanDone: true,
				Spec: campaign.Spec{Template: "t", Audience: "{}", ExpiresAfter: time.Hour}}
			if err := w.runs.InsertRun(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			w.plan(r, 1, c.batches, false)
			if c.batches > 0 {
				w.pass(r, 1, campaign.Sent, w.clk.Now(), true)
			}
			w.clk.Advance(c.after)
			w.do(w.Reconcile)
			w.states(map[string]campaign.RunState{r.ID: c.want})
		})
	}
}

func TestReconcileSettles(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", "")
	r := w.manual("x")
	w.plan(r, 1, 2, true)
	w.pass(r, 1, campaign.Sent, w.clk.Now(), true)
	w.pass(r, 2, campaign.Sent, w.clk.Now(), false)
	if err := w.runs.PauseRun(t.Context(), r.ID, "operator", "operator"); err != nil { // a paused run settles what it has
		t.Fatal(err)
	}
	w.do(w.Reconcile)
	if d := cmp.Diff([]string{r.ID + "/2"}, w.settled.list); d != "" {
		t.Fatal(d)
	}
	w.states(map[string]campaign.RunState{r.ID: campaign.RunDone})
}

func TestARunDoesNotEndUnsettled(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", "")
	w.apply("y", "")
	r, other := w.manual("x"), w.manual("y")
	w.plan(r, 1, 1, true)
	w.plan(other, 1, 0, true)
	w.pass(r, 1, campaign.Sent, w.clk.Now(), false)
	w.Settle = func(context.Context, *campaign.Run, int) error { return errors.New("the analytics are away") }
	if err := w.Reconcile(t.Context()); err == nil || !strings.Contains(err.Error(), r.ID+": settle batch 1: the analytics are away") {
		t.Fatalf("%v", err)
	}
	w.states(map[string]campaign.RunState{r.ID: campaign.RunPlanning, other.ID: campaign.RunDone})
}

func TestCancelGoesThroughAllBatches(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", "")
	r := w.manual("x")
	w.plan(r, 1, 3, false) // a planner is at work
	ids := someIDs(t, w, r)
	w.pass(r, 1, campaign.Sent, w.clk.Now(), true)
	if _, err := w.batches.Own(t.Context(), r, 2, 0, "a worker that has died"); err != nil {
		t.Fatal(err)
	}
	if err := w.runs.CancelRun(t.Context(), r.ID, "operator"); err != nil {
		t.Fatal(err)
	}
	w.do(w.Reconcile)
	w.states(map[string]campaign.RunState{r.ID: campaign.RunCancelling})
	if err := w.batches.Insert(t.Context(), r, 4, ids); !errors.Is(err, campaign.ErrBatchExists) {
		t.Fatalf("a late planner got a batch in: %v", err)
	}
	w.pass(r, 3, campaign.Skipped("cancelled"), w.clk.Now(), true)
	w.do(w.Reconcile)
	w.states(map[string]campaign.RunState{r.ID: campaign.RunCancelling}) // one still has an owner
	w.clk.Advance(50 * time.Second)
	w.pass(r, 2, campaign.Skipped("cancelled"), w.clk.Now(), true)
	w.do(w.Reconcile)
	now := w.run(r.ID)
	if c := now.Counts; now.State != campaign.RunCancelled || c.Audience != 6 || c.Checked != 6 || c.Sent != 2 || c.Skipped["cancelled"] != 4 {
		t.Fatalf("%s, %+v", now.State, now.Counts)
	}
}

func TestCancelBeforeThePlan(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", "")
	r := w.manual("x")
	if err := w.runs.CancelRun(t.Context(), r.ID, "operator"); err != nil {
		t.Fatal(err)
	}
	w.do(w.Reconcile)
	w.states(map[string]campaign.RunState{r.ID: campaign.RunCancelled})
}

// TestTheEndMarkerAndALatePlanner: whichever of the two inserts first, every batch that got in is gone through.
func TestTheEndMarkerAndALatePlanner(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", "")
	r := w.manual("x")
	w.plan(r, 1, 1, false)
	if err := w.runs.CancelRun(t.Context(), r.ID, "operator"); err != nil {
		t.Fatal(err)
	}
	ids := someIDs(t, w, r)
	var wg sync.WaitGroup
	planned := 1
	wg.Go(func() {
		for n := 2; ; n++ {
			err := w.batches.Insert(t.Context(), r, n, ids)
			if errors.Is(err, campaign.ErrBatchExists) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			planned = n
		}
	})
	for range 2 {
		wg.Go(func() {
			if err := New(w.config).Reconcile(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	head, _, err := w.batches.Last(t.Context(), r)
	if err != nil || !head.End || head.N != planned+1 {
		t.Fatalf("the plan ends with %+v behind %d batches, %v", head, planned, err)
	}
}

func TestReconcileResumesNothing(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", "")
	r := w.manual("x")
	w.plan(r, 1, 1, true)
	if err := w.runs.PauseRun(t.Context(), r.ID, "the password is wrong", "worker"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.clk.Advance(time.Hour)
		w.do(w.Feed)
		w.do(w.Reconcile)
	}
	if now := w.run(r.ID); now.Paused != "the password is wrong" || now.State.Finished() {
		t.Fatalf("%s, paused %q", now.State, now.Paused)
	}
}

func TestManySchedulersEndARunOnce(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", "")
	r := w.manual("x")
	w.plan(r, 1, 1, true)
	w.pass(r, 1, campaign.Sent, w.clk.Now(), true)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := New(w.config).Reconcile(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := strings.Count(w.log.String(), "a run has ended"); n != 1 {
		t.Fatalf("ended %d times", n)
	}
	w.states(map[string]campaign.RunState{r.ID: campaign.RunDone})
}

// someIDs gives ids that a batch may hold.
func someIDs(t *testing.T, w *world, r *campaign.Run) []bson.RawValue {
	t.Helper()
	head, ok, err := w.batches.Last(t.Context(), r)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return []bson.RawValue{head.LastID}
}
