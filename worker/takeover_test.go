package worker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/queue"
	"postbit/templates"
)

// A worker is killed at every command it issues, and another one goes on: at most one wave is unconfirmed, nobody has two copies, and
// who is unconfirmed is listed.
func TestKilledAtEveryCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for many reconnections")
	}
	n := 0
	for _, times := range commands(t, func(h *house, w *Worker, r *campaign.Run) {
		h.smtp.answer = nil
		h.check(w.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 1}))
	}) {
		n += times
	}
	for nth := 1; nth <= n; nth++ {
		for _, applied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d applied %t", nth, applied), func(t *testing.T) {
				t.Parallel()
				srv, db := mongotest.Server(t)
				h := houseOn(t, db)
				r, n := aDispatch(h)
				h.smtp.answer = nil
				dead, kill := context.WithCancel(h.ctx)
				hold := make(chan struct{})
				f := minimongo.Fault{Nth: nth, Where: ofDispatch, Reached: kill, Before: minimongo.Action{Wait: hold, Drop: true}}
				if applied {
					f.Before, f.After = minimongo.Action{}, minimongo.Action{Wait: hold, Drop: true}
				}
				remove := srv.Inject(f)
				// Its grace is over at once: nothing can be said to the database any more.
				doomed := h.idleWorker(func(c *Config) { c.Grace = time.Nanosecond })
				doomed.HandleBatch(dead, queue.BatchTask{Run: r.ID, N: 1, Pass: 1})
				remove()
				close(hold)
				finish(h, h.idleWorker(), r)
				h.invariants(r, n)
				got := h.outcomes(r)
				if u := len(got["unconfirmed"]); u > campaign.MaxWaveUsers || u+len(got["sent"]) != 39 {
					t.Errorf("%v", got)
				}
			})
		}
	}
}

// A worker is held up at every command it issues, before or after it is carried out, and goes on when another worker has taken the batch over
// and ended it: nobody gets two copies, and the log stays as the other one left it.
func TestAZombieAtEveryCommand(t *testing.T) {
	own := func(db string, cmd bson.Raw) bool { // not those of the analytics, which both workers share here
		elems, _ := cmd.Elements()
		coll, _ := elems[0].Value().StringValueOK()
		return ofDispatch(db, cmd) && (coll == "runs" || coll == "users" || coll == campaign.BatchCollection(testStart))
	}
	const most = 16 // of a batch of 40; where there are fewer, nothing is held up and the test says so
	held := 0
	for nth := 1; nth <= most; nth++ {
		for _, applied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d applied %t", nth, applied), func(t *testing.T) {
				srv, db := mongotest.Server(t)
				h := houseOn(t, db)
				r, n := aDispatch(h)
				h.smtp.answer = nil
				reached, goOn := make(chan struct{}), make(chan struct{})
				f := minimongo.Fault{Nth: nth, Where: own, Reached: func() { close(reached) }, Before: minimongo.Action{Wait: goOn}}
				if applied {
					f.Before, f.After = minimongo.Action{}, f.Before
				}
				srv.Inject(f)
				zombie, over := h.idleWorker(), make(chan struct{})
				go func() {
					defer close(over)
					if err := zombie.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 1}); err != nil {
						t.Errorf("zombie: %v", err)
					}
				}()
				select {
				case <-reached:
					held++
				case <-over:
				}
				finish(h, h.idleWorker(), r)
				before := h.outcomes(r)
				close(goOn)
				<-over
				if d := cmp.Diff(before, h.outcomes(r)); d != "" {
					t.Errorf("the zombie changed the log: %s", d)
				}
				h.invariants(r, n)
			})
		}
	}
	if held < 16 {
		t.Errorf("only %d commands were held up", held)
	}
}

// A worker that was given up for dead is not: it hangs in the middle of a mail while another one takes the batch over and finishes it.
func TestAZombieEndsNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(40)
	r := h.run("winback", 40)
	hangs, goOn := make(chan struct{}), make(chan struct{})
	zombieSMTP := h.smtp
	zombieSMTP.begin = func(user int) {
		if user == 3 {
			close(hangs)
			<-goOn
		}
	}
	var zombie sync.WaitGroup
	w := h.idleWorker(oneConnection)
	zombie.Go(func() { h.check(w.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 1})) })
	<-hangs
	h.clk.Advance(time.Minute)
	second := newFakeSMTP()
	h.handle(h.idleWorker(func(c *Config) { c.Transport = second }), r)
	got := h.outcomes(r)
	if len(got["unconfirmed"]) != 32 || len(got["sent"]) != 8 {
		t.Errorf("%v", got)
	}
	close(goOn)
	zombie.Wait()
	if d := cmp.Diff(got, h.outcomes(r)); d != "" {
		t.Errorf("the zombie changed the log: %s", d)
	}
	for i := range 40 {
		if n := zombieSMTP.copies(i) + second.copies(i); n > 1 || i >= 32 && n != 1 {
			t.Errorf("user %d has %d copies", i, n)
		}
	}
}

// S11e
func TestStoppedBetweenClaimAndSend(t *testing.T) {
	t.Parallel()
	srv, db := mongotest.Server(t)
	h := houseOn(t, db)
	h.seed(5)
	first := h.run("first", 5)
	var mu sync.Mutex
	passed := time.Duration(0)
	mono := func() time.Time { mu.Lock(); defer mu.Unlock(); return time.Now().Add(passed) }

	claimed, goOn := make(chan struct{}), make(chan struct{})
	srv.Inject(minimongo.Fault{Command: "update", Reached: func() { close(claimed) }, After: minimongo.Action{Wait: goOn},
		Where: func(_ string, cmd bson.Raw) bool { return cmd.Lookup("update").StringValue() == "users" }})
	stopped := newFakeSMTP()
	w := h.idleWorker(func(c *Config) { c.Transport = stopped; c.Batches = h.batches.WithMonotonic(mono) })
	var running sync.WaitGroup
	running.Go(func() { h.check(w.HandleBatch(h.ctx, queue.BatchTask{Run: first.ID, N: 1, Pass: 1})) })
	<-claimed
	h.clk.Advance(time.Minute)
	mu.Lock()
	passed = time.Minute
	mu.Unlock()

	steerTo(campaign.RunSuperseding)(h, first)
	other := h.idleWorker()
	h.handle(other, first)
	if got := h.outcomes(first); len(got["unconfirmed"]) != 5 {
		t.Errorf("the run that was ended: %v", got)
	}
	always := template(testBit)
	always.Repeat = 2
	next := h.run("next", 5, func(r *campaign.Run) { r.Template = templates.Snapshot(always) })
	h.handle(other, next)
	if got := h.outcomes(next); len(got["sent"]) != 5 {
		t.Errorf("the next run: %v", got)
	}
	close(goOn)
	running.Wait()
	if n := stopped.total.Load(); n != 0 {
		t.Errorf("the stopped worker sent %d mails", n)
	}
}

// A rival run of the same template, and runs of others, at the same users at the same time: one copy of each template.
func TestRivals(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(64)
	var both sync.WaitGroup
	smtps := make([]*fakeSMTP, 4)
	runs := make([]*campaign.Run, 4)
	for k := range 4 {
		smtps[k] = newFakeSMTP()
		runs[k] = h.run(fmt.Sprintf("run%d", k), 64, func(r *campaign.Run) { r.Template = templates.Snapshot(template(testBit + k/2)) })
	}
	for k := range 4 {
		w := h.worker(func(c *Config) { c.Transport = smtps[k] })
		both.Go(func() { h.handle(w, runs[k]) })
	}
	both.Wait()
	for i := range 64 {
		for k := 0; k < 4; k += 2 {
			if n := smtps[k].copies(i) + smtps[k+1].copies(i); n > 1 {
				t.Errorf("user %d has %d copies of template %d", i, n, k/2)
			}
		}
	}
	for k, r := range runs {
		c := h.progress(r).Counts
		if c.Checked != 64 || c.Sent+c.Unconfirmed+c.Skipped["already_sent"] != 64 {
			t.Errorf("run %d: %+v", k, c)
		}
	}
}
