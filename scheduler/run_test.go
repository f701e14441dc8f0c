package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"postbit/internal/clock"
	"postbit/internal/queue"
)

// upkeep counts what the scheduler asks of the analytics.
type upkeep struct {
	mu    sync.Mutex
	days  []time.Time
	stale []time.Duration
	err   error
}

func (u *upkeep) Preallocate(_ context.Context, day, _ time.Time) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.days = append(u.days, day)
	return 3, u.err
}

func (u *upkeep) FinishStale(_ context.Context, olderThan time.Duration) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stale = append(u.stale, olderThan)
	return 2, nil
}

func TestUpkeep(t *testing.T) {
	for now, want := range map[string]string{
		"2026-12-01T00:00:00Z": "2026-12-02",
		"2026-12-01T23:59:59Z": "2026-12-02",
		"2026-12-31T12:00:00Z": "2027-01-01",
	} {
		u := &upkeep{err: errors.New("no")}
		s := New(Config{Clock: clock.At(at(t, now)), Counters: u})
		if err := s.Upkeep(t.Context()); !errors.Is(err, u.err) {
			t.Errorf("%v", err)
		}
		if len(u.days) != 1 || u.days[0].Format(time.DateOnly) != want || len(u.stale) != 1 || u.stale[0] != staleAfter {
			t.Errorf("at %s: %v, %v; what one cannot do must not keep the other", now, u.days, u.stale)
		}
	}
}

// TestRun lets all loops go: a campaign that is due becomes a run in the queue, and every goroutine has ended when Run returns.
func TestRun(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) }) // once the database is closed
	w := newWorld(t, start)
	w.apply("x", `{ cron: "0 9 * * *" }`)
	w.clk.Advance(time.Minute)
	w.Counters, w.Retention, w.FollowClock = &upkeep{}, time.Hour, false
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	planned := make(chan string, 1)
	w.Scheduler.Queue = signalQueue{w.queue, planned}
	go func() { ended <- w.Run(ctx) }()
	if id := <-planned; id != "x@2026-12-01T09:00:00Z" {
		t.Errorf("planned %s", id)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// signalQueue tells of the first plan.
type signalQueue struct {
	*fakeQueue
	planned chan string
}

func (q signalQueue) EnqueuePlan(_ context.Context, t queue.PlanTask) error {
	select {
	case q.planned <- t.Run:
	default:
	}
	return nil
}

// TestRunSetsItsClockFirst: a machine that is a day ahead fires nothing of tomorrow.
func TestRunSetsItsClockFirst(t *testing.T) {
	w := newWorld(t, start)
	clk := clock.New()
	clk.Advance(24 * time.Hour)
	w.clk, w.Clock, w.FollowClock = clk, clk, true
	w.apply("x", "")
	w.manual("x")
	due := time.Now().UTC().Add(12 * time.Hour)
	w.applyText("name: y\ntemplate: t\naudience: {}\nschedule: { at: " + time.Now().UTC().Add(48*time.Hour).Format(time.RFC3339) + " }\n")
	if _, err := w.db.Collection("campaigns").UpdateByID(t.Context(), "y", bson.D{{Key: "$set", Value: bson.D{{Key: "next_at", Value: due}}}}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended, planned := make(chan error), make(chan string, 1)
	w.Scheduler.Queue = signalQueue{w.queue, planned}
	go func() { ended <- w.Run(ctx) }()
	<-planned // the loops are on their way
	if off := clk.Now().Sub(time.Now()); off.Abs() > time.Hour {
		t.Errorf("the clock is still off by %s", off)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if ids := w.ids("y"); len(ids) > 0 {
		t.Fatalf("fired a slot of tomorrow: %v", ids)
	}
}

func TestRunNeedsItsParts(t *testing.T) {
	if err := New(Config{}).Run(t.Context()); err == nil {
		t.Fatal("it ran without a database")
	}
}

func TestLoopSaysTheSameTroubleOnce(t *testing.T) {
	var log strings.Builder
	ctx, stop := context.WithCancel(t.Context())
	n := 0
	loop(ctx, slog.New(slog.NewTextHandler(&log, nil)), "fire", time.Microsecond, func(context.Context) error {
		if n++; n == 5 {
			stop()
		}
		if n == 4 {
			return errors.New("other trouble")
		}
		return errors.New("trouble")
	})
	if n := strings.Count(log.String(), "will be tried again"); n != 2 {
		t.Fatalf("said %d times:\n%s", n, log.String())
	}
}

func TestFollowClock(t *testing.T) {
	for _, c := range []struct {
		name string
		off  time.Duration
		said bool
	}{
		{"right", 0, false},
		{"off by a minute", time.Minute, true},
		{"off by three seconds the other way", -3 * time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, start)
			clk := clock.New()
			clk.Advance(c.off)
			if err := FollowClock(t.Context(), w.db, clk, w.Log); err != nil {
				t.Fatal(err)
			}
			if left := clk.Now().Sub(time.Now()); left.Abs() > 2*time.Second {
				t.Fatalf("still off by %s", left)
			}
			if said := strings.Contains(w.log.String(), "put right"); said != c.said {
				t.Fatalf("it said %q", w.log.String())
			}
		})
	}
}
