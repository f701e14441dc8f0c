package scheduler

import (
	"testing"
	"time"

	"postbit/internal/campaign"
)

func (w *world) states(want map[string]campaign.RunState) {
	w.t.Helper()
	for id, state := range want {
		if got := w.run(id).State; got != state {
			w.t.Fatalf("run %s is %s, want %s", id, got, state)
		}
	}
}

// TestSupersede is a daily campaign that fires while yesterday's run still has deferred users.
func TestSupersede(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", `{ cron: "0 9 * * *" }`, "expires_after: 48h")
	const first, second = "x@2026-12-01T09:00:00Z", "x@2026-12-02T09:00:00Z"
	w.clk.Advance(time.Minute)
	w.do(w.Fire)
	older := w.run(first)
	w.plan(older, 1, 3, true)
	w.pass(older, 1, campaign.Sent, w.clk.Now(), true)
	w.pass(older, 2, campaign.Waiting, w.clk.Now().Add(40*time.Hour), true)
	w.do(w.Reconcile)
	w.states(map[string]campaign.RunState{first: campaign.RunSending})

	w.clk.Advance(24 * time.Hour)
	w.do(w.Fire)
	w.states(map[string]campaign.RunState{first: campaign.RunSuperseding, second: campaign.RunPlanning})
	w.queue.flush()
	w.do(w.Feed)
	if len(w.queue.plans) != 0 {
		t.Fatalf("planned before the older run has ended: %v", w.queue.plans)
	}
	want := []string{first + "/2/2", first + "/3/1"} // the deferred one is due at once
	if got := w.queue.waiting(); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Fatalf("in the queue: %v, want %v", got, want)
	}
	w.do(w.Reconcile)
	w.states(map[string]campaign.RunState{first: campaign.RunSuperseding})

	w.pass(older, 2, campaign.Skipped("superseded"), w.clk.Now(), true)
	w.pass(older, 3, campaign.Skipped("superseded"), w.clk.Now(), true)
	w.do(w.Reconcile)
	w.states(map[string]campaign.RunState{first: campaign.RunSuperseded, second: campaign.RunPlanning})
	ended := w.run(first)
	if c := ended.Counts; c.Audience != 6 || c.Checked != 6 || c.Sent != 2 || c.Skipped["superseded"] != 4 || ended.Reason != "superseded by "+second {
		t.Fatalf("%+v, %q", c, ended.Reason)
	}
	w.do(w.Feed)
	if len(w.queue.plans) != 1 || w.queue.plans[0] != second {
		t.Fatalf("now the newer one is planned: %v", w.queue.plans)
	}
}

// TestSupersededByWhoeverIsNewer: the scheduler that was slow finds a newer run there, and a chain of three ends in one.
func TestSupersededByWhoeverIsNewer(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", "")
	newest := w.manual("x")
	late := &campaign.Run{ID: campaign.RunID("x", start.Add(-time.Hour)), Slot: start.Add(-time.Hour)}
	c, err := w.runs.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.start(t.Context(), late, c, w.clk.Now()); err != nil {
		t.Fatal(err)
	}
	w.states(map[string]campaign.RunState{late.ID: campaign.RunSuperseding, newest.ID: campaign.RunPlanning})
	w.clk.Advance(time.Hour)
	third := w.manual("x")
	w.do(w.Reconcile)
	w.states(map[string]campaign.RunState{late.ID: campaign.RunSuperseded, newest.ID: campaign.RunSuperseded, third.ID: campaign.RunPlanning})
}

// TestSupersedeIsMadeUpFor: a scheduler that dies after its insert leaves the looking to whoever feeds next.
func TestSupersedeIsMadeUpFor(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", "")
	older := w.manual("x")
	newer := *w.run(older.ID)
	newer.Slot, newer.Short = start.Add(time.Hour), campaign.ShortID{9}
	newer.ID = campaign.RunID("x", newer.Slot)
	if err := w.runs.InsertRun(t.Context(), &newer); err != nil {
		t.Fatal(err)
	}
	w.queue.flush()
	w.do(w.Feed)
	w.states(map[string]campaign.RunState{older.ID: campaign.RunSuperseding, newer.ID: campaign.RunPlanning})
	if len(w.queue.plans) != 0 {
		t.Fatalf("planned: %v", w.queue.plans)
	}
}

func TestSupersedeWhatIsPausedOrCancelled(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", "")
	older := w.manual("x")
	w.plan(older, 1, 1, true)
	if err := w.runs.PauseRun(t.Context(), older.ID, "operator", "operator"); err != nil {
		t.Fatal(err)
	}
	w.clk.Advance(time.Hour)
	newer := w.manual("x")
	w.states(map[string]campaign.RunState{older.ID: campaign.RunSuperseding})
	w.queue.flush()
	w.do(w.Feed)
	if got := w.queue.waiting(); len(got) != 1 || got[0] != older.ID+"/1/1" {
		t.Fatalf("a paused run that ends must be fed: %v", got)
	}
	if err := w.runs.CancelRun(t.Context(), newer.ID, "operator"); err != nil {
		t.Fatal(err)
	}
	w.clk.Advance(time.Hour)
	w.manual("x")
	w.states(map[string]campaign.RunState{newer.ID: campaign.RunCancelling}) // it keeps the end it has begun
}
