// Package scheduler makes runs of campaigns that are due and drives them to their end: it puts what is due into the queue,
// finishes what dead workers left, and declares runs done. Any number of schedulers may run; they share nothing but the
// database, in which a run's _id is the lock.
package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/queue"
)

// DefaultWindow is how many batches of a run are planned ahead, and waiting in the queue, at most.
const DefaultWindow = 64

// Queue is where plan and batch tasks are put. Putting in what is waiting or under way already is no error.
type Queue interface {
	EnqueuePlan(ctx context.Context, t queue.PlanTask) error
	EnqueueBatch(ctx context.Context, t queue.BatchTask) (added bool, err error)
}

// Limits tells when a scope has room again: zero, now.
type Limits interface {
	Next(ctx context.Context, scope string, rates []campaign.Rate) (time.Time, error)
}

// Counters is the upkeep of the analytics model.
type Counters interface {
	Preallocate(ctx context.Context, day, now time.Time) (made int, err error)
	FinishStale(ctx context.Context, olderThan time.Duration) (finished int, err error)
}

// Config is what a scheduler works with.
type Config struct {
	DB        *mongo.Database
	Runs      *campaign.Store
	Batches   *campaign.Batches
	Templates campaign.Templates
	Clock     *clock.Clock

	Queue    Queue
	Settle   func(ctx context.Context, run *campaign.Run, n int) error // finishes a batch's stored delta
	Limits   Limits                                                    // nil: none are kept
	Counters Counters                                                  // nil: no upkeep

	Window      int           // 0: DefaultWindow; must be that of the planner
	Retention   time.Duration // after which batches and opens are dropped; 0: never
	FollowClock bool          // keep Clock with the database's
	Log         *slog.Logger  // nil: none
}

// Scheduler fires campaigns, feeds the queue and reconciles. Create it with New.
type Scheduler struct {
	Config

	turn atomic.Uint32 // which run begins the next feeding

	mu      sync.Mutex
	counted map[string]time.Time // guarded by mu; by run: when its counts were saved last
}

// New returns a scheduler. For StartManual alone, DB, Queue, Settle, Limits and Counters may be missing.
func New(c Config) *Scheduler {
	if c.Window <= 0 {
		c.Window = DefaultWindow
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Scheduler{Config: c, counted: map[string]time.Time{}}
}

// How often each loop looks, in real time.
const (
	fireEvery      = time.Second
	feedEvery      = time.Second
	reconcileEvery = 2 * time.Second
	upkeepEvery    = time.Minute
	retainEvery    = time.Hour
)

// Run runs all loops until ctx ends, and returns once all of them have stopped. What goes wrong in a step is logged, and
// the step is done again at its next time: an outage of the database or of Redis ends nothing.
func (s *Scheduler) Run(ctx context.Context) error {
	if s.DB == nil || s.Queue == nil || s.Settle == nil {
		return errors.New("scheduler: DB, Queue and Settle are needed to run")
	}
	if s.FollowClock {
		s.setClock(ctx)
	}
	g, ctx := errgroup.WithContext(ctx)
	run := func(name string, every time.Duration, step func(context.Context) error) {
		g.Go(func() error { loop(ctx, s.Log, name, every, step); return nil })
	}
	run("fire", fireEvery, s.Fire)
	run("feed", feedEvery, s.Feed)
	run("reconcile", reconcileEvery, s.Reconcile)
	if s.Counters != nil {
		run("upkeep", upkeepEvery, s.Upkeep)
	}
	if s.Retention > 0 {
		run("retain", retainEvery, s.Retain)
	}
	if s.FollowClock {
		g.Go(func() error { KeepClock(ctx, s.DB, s.Clock, s.Log); return nil })
	}
	return g.Wait()
}

// setClock puts the clock right before anything is fired by it: a machine that is a day ahead would fire tomorrow's slots.
func (s *Scheduler) setClock(ctx context.Context) {
	ctx, done := context.WithCancel(ctx)
	defer done()
	loop(ctx, s.Log, "clock", fireEvery, func(ctx context.Context) error {
		err := FollowClock(ctx, s.DB, s.Clock, s.Log)
		if err == nil {
			done()
		}
		return err
	})
}

// loop does step now and then every so often. The same trouble is logged once a minute.
func loop(ctx context.Context, log *slog.Logger, name string, every time.Duration, step func(context.Context) error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var said string
	var saidAt time.Time
	for {
		if err := step(ctx); err != nil && ctx.Err() == nil {
			if text := err.Error(); text != said || time.Since(saidAt) >= time.Minute {
				log.Error("a step failed; it will be tried again", "step", name, "err", err)
				said, saidAt = text, time.Now()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// eachRun calls f for every run; the trouble of one is not the trouble of the others.
func eachRun(ctx context.Context, runs []campaign.Run, f func(r *campaign.Run) error) error {
	var errs []error
	for i := range runs {
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		if err := f(&runs[i]); err != nil {
			errs = append(errs, fmt.Errorf("run %s: %w", runs[i].ID, err))
		}
	}
	return errors.Join(errs...)
}
