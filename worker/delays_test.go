package worker

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/queue"
	"postbit/rules"
)

// What was read more than five seconds ago is read again, and evaluated again.
func TestOldDocumentsAreReadAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(5)
	r := h.run("winback", 5)
	once := sync.OnceFunc(func() { // the server is long in coming
		h.clk.Advance(freshFor + time.Second)
		_, err := h.coll.UpdateOne(h.ctx, bson.D{{Key: "_id", Value: int32(2)}}, bson.D{{Key: "$set", Value: bson.D{{Key: "plan", Value: "paid"}, {Key: "email", Value: "no address"}}}})
		h.check(err)
	})
	h.smtp.connect = func() error { once(); return nil }
	h.handle(h.idleWorker(), r)
	if got := h.outcomes(r); !cmp.Equal(got["skipped/address"], []int{2}) || len(got["sent"]) != 4 {
		t.Errorf("%v", got)
	}
	h.invariants(r, 5)
}

// The database keeps the push of a wave waiting until the window has closed: nobody is mailed at night.
func TestAPushThatTakesHours(t *testing.T) {
	t.Parallel()
	srv, db := mongotest.Server(t)
	h := houseOn(t, db)
	h.seed(5)
	r := h.run("winback", 5, func(r *campaign.Run) { r.Spec.Rules.Window = rules.Window{From: 9 * 60, To: 12 * 60} })
	srv.Inject(minimongo.Fault{Command: "update", Reached: func() { h.clk.Advance(10 * time.Hour) },
		Where: func(_ string, cmd bson.Raw) bool { return cmd.Lookup("update").StringValue() != "users" }})
	w := h.idleWorker()
	h.check(w.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 1}))
	if n := h.smtp.total.Load(); n != 0 {
		t.Errorf("%d mails at night", n)
	}
	h.clk.Advance(13 * time.Hour) // 8:00 UTC is 9:00 in Berlin
	h.handle(w, r)
	if got := h.outcomes(r); len(got["sent"]) != 5 {
		t.Errorf("%v", got)
	}
	h.invariants(r, 5)
}
