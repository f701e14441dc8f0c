// Package worker carries out what the queue says to look at: it plans runs, dispatches batches, sends single mails and
// records hits. What may be sent, to whom, and what was, stands in MongoDB; a task, and a worker, may be lost at any time.
package worker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/limits"
	"postbit/internal/mail"
	"postbit/internal/track"
	"postbit/internal/users"
)

// Config is what a worker works with. Fields without a default in their comment are required.
type Config struct {
	Batches   *campaign.Batches
	Runs      *campaign.Store
	Users     *users.Store
	Limiter   *limits.Limiter
	Transport mail.Transport
	URLs      *track.URLs
	Analytics Analytics
	Clock     *clock.Clock
	Log       *slog.Logger // nil: silent

	From         string                                      // the sender of templates that name none; may be empty
	Bounce       string                                      // the envelope sender, where mails come back to; empty: the address of the sender
	Connections  int                                         // SMTP connections that one wave uses at most; 0: 4
	SMTPPatience time.Duration                               // how long connection faults go on before a run is paused; 0: 5 m
	Grace        time.Duration                               // how long a stopping handler may take to end its wave; 0: 20 s
	Replan       func(ctx context.Context, run string) error // asks for more batches of a run; nil: the feeder does that alone
}

// Analytics takes the increments of a pass, once per id; Memory is how long it knows an id again after it has counted it.
type Analytics interface {
	Apply(ctx context.Context, id string, incs []analytics.Increment) error
	Memory() time.Duration
}

const (
	renewEvery  = 10 * time.Second
	steerEvery  = time.Second
	steerStale  = 1500 * time.Millisecond // a worker looks itself where the watcher has not for so long
	freshFor    = 5 * time.Second         // how old a user document may be when it is claimed
	idleRuns    = time.Minute             // how long a run's compiled template is kept without a batch in work
	retryPauses = 3                       // attempts to connect in one look at a batch
)

// Worker dispatches batches. HandleBatch may be called from any number of goroutines.
type Worker struct {
	cfg   Config
	log   *slog.Logger
	runs  runCache
	smtp  outage // no connection
	from  outage // MAIL FROM refused for now
	slow  slowDomains
	stats Stats

	mu      sync.Mutex
	stopped bool
	stop    chan struct{} // closed when Run's context ends
	working sync.WaitGroup

	retryPause time.Duration // between attempts to connect
}

// Stats are counts since the start of the process, for metrics.
type Stats struct {
	Sent, Failed, Unconfirmed, Retried, Skipped, Passes, Waves atomic.Int64
	Working                                                    atomic.Int64 // batches in work
}

// New returns a worker. Run makes it notice at once when a run is paused or cancelled.
func New(cfg Config) *Worker {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Connections <= 0 {
		cfg.Connections = 4
	}
	if cfg.SMTPPatience <= 0 {
		cfg.SMTPPatience = 5 * time.Minute
	}
	if cfg.Grace <= 0 {
		cfg.Grace = 20 * time.Second
	}
	w := &Worker{cfg: cfg, log: cfg.Log, stop: make(chan struct{}), retryPause: time.Second}
	w.runs.active = map[string]*activeRun{}
	w.slow.domains = map[string]slowness{}
	return w
}

// Stats returns the counts, which go on changing.
func (w *Worker) Stats() *Stats { return &w.stats }

// Run watches the runs that batches are being dispatched for, until ctx ends; then every handler finishes the mails in flight, ends its
// wave and gives its batch back, and Run returns when all have.
func (w *Worker) Run(ctx context.Context) error {
	t := time.NewTicker(steerEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			w.mu.Lock()
			if !w.stopped {
				w.stopped = true
				close(w.stop)
			}
			w.mu.Unlock()
			w.working.Wait()
			return nil
		case <-t.C:
			if err := w.watch(ctx); err != nil && ctx.Err() == nil {
				w.log.Warn("can't see how runs are to go on", "err", err)
			}
		}
	}
}

// ErrStopping is what handlers return that were called after the worker was told to stop.
var ErrStopping = errors.New("the worker is stopping")

// begin lets a handler in, unless the worker is stopping; the handler calls w.working.Done.
func (w *Worker) begin(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || ctx.Err() != nil {
		return ErrStopping
	}
	w.working.Add(1)
	return nil
}

// ownerName is a name that no other call of Own has.
func ownerName() string {
	var b [12]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
