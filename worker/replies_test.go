package worker

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/mail"
	"postbit/internal/queue"
)

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

// Mails come back to the envelope sender, which the settings may name; the From of the mail stays the template's.
func TestTheEnvelopeSender(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, bounce, want string }{
		{"the sender's own address", "", "news@example.com"},
		{"that of the settings", "Returned mail <bounces@post.example.com>", "bounces@post.example.com"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.seed(3)
			h.smtp.keep = true
			r := h.run("winback", 3)
			h.handle(h.worker(func(cfg *Config) { cfg.Bounce = c.bounce }), r)
			if h.smtp.senders[c.want] != 3 || len(h.smtp.senders) != 1 {
				t.Errorf("senders: %v", h.smtp.senders)
			}
			if !strings.Contains(string(h.smtp.messages[0]), "From: Postbit <news@example.com>\r\n") {
				t.Errorf("%s", h.smtp.messages[0])
			}
		})
	}
}
