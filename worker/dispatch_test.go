package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/mail"
	"postbit/internal/queue"
	"postbit/rules"
	"postbit/templates"
)

func TestDispatchEndToEnd(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(60, func(i int, doc bson.M) {
		if i == 5 {
			doc["email"] = 17
		}
	})
	r := h.run("winback", 60)
	h.handle(h.worker(), r)
	got := h.outcomes(r)
	if len(got["sent"]) != 59 || len(got["skipped/address"]) != 1 {
		t.Errorf("%v", got)
	}
	h.invariants(r, 60)
	if n := h.smtp.open.Load(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
}

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

func reply(class mail.Class, code int, enhanced, text string) mail.Reply {
	return mail.Reply{Class: class, Code: code, Enhanced: enhanced, Text: text}
}

// S5, S7, S8, S8c: what a reply does to one user, and that it does nothing to the others.
func TestReplies(t *testing.T) {
	for _, c := range []struct {
		name      string
		reply     mail.Reply
		outcome   string
		reason    string
		status    any
		bit       bool
		delivered bool
	}{
		{name: "S5: accepted, then closed without a reply", reply: mail.Reply{Class: mail.Unconfirmed, Code: -1, Text: "EOF"}, outcome: "unconfirmed", reason: "-1 EOF", bit: true, delivered: true},
		{name: "S5: closed without a reply, not accepted", reply: mail.Reply{Class: mail.Unconfirmed, Text: "EOF"}, outcome: "unconfirmed", reason: "EOF", bit: true},
		{name: "S8: 554 without an enhanced code", reply: reply(mail.Bounced, 554, "", "no"), outcome: "failed/bounced", reason: "554 no", status: "bounced"},
		{name: "S8b: 550 5.7.1", reply: reply(mail.Policy, 550, "5.7.1", "restricted"), outcome: "failed/policy", reason: "550 5.7.1 restricted"},
		{name: "S8c: 552 5.2.2", reply: reply(mail.Failed, 552, "5.2.2", "full"), outcome: "failed/mailbox", reason: "552 5.2.2 full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.seed(100)
			r := h.run("winback", 100)
			h.smtp.answer = func(user, _ int) mail.Reply {
				if user == 42 {
					return c.reply
				}
				return mail.Reply{}
			}
			w := h.worker()
			h.handle(w, r)
			h.check(w.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 1})) // S8: the task again
			h.check(w.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 2}))
			got := h.outcomes(r)
			if len(got["sent"]) != 99 || !cmp.Equal(got[c.outcome], []int{42}) {
				t.Errorf("%v", got)
			}
			doc, bit := h.user(42)
			if state, _ := doc["postbit"].(bson.D); bit != c.bit || lookup(state, "status") != c.status {
				t.Errorf("bit %t, state %v", bit, state)
			}
			if h.smtp.tried[42] != 1 || h.smtp.copies(42) != map[bool]int{true: 1}[c.delivered] {
				t.Errorf("tried %d times, %d copies", h.smtp.tried[42], h.smtp.copies(42))
			}
			b, err := h.batches.Get(h.ctx, r, 1)
			h.check(err)
			if u := b.User(42); u.Reply != c.reason {
				t.Errorf("reply %q, want %q", u.Reply, c.reason)
			}
			if h.now(r).Paused != "" {
				t.Errorf("the run is paused: %s", h.now(r).Paused)
			}
			h.invariants(r, 100)
		})
	}
}

func lookup(d bson.D, key string) any {
	for _, e := range d {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}

// S7
func TestNineteenOfSixtyFail(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(60)
	r := h.run("winback", 60)
	h.smtp.answer = func(user, _ int) mail.Reply {
		if user%3 == 0 && user < 57 {
			return reply(mail.Bounced, 550, "5.1.1", fmt.Sprintf("no such user %d", user))
		}
		return mail.Reply{}
	}
	h.handle(h.worker(), r)
	if c := h.progress(r).Counts; c.Sent != 41 || c.Failed != 19 {
		t.Errorf("%+v", c)
	}
	h.analytics(r, "bounced", 19)
	h.check(h.batches.Outcomes(h.ctx, r, func(u campaign.UserOutcome) error {
		if want := fmt.Sprintf("550 5.1.1 no such user %d", u.User.Int32()); u.Outcome.Failed() && u.Reply != want {
			t.Errorf("reply %q, want %q", u.Reply, want)
		}
		return nil
	}))
	h.invariants(r, 60)
}

// S8b
func TestPolicyRefusalsPauseTheRun(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(100)
	r := h.run("winback", 100)
	h.smtp.answer = func(user, _ int) mail.Reply {
		if user >= 30 {
			return reply(mail.Policy, 550, "5.7.1", "we don't like you")
		}
		return mail.Reply{}
	}
	h.handle(h.worker(oneConnection), r)
	if p := h.now(r).Paused; p == "" {
		t.Fatal("the run is not paused")
	}
	c := h.progress(r).Counts
	if c.Sent != 30 || c.Failed != 10 || c.Unconfirmed != 0 {
		t.Errorf("%+v", c)
	}
}

func TestPolicyWatch(t *testing.T) {
	for _, c := range []struct {
		name    string
		replies func(i int) (domain string, refused bool)
		want    int // the reply at which it objects; 0: never
	}{
		{"ten in a row", func(i int) (string, bool) { return "a", i > 100 }, 110},
		{"nine in a row, again and again", func(i int) (string, bool) { return "abc"[i%3 : i%3+1], i%200 < 9 }, 0},
		{"one in nine over three domains", func(i int) (string, bool) { return "abc"[i/9%3 : i/9%3+1], i%9 == 0 }, 207},
		{"one in nine over two domains", func(i int) (string, bool) { return "ab"[i/9%2 : i/9%2+1], i%9 == 0 }, 0},
		{"one in twenty is not over five percent", func(i int) (string, bool) { return "abc"[i/20%3 : i/20%3+1], i%20 == 0 }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p policyWatch
			got := 0
			for i := 1; i <= 1000 && got == 0; i++ {
				if p.note(c.replies(i)) != "" {
					got = i
				}
			}
			if got != c.want {
				t.Errorf("objects at reply %d, want %d", got, c.want)
			}
		})
	}
}

// S9
func TestNoSMTPServer(t *testing.T) {
	unresolved := &mail.ConnectError{Step: "dial", Host: "smtp.nowhere:25", Err: errors.New("no such host")}
	wrong := &mail.ConnectError{Permanent: true, Step: "AUTH", Host: "smtp.example.com:587", Err: errors.New("535 5.7.8 wrong")}
	for _, c := range []struct {
		name  string
		err   error
		wait  time.Duration
		pause string
	}{
		{"the host does not resolve, for a moment", unresolved, 0, ""},
		{"the host does not resolve, for five minutes", unresolved, 5 * time.Minute, unresolved.Error()},
		{"the password is wrong", wrong, 0, wrong.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.seed(10)
			r := h.run("winback", 10)
			h.smtp.connect = func() error { return c.err }
			w := h.idleWorker()
			h.handle(w, r)
			for at := time.Duration(0); at < c.wait; at += 30 * time.Second {
				h.clk.Advance(30 * time.Second)
				h.handle(w, r)
			}
			if p := h.now(r).Paused; p != c.pause {
				t.Errorf("paused %q, want %q", p, c.pause)
			}
			for i := range 10 {
				if doc, bit := h.user(i); bit || doc["postbit"] != nil {
					t.Errorf("user %d was touched: %v", i, doc)
				}
			}
			_, err := h.runs.Transition(h.ctx, r.ID, []campaign.RunState{campaign.RunSending}, campaign.RunCancelling, nil)
			h.check(err)
			h.check(w.watch(h.ctx))
			due, err := h.batches.Due(h.ctx, h.now(r), h.clk.Now(), 9)
			h.check(err)
			for _, d := range due {
				h.check(w.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: d.N, Pass: d.Pass}))
			}
			if got := h.outcomes(r); len(got["skipped/cancelled"]) != 10 {
				t.Errorf("%v", got)
			}
			h.invariants(r, 10)
		})
	}
}

func TestSenderRefusedForNow(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(10)
	r := h.run("winback", 10)
	refuse := true
	h.smtp.answer = func(user, nth int) mail.Reply {
		if refuse && user >= 3 {
			return mail.Reply{Class: mail.Cut, Code: 451, Text: "too many mails from you"}
		}
		return mail.Reply{}
	}
	w := h.worker(oneConnection)
	h.handle(w, r)
	if n := h.smtp.total.Load(); n != 4 {
		t.Errorf("%d mails were begun", n)
	}
	for range 5*6 + 1 {
		h.clk.Advance(10 * time.Second)
		h.handle(w, r)
	}
	if p := h.now(r).Paused; p != "the server takes no mail from news@example.com: 451 too many mails from you" {
		t.Errorf("paused %q", p)
	}
	refuse = false
	h.check(h.runs.ResumeRun(h.ctx, r.ID))
	h.handle(w, r)
	h.invariants(r, 10)
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

// S10
func TestCutConnections(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(100)
	r := h.run("winback", 100)
	var mu sync.Mutex
	down := 0
	h.smtp.answer = func(user, nth int) mail.Reply {
		if user%20 == 10 && nth == 1 { // five outages
			mu.Lock()
			down = 2
			mu.Unlock()
			if user%40 == 10 {
				return mail.Reply{Class: mail.Cut, Text: "connection reset"}
			}
			return mail.Reply{Class: mail.Unconfirmed, Code: -1, Text: "EOF"}
		}
		return mail.Reply{}
	}
	h.smtp.connect = func() error {
		mu.Lock()
		defer mu.Unlock()
		if down > 0 {
			down--
			return &mail.ConnectError{Step: "dial", Host: "x:25", Err: errors.New("connection refused")}
		}
		return nil
	}
	w := h.worker()
	for range 5 {
		h.handle(w, r)
		h.clk.Advance(10 * time.Second)
	}
	got := h.outcomes(r)
	if len(got["sent"]) != 98 || !cmp.Equal(got["unconfirmed"], []int{30, 70}) {
		t.Errorf("%v", got)
	}
	h.invariants(r, 100)
}

func TestAMailThatAlwaysKillsTheConnectionWaits(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(10)
	r := h.run("winback", 10)
	h.smtp.answer = func(user, nth int) mail.Reply {
		if user == 4 {
			return mail.Reply{Class: mail.Cut, Text: "connection reset"}
		}
		return mail.Reply{}
	}
	h.handle(h.worker(), r)
	b, err := h.batches.Get(h.ctx, r, 1)
	h.check(err)
	if u := b.User(4); u.Tries != 1 || h.smtp.tried[4] != maxCuts || !b.NotBefore.Equal(testStart.Add(5*time.Minute)) {
		t.Errorf("%+v, tried %d times, due %s", u, h.smtp.tried[4], b.NotBefore)
	}
}

func TestBackoffAfter4xx(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(3)
	r := h.run("winback", 3, func(r *campaign.Run) { r.Spec.ExpiresAfter = 30 * 24 * time.Hour })
	h.smtp.answer = func(user, nth int) mail.Reply {
		if user == 1 && nth < 12 {
			return reply(mail.Retry, 451, "4.2.1", "later")
		}
		return mail.Reply{}
	}
	w := h.worker()
	var waits []time.Duration
	for range 11 {
		h.handle(w, r)
		next, err := h.batches.NextDue(h.ctx, r)
		h.check(err)
		waits = append(waits, next.Sub(h.clk.Now()))
		h.clk.Advance(next.Sub(h.clk.Now()) - time.Second)
		h.handle(w, r) // not yet
		h.clk.Advance(time.Second)
	}
	h.handle(w, r)
	m := time.Minute
	if d := cmp.Diff([]time.Duration{5 * m, 10 * m, 20 * m, 40 * m, 80 * m, 160 * m, 320 * m, 360 * m, 360 * m, 360 * m, 360 * m}, waits); d != "" {
		t.Error(d)
	}
	if h.smtp.tried[1] != 12 {
		t.Errorf("tried %d times", h.smtp.tried[1])
	}
	h.invariants(r, 3)
}

func TestSlowDomain(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(70)
	r := h.run("winback", 70)
	h.smtp.answer = func(user, nth int) mail.Reply {
		if user == 3 && nth == 1 {
			return mail.Reply{Class: mail.Retry, Code: 421, Text: "slow down", DomainSlow: true}
		}
		return mail.Reply{}
	}
	w := h.worker(oneConnection)
	h.handle(w, r)
	for i := range 70 { // those of d3 who were not in the first wave wait
		if sent := h.smtp.copies(i) == 1; sent != (i%7 != 3 || i < 32 && i != 3) {
			t.Errorf("user %d: sent %t", i, sent)
		}
	}
	for range 2 {
		h.clk.Advance(5 * time.Minute)
		h.handle(w, r)
	}
	h.invariants(r, 70)
	if len(h.outcomes(r)["sent"]) != 70 {
		t.Error(h.outcomes(r))
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

// S11b
func TestTwoTemplatesAtOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(40)
	r1 := h.run("first", 40)
	r2 := h.run("second", 40, func(r *campaign.Run) { r.Template = templates.Snapshot(template(8)) })
	smtp1, smtp2 := h.smtp, newFakeSMTP()
	smtp1.answer = func(user, nth int) mail.Reply {
		if user == 9 && nth <= 2 {
			return reply(mail.Retry, 451, "", "greylisted")
		}
		return mail.Reply{}
	}
	w1, w2 := h.worker(), h.worker(func(c *Config) { c.Transport = smtp2 })
	var both sync.WaitGroup
	both.Go(func() { h.handle(w1, r1) })
	both.Go(func() { h.handle(w2, r2) })
	both.Wait()
	for range 3 {
		h.clk.Advance(20 * time.Minute)
		h.handle(w1, r1)
		h.handle(w2, r2)
	}
	for i := range 40 {
		if smtp1.copies(i) != 1 || smtp2.copies(i) != 1 {
			t.Errorf("user %d: %d and %d copies", i, smtp1.copies(i), smtp2.copies(i))
		}
	}
	h.invariants(r1, 40)
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

// S15, and a deferred user gets his mail when his window opens.
func TestSkippedOnceHoweverOftenLookedAt(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(4, func(i int, doc bson.M) {
		switch i {
		case 1:
			doc["email"] = ""
		case 2:
			doc["timezone"] = "Asia/Tokyo" // 18:00
		case 3:
			doc["timezone"] = "Mars/Base" // UTC, by default: 9:00
		}
	})
	r := h.run("winback", 4, func(r *campaign.Run) { r.Spec.Rules.Window = rules.Window{From: 8 * 60, To: 12 * 60} })
	w := h.worker()
	h.handle(w, r)
	p := h.progress(r)
	if d := cmp.Diff(campaign.Counts{Audience: 4, Checked: 4, Sent: 2, Deferred: 1, UnknownZone: 1, Skipped: map[string]int64{"address": 1}}, p.Counts); d != "" {
		t.Error(d)
	}
	if want := time.Date(2026, 12, 1, 23, 0, 0, 0, time.UTC); !p.NextDue.Equal(want) {
		t.Errorf("next due %s", p.NextDue)
	}
	h.clk.Advance(p.NextDue.Sub(h.clk.Now()))
	h.handle(w, r)
	if c := h.progress(r).Counts; c.Skipped["address"] != 1 || c.Sent != 3 {
		t.Errorf("%+v", c)
	}
	h.analytics(r, "skipped.address", 1)
	h.invariants(r, 4)
}

// Who waits for his window is not even loaded before it opens, and who unsubscribes while he waits gets nothing.
func TestDeferredUsersAreLookedAtInTheirTurn(t *testing.T) {
	t.Parallel()
	zones := []string{"Europe/Berlin", "Asia/Tokyo", "America/New_York"}
	h := newHouse(t)
	h.seed(6, func(i int, doc bson.M) { doc["timezone"] = zones[i%3] })
	r := h.run("winback", 6, func(r *campaign.Run) { r.Spec.Rules.Window = rules.Window{From: 9 * 60, To: 12 * 60} })
	w := h.worker()
	h.handle(w, r) // 10:00 in Berlin, 18:00 in Tokyo, 04:00 in New York
	if d := cmp.Diff([]int{0, 3}, h.smtp.recipients()); d != "" {
		t.Error(d)
	}
	_, err := h.coll.UpdateOne(h.ctx, bson.D{{Key: "_id", Value: int32(4)}}, bson.D{{Key: "$set", Value: bson.D{{Key: "postbit.status", Value: "unsubscribed"}}}})
	h.check(err)
	for _, want := range []struct {
		at      time.Time
		waiting []int
	}{
		{time.Date(2026, 12, 1, 14, 0, 0, 0, time.UTC), []int{1, 4}}, // New York
		{time.Date(2026, 12, 2, 0, 0, 0, 0, time.UTC), nil},          // Tokyo
	} {
		next, err := h.batches.NextDue(h.ctx, r)
		h.check(err)
		if !next.Equal(want.at) {
			t.Fatalf("due at %s, want %s", next, want.at)
		}
		h.clk.Advance(next.Sub(h.clk.Now()))
		h.handle(w, r)
		if d := cmp.Diff(want.waiting, h.outcomes(r)["waiting"]); d != "" {
			t.Error(d)
		}
	}
	if got := h.outcomes(r); !cmp.Equal(got["sent"], []int{0, 1, 2, 3, 5}) || !cmp.Equal(got["skipped/suppressed"], []int{4}) {
		t.Errorf("%v", got)
	}
	h.invariants(r, 6)
}

func TestWhoIsGoneHasLeft(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(5, func(i int, doc bson.M) { doc["plan"] = map[bool]string{true: "paid", false: "free"}[i == 2] })
	r := h.run("winback", 5, func(r *campaign.Run) { r.Spec.Audience = `{"plan": "free"}` })
	_, err := h.coll.DeleteOne(h.ctx, bson.D{{Key: "_id", Value: int32(4)}})
	h.check(err)
	h.handle(h.worker(), r)
	if got := h.outcomes(r); !cmp.Equal(got, map[string][]int{"sent": {0, 1, 3}, "skipped/left": {2, 4}}) {
		t.Errorf("%v", got)
	}
	h.invariants(r, 5)
}

func TestAMailThatCantBeMadeFailsAlone(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(5, func(i int, doc bson.M) {
		if i == 2 {
			doc["tags"] = make([]int32, 500)
		}
	})
	bad := template(testBit)
	bad.HTML = `<p>{{ range .User.tags }}{{ range $.User.tags }}{{ range $.User.tags }}x{{ end }}{{ end }}{{ end }}</p><a href="{{ unsubscribe }}">no more</a>`
	r := h.run("winback", 5, func(r *campaign.Run) { r.Template = templates.Snapshot(bad) })
	h.handle(h.worker(), r)
	got := h.outcomes(r)
	if !cmp.Equal(got["failed/render"], []int{2}) || len(got["sent"]) != 4 {
		t.Errorf("%v", got)
	}
	b, _ := h.batches.Get(h.ctx, r, 1)
	if b.User(2).Reply == "" {
		t.Error("no reason")
	}
	h.invariants(r, 5)
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

func TestSenderRefusedPausesAndKeepsTheUser(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(10)
	r := h.run("winback", 10)
	h.smtp.answer = func(user, nth int) mail.Reply {
		if user == 3 && nth == 1 {
			return reply(mail.SenderRefused, 550, "5.7.1", "who are you")
		}
		return mail.Reply{}
	}
	w := h.worker(oneConnection)
	h.handle(w, r)
	if h.now(r).Paused == "" || h.smtp.total.Load() != 4 {
		t.Errorf("paused %q after %d mails", h.now(r).Paused, h.smtp.total.Load())
	}
	h.check(h.runs.ResumeRun(h.ctx, r.ID))
	h.handle(w, r)
	if got := h.outcomes(r); len(got["sent"]) != 10 {
		t.Errorf("%v", got)
	}
	h.invariants(r, 10)
}
