package worker

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/mail"
	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/queue"
)

// aDispatch has every kind of command that a dispatch issues (ofADispatch lists them): several waves, limits, a 4xx, a bounce, a mail
// without a reply, a refusal, skips.
func aDispatch(h *house) (r *campaign.Run, users int) {
	h.seed(40, func(i int, doc bson.M) {
		if i == 5 {
			doc["postbit"] = bson.M{"status": "unsubscribed"}
		}
	})
	h.smtp.answer = func(user, nth int) mail.Reply {
		switch user {
		case 7:
			return reply(mail.Retry, 451, "", "greylisted")
		case 8:
			return reply(mail.Bounced, 550, "5.1.1", "no such user")
		case 9:
			return mail.Reply{Class: mail.Unconfirmed, Code: -1, Text: "EOF"}
		case 11:
			return reply(mail.Policy, 550, "5.7.1", "restricted")
		case 12:
			if nth == 1 {
				return mail.Reply{Class: mail.Cut, Text: "connection reset"}
			}
		}
		return mail.Reply{}
	}
	return h.run("winback", 40, func(r *campaign.Run) {
		r.Spec.Limits = campaign.Limits{Rate: []campaign.Rate{{N: 1_000_000, Per: time.Hour}},
			PerDomain: []campaign.DomainLimits{{Domain: "d1.example", Rate: []campaign.Rate{{N: 1_000_000, Per: time.Hour}}}}}
	}), 40
}

// ofADispatch are the commands of a dispatch, and what each is for.
var ofADispatch = map[string]string{
	"find runs":                     "the run, and how it is steered",
	"find users":                    "evaluation, and evaluation again of who got a 4xx; what is to be taken back",
	"update users":                  "the bulk of claims, suppression, taking back",
	"find limits":                   "room in the limits",
	"insert limits":                 "the first room of a limit",
	"update limits":                 "room in the limits",
	"findAndModify batches.2026.12": "own",
	"update batches.2026.12":        "push, end of the wave, end of the pass, and that its counts are applied",
	"insert applied":                "the counts of a pass",
	"update applied":                "they are applied",
	"find days.2026.12":             "the counters",
	"update days.2026.12":           "the counters",
}

// finish takes the run through its passes until nobody is left, over everything that time brings (takeovers, backoffs, the expiry), by
// callers who try again, as the queue, the feeder and the reconciler do. An operator may look after the run in between.
func finish(h *house, w *Worker, r *campaign.Run, operator ...func()) {
	h.t.Helper()
	again := func(f func() error) {
		h.t.Helper()
		for try := 1; ; try++ {
			err := f()
			if err == nil {
				return
			}
			if try == 5 {
				h.t.Fatal(err)
			}
		}
	}
	for _, d := range []time.Duration{0, time.Minute, 5 * time.Minute, 24 * time.Hour, time.Minute} {
		h.clk.Advance(d)
		for {
			for _, look := range operator {
				look()
			}
			due, err := h.batches.Due(h.ctx, r, h.clk.Now(), 9)
			h.check(err)
			if len(due) == 0 {
				break
			}
			for _, d := range due {
				again(func() error { return w.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: d.N, Pass: d.Pass}) })
			}
		}
		unsettled, err := h.batches.Unsettled(h.ctx, r)
		h.check(err)
		for _, n := range unsettled {
			again(func() error { return w.Settle(h.ctx, r, n) })
		}
	}
}

func expect(h *house, r *campaign.Run, n int) {
	h.t.Helper()
	h.invariants(r, n)
	want := map[string][]int{"skipped/suppressed": {5}, "failed/temporary": {7}, "failed/bounced": {8}, "unconfirmed": {9}, "failed/policy": {11}}
	got := h.outcomes(r)
	if len(got["sent"]) != 35 {
		h.t.Errorf("%d sent", len(got["sent"]))
	}
	delete(got, "sent")
	if d := cmp.Diff(want, got); d != "" {
		h.t.Error(d)
	}
}

// ofDispatch leaves out what tests, feeder and reconciler ask.
func ofDispatch(_ string, cmd bson.Raw) bool {
	elems, _ := cmd.Elements()
	name := elems[0].Key()
	if name == "find" {
		filter, _ := cmd.Lookup("filter").DocumentOK()
		if elems[0].Value().StringValue() == analytics.AppliedCollection && cmd.Lookup("filter", "_id", "$gte").Type != 0 {
			return false // what an analytics writer asks when it starts
		}
		if coll := elems[0].Value().StringValue(); coll == campaign.BatchCollection(testStart) {
			_, err := filter.LookupErr("_id")
			return err == nil
		}
		return true
	}
	return name == "update" || name == "findAndModify" || name == "insert"
}

// commands counts, by name, what a dispatch says to the server in f.
func commands(t *testing.T, f func(h *house, w *Worker, r *campaign.Run)) map[string]int {
	t.Helper()
	srv, db := mongotest.Server(t)
	h := houseOn(t, db)
	r, _ := aDispatch(h)
	var said mongotest.Commands
	remove := srv.Inject(minimongo.Fault{Nth: 1 << 30, Where: func(db string, cmd bson.Raw) bool {
		if ofDispatch(db, cmd) {
			said.Count(cmd)
		}
		return true
	}})
	f(h, h.idleWorker(), r)
	remove()
	said.Expect(t, ofADispatch)
	return said.Times()
}

// noAnswer leaves open whether the command was applied, and costs no new connection.
var noAnswer = &minimongo.Error{Code: 50, Message: "operation exceeded time limit"}

// sample: under the race detector, which makes everything slow, only every fourth command meets those troubles that need no connection.
var sample = 1

// Every command of a dispatch fails in every way: not applied, with an answer or without, applied without one, applied later than the client
// believes. A database outage is not a loss of ownership, so the result is the same as without it. Answers that come late are
// TestAZombieAtEveryCommand's: later than the lease.
func TestEveryCommandFailsInEveryWay(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for many reconnections")
	}
	for command, times := range commands(t, func(h *house, w *Worker, r *campaign.Run) { finish(h, w, r) }) {
		for nth := 1; nth <= times; nth++ {
			for way, f := range map[string]minimongo.Fault{
				"lost":         {Before: minimongo.Action{Drop: true}},
				"reply lost":   {After: minimongo.Action{Drop: true}},
				"applied late": {Before: minimongo.Action{Hangup: true}},
				"fails":        {Before: minimongo.Action{Error: noAnswer}},
			} {
				if way == "fails" && nth%sample != 0 {
					continue
				}
				t.Run(fmt.Sprintf("%s %d %s", command, nth, way), func(t *testing.T) {
					t.Parallel()
					srv, db := mongotest.Server(t)
					h := houseOn(t, db)
					r, n := aDispatch(h)
					w := h.idleWorker()
					f.Command, f.Nth, f.Where = command, nth, ofDispatch
					if f.Before.Hangup {
						late := make(chan struct{})
						f.Before.Wait = late
						once := sync.OnceFunc(func() { close(late) })
						defer once()
						// The late one comes when two more commands of its kind have been answered.
						srv.Inject(minimongo.Fault{Command: command, Nth: nth + 3, Where: ofDispatch, Reached: once})
					}
					remove := srv.Inject(f)
					finish(h, w, r)
					remove() // there may have been fewer: a run is looked at when time has passed
					expect(h, r, n)
				})
			}
		}
	}
}

// The server refuses one command for good, each in turn (a right that is missing, a document that it won't take). The look ends, the run may be
// paused for it; whoever comes next goes on. At most the wave in hand is unconfirmed.
func TestEveryCommandIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("many dispatches")
	}
	refused := &minimongo.Error{Code: 13, Message: "not authorized"}
	for command, times := range commands(t, func(h *house, w *Worker, r *campaign.Run) { finish(h, w, r) }) {
		for nth := 1; nth <= times; nth += sample {
			t.Run(fmt.Sprintf("%s %d", command, nth), func(t *testing.T) {
				t.Parallel()
				srv, db := mongotest.Server(t)
				h := houseOn(t, db)
				r, n := aDispatch(h)
				var operating atomic.Bool
				remove := srv.Inject(minimongo.Fault{Command: command, Nth: nth, Before: minimongo.Action{Error: refused},
					Where: func(db string, cmd bson.Raw) bool { return !operating.Load() && ofDispatch(db, cmd) }})
				finish(h, h.idleWorker(), r, func() {
					operating.Store(true)
					defer operating.Store(false)
					if h.now(r).Paused != "" {
						h.check(h.runs.ResumeRun(h.ctx, r.ID))
					}
				})
				remove()
				h.invariants(r, n)
				got := h.outcomes(r)
				if u := len(got["unconfirmed"]); u > campaign.MaxWaveUsers {
					t.Errorf("%v", got)
				}
			})
		}
	}
}

// A read that fails ends the look, and the next one need not wait until the batch may be taken over.
func TestAFailedReadGivesTheBatchBack(t *testing.T) {
	t.Parallel()
	srv, db := mongotest.Server(t)
	h := houseOn(t, db)
	h.seed(5)
	r := h.run("winback", 5)
	w := h.idleWorker()
	srv.Inject(minimongo.Fault{Command: "find", Before: minimongo.Action{Error: &minimongo.Error{Code: 2, Message: "no"}},
		Where: func(_ string, cmd bson.Raw) bool { return cmd.Lookup("find").StringValue() == "users" }})
	if err := w.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 1}); err == nil {
		t.Error("no error")
	}
	h.check(w.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 1}))
	h.invariants(r, 5)
}
