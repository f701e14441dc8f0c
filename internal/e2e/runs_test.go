package e2e

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/queue"
)

// S11b
func TestTwoTemplatesOverTheSameUsers(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(60)
	h.campaign("first", 1)
	h.campaign("second", 2)
	h.post.rcpt = func(user, nth int) error {
		if user == 9 && nth <= 2 {
			return reply(451, "", "greylisted")
		}
		return nil
	}
	r1, r2 := h.fire("first"), h.fire("second")
	h.hire()
	h.hire()
	for !h.run(r1).State.Finished() || !h.run(r2).State.Finished() {
		for _, r := range []*campaign.Run{r1, r2} {
			if !h.run(r).State.Finished() {
				h.goOn(r)
			}
		}
	}
	for _, r := range []*campaign.Run{r1, r2} {
		if c := h.audit(r, 60); c.Sent != 60 {
			t.Errorf("%s: %+v", r.ID, c)
		}
	}
}

// S11c
func TestTheNextDayOverDeferredUsers(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(20, func(i int, doc bson.M) {
		if i%2 == 0 {
			doc["timezone"] = "Pacific/Auckland" // 22:00
		}
	})
	h.campaign("daily", 3, `schedule: { cron: "0 9 * * *" }`, `rules: { window: "09:00-12:00" }`, "expires_after: 3d")
	h.hire()
	h.clk.Advance(time.Minute)
	var first *campaign.Run
	h.until("the first run waits for the window of ten", func() bool {
		if runs := must(h.runs.Runs(h.ctx, "daily", 0))(t); len(runs) == 1 {
			first = &runs[0]
		}
		return first != nil && h.quiet(first) && must(h.batches.Progress(h.ctx, first))(t).Counts.Deferred == 10
	})
	h.clk.Advance(24 * time.Hour) // their window has opened and shut again
	h.finish(campaign.RunSuperseded, first)
	if c := h.audit(first, 20); c.Sent != 10 || c.Skipped["superseded"] != 10 {
		t.Errorf("%+v", c)
	}
	second := must(h.runs.LatestRun(h.ctx, "daily"))(t)
	if second.ID == first.ID {
		t.Fatal("there is no second run")
	}
	h.goToTheEnd(second)
	for i := range 20 {
		if n := h.post.copies(i, "daily"); n != 1 {
			t.Errorf("user %d has %d copies", i, n)
		}
	}
}

// S11d
func TestARunThatEndsOver4xxGivesTheBitBack(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"expired", "superseded", "cancelled"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.seed(6)
			h.campaign("winback", 7, "expires_after: 6h")
			var shut atomic.Bool
			shut.Store(true)
			h.post.rcpt = func(user, _ int) error {
				if user == 2 && shut.Load() {
					return reply(451, "", "try later")
				}
				return nil
			}
			h.hire()
			r := h.fire("winback")
			h.until("the first pass is over", func() bool { return h.quiet(r) && h.post.accepted() == 5 })
			if !h.bit(2, 7) {
				t.Error("he holds a claim while he waits")
			}
			var later *campaign.Run
			want := campaign.RunDone
			switch end {
			case "expired":
				h.clk.Advance(6 * time.Hour)
			case "superseded":
				h.clk.Advance(time.Minute)
				shut.Store(false)
				later, want = h.fire("winback"), campaign.RunSuperseded
			case "cancelled":
				h.check(h.runs.CancelRun(h.ctx, r.ID, "test"))
				want = campaign.RunCancelled
			}
			h.finish(want, r)
			if c := h.run(r).Counts; c.Sent != 5 || c.Failed+c.Skipped[end] != 1 || c.Unconfirmed != 0 {
				t.Errorf("%+v", c)
			}
			if later == nil {
				if h.bit(2, 7) {
					t.Error("his bit was not given back")
				}
				shut.Store(false)
				h.clk.Advance(time.Minute)
				later = h.fire("winback")
			}
			h.goToTheEnd(later)
			if c := h.run(later).Counts; c.Sent != 1 || c.Skipped["already_sent"] != 5 || h.post.copies(2, "winback") != 1 {
				t.Errorf("the later run: %+v, %d copies", c, h.post.copies(2, "winback"))
			}
		})
	}
}

// S11e: a worker that stands still between its claims and its mails, while others take its batch over, end the run and send the next.
func TestStoppedBetweenClaimAndSend(t *testing.T) {
	t.Parallel()
	srv, db := mongotest.Server(t)
	h := houseOn(t, db)
	h.seed(5)
	h.campaign("winback", 7, "audience: { _id: 3 }")
	h.campaign("news", 8, "audience: { _id: 3 }")
	claimed, goOn := make(chan struct{}), make(chan struct{})
	remove := srv.Inject(minimongo.Fault{Command: "update", Where: func(_ string, cmd bson.Raw) bool { return cmd.Lookup("update").StringValue() == "users" },
		Reached: func() { close(claimed) }, After: minimongo.Action{Wait: goOn}})
	var monotonic atomic.Int64
	asleep := h.batches.WithMonotonic(func() time.Time { return start.Add(time.Duration(monotonic.Load())) })
	stop := h.hireWith(asleep)
	r := h.fire("winback")
	h.until("it has claimed", closed(claimed))
	remove()
	monotonic.Store(int64(time.Hour)) // SIGSTOP, as it sees it when it wakes up
	h.clk.Advance(time.Minute)
	h.check(h.redis.FlushDB(h.ctx).Err()) // asynq's own lease of its task would last half a minute by the real clock
	h.hire()
	h.finish(campaign.RunDone, r)
	if c := h.run(r).Counts; c.Unconfirmed != 1 {
		t.Errorf("nobody can know whether he was sent to: %+v", c)
	}
	next := h.fire("news")
	h.finish(campaign.RunDone, next)
	close(goOn)
	stop()
	if n, m := h.post.copies(3, "news"), h.post.copies(3, "winback"); n != 1 || m != 0 {
		t.Errorf("%d mails from the next run, %d from the one that stood still", n, m)
	}
}

// S12, and 7.4 of the design: the worker is gone in the middle of a wave and so is its task; the batch is found, the wave unconfirmed.
func TestKilledInAHandler(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(100)
	h.campaign("winback", 7)
	r := h.fire("winback")
	line := h.tap()
	cut := make(chan struct{})
	h.post.done = func(int, int) error {
		if h.post.accepted() == 50 {
			line.cut() // no write of it reaches the database any more
			close(cut)
			return errCut
		}
		return nil
	}
	kill := h.hireOver(line)
	h.until("it is cut off", closed(cut))
	kill()
	h.check(h.redis.FlushDB(h.ctx).Err())
	before := h.post.accepted()
	h.hire()
	for range 3 {
		h.tick()
	}
	if h.post.accepted() != before {
		t.Error("a batch was taken from an owner who may be alive")
	}
	h.clk.Advance(time.Minute)
	h.finish(campaign.RunDone, r)
	if c := h.audit(r, 100); c.Unconfirmed == 0 || c.Unconfirmed > campaign.MaxWaveUsers {
		t.Errorf("%+v", c)
	}
}

// S13
func TestAnArchivedTaskIsEnqueuedAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(10)
	h.campaign("winback", 7)
	r := h.fire("winback")
	// Every task of the run's first batch fails, and is archived at once.
	failing := queue.NewServer(queue.ServerConfig{Redis: h.redis, Log: h.log}, queue.Handlers{
		Plan:  h.planner().HandlePlan,
		Batch: func(_ ctxt, bt queue.BatchTask) error { return fmt.Errorf("no: %w", asynq.SkipRetry) },
	})
	stop := h.background(func(ctx ctxt) { _ = failing.Run(ctx) })
	h.until("the task is archived", func() bool { return must(h.queue.Depths())(t)["batch"].Archived > 0 })
	stop()
	h.check(h.runs.PauseRun(h.ctx, r.ID, "by hand", "test"))
	h.tick()
	h.check(h.runs.ResumeRun(h.ctx, r.ID))
	h.hire()
	h.finish(campaign.RunDone, r)
	if c := h.audit(r, 10); c.Sent != 10 {
		t.Errorf("%+v", c)
	}
}

// S14
func TestRedisIsFlushedInMidRun(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(1500)
	h.campaign("winback", 7)
	r := h.fire("winback")
	var flushed atomic.Int64
	h.post.done = func(int, int) error {
		if n := h.post.accepted(); n%400 == 0 {
			flushed.Add(1)
			h.check(h.redis.FlushDB(h.ctx).Err())
		}
		return nil
	}
	h.hire()
	h.hire()
	h.finish(campaign.RunDone, r)
	if c := h.audit(r, 1500); c.Sent != 1500 || flushed.Load() == 0 {
		t.Errorf("%+v after %d flushes", c, flushed.Load())
	}
}

// S15
func TestASkipIsCountedOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(20, func(i int, doc bson.M) {
		switch {
		case i == 3:
			doc["email"] = ""
		case i == 4:
			doc["postbit"] = bson.M{"status": "unsubscribed"}
		}
	})
	h.campaign("winback", 7)
	h.post.rcpt = func(user, nth int) error {
		if user == 7 && nth <= 3 {
			return reply(451, "", "later")
		}
		return nil
	}
	r := h.fire("winback")
	h.hire()
	h.goToTheEnd(r)
	if c := h.audit(r, 20); c.Skipped["address"] != 1 || c.Skipped["suppressed"] != 1 || c.Sent != 18 {
		t.Errorf("%+v", c)
	}
	days := must(h.totals("winback"))(t)
	if days["skipped.address"] != 1 || days["skipped.suppressed"] != 1 {
		t.Errorf("%v", days)
	}
}

// A paused run ends when it expires, planned to its end, without being resumed.
func TestAPausedRunExpires(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(700)
	h.campaign("winback", 7, "expires_after: 2h")
	r := h.fire("winback")
	h.check(h.runs.PauseRun(h.ctx, r.ID, "by hand", "test"))
	h.hire()
	for range 3 {
		h.tick()
	}
	h.clk.Advance(2 * time.Hour)
	h.finish(campaign.RunDone, r)
	if c := h.audit(r, 700); c.Skipped["expired"] != 700 {
		t.Errorf("%+v", c)
	}
}

// Documents of every broken kind, each beside good ones: nobody's mail stops another's.
func TestBrokenDocumentsStopNobody(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	broken := []func(doc bson.M){
		func(d bson.M) { d["email"] = 17 },
		func(d bson.M) { delete(d, "email") },
		func(d bson.M) { d["email"] = "a@b@c" },
		func(d bson.M) { d["email"] = strings.Repeat("x", 5000) + "@x.example" },
		func(d bson.M) { d["email"] = "x\r\nBcc: evil@x.example" },
		func(d bson.M) { d["postbit"] = "a string" },
		func(d bson.M) { d["postbit"] = bson.M{"last_at": "yesterday"} },
		func(d bson.M) { d["tpls_sent_at_least_once"] = 3.5 },
		func(d bson.M) { d["tpls_sent_at_least_once"] = bson.A{"winback"} },
	}
	harmless := []func(doc bson.M){
		func(d bson.M) { d["name"] = strings.Repeat("é", 200_000) },
		func(d bson.M) { d["name"] = "x\r\nBcc: evil@x.example" },
		func(d bson.M) { d["name"] = "{{ .User.email }}<script>" },
		func(d bson.M) { d["name"] = bson.M{"first": bson.A{nil, bson.MinKey{}}} },
		func(d bson.M) { d["timezone"] = 7 },
		func(d bson.M) { d["postbit"] = nil },
		func(d bson.M) { d["tpls_sent_at_least_once"] = bson.Binary{Subtype: 2, Data: []byte{0}} },
		func(d bson.M) { d["tpls_sent_at_least_once"] = bson.M{"0": 0} },
	}
	if notUTF8 := string([]byte{'a', 0xff, 0xfe, 'b'}); h.stores(bson.M{"name": notUTF8}) {
		harmless = append(harmless, func(d bson.M) { d["name"] = notUTF8 })
	}
	n := 3 * (len(broken) + len(harmless))
	h.seed(n, func(i int, doc bson.M) {
		if i%3 != 0 {
			return
		}
		if k := i / 3; k < len(broken) {
			broken[k](doc)
		} else {
			harmless[k-len(broken)](doc)
		}
	})
	h.campaign("winback", 7)
	r := h.fire("winback")
	h.hire()
	h.finish(campaign.RunDone, r)
	got := h.outcomes(r)
	for i := range n {
		if i%3 == 0 && i/3 < len(broken) {
			continue
		}
		if copies := h.post.copies(i, "winback"); copies != 1 && !containsInt(got["failed/render"], i) {
			t.Errorf("user %d has %d copies: %v", i, copies, got)
		}
	}
	if d := cmp.Diff([]int{0, 3, 6, 9, 12}, got["skipped/address"]); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]int{15, 18, 21, 24}, got["skipped/unreadable"]); d != "" {
		t.Error(d)
	}
	h.audit(r, n)
	t.Logf("%v", got)
}
