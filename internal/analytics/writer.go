package analytics

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"postbit/internal/clock"
)

// ErrStopped is the answer of Apply when the writer has been stopped. The id is not counted, or will be by whoever gets it next.
var ErrStopped = errors.New("the analytics writer has stopped")

// Writer applies increments exactly once per id, however often and to however many writers an id is given. It is one
// start of one process: its name is random, and it works on one set at a time.
type Writer struct {
	db       *mongo.Database
	applied  *mongo.Collection
	clock    *clock.Clock
	log      *slog.Logger
	memory   time.Duration
	keptFrom atomic.Int64  // ids of before are not all there, since the memory has grown: Unix ms; 0: it has not
	patience time.Duration // how long one set is tried before it is left to others

	mu      sync.Mutex
	waiting []*call
	stopped bool
	wake    chan struct{} // holds one token while there is something to do

	name   string // touched by Run only, like number
	number int64

	shapes shapes

	evening sync.Mutex // one Preallocate at a time
	seen    metricsSeen
}

// Option changes a Writer.
type Option func(*Writer)

// WithPatience sets how long a set is tried, against a database that does not answer, before Apply reports an error.
func WithPatience(d time.Duration) Option { return func(w *Writer) { w.patience = d } }

// NewWriter returns a writer under a new name. Apply works while Run does.
func NewWriter(db *mongo.Database, clk *clock.Clock, log *slog.Logger, opts ...Option) *Writer {
	w := &Writer{
		db: db, applied: durable(db, AppliedCollection), clock: clk, log: log,
		memory: DefaultMemory, patience: time.Minute,
		wake: make(chan struct{}, 1), name: newName(),
		shapes: shapes{known: map[docKey]bool{}},
	}
	for _, o := range opts {
		o(w)
	}
	return w
}

// newName is 65 random bits as a field name.
func newName() string { return strings.ToLower(rand.Text()[:13]) }

// durable is a collection whose acknowledged writes survive the loss of a server, and whose reads show nothing that may
// yet be rolled back, whatever the connection string says.
func durable(db *mongo.Database, name string) *mongo.Collection {
	journal := true
	return db.Collection(name, options.Collection().
		SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journal}).
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()))
}

// call is one Apply that waits.
type call struct {
	id    string
	sums  *sums
	done  chan error // holds one
	given context.Context
}

func (c *call) answer(err error) { c.done <- err }

// Apply adds the increments, once for this id however often Apply is called with it, and returns when that is done: by
// this call, by an earlier one, or by another process. Give the same increments with the same id every time; the first
// that were stored count. After an error the id may or may not have been counted: call again with it.
//
// An increment that is not safe is refused with ErrUnsafe, and one that can't be stored with ErrTooLarge; then nothing is written.
func (w *Writer) Apply(ctx context.Context, id string, incs []Increment) error {
	if err := checkText("id", id, MaxIDBytes); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	s, err := sum(incs)
	if err != nil {
		return fmt.Errorf("apply %s: %w", id, err)
	}
	c := &call{id: id, sums: s, done: make(chan error, 1), given: ctx}
	w.mu.Lock()
	if w.stopped {
		w.mu.Unlock()
		return fmt.Errorf("apply %s: %w", id, ErrStopped)
	}
	w.waiting = append(w.waiting, c)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	select {
	case err = <-c.done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("apply %s: %w", id, err)
	}
	return nil
}

// Run works until ctx ends; then it finishes the set in hand, if the database lets it within some seconds, and answers
// all who wait with ErrStopped. It makes the indexes first, since nothing is counted exactly once without them, and returns
// an error where it may not. A Writer runs once; stop whoever calls Apply first.
func (w *Writer) Run(ctx context.Context) error {
	defer w.stop()
	var wait backoff
	for err := w.EnsureIndexes(ctx); err != nil; err = w.EnsureIndexes(ctx) {
		if ctx.Err() == nil {
			w.log.Warn("nothing is counted yet", "err", err)
		}
		if hopeless(err) {
			return err
		}
		if !wait.pause(ctx) {
			return nil
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
		}
		for ctx.Err() == nil {
			calls := w.gather()
			if len(calls) == 0 {
				break
			}
			w.commit(ctx, calls)
		}
	}
}

func (w *Writer) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	for _, c := range w.waiting {
		c.answer(ErrStopped)
	}
	w.waiting = nil
}

// group is all calls with one id.
type group struct {
	id    string
	calls []*call
}

func (g *group) answer(err error) {
	for _, c := range g.calls {
		c.answer(err)
	}
}

// gather takes what waits and fits into one set, in the order of its coming, each id once. What doesn't fit stays.
func (w *Writer) gather() []*group {
	w.mu.Lock()
	defer w.mu.Unlock()
	var (
		groups []*group
		byID   = map[string]*group{}
		total  = newSums()
		left   []*call
	)
	for _, c := range w.waiting {
		if c.given.Err() != nil {
			continue // nobody waits for it any more
		}
		if g := byID[c.id]; g != nil {
			g.calls = append(g.calls, c)
			continue
		}
		if len(groups) == maxSetIDs || !total.join(c.sums) {
			left = append(left, c)
			continue
		}
		g := &group{id: c.id, calls: []*call{c}}
		groups, byID[c.id] = append(groups, g), g
	}
	w.waiting = left
	return groups
}

// Done tells which of the ids stand in a set that is done. An id that was forgotten, or never came, is not in the map.
func (w *Writer) Done(ctx context.Context, ids []string) (map[string]bool, error) {
	if len(ids) == 0 {
		return map[string]bool{}, nil
	}
	asked := make(map[string]bool, len(ids))
	for _, id := range ids {
		asked[id] = true
	}
	done := make(map[string]bool, len(ids))
	cur, err := w.applied.Find(ctx, bson.D{{Key: "ids", Value: bson.D{{Key: "$in", Value: ids}}}},
		options.Find().SetProjection(bson.D{{Key: "ids", Value: 1}, {Key: "done_at", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("look for %d ids in %s: %w", len(ids), AppliedCollection, err)
	}
	var sets []appliedSet
	if err := cur.All(ctx, &sets); err != nil {
		return nil, fmt.Errorf("look for %d ids in %s: %w", len(ids), AppliedCollection, err)
	}
	for _, set := range sets {
		for _, id := range set.IDs {
			if set.DoneAt != nil && asked[id] {
				done[id] = true
			}
		}
	}
	return done, nil
}
