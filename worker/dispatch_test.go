package worker

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/mail"
	"postbit/internal/queue"
	"postbit/internal/users"
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

func TestNobodyIsMailedWithoutAWayToUnsubscribe(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	p := &pass{w: h.worker(), a: &activeRun{run: &campaign.Run{}}}
	for _, c := range []struct {
		name string
		id   string
		want error
	}{
		{"an id that fits into a token", strings.Repeat("x", 900), nil},
		{"an id that does not", strings.Repeat("x", 2000), errNoUnsubscribe},
	} {
		t.Run(c.name, func(t *testing.T) {
			kind, value, err := bson.MarshalValue(c.id)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.links(&users.User{ID: bson.RawValue{Type: kind, Value: value}}, time.Now()); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// Documents that are as large as a team lets them grow are read a few at a time, and one pass still comes to everybody: also where they
// have grown between the first look and the claim.
func TestHugeDocuments(t *testing.T) {
	t.Parallel()
	const n = 64
	h := newHouse(t)
	h.seed(n)
	var once sync.Once
	h.smtp.answer = func(int, int) mail.Reply {
		once.Do(func() {
			grown := bson.D{{Key: "$set", Value: bson.D{{Key: "bio", Value: strings.Repeat("x", 400_000)}}}}
			_, err := h.coll.UpdateMany(h.ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: n / 2}}}}, grown)
			h.check(err)
			h.clk.Advance(freshFor + time.Second)
		})
		return mail.Reply{}
	}
	long := template(testBit)
	long.HTML = `<html><body><p>You wrote: {{ .User.bio }}</p><a href="{{ unsubscribe }}">no more</a></body></html>`
	r := h.run("winback", n, func(r *campaign.Run) { r.Template = templates.Snapshot(long) })
	h.check(h.worker().HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 1}))
	if got := h.outcomes(r); len(got["sent"]) != n {
		t.Errorf("%v", got)
	}
	h.invariants(r, n)
}
