package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/clock"
)

// TakeoverAfter is how long after owned_until a batch may be taken from its owner: what two workers know of the database's clock may differ by that much.
const TakeoverAfter = 10 * time.Second

// Batches is the store of batch documents. There is a collection per month of the runs' slots.
type Batches struct {
	db     *mongo.Database
	clk    *clock.Clock
	lease  time.Duration
	leases *leaseClock
}

// NewBatches returns the store. Everything is written durably and read from the primary, whatever the database's defaults say.
func NewBatches(db *mongo.Database, clk *clock.Clock) *Batches {
	return &Batches{db: db, clk: clk, lease: 30 * time.Second, leases: newLeaseClock(db, clk, clock.Machine())}
}

// WithMonotonic returns the store on a machine with other clocks (now has a monotonic reading), for tests of workers that were stopped for a while.
func (s *Batches) WithMonotonic(now func() time.Time) *Batches {
	c := *s
	c.leases = newLeaseClock(s.db, s.clk, clock.Stopwatch{Mono: now, Wall: func() time.Time { return now().Round(0) }})
	return &c
}

// BatchCollection is the collection of the batches of a run that was due at slot.
func BatchCollection(slot time.Time) string { return "batches." + slot.UTC().Format("2006.01") }

func (s *Batches) coll(slot time.Time) *mongo.Collection {
	return s.db.Collection(BatchCollection(slot), Durable())
}

// EnsureIndexes makes the indexes of the month of slot. The planner calls it before its first batch.
func (s *Batches) EnsureIndexes(ctx context.Context, slot time.Time) error {
	_, err := s.coll(slot).Indexes().CreateMany(ctx, []mongo.IndexModel{
		{Keys: bson.D{{Key: "run", Value: 1}, {Key: "n", Value: -1}}},                                                         // Last, Outcomes, Progress
		{Keys: bson.D{{Key: "run", Value: 1}, {Key: "state", Value: 1}, {Key: "not_before", Value: 1}, {Key: "n", Value: 1}}}, // Due, Unvisited, Open
		{Keys: bson.D{{Key: "unsettled", Value: 1}}, Options: options.Index().SetSparse(true)},                                // Unsettled
	})
	if err != nil {
		return fmt.Errorf("campaign: indexes of %s: %w", BatchCollection(slot), err)
	}
	return nil
}

// Insert plans batch n of a run. The ids must be sorted and of one BSON type class, at most MaxBatchUsers and MaxBatchIDBytes.
// ErrBatchExists means that another planner, or an earlier call whose reply was lost, has got there first: go on behind Last.
func (s *Batches) Insert(ctx context.Context, run *Run, n int, ids []bson.RawValue) error {
	size := 0
	for _, id := range ids {
		size += IDBytes(id)
	}
	if len(ids) == 0 || len(ids) > MaxBatchUsers || size > MaxBatchIDBytes {
		return fmt.Errorf("batch %s: %d users, %d bytes of ids: %w", BatchID(run.ID, n), len(ids), size, ErrBatchTooLarge)
	}
	users := make(bson.A, len(ids))
	for i, id := range ids {
		users[i] = id
	}
	return s.insert(ctx, run, n, batchNew, len(ids), bson.D{
		{Key: "not_before", Value: s.clk.Now().Truncate(time.Millisecond)},
		{Key: "pass", Value: 0}, {Key: "epoch", Value: int64(0)}, {Key: "rev", Value: int64(0)}, {Key: "waves", Value: 0},
		{Key: "users", Value: users},
	})
}

// InsertEnd closes the plan: no batch can get the number n any more, nor one behind it, since planners go one by one.
func (s *Batches) InsertEnd(ctx context.Context, run *Run, n int) error {
	return s.insert(ctx, run, n, batchEnd, 0, nil)
}

func (s *Batches) insert(ctx context.Context, run *Run, n int, state string, size int, more bson.D) error {
	id := BatchID(run.ID, n)
	doc := append(bson.D{{Key: "_id", Value: id}, {Key: "run", Value: run.ID}, {Key: "n", Value: n}, {Key: "state", Value: state}, {Key: "size", Value: size}}, more...)
	err := answered(ctx, func(ctx context.Context) error {
		_, err := s.coll(run.Slot).InsertOne(ctx, doc)
		return err
	})
	if mongo.IsDuplicateKeyError(err) {
		return fmt.Errorf("batch %s: %w", id, ErrBatchExists)
	}
	if err != nil {
		return fmt.Errorf("campaign: insert batch %s: %w", id, err)
	}
	return nil
}

// BatchHead is what a planner has to know about the last batch of a run.
type BatchHead struct {
	N      int
	LastID bson.RawValue // the last user of it; zero for an end marker
	End    bool          // the plan is closed
}

// Last returns the last batch of a run, or its end marker; false where there is none.
func (s *Batches) Last(ctx context.Context, run *Run) (BatchHead, bool, error) {
	var doc struct {
		N     int             `bson:"n"`
		State string          `bson:"state"`
		Users []bson.RawValue `bson:"users"`
	}
	err := answered(ctx, func(ctx context.Context) error {
		return s.coll(run.Slot).FindOne(ctx, bson.D{{Key: "run", Value: run.ID}},
			options.FindOne().SetSort(bson.D{{Key: "n", Value: -1}}).SetProjection(project("n", "state", "users"))).Decode(&doc)
	})
	if errors.Is(err, mongo.ErrNoDocuments) {
		return BatchHead{}, false, nil
	}
	if err != nil {
		return BatchHead{}, false, fmt.Errorf("campaign: last batch of %s: %w", run.ID, err)
	}
	h := BatchHead{N: doc.N, End: doc.State == batchEnd}
	if len(doc.Users) > 0 {
		h.LastID = doc.Users[len(doc.Users)-1]
	}
	return h, true, nil
}

// Unvisited counts the batches that have not had their first pass.
func (s *Batches) Unvisited(ctx context.Context, run *Run) (int, error) {
	return s.count(ctx, run, batchNew)
}

// Unfinished counts the batches in which somebody is left to look at: those without a first pass, and the others.
func (s *Batches) Unfinished(ctx context.Context, run *Run) (unvisited, open int, err error) {
	if unvisited, err = s.count(ctx, run, batchNew); err != nil {
		return 0, 0, err
	}
	open, err = s.count(ctx, run, batchOpen)
	return unvisited, open, err
}

func (s *Batches) count(ctx context.Context, run *Run, state string) (int, error) {
	var n int64
	err := answered(ctx, func(ctx context.Context) (err error) {
		n, err = s.coll(run.Slot).CountDocuments(ctx, bson.D{{Key: "run", Value: run.ID}, {Key: "state", Value: state}})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("campaign: count the %s batches of %s: %w", state, run.ID, err)
	}
	return int(n), nil
}

// Due is a batch with work to do.
type Due struct {
	N         int
	Pass      int // the pass to come, 1 for the first: the Pass of its task
	NotBefore time.Time
}

// Due returns up to limit batches of a run whose time has come and that nobody owns, looked at before and then new ones, the oldest
// first. Where the run sends no more (expired, cancelled, superseded), the time of every unfinished batch has come.
func (s *Batches) Due(ctx context.Context, run *Run, now time.Time, limit int) ([]Due, error) {
	ending := run.State == RunCancelling || run.State == RunSuperseding || !now.Before(run.ExpiresAt())
	var due []Due
	for _, state := range []string{batchOpen, batchNew} {
		if len(due) >= limit {
			break
		}
		filter := bson.D{{Key: "run", Value: run.ID}, {Key: "state", Value: state}}
		if !ending {
			filter = append(filter, bson.E{Key: "not_before", Value: bson.D{{Key: "$lte", Value: now}}})
		}
		filter = append(filter, unowned(now))
		var docs []struct {
			N         int       `bson:"n"`
			Pass      int       `bson:"pass"`
			NotBefore time.Time `bson:"not_before"`
		}
		err := answered(ctx, func(ctx context.Context) error {
			cur, err := s.coll(run.Slot).Find(ctx, filter, options.Find().SetLimit(int64(limit-len(due))).
				SetSort(bson.D{{Key: "not_before", Value: 1}, {Key: "n", Value: 1}}).SetProjection(project("n", "pass", "not_before")))
			if err != nil {
				return err
			}
			docs = nil
			return cur.All(ctx, &docs)
		})
		if err != nil {
			return nil, fmt.Errorf("campaign: due batches of %s: %w", run.ID, err)
		}
		for _, d := range docs {
			due = append(due, Due{N: d.N, Pass: d.Pass + 1, NotBefore: d.NotBefore})
		}
	}
	return due, nil
}

// unowned holds where a batch has no owner, or one that has not renewed for so long that it may be taken from him.
func unowned(now time.Time) bson.E {
	return bson.E{Key: "owned_until", Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gt", Value: now.Add(-TakeoverAfter)}}}}}
}

// Unsettled lists the batches of a run with a stored delta that is not marked as applied.
func (s *Batches) Unsettled(ctx context.Context, run *Run) ([]int, error) {
	var docs []struct {
		N int `bson:"n"`
	}
	err := answered(ctx, func(ctx context.Context) error {
		cur, err := s.coll(run.Slot).Find(ctx, bson.D{{Key: "unsettled", Value: run.ID}}, options.Find().SetProjection(project("n")))
		if err != nil {
			return err
		}
		docs = nil
		return cur.All(ctx, &docs)
	})
	if err != nil {
		return nil, fmt.Errorf("campaign: unsettled batches of %s: %w", run.ID, err)
	}
	ns := make([]int, len(docs))
	for i, d := range docs {
		ns[i] = d.N
	}
	return ns, nil
}

// Get reads one batch. ErrNoBatch where there is none, or an end marker.
func (s *Batches) Get(ctx context.Context, run *Run, n int) (*Batch, error) {
	var doc bson.Raw
	err := answered(ctx, func(ctx context.Context) (err error) {
		doc, err = s.coll(run.Slot).FindOne(ctx, bson.D{{Key: "_id", Value: BatchID(run.ID, n)}}).Raw()
		return err
	})
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, fmt.Errorf("batch %s: %w", BatchID(run.ID, n), ErrNoBatch)
	}
	if err != nil {
		return nil, fmt.Errorf("campaign: read batch %s: %w", BatchID(run.ID, n), err)
	}
	b, err := parseBatch(doc)
	if err == nil && b.state == batchEnd {
		return nil, fmt.Errorf("batch %s is an end marker: %w", BatchID(run.ID, n), ErrNoBatch)
	}
	return b, err
}

func project(fields ...string) bson.D {
	var p bson.D
	for _, f := range fields {
		p = append(p, bson.E{Key: f, Value: 1})
	}
	return p
}
