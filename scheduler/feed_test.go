package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"postbit/internal/campaign"
	"postbit/internal/queue"
)

func TestFeedPlansWhileThereIsRoom(t *testing.T) {
	w := newWorld(t, start)
	w.Window = 3
	w.apply("x", "")
	r := w.manual("x")
	for _, c := range []struct {
		name string
		do   func()
		want int
	}{
		{"nothing is planned yet", func() {}, 1},
		{"two of three wait for a first pass", func() { w.plan(r, 1, 2, false) }, 1},
		{"the window is full", func() { w.plan(r, 3, 3, false) }, 0},
		{"one was visited", func() { w.pass(r, 1, campaign.Sent, w.clk.Now(), true) }, 1},
		{"the plan is closed", func() { w.plan(r, 4, 4, true) }, 0},
	} {
		c.do()
		w.queue.flush()
		w.do(w.Feed)
		if len(w.queue.plans) != c.want {
			t.Fatalf("%s: plans %v, want %d", c.name, w.queue.plans, c.want)
		}
	}
}

func TestFeedWhatIsDue(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", "")
	r := w.manual("x")
	w.plan(r, 1, 4, true)
	id := func(n, pass int) string { return queue.BatchTask{Run: r.ID, N: n, Pass: pass}.ID() }
	feed := func(name string, want ...string) {
		t.Helper()
		w.queue.flush() // Redis may be flushed at any time
		w.do(w.Feed)
		if d := cmp.Diff(want, w.queue.waiting()); d != "" {
			t.Fatalf("%s: %s", name, d)
		}
	}
	feed("all", id(1, 1), id(2, 1), id(3, 1), id(4, 1))
	w.pass(r, 1, campaign.Sent, w.clk.Now(), true)
	w.pass(r, 2, campaign.Waiting, w.clk.Now().Add(time.Hour), true)
	feed("one is done, one waits for its time", id(3, 1), id(4, 1))
	if _, err := w.batches.Own(t.Context(), r, 3, 0, "somebody"); err != nil {
		t.Fatal(err)
	}
	feed("one has an owner", id(4, 1))
	w.clk.Advance(50 * time.Second)
	feed("the owner has not been heard of", id(3, 1), id(4, 1))
	w.clk.Advance(time.Hour)
	feed("the time of the second has come", id(2, 2), id(3, 1), id(4, 1))
	if err := w.runs.PauseRun(t.Context(), r.ID, "operator", "operator"); err != nil {
		t.Fatal(err)
	}
	w.queue.flush()
	w.do(w.Feed)
	if got := w.queue.waiting(); len(got) > 0 {
		t.Fatalf("paused: %v", got)
	}
	if err := w.runs.CancelRun(t.Context(), r.ID, "operator"); err != nil {
		t.Fatal(err)
	}
	feed("paused and cancelled", id(2, 2), id(3, 1), id(4, 1))
}

func TestFeedNoMoreThanTheWindow(t *testing.T) {
	w := newWorld(t, start)
	w.Window = 3
	w.apply("x", "")
	r := w.manual("x")
	w.plan(r, 1, 7, true)
	for range 3 {
		w.do(w.Feed)
	}
	if got := w.queue.waiting(); len(got) != 3 {
		t.Fatalf("in the queue: %v", got)
	}
}

// TestElevenRunsTakeTurns: campaigns due at the same instant go forward together.
func TestElevenRunsTakeTurns(t *testing.T) {
	w := newWorld(t, start)
	for i := range 11 {
		w.apply(fmt.Sprintf("c%02d", i), `{ cron: "0 9 * * *" }`)
	}
	w.clk.Advance(time.Minute)
	w.do(w.Fire)
	runs, err := w.runs.Unfinished(t.Context())
	if err != nil || len(runs) != 11 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	for i := range runs {
		w.plan(&runs[i], 1, 5, true)
	}
	var first []string
	for range 3 {
		w.queue.flush()
		w.do(w.Feed)
		tasks := w.queue.waiting()
		if len(tasks) != 55 {
			t.Fatalf("%d tasks", len(tasks))
		}
		for turn := range 5 {
			var of []string
			for _, id := range tasks[turn*11 : turn*11+11] {
				run, rest, _ := strings.Cut(id, "/")
				if rest != fmt.Sprintf("%d/1", turn+1) {
					t.Fatalf("turn %d has %s", turn, id)
				}
				of = append(of, run)
			}
			slices.Sort(of)
			if len(slices.Compact(of)) != 11 {
				t.Fatalf("turn %d has a run twice: %v", turn, of)
			}
		}
		first = append(first, tasks[0])
	}
	slices.Sort(first)
	if len(slices.Compact(first)) != 3 {
		t.Fatalf("one run is always the first: %v", first)
	}
}

// limits is a limiter that says what the test wants.
type limits map[string]time.Time

func (l limits) Next(_ context.Context, scope string, rates []campaign.Rate) (time.Time, error) {
	if len(rates) == 0 {
		return time.Time{}, errors.New("asked without a rate")
	}
	return l[scope], nil
}

func TestFeedAndLimits(t *testing.T) {
	now := start
	for _, c := range []struct {
		name   string
		file   string
		next   time.Time
		after  time.Duration
		cancel bool
		want   int
	}{
		{"no limits", "", now.Add(time.Hour), 0, false, 2},
		{"there is room", "limits: { rate: 40/min }", time.Time{}, 0, false, 2},
		{"used up", "limits: { rate: 40/min }", now.Add(time.Minute), 0, false, 0},
		{"its next slot has come", "limits: { rate: 40/min }", now.Add(time.Minute), time.Minute, false, 2},
		{"used up, and cancelled", "limits: { rate: 40/min }", now.Add(time.Minute), 0, true, 2},
		{"used up, and expired", "limits: { rate: 40/min }", now.Add(48 * time.Hour), 25 * time.Hour, false, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, now)
			w.Limits = limits{"x": c.next}
			w.apply("x", "", c.file)
			r := w.manual("x")
			w.plan(r, 1, 2, true)
			if c.cancel {
				if err := w.runs.CancelRun(t.Context(), r.ID, "operator"); err != nil {
					t.Fatal(err)
				}
			}
			w.clk.Advance(c.after)
			w.do(w.Feed)
			if got := w.queue.waiting(); len(got) != c.want {
				t.Fatalf("in the queue: %v, want %d", got, c.want)
			}
		})
	}
}

func TestFeedWithoutAQueue(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", "")
	r := w.manual("x")
	w.plan(r, 1, 1, true)
	w.queue.down = errors.New("no Redis")
	if err := w.Feed(t.Context()); !errors.Is(err, w.queue.down) {
		t.Fatalf("%v", err)
	}
	w.queue.down = nil
	w.do(w.Feed)
	if got := w.queue.waiting(); len(got) != 1 {
		t.Fatalf("in the queue: %v", got)
	}
}

// A pause does not stop the clock of expires_after: a paused run that has expired is planned to its end and fed, so that it ends.
func TestFeedWhatHasExpiredThoughItIsPaused(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", "", "expires_after: 1h")
	r := w.manual("x")
	w.plan(r, 1, 2, false)
	w.pass(r, 1, campaign.Waiting, w.clk.Now().Add(3*time.Hour), true)
	if err := w.runs.PauseRun(t.Context(), r.ID, "operator", "operator"); err != nil {
		t.Fatal(err)
	}
	w.clk.Advance(59 * time.Minute)
	w.queue.flush()
	w.do(w.Feed)
	if got := w.queue.waiting(); len(got) > 0 || len(w.queue.plans) > 0 {
		t.Fatalf("paused: %v %v", got, w.queue.plans)
	}
	w.clk.Advance(time.Minute)
	w.do(w.Feed)
	want := []string{queue.BatchTask{Run: r.ID, N: 1, Pass: 2}.ID(), queue.BatchTask{Run: r.ID, N: 2, Pass: 1}.ID()}
	if d := cmp.Diff(want, w.queue.waiting()); d != "" || len(w.queue.plans) != 1 {
		t.Fatal("expired:", w.queue.plans, d)
	}
}
