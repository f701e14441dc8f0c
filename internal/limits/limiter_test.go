package limits

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/minimongo/mongotest"
)

// Ten workers, each a process of its own, ask at once while their clock moves. What they got never exceeds a window, and
// nothing is lost between them: the document counts every grant.
func TestTenWorkersShareTheLimits(t *testing.T) {
	db := mongotest.DB(t)
	c := clock.At(start)
	rates := parse(t, "40/min", "150/h")
	var mu sync.Mutex
	var uses []use
	for range 6 {
		granted := 0
		var g errgroup.Group
		for range 10 {
			worker := New(db.Collection(Collection), c)
			g.Go(func() error {
				for range 2 {
					grant, err := worker.Take(t.Context(), "winback", rates, 3)
					if err != nil {
						return err
					}
					mu.Lock()
					granted += grant.N
					for range grant.N {
						uses = append(uses, use{grant.Until.Add(-Validity(rates))})
					}
					mu.Unlock()
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if granted > 40 {
			t.Errorf("%d granted at once, 40/min", granted)
		}
		c.Advance(64 * time.Second)
	}
	checkWindows(t, uses, rates)
	if len(uses) != 150 {
		t.Errorf("%d granted in all, want the 150 of the hour", len(uses))
	}
}

func TestScopesAreApart(t *testing.T) {
	db := mongotest.DB(t)
	l := New(db.Collection(Collection), clock.At(start))
	rates := parse(t, "5/min")
	for _, scope := range []string{"winback", "winback/gmail.com", "digest"} {
		if g, err := l.Take(t.Context(), scope, rates, 9); err != nil || g.N != 5 {
			t.Errorf("%s: %+v, %v", scope, g, err)
		}
	}
}

func TestLimitsOutliveTheProcess(t *testing.T) {
	db := mongotest.DB(t)
	c := clock.At(start)
	rates := parse(t, "5/min")
	if _, err := New(db.Collection(Collection), c).Take(t.Context(), "winback", rates, 5); err != nil {
		t.Fatal(err)
	}
	l := New(db.Collection(Collection), c)
	g, err := l.Take(t.Context(), "winback", rates, 5)
	if err != nil || g.N != 0 || !g.Next.After(start) {
		t.Errorf("after a restart: %+v, %v", g, err)
	}
	next, err := l.Next(t.Context(), "winback", rates)
	if err != nil || !next.Equal(g.Next) {
		t.Errorf("Next: %s, %v; the grant says %s", next, err, g.Next)
	}
	c.Advance(next.Sub(start))
	if next, err := l.Next(t.Context(), "winback", rates); err != nil || !next.IsZero() {
		t.Errorf("Next, when it has come: %s, %v", next, err)
	}
}

func TestWithoutRatesThereIsNoLimit(t *testing.T) {
	l := New(mongotest.DB(t).Collection(Collection), clock.At(start))
	if g, err := l.Take(t.Context(), "winback", nil, 32); err != nil || g.N != 32 {
		t.Errorf("%+v, %v", g, err)
	}
	if g, err := l.Take(t.Context(), "winback", parse(t, "5/min"), 0); err != nil || g.N != 0 {
		t.Errorf("nothing asked for: %+v, %v", g, err)
	}
	if next, err := l.Next(t.Context(), "winback", nil); err != nil || !next.IsZero() {
		t.Errorf("%s, %v", next, err)
	}
}

func TestBadRatesAreRefused(t *testing.T) {
	coll := mongotest.DB(t).Collection(Collection)
	l := New(coll, clock.At(start))
	for _, r := range []campaign.Rate{{}, {N: 5}, {N: 0, Per: time.Minute}, {N: 5, Per: time.Millisecond}} {
		if _, err := l.Take(t.Context(), "winback", []campaign.Rate{r}, 1); !errors.Is(err, ErrRate) {
			t.Errorf("%v: %v", r, err)
		}
		if _, err := l.Next(t.Context(), "winback", []campaign.Rate{r}); !errors.Is(err, ErrRate) {
			t.Errorf("%v: Next: %v", r, err)
		}
	}
	if err := coll.FindOne(t.Context(), bson.D{}).Err(); !errors.Is(err, mongo.ErrNoDocuments) {
		t.Errorf("something was written: %v", err)
	}
}

func TestTakeEndsWithItsContext(t *testing.T) {
	l := New(mongotest.DB(t).Collection(Collection), clock.At(start))
	leave, err := l.enter(t.Context(), "winback")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := l.Take(ctx, "winback", parse(t, "5/min"), 1)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	leave()
	if len(l.turns) != 0 {
		t.Errorf("%d scopes are remembered", len(l.turns))
	}
}
