// Package limits keeps the sending limits of a campaign, overall and per recipient domain, for all workers together. A
// scope is one document in MongoDB that is changed by compare-and-set only, so limits outlive a flush of Redis and a worker.
package limits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"postbit/internal/campaign"
	"postbit/internal/clock"
)

// Collection is the name of the collection that New expects.
const Collection = "limits"

// ErrRate is returned for a rate that allows nothing or has no window.
var ErrRate = errors.New("a rate needs a number and a window")

// Grant is the right to send N mails before Until. What is not used by then is lost: it counts as if it had been.
type Grant struct {
	N     int
	Until time.Time
	Next  time.Time // where N is 0: when there will be room, if nobody else takes it first
}

// Limiter hands out grants. It is safe for concurrent use.
type Limiter struct {
	coll  *mongo.Collection
	clock *clock.Clock

	mu    sync.Mutex
	turns map[string]*turn // scopes in use by this process
}

// turn lets the goroutines of one process ask for one scope one after the other, so that they don't lose to each other.
type turn struct {
	waiting int
	token   chan struct{}
}

// New returns a limiter on coll, which is read and written with majority and journal whatever its own settings say.
func New(coll *mongo.Collection, c *clock.Clock) *Limiter {
	journal := true
	durable := coll.Clone(options.Collection().
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()).
		SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journal}))
	return &Limiter{coll: durable, clock: c, turns: map[string]*turn{}}
}

// Take asks for room for want mails in scope ("winback", "winback/gmail.com"). It grants what all rates have room for, up
// to want, or nothing and the time to ask again. Without rates there is no limit, and want is granted.
func (l *Limiter) Take(ctx context.Context, scope string, rates []campaign.Rate, want int) (Grant, error) {
	if err := check(rates); err != nil {
		return Grant{}, fmt.Errorf("limits of %s: %w", scope, err)
	}
	if want <= 0 || len(rates) == 0 {
		return Grant{N: max(want, 0), Until: l.clock.Now().Add(maxValidity)}, nil
	}
	leave, err := l.enter(ctx, scope)
	if err != nil {
		return Grant{}, fmt.Errorf("limits of %s: %w", scope, err)
	}
	defer leave()
	for try := 0; ; try++ {
		g, done, err := l.try(ctx, scope, rates, want)
		if err != nil {
			return Grant{}, fmt.Errorf("limits of %s: %w", scope, err)
		}
		if done {
			return g, nil
		}
		if err := backOff(ctx, try); err != nil {
			return Grant{}, fmt.Errorf("limits of %s: lost the race for room %d times: %w", scope, try+1, err)
		}
	}
}

// Next is when there will be room for at least one mail in all rates, or the zero time if there is room now.
func (l *Limiter) Next(ctx context.Context, scope string, rates []campaign.Rate) (time.Time, error) {
	if err := check(rates); err != nil {
		return time.Time{}, fmt.Errorf("limits of %s: %w", scope, err)
	}
	if len(rates) == 0 {
		return time.Time{}, nil
	}
	doc, _, err := l.read(ctx, scope)
	if err != nil {
		return time.Time{}, fmt.Errorf("limits of %s: %w", scope, err)
	}
	return doc.next(rates, l.clock.Now()), nil
}

// try is one compare-and-set; done is false if somebody else was faster.
func (l *Limiter) try(ctx context.Context, scope string, rates []campaign.Rate, want int) (g Grant, done bool, err error) {
	doc, found, err := l.read(ctx, scope)
	if err != nil {
		return Grant{}, false, err
	}
	after, g := doc.take(rates, want, l.clock.Now())
	if g.N == 0 {
		return g, true, nil
	}
	after.ID = scope
	done, err = l.write(ctx, after, found)
	return g, done, err
}

func (l *Limiter) read(ctx context.Context, scope string) (doc scopeDoc, found bool, err error) {
	err = l.coll.FindOne(ctx, bson.D{{Key: "_id", Value: scope}}).Decode(&doc)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return scopeDoc{}, false, nil
	}
	return doc, err == nil, err
}

func (l *Limiter) write(ctx context.Context, doc scopeDoc, found bool) (won bool, err error) {
	if !found {
		_, err := l.coll.InsertOne(ctx, doc)
		if mongo.IsDuplicateKeyError(err) {
			return false, nil
		}
		return err == nil, err
	}
	res, err := l.coll.ReplaceOne(ctx, bson.D{{Key: "_id", Value: doc.ID}, {Key: "rev", Value: doc.Rev - 1}}, doc)
	if err != nil {
		return false, err
	}
	return res.MatchedCount == 1, nil
}

// enter waits for this process's turn at scope.
func (l *Limiter) enter(ctx context.Context, scope string) (leave func(), err error) {
	l.mu.Lock()
	t := l.turns[scope]
	if t == nil {
		t = &turn{token: make(chan struct{}, 1)}
		l.turns[scope] = t
	}
	t.waiting++
	l.mu.Unlock()

	gone := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.waiting--; t.waiting == 0 {
			delete(l.turns, scope)
		}
	}
	select {
	case t.token <- struct{}{}:
		return func() { <-t.token; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, ctx.Err()
	}
}

// backOff waits a random part of 2, 4, 8 … 128 ms: other processes are after the same document.
func backOff(ctx context.Context, try int) error {
	limit := 2 * time.Millisecond << min(try, 6)
	return clock.Sleep(ctx, rand.N(limit))
}

func check(rates []campaign.Rate) error {
	for _, r := range rates {
		if r.N < 1 || r.Per < time.Second {
			return fmt.Errorf("%w: %s", ErrRate, r)
		}
	}
	return nil
}
