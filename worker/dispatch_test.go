package worker

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"
)

func TestDispatchEndToEnd(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("", func(t *testing.T) {
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
	})
}
