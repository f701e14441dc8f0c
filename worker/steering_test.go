package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/mail"
	"postbit/internal/queue"
	"postbit/templates"
)

// S1
func TestPausedAtAThirdAndResumed(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(1000)
	r := h.run("winback", 1000)
	w := h.idleWorker(oneConnection)
	h.smtp.begin = func(int) {
		if h.smtp.total.Load() == 333 {
			h.check(h.runs.PauseRun(h.ctx, r.ID, "by hand", "test"))
			h.check(w.watch(h.ctx))
		}
	}
	h.handle(w, r)
	if n := h.smtp.total.Load(); n != 334 { // the mail in flight is finished, no other is begun
		t.Errorf("%d mails before the pause took effect", n)
	}
	if p := h.progress(r); p.Counts.Sent != 334 || p.Counts.Unconfirmed != 0 || p.Unsettled != 0 {
		t.Errorf("a paused run settles what it has: %+v", p)
	}
	h.check(h.runs.ResumeRun(h.ctx, r.ID))
	h.handle(w, r)
	if got := h.outcomes(r); len(got["sent"]) != 1000 {
		t.Errorf("%d sent", len(got["sent"]))
	}
	h.invariants(r, 1000)
}

func oneConnection(c *Config) { c.Connections = 1 }

// S2
func TestStoppedInMidRun(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(100)
	r := h.run("winback", 100)
	ctx, stop := context.WithCancel(h.ctx)
	h.smtp.begin = func(int) {
		if h.smtp.total.Load() == 20 {
			stop()
		}
	}
	h.check(h.worker(oneConnection).HandleBatch(ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 1}))
	if n := h.smtp.total.Load(); n != 21 {
		t.Errorf("%d mails were begun", n)
	}
	b, err := h.batches.Get(h.ctx, r, 1)
	h.check(err)
	if !b.OwnedUntil.IsZero() || len(b.Open) != 0 {
		t.Errorf("the batch was not given back: owned until %s, open %v", b.OwnedUntil, b.Open)
	}
	h.handle(h.worker(), r)
	if got := h.outcomes(r); len(got["sent"]) != 100 {
		t.Errorf("%v", got)
	}
	h.invariants(r, 100)
}

// S3, and: a throttled batch does not sit in its handler.
func TestTenThrottledCampaignsDoNotHoldUpTheEleventh(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(11 * 3)
	w := h.worker()
	var runs []*campaign.Run
	for k := range 11 {
		runs = append(runs, h.run(fmt.Sprintf("c%02d", k), 33, func(r *campaign.Run) {
			r.Template = templates.Snapshot(template(20 + k))
			if k < 10 {
				r.Spec.Limits.Rate = []campaign.Rate{{N: 1, Per: time.Minute}}
			}
		}))
	}
	for _, r := range runs {
		h.check(w.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 1}))
	}
	for k, r := range runs {
		p := h.progress(r)
		if want := map[bool]int64{true: 1, false: 33}[k < 10]; p.Counts.Sent != want {
			t.Errorf("campaign %d: %d sent, want %d", k, p.Counts.Sent, want)
		}
		if b, _ := h.batches.Get(h.ctx, r, 1); k < 10 && b.NotBefore.Before(testStart.Add(58*time.Second)) {
			t.Errorf("campaign %d is due at %s", k, b.NotBefore)
		}
	}
}

// S4: a batch that waits for its limit waits in its document, so a pause has nothing to interrupt but the mails in flight.
func TestThrottledRunPaused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(5)
	r := h.run("slow", 5, func(r *campaign.Run) { r.Spec.Limits.Rate = []campaign.Rate{{N: 1, Per: time.Minute}} })
	w := h.idleWorker()
	h.handle(w, r)
	h.check(h.runs.PauseRun(h.ctx, r.ID, "by hand", "test"))
	h.clk.Advance(5 * time.Minute)
	h.check(w.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 2}))
	if n := h.smtp.total.Load(); n != 1 {
		t.Errorf("%d mails", n)
	}
	h.check(h.runs.ResumeRun(h.ctx, r.ID))
	for range 4 {
		h.handle(w, r)
		h.clk.Advance(2 * time.Minute)
	}
	h.invariants(r, 5)
}

func TestCancelledWhileThereIsNoServer(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(10)
	r := h.run("winback", 10)
	w := h.idleWorker()
	h.smtp.connect = func() error { // the cancel comes while the handler waits for the server
		steerTo(campaign.RunCancelling)(h, r)
		h.check(w.watch(h.ctx))
		return &mail.ConnectError{Step: "dial", Host: "x:25", Err: errors.New("connection refused")}
	}
	h.check(w.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 1}))
	if got := h.outcomes(r); len(got["skipped/cancelled"]) != 10 {
		t.Errorf("%v", got)
	}
	h.invariants(r, 10)
}

func TestAStoppingWorkerTakesNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(1)
	r := h.run("winback", 1)
	w := h.idleWorker()
	ctx, cancel := context.WithCancel(h.ctx)
	cancel()
	h.check(w.Run(ctx))
	if err := w.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 1}); !errors.Is(err, ErrStopping) {
		t.Errorf("%v", err)
	}
	if b, _ := h.batches.Get(h.ctx, r, 1); b.Epoch != 0 {
		t.Error("the batch was taken")
	}
}

func TestDomainLimits(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(70)
	r := h.run("winback", 70, func(r *campaign.Run) {
		r.Spec.Limits.PerDomain = []campaign.DomainLimits{{Domain: "d3.example", Rate: []campaign.Rate{{N: 2, Per: time.Minute}}}}
	})
	w := h.worker()
	h.handle(w, r)
	sent := map[bool]int{}
	for _, i := range h.smtp.recipients() {
		sent[i%7 == 3]++
	}
	if sent[true] != 2 || sent[false] != 60 {
		t.Errorf("limited domain: %d, others: %d", sent[true], sent[false])
	}
	for range 6 {
		h.clk.Advance(2 * time.Minute)
		h.handle(w, r)
	}
	h.invariants(r, 70)
	if len(h.outcomes(r)["sent"]) != 70 {
		t.Error(h.outcomes(r))
	}
}

// S11d
func TestBitIsGivenBack(t *testing.T) {
	for _, c := range []struct {
		name    string
		end     func(h *house, r *campaign.Run)
		outcome string
	}{
		{"expired", func(h *house, r *campaign.Run) { h.clk.Advance(24 * time.Hour) }, "failed/temporary"},
		{"superseded", steerTo(campaign.RunSuperseding), "skipped/superseded"},
		{"cancelled", steerTo(campaign.RunCancelling), "skipped/cancelled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.seed(3)
			r := h.run("first", 3)
			h.smtp.answer = func(user, nth int) mail.Reply {
				if user == 1 {
					return reply(mail.Retry, 451, "", "greylisted")
				}
				return mail.Reply{}
			}
			w := h.worker()
			h.handle(w, r)
			if _, bit := h.user(1); !bit {
				t.Error("a 4xx keeps its claim")
			}
			c.end(h, r)
			h.handle(w, r)
			if got := h.outcomes(r); !cmp.Equal(got[c.outcome], []int{1}) {
				t.Errorf("%v", got)
			}
			b, _ := h.batches.Get(h.ctx, r, 1)
			if u := b.User(1); u.Outcome.Failed() && u.Reply != "451 greylisted" {
				t.Errorf("the last reply is the reason: %+v", u)
			}
			h.invariants(r, 3)
			h.smtp.answer = nil
			next := h.run("next", 3)
			h.handle(w, next)
			if got := h.outcomes(next); !cmp.Equal(got["sent"], []int{1}) {
				t.Errorf("the next run: %v", got)
			}
		})
	}
}

func steerTo(s campaign.RunState) func(*house, *campaign.Run) {
	return func(h *house, r *campaign.Run) {
		_, err := h.runs.Transition(h.ctx, r.ID, []campaign.RunState{campaign.RunSending}, s, nil)
		h.check(err)
	}
}

// S12
func TestAKilledWorkersBatchIsFound(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(10)
	r := h.run("winback", 10)
	o, err := h.batches.Own(h.ctx, r, 1, 1, "dead")
	h.check(err)
	h.check(o.PushWave(h.ctx, []campaign.WaveUser{{Index: 2}, {Index: 3}}, nil, h.clk.Now()))
	w := h.worker()
	h.handle(w, r)
	h.check(w.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 1})) // too early: it may be alive
	if h.smtp.total.Load() != 0 {
		t.Error("a batch was taken from its owner")
	}
	h.clk.Advance(30*time.Second + campaign.TakeoverAfter)
	h.handle(w, r)
	got := h.outcomes(r)
	if len(got["sent"]) != 8 || !cmp.Equal(got["unconfirmed"], []int{2, 3}) {
		t.Errorf("%v", got)
	}
	h.invariants(r, 10)
}

func TestARunThatCantBeSentIsPaused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(2)
	bad := template(testBit)
	bad.From = "nobody"
	r := h.run("winback", 2, func(r *campaign.Run) { r.Template = templates.Snapshot(bad) })
	h.handle(h.worker(), r)
	if p := h.now(r).Paused; p == "" || h.smtp.total.Load() != 0 {
		t.Errorf("paused %q, %d mails", p, h.smtp.total.Load())
	}
}

// A pause does not stop the clock of expires_after: the run ends without being resumed, and the bits of those who got nothing are
// given back.
func TestAPausedRunExpires(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(10)
	r := h.run("winback", 10)
	w := h.idleWorker(oneConnection)
	h.smtp.answer = func(user, _ int) mail.Reply {
		if user < 2 {
			return mail.Reply{Class: mail.Retry, Code: 451, Text: "later"}
		}
		return mail.Reply{}
	}
	h.smtp.begin = func(user int) {
		if user == 4 {
			h.check(h.runs.PauseRun(h.ctx, r.ID, "by hand", "test"))
			h.check(w.watch(h.ctx))
		}
	}
	h.handle(w, r)
	h.clk.Advance(24 * time.Hour)
	now := h.now(r)
	due, err := h.batches.Due(h.ctx, now, h.clk.Now(), 9)
	h.check(err)
	for _, d := range due {
		h.check(w.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: d.N, Pass: d.Pass}))
	}
	want := map[string][]int{"sent": {2, 3, 4}, "failed/temporary": {0, 1}, "skipped/expired": {5, 6, 7, 8, 9}}
	if d := cmp.Diff(want, h.outcomes(r)); d != "" || now.Paused == "" {
		t.Error(now.Paused, d)
	}
	h.invariants(r, 10)
}

// What the analytics may have forgotten is not counted a second time, but the run ends.
func TestSettleOfAnOldPass(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		after time.Duration
		want  int64
	}{
		{"as long as its id is remembered", analytics.DefaultMemory - time.Minute, 5},
		{"longer than that", analytics.DefaultMemory, 0},
	} {
		h := newHouse(t)
		h.seed(5)
		r := h.run("winback", 5)
		w := h.worker()
		p, err := w.lookAt(h.ctx, r.ID, 1, 1, false, h.log) // stored, and not applied
		if p == nil || err != nil {
			t.Fatal(err)
		}
		h.clk.Advance(c.after)
		h.check(w.Settle(h.ctx, r, 1))
		h.analytics(r, "sent", c.want)
		if p := h.progress(r); p.Unsettled != 0 || p.Counts.Sent != 5 {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
}
