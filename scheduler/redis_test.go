package scheduler

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"postbit/internal/campaign"
	"postbit/internal/queue"
	"postbit/internal/queue/redistest"
)

// TestFeedIntoRedis: whatever happens to the queue, a run that is resumed has its batches in it again, and so has a later run.
func TestFeedIntoRedis(t *testing.T) {
	w := newWorld(t, start)
	r := redistest.Client(t)
	client := queue.NewClient(r)
	w.Scheduler.Queue = client
	w.apply("x", "")
	run := w.manual("x")
	w.plan(run, 1, 3, true)
	waiting := func(name string, want int) {
		t.Helper()
		w.do(w.Feed)
		w.do(w.Feed) // after a flush the first call may only find out that it happened
		depths, err := client.Depths()
		if err != nil {
			t.Fatal(err)
		}
		if got := depths["batch"]; got.Waiting != want || got.Archived != 0 {
			t.Fatalf("%s: %+v, want %d waiting", name, got, want)
		}
	}
	waiting("fed", 3)
	inspector := asynq.NewInspectorFromRedisClient(r)
	if n, err := inspector.ArchiveAllPendingTasks("postbit-batch"); err != nil || n != 3 {
		t.Fatal(n, err)
	}
	if err := w.runs.PauseRun(t.Context(), run.ID, "operator", "operator"); err != nil {
		t.Fatal(err)
	}
	if err := w.runs.ResumeRun(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	waiting("archived and resumed", 3)
	if err := r.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	waiting("flushed", 3)
	if n, err := inspector.ArchiveAllPendingTasks("postbit-batch"); err != nil || n != 3 {
		t.Fatal(n, err)
	}
	for n := 1; n <= 3; n++ {
		w.pass(run, n, campaign.Sent, w.clk.Now(), true)
	}
	w.do(w.Reconcile)
	w.clk.Advance(time.Hour)
	later := w.manual("x")
	w.plan(later, 1, 2, true)
	w.do(w.Feed)
	depths, err := client.Depths()
	if err != nil || depths["batch"].Waiting != 2 {
		t.Fatalf("a later run: %+v, %v", depths["batch"], err)
	}
}
