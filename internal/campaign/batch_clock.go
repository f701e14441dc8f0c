package campaign

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/clock"
	"postbit/internal/hello"
)

// readingFor is how long a reading of the database's clock is gone by.
const readingFor = 5 * time.Second

// leaseClock is what time it is by the database's clock, by which alone leases are written and judged: the clock of a worker's machine
// may be wrong by an hour, or step by one between two corrections. Behind several routers of a cluster it is theirs, which must
// agree within TakeoverAfter.
type leaseClock struct {
	ask   func(context.Context) (time.Time, error)
	clk   *clock.Clock // one that stands, as in tests, is the database's, too
	watch clock.Stopwatch

	turn            chan struct{} // held while asking
	mu              sync.Mutex
	theirs          time.Time // guarded by mu, as what follows; zero: not asked yet
	asked, answered clock.Moment
}

func newLeaseClock(db *mongo.Database, clk *clock.Clock, watch clock.Stopwatch) *leaseClock {
	return &leaseClock{ask: askServer(db), clk: clk, watch: watch, turn: make(chan struct{}, 1)}
}

// askServer reads the clock of the database.
func askServer(db *mongo.Database) func(context.Context) (time.Time, error) {
	return func(ctx context.Context) (time.Time, error) {
		said, err := hello.Ask(ctx, db)
		if err != nil {
			return time.Time{}, fmt.Errorf("campaign: the database's clock: %w", err)
		}
		if said.LocalTime.IsZero() { // without it nobody can tell whose lease is over
			return time.Time{}, errors.New("campaign: the database does not tell its time: hello without localTime")
		}
		return said.LocalTime, nil
	}
}

// now returns bounds of the database's clock: it reads at least and at most that. The difference is how long the answer took.
func (c *leaseClock) now(ctx context.Context) (least, most time.Time, err error) {
	if c.clk.Stands() {
		return c.clk.Now(), c.clk.Now(), nil
	}
	if least, most, ok := c.known(); ok {
		return least, most, nil
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return time.Time{}, time.Time{}, ctx.Err()
	}
	if least, most, ok := c.known(); ok { // others have asked meanwhile
		return least, most, nil
	}
	asked := c.watch.Now()
	theirs, err := c.ask(ctx)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	answered := c.watch.Now()
	c.mu.Lock()
	c.theirs, c.asked, c.answered = theirs, asked, answered
	c.mu.Unlock()
	return theirs, theirs.Add(answered.Mono.Sub(asked.Mono)), nil
}

// known goes by the last reading, unless it is old, or the machine's two clocks disagree about how old it is.
func (c *leaseClock) known() (least, most time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.theirs.IsZero() {
		return least, most, false
	}
	now := c.watch.Now()
	passed, _ := now.Since(c.asked)
	if passed > readingFor || !now.Agrees(c.asked) {
		return least, most, false
	}
	return c.theirs.Add(now.Mono.Sub(c.answered.Mono)), c.theirs.Add(passed), true
}
