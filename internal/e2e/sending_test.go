package e2e

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/queue"
	"postbit/worker"
)

func reply(code int, enhanced, text string) *smtp.SMTPError {
	e := &smtp.SMTPError{Code: code, EnhancedCode: smtp.NoEnhancedCode, Message: text}
	if enhanced != "" {
		_, _ = fmt.Sscanf(enhanced, "%d.%d.%d", &e.EnhancedCode[0], &e.EnhancedCode[1], &e.EnhancedCode[2])
	}
	return e
}

// once calls f at the first mail at which n or more were taken.
func (h *house) once(n int, f func()) func(int, int) error {
	var first sync.Once
	return func(int, int) error {
		if h.post.accepted() >= n {
			first.Do(f)
		}
		return nil
	}
}

func oneConnection(c *worker.Config) { c.Connections = 1 }

// S1
func TestPausedAtAThirdAndResumed(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(1000)
	h.campaign("winback", 7)
	r := h.fire("winback")
	// Once paused, the server is slow, or a fast machine has sent everything before a worker looks.
	var slow atomic.Bool
	pause := h.once(333, func() { h.check(h.runs.PauseRun(h.ctx, r.ID, "by hand", "test")); slow.Store(true) })
	h.post.done = func(a, b int) error {
		if slow.Load() {
			<-time.After(100 * time.Millisecond)
		}
		return pause(a, b)
	}
	h.hire()
	h.until("the run is paused and at rest", func() bool { return h.run(r).Paused != "" && h.quiet(r) })
	sent := h.post.accepted()
	if sent < 333 || sent == 1000 {
		t.Errorf("%d sent when the pause took effect", sent)
	}
	for range 5 {
		h.tick()
	}
	if now := h.post.accepted(); now != sent || !h.quiet(r) {
		t.Errorf("%d sent though the run is paused", now-sent)
	}
	slow.Store(false)
	h.check(h.runs.ResumeRun(h.ctx, r.ID))
	h.finish(campaign.RunDone, r)
	if c := h.audit(r, 1000); c.Sent != 1000 {
		t.Errorf("%+v", c)
	}
}

// S2
func TestStoppedInMidRun(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(600, func(i int, doc bson.M) {
		if i%50 == 0 {
			doc["email"] = "nobody"
		}
	})
	h.campaign("winback", 7)
	r := h.fire("winback")
	// Nobody has an answer after the hundredth mail until the worker is told to stop, so it can't be faster than its end.
	asked, told := make(chan struct{}), make(chan struct{})
	h.post.done = h.once(100, func() { close(asked); <-told })
	stop, ended := h.task(h.process())
	h.until("a hundred mails", closed(asked))
	stop()
	close(told)
	ended()
	if n := h.post.accepted(); n < 100 || n > 100+8*2 { // what was in hand: one mail for each connection of each batch
		t.Errorf("%d mails were taken of a worker that was told to stop at the hundredth", n)
	}
	if owned := must(h.db.Collection(campaign.BatchCollection(r.Slot)).CountDocuments(h.ctx, bson.D{{Key: "owner", Value: bson.D{{Key: "$exists", Value: true}}}}))(t); owned > 0 {
		t.Errorf("%d batches were not given back", owned)
	}
	h.hire()
	h.finish(campaign.RunDone, r)
	if c := h.audit(r, 600); c.Sent != 588 || c.Unconfirmed != 0 || c.Skipped["address"] != 12 {
		t.Errorf("%+v", c)
	}
}

// S3
func TestElevenCampaignsAtOneInstant(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(20)
	for i := range 11 {
		h.campaign(fmt.Sprintf("c%02d", i), i, `schedule: { cron: "0 9 * * *" }`)
	}
	h.clk.Advance(time.Minute)
	h.hire()
	h.until("all have runs that have ended", func() bool {
		n := 0
		for i := range 11 {
			runs := must(h.runs.Runs(h.ctx, fmt.Sprintf("c%02d", i), 0))(t)
			if len(runs) == 1 && runs[0].State == campaign.RunDone {
				n++
			}
		}
		return n == 11
	})
	for i := range 11 {
		r := must(h.runs.LatestRun(h.ctx, fmt.Sprintf("c%02d", i)))(t)
		if c := h.audit(r, 20); c.Sent != 20 {
			t.Errorf("%s: %+v", r.ID, c)
		}
	}
}

// S4; and ten throttled campaigns do not hold up an eleventh.
func TestThrottledRuns(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(11 * 12) // twelve for each, so that no run loses its room of the minute to another's claims
	var slow []*campaign.Run
	twelve := func(i int) string { return fmt.Sprintf("audience: { _id: { $gte: %d, $lt: %d } }", 12*i, 12*i+12) }
	for i := range 10 {
		h.campaign(fmt.Sprintf("c%02d", i), i, `limits: { rate: ["1/min"] }`, twelve(i))
		slow = append(slow, h.fire(fmt.Sprintf("c%02d", i)))
	}
	h.campaign("free", 20, twelve(10))
	free := h.fire("free")
	h.hire(func(c *worker.Config) { c.Connections = 1 })
	h.finish(campaign.RunDone, free)
	for _, r := range slow {
		h.until("it waits for its limit", func() bool { return h.quiet(r) })
		if p := must(h.batches.Progress(h.ctx, r))(t); p.Counts.Sent != 1 {
			t.Errorf("%s: %d sent within its first minute", r.ID, p.Counts.Sent)
		}
	}
	r := slow[3]
	h.check(h.runs.PauseRun(h.ctx, r.ID, "by hand", "test"))
	before := h.post.accepted()
	h.clk.Advance(5 * time.Minute) // all of them have room again
	for _, other := range slow {
		h.until("the others go on", func() bool { return h.quiet(other) })
	}
	if got := h.post.accepted() - before; got != 9 {
		t.Errorf("%d mails in the next round, want one of each run that is not paused", got)
	}
	if p := must(h.batches.Progress(h.ctx, r))(t); p.Counts.Sent != 1 {
		t.Errorf("the paused run has sent %d", p.Counts.Sent)
	}
	h.check(h.runs.CancelRun(h.ctx, r.ID, "test"))
	h.finish(campaign.RunCancelled, r)
	if c := h.audit(r, 12); c.Sent != 1 || c.Skipped["cancelled"] != 11 {
		t.Errorf("%+v", c)
	}
}

// S5, S6, S7, S8, S8b, S8c: what the server says to one recipient, and what becomes of him and of the others. Every row runs over one
// connection, so that a refusal that spoils it is found out.
func TestReplies(t *testing.T) {
	t.Parallel()
	only := func(users []int, err error) func(int, int) error {
		return func(user, _ int) error {
			if slices.Contains(users, user) {
				return err
			}
			return nil
		}
	}
	nineteen := []int{}
	for i := range 19 {
		nineteen = append(nineteen, 3*i)
	}
	for _, c := range []struct {
		name       string
		rcpt, data func(int, int) error
		done       func(int, int) error
		n          int
		key        string // of those who are not sent to
		who        []int
		status     string // of them
	}{
		{name: "S5 accepted, and then no reply", done: only([]int{4}, errCut), n: 20, key: "unconfirmed", who: []int{4}},
		{name: "S5 no reply, and not accepted", data: only([]int{4}, errCut), n: 20, key: "unconfirmed", who: []int{4}},
		{name: "S6 the first RCPT is refused", rcpt: only([]int{0}, reply(550, "5.1.1", "no such user")), n: 2, key: "failed/bounced", who: []int{0}, status: "bounced"},
		{name: "S7 19 of 60", rcpt: only(nineteen, reply(550, "", "unknown")), n: 60, key: "failed/bounced", who: nineteen, status: "bounced"},
		{name: "S8 554 without an enhanced code", data: only([]int{50}, reply(554, "", "no")), n: 100, key: "failed/bounced", who: []int{50}, status: "bounced"},
		{name: "S8b a restricted list", rcpt: only([]int{50}, reply(550, "5.7.1", "restricted")), n: 100, key: "failed/policy", who: []int{50}},
		{name: "S8c a full mailbox", rcpt: only([]int{50}, reply(552, "5.2.2", "mailbox full")), n: 100, key: "failed/mailbox", who: []int{50}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.post.rcpt, h.post.data, h.post.done = c.rcpt, c.data, c.done
			h.seed(c.n)
			h.campaign("winback", 7)
			r := h.fire("winback")
			h.hire(oneConnection)
			h.finish(campaign.RunDone, r)
			got := h.outcomes(r)
			if d := cmp.Diff(c.who, got[c.key]); d != "" || len(got["sent"]) != c.n-len(c.who) {
				t.Errorf("%d sent, %v %s", len(got["sent"]), got, d)
			}
			h.audit(r, c.n)
			for _, i := range c.who {
				if s := h.user(i).Postbit.Status; s != c.status {
					t.Errorf("user %d: status %q, want %q", i, s, c.status)
				}
				if want := c.key == "unconfirmed"; h.bit(i, 7) != want {
					t.Errorf("user %d: bit %t", i, !want)
				}
			}
			// A task that comes again finds nothing to do.
			if _, err := h.queue.EnqueueBatch(h.ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 1}); err != nil {
				t.Fatal(err)
			}
			h.until("the task is gone", func() bool {
				d := must(h.queue.Depths())(t)["batch"]
				return d.Waiting+d.Active == 0
			})
			h.audit(r, c.n)
			// Everybody is listed with his reply, the unconfirmed by name.
			listed := 0
			h.check(h.batches.Outcomes(h.ctx, r, func(u campaign.UserOutcome) error {
				if slices.Contains(c.who, int(u.User.AsInt64())) && u.Reply != "" {
					listed++
				}
				return nil
			}))
			if listed != len(c.who) {
				t.Errorf("%d of %d have a reply in the log", listed, len(c.who))
			}
		})
	}
}

// S8b: ten refusals by policy in a row, from several domains, pause the run.
func TestPolicyRefusalsInARow(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	var liked atomic.Bool
	h.post.rcpt = func(user, _ int) error {
		if user >= 20 && !liked.Load() {
			return reply(550, "5.7.1", "we do not like you")
		}
		return nil
	}
	h.seed(60)
	h.campaign("winback", 7)
	r := h.fire("winback")
	h.hire(oneConnection)
	h.until("the run is paused", func() bool { return h.run(r).Paused != "" && h.quiet(r) })
	got := h.outcomes(r)
	if len(got["sent"]) != 20 || len(got["failed/policy"]) != 10 || len(got["waiting"]) != 30 {
		t.Errorf("%v", got)
	}
	liked.Store(true)
	h.check(h.runs.ResumeRun(h.ctx, r.ID))
	h.finish(campaign.RunDone, r)
	h.audit(r, 60)
}

// S9
func TestNoWayToTheServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, url, want string }{
		{"the host does not resolve", "smtp://mail.postbit.invalid:25", "mail.postbit.invalid"},
		{"the password is wrong", "smtp://user:hunter2@%s?auth=plain", "authentication failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.seed(10)
			h.campaign("winback", 7)
			r := h.fire("winback")
			url := c.url
			if c.want == "authentication failed" {
				url = fmt.Sprintf(c.url, h.post.addr)
			}
			tr := must(openTransport(url))(t)
			t.Cleanup(func() { _ = tr.Close() })
			h.hire(func(cfg *worker.Config) { cfg.Transport, cfg.SMTPPatience = tr, time.Second })
			h.until("the run is paused", func() bool {
				if h.run(r).Paused == "" {
					h.clk.Advance(time.Second)
				}
				return h.run(r).Paused != "" && h.quiet(r)
			})
			if why := h.run(r).Paused; !contains(why, c.want) || contains(why, "hunter2") {
				t.Errorf("paused: %q", why)
			}
			for i := range 10 {
				if u := h.user(i); u.Postbit.Status != "" || len(u.Bits.Data) > 0 {
					t.Errorf("user %d: %+v", i, u)
				}
			}
			h.check(h.runs.CancelRun(h.ctx, r.ID, "test"))
			h.finish(campaign.RunCancelled, r)
			if c := h.audit(r, 10); c.Skipped["cancelled"] != 10 {
				t.Errorf("%+v", c)
			}
		})
	}
}

// S10: five outages in a run. At each, one connection is cut before the end of DATA and one after it, and nobody is answered until a while later.
func TestOutagesOfTheServer(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const n = 400
	h.seed(n)
	h.campaign("winback", 7)
	before := map[int]bool{40: true, 110: true, 180: true, 250: true, 320: true}
	h.post.rcpt = func(user, nth int) error {
		if before[user] && nth == 1 {
			h.post.down.Store(1)
			return errCut
		}
		return nil
	}
	h.post.done = func(user, _ int) error {
		if before[user-5] {
			return errCut
		}
		return nil
	}
	r := h.fire("winback")
	h.hire(oneConnection)
	h.goToTheEnd(r)
	c := h.audit(r, n)
	want := []int{45, 115, 185, 255, 325}
	got := h.outcomes(r)
	if d := cmp.Diff(want, got["unconfirmed"]); d != "" || c.Sent != n-5 || h.run(r).State != campaign.RunDone {
		t.Errorf("%s, %+v %s", h.run(r).State, c, d)
	}
	for i := range before {
		if h.post.copies(i, "winback") != 1 {
			t.Errorf("user %d was cut before the end of DATA and has %d copies", i, h.post.copies(i, "winback"))
		}
	}
}

// S11, and across a flush of Redis: no window of any length holds more than its limit, by what the SMTP server took.
func TestLimitsOfTwoWorkers(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(90)
	h.campaign("winback", 7, `limits: { rate: ["10/min", "30/h", "70/d"] }`, "expires_after: 72h")
	r := h.fire("winback")
	h.hire()
	h.hire()
	for !h.run(r).State.Finished() {
		h.goOn(r)
		h.check(h.redis.FlushDB(h.ctx).Err())
	}
	if c := h.audit(r, 90); c.Sent != 90 {
		t.Errorf("%+v", c)
	}
	at := h.post.times()
	slices.SortFunc(at, time.Time.Compare)
	for _, limit := range []struct {
		n   int
		per time.Duration
	}{{10, time.Minute}, {30, time.Hour}, {70, 24 * time.Hour}} {
		for i := range at {
			if j := i + limit.n; j < len(at) && at[j].Sub(at[i]) < limit.per {
				t.Errorf("more than %d mails in %s from %s on", limit.n, limit.per, at[i])
				break
			}
		}
	}
}
