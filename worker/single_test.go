package worker

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/mail"
)

func TestSendOne(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(3)
	w := h.worker()
	ask := Single{Key: "order-17", Template: template(testBit), User: userID(1)}
	first, err := w.SendOne(h.ctx, ask)
	h.check(err)
	if first.Outcome != "sent" || first.Run != "send/order-17" || !strings.HasSuffix(first.MessageID, "@example.com") {
		t.Errorf("%+v", first)
	}
	again, err := w.SendOne(h.ctx, ask)
	h.check(err)
	if again.Outcome != "sent" || again.MessageID != first.MessageID || h.smtp.copies(1) != 1 {
		t.Errorf("the same again: %+v, %d copies", again, h.smtp.copies(1))
	}
	for name, other := range map[string]Single{
		"another user":     {Key: "order-17", Template: template(testBit), User: userID(2)},
		"another template": {Key: "order-17", Template: template(9), User: userID(1)},
	} {
		if _, err := w.SendOne(h.ctx, other); !errors.Is(err, ErrKeyTaken) || !strings.HasSuffix(err.Error(), ": template "+template(testBit).Name+", user 1") {
			t.Errorf("%s: %v", name, err)
		}
	}
	skipped, err := w.SendOne(h.ctx, Single{Template: template(testBit), User: userID(1)})
	h.check(err)
	if skipped.Outcome != "skipped" || skipped.Rule != "already_sent" || skipped.Key == "" || skipped.MessageID != "" {
		t.Errorf("another key, the same template: %+v", skipped)
	}
	if _, err := w.SendOne(h.ctx, Single{Key: "a/b", Template: template(testBit), User: userID(1)}); !errors.Is(err, ErrKey) {
		t.Errorf("a key with a slash: %v", err)
	}
}

// Settling is left to the servers.
func TestSendOneLeavesCountingToOthers(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(2)
	w := h.worker(func(c *Config) { c.Analytics = nil })
	r, err := w.SendOne(h.ctx, Single{Template: template(testBit), User: userID(1)})
	h.check(err)
	run, err := h.runs.Run(h.ctx, r.Run)
	h.check(err)
	unsettled, err := h.batches.Unsettled(h.ctx, run)
	h.check(err)
	if len(unsettled) != 1 {
		t.Fatalf("unsettled: %v", unsettled)
	}
	h.check(h.worker().Settle(h.ctx, run, 1))
	var doc struct {
		Daily int `bson:"daily"`
	}
	h.check(h.db.Collection("days.2026.12").FindOne(h.ctx, bson.D{{Key: "_id", Value: "20261201/all.sent"}}).Decode(&doc))
	if doc.Daily != 1 {
		t.Errorf("all.sent = %d", doc.Daily)
	}
}

func TestSendOneIsCompletedLater(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(2)
	down := true
	h.smtp.connect = func() error {
		if down {
			return &mail.ConnectError{Step: "dial", Host: "x:25", Err: errors.New("connection refused")}
		}
		return nil
	}
	h.smtp.answer = func(user, nth int) mail.Reply {
		if nth == 1 {
			return reply(mail.Retry, 451, "", "greylisted")
		}
		return mail.Reply{}
	}
	w := h.worker()
	ask := Single{Key: "k", Template: template(testBit), User: userID(1), Count: true}
	step := func(outcome, reply string) {
		t.Helper()
		r, err := w.SendOne(h.ctx, ask)
		h.check(err)
		if r.Outcome != outcome || r.Reply != reply {
			t.Errorf("%+v, want %s %s", r, outcome, reply)
		}
	}
	step("deferred", "SMTP server x:25: dial: connection refused")
	down = false
	step("deferred", "451 greylisted")
	step("deferred", "451 greylisted") // not before the backoff is over
	h.clk.Advance(5 * time.Minute)
	step("sent", "")
	if h.smtp.tried[1] != 2 {
		t.Errorf("tried %d times", h.smtp.tried[1])
	}
	run, err := h.runs.Run(h.ctx, "send/k")
	h.check(err)
	if p := h.progress(run); !p.Ended || p.Open != 0 || p.Unsettled != 0 || p.Counts.Sent != 1 {
		t.Errorf("%+v", p)
	}
}

func TestSendOneRefusesWhatCantBeSent(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(1)
	w := h.worker()
	retired, noSender := template(testBit), template(testBit)
	retired.RetiredAt = testStart
	noSender.From = "nobody"
	for name, bad := range map[string]Single{
		"retired":   {Key: "a", Template: retired, User: userID(0)},
		"no sender": {Key: "b", Template: noSender, User: userID(0)},
	} {
		if _, err := w.SendOne(h.ctx, bad); !errors.Is(err, ErrNotSendable) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := h.runs.Run(h.ctx, "send/"+bad.Key); !errors.Is(err, campaign.ErrNotFound) {
			t.Errorf("%s: a run was made: %v", name, err)
		}
	}
}

func TestSendOneByManyAtOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(1)
	w := h.worker()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := w.SendOne(h.ctx, Single{Key: "k", Template: template(testBit), User: userID(0), Count: true}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := h.smtp.copies(0); n != 1 {
		t.Errorf("%d copies", n)
	}
}

// A maker that dies between the batch and the end marker leaves a run without its end; the next call with the key puts it there.
func TestSendOneAfterACrashBeforeTheEndMarker(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(2)
	w := h.worker()
	ask := Single{Key: "k", Template: template(testBit), User: userID(1)}
	run, err := w.singleRun(h.ctx, ask)
	h.check(err)
	_, err = h.db.Collection(campaign.BatchCollection(run.Slot)).DeleteOne(h.ctx, bson.D{{Key: "_id", Value: campaign.BatchID(run.ID, 2)}})
	h.check(err)
	r, err := w.SendOne(h.ctx, ask)
	h.check(err)
	if p := h.progress(run); !p.Ended || p.Batches != 1 || r.Outcome != "sent" || h.smtp.copies(1) != 1 {
		t.Errorf("%+v, %s, %d copies", p, r.Outcome, h.smtp.copies(1))
	}
}
