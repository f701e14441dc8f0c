package worker

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/queue"
	"postbit/templates"
)

// Two workers with clocks of their own: one is in the middle of a mail, the other is called for the same batch. Whichever clock is wrong, the
// batch is its owner's for as long as he lives by the database's clock, and nobody ends unconfirmed; a dead one's is taken over.
func TestWorkersWhoseClocksAreWrong(t *testing.T) {
	for _, tt := range []struct {
		name          string
		owner, taker  time.Duration // from the start
		ownerSteps    time.Duration // in mid-run
		takerSteps    time.Duration
		passes        time.Duration // while the owner is in the middle of a mail
		isUnconfirmed bool
	}{
		{name: "the taker is an hour ahead", taker: time.Hour, passes: 20 * time.Second},
		{name: "the taker steps ahead by an hour", takerSteps: time.Hour, passes: 20 * time.Second},
		{name: "the owner is an hour behind", owner: -time.Hour, passes: 20 * time.Second},
		{name: "the owner steps back by an hour", ownerSteps: -time.Hour, passes: 20 * time.Second},
		{name: "both are wrong", owner: -time.Hour, taker: time.Hour, takerSteps: time.Hour, passes: 20 * time.Second},
		{name: "the owner is dead", passes: 41 * time.Second, isUnconfirmed: true},
		{name: "the owner is dead, and was an hour ahead", owner: time.Hour, passes: 41 * time.Second, isUnconfirmed: true},
		{name: "the owner is dead, the taker an hour behind", taker: -time.Hour, passes: 41 * time.Second, isUnconfirmed: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			shift := time.Until(testStart)
			var passed atomic.Int64
			now := func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
			_, db := mongotest.Server(t, func(c *minimongo.Config) { c.Now = func() time.Time { return now().Add(shift) } })
			h := houseOn(t, db)
			h.seed(40)
			r := h.run("winback", 40)
			machine := func(off time.Duration, smtp *fakeSMTP) (*clock.Clock, *Worker) {
				clk := clock.New()
				clk.Advance(shift + off)
				batches := campaign.NewBatches(db, clk).WithMonotonic(now)
				return clk, h.idleWorker(oneConnection, func(c *Config) { c.Batches, c.Clock, c.Transport = batches, clk, smtp })
			}
			ownerSMTP, takerSMTP := newFakeSMTP(), newFakeSMTP()
			ownerClock, owner := machine(tt.owner, ownerSMTP)
			takerClock, taker := machine(tt.taker, takerSMTP)

			other := template(testBit + 1)
			before := h.run("before", 5, func(r *campaign.Run) { r.Template = templates.Snapshot(other) })
			h.check(taker.HandleBatch(h.ctx, queue.BatchTask{Run: before.ID, N: 1, Pass: 1}))

			hangs, goOn := make(chan struct{}), make(chan struct{})
			ownerSMTP.begin = func(user int) {
				if user == 3 {
					close(hangs)
					<-goOn
				}
			}
			var running sync.WaitGroup
			running.Go(func() { h.check(owner.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 1})) })
			<-hangs
			passed.Add(int64(tt.passes))
			ownerClock.Advance(tt.passes + tt.ownerSteps)
			takerClock.Advance(tt.passes + tt.takerSteps)
			h.check(taker.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 1}))
			close(goOn)
			running.Wait()

			got := h.outcomes(r)
			sent, unconfirmed := 40, 0
			if tt.isUnconfirmed {
				sent, unconfirmed = 8, 32
			}
			if len(got["sent"]) != sent || len(got["unconfirmed"]) != unconfirmed {
				t.Errorf("%v", got)
			}
			for i := range 40 {
				if n := ownerSMTP.copies(i) + takerSMTP.copies(i); n > 1+btoi(i < 5) { // the run before sent to the first five
					t.Errorf("user %d has %d copies", i, n)
				}
			}
			var doc bson.M
			h.check(h.db.Collection(campaign.BatchCollection(testStart)).FindOne(h.ctx, bson.D{{Key: "_id", Value: campaign.BatchID(r.ID, 1)}}).Decode(&doc))
			if epoch, _ := doc["epoch"].(int64); epoch != int64(1+btoi(tt.isUnconfirmed)) {
				t.Errorf("the batch was taken %d times", epoch)
			}
		})
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
