package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// unfinished are the states in which a run still needs somebody.
var unfinished = []RunState{RunPlanning, RunSending, RunCancelling, RunSuperseding}

// InsertRun makes a run. Its _id is the lock: of any number of schedulers that fire one slot, one succeeds and the others
// get ErrRunExists. An insert whose reply was lost may be issued again: the same short id means it was this one.
func (s *Store) InsertRun(ctx context.Context, r *Run) error {
	r.Slot, r.StartedAt = utcMillis(r.Slot), utcMillis(r.StartedAt)
	if r.Template == nil {
		r.Template = bson.Raw{5, 0, 0, 0, 0} // the empty document: a run that fails at birth has no template
	}
	_, err := s.runs.InsertOne(ctx, r)
	if err == nil {
		return nil
	}
	if !mongo.IsDuplicateKeyError(err) {
		return fmt.Errorf("run %s: insert: %w", r.ID, err)
	}
	there, gerr := s.Run(ctx, r.ID)
	switch {
	case gerr == nil && there.Short == r.Short:
		return nil
	case gerr == nil:
		return fmt.Errorf("run %s: %w", r.ID, ErrRunExists)
	case errors.Is(gerr, ErrNotFound) && r.Key != "":
		return fmt.Errorf("run %s: %w: %w", r.ID, ErrKeyInUse, err)
	case errors.Is(gerr, ErrNotFound):
		return fmt.Errorf("run %s: insert: %w", r.ID, err)
	}
	return gerr
}

// Run is the run of that id, or ErrNotFound.
func (s *Store) Run(ctx context.Context, id string) (*Run, error) {
	return s.findRun(ctx, bson.D{{Key: "_id", Value: id}}, "run "+id)
}

// RunByShort is the run that tokens and claims call by its 8 bytes, or ErrNotFound.
func (s *Store) RunByShort(ctx context.Context, short ShortID) (*Run, error) {
	return s.findRun(ctx, bson.D{{Key: "short", Value: short}}, "run "+short.String())
}

// RunByKey is the run of a campaign that was asked for by hand with this key, or ErrNotFound.
func (s *Store) RunByKey(ctx context.Context, campaign, key string) (*Run, error) {
	return s.findRun(ctx, bson.D{{Key: "key", Value: RunKey(campaign, key)}}, fmt.Sprintf("run of %s with key %s", campaign, key))
}

// RunKey is what Run.Key holds for a key that was given with a run by hand.
func RunKey(campaign, key string) string { return campaign + "/" + key }

// LatestRun is the run of a campaign with the latest slot, or ErrNotFound.
func (s *Store) LatestRun(ctx context.Context, campaign string) (*Run, error) {
	return s.findRun(ctx, dispatched(campaign), "run of "+campaign, latestFirst...)
}

var latestFirst = bson.D{{Key: "slot", Value: -1}, {Key: "_id", Value: -1}}

func (s *Store) findRun(ctx context.Context, filter bson.D, what string, sort ...bson.E) (*Run, error) {
	opts := options.FindOne()
	if len(sort) > 0 {
		opts.SetSort(bson.D(sort))
	}
	var r Run
	err := s.runs.FindOne(ctx, filter, opts).Decode(&r)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return &r, nil
}

// Runs are the runs of a campaign, the latest slot first, at most limit (0: all).
func (s *Store) Runs(ctx context.Context, campaign string, limit int) ([]Run, error) {
	return s.findRuns(ctx, dispatched(campaign), latestFirst, limit)
}

// Unfinished are all runs that somebody still has to do something for, the earliest slot first.
func (s *Store) Unfinished(ctx context.Context) ([]Run, error) {
	return s.findRuns(ctx, bson.D{{Key: "state", Value: bson.D{{Key: "$in", Value: unfinished}}}},
		bson.D{{Key: "slot", Value: 1}, {Key: "_id", Value: 1}}, 0)
}

func (s *Store) findRuns(ctx context.Context, filter, sort bson.D, limit int) ([]Run, error) {
	cur, err := s.runs.Find(ctx, filter, options.Find().SetSort(sort).SetLimit(int64(limit)))
	if err != nil {
		return nil, fmt.Errorf("runs: %w", err)
	}
	found := []Run{}
	if err := cur.All(ctx, &found); err != nil {
		return nil, fmt.Errorf("runs: %w", err)
	}
	return found, nil
}

// Neighbours are what a run meets when it looks both ways along its campaign's slots.
type Neighbours struct {
	Newer string   // a run of a later slot, finished or not: this one is superseded
	Older []string // unfinished runs of earlier slots: this one waits for their end
}

// LookBothWays finds the neighbours of a run that has been inserted. Of two runs inserted at the same moment at least one
// sees the other, since each looks after its own insert. A run that failed supersedes nothing: it never sent.
func (s *Store) LookBothWays(ctx context.Context, r *Run) (Neighbours, error) {
	var n Neighbours
	if r.Single() || r.Campaign == "" {
		return n, nil
	}
	newest, err := s.findRun(ctx, append(dispatched(r.Campaign), bson.E{Key: "state", Value: bson.D{{Key: "$ne", Value: RunFailed}}}),
		"latest run of "+r.Campaign, latestFirst...)
	if err != nil {
		return n, err
	}
	if newest.ID != r.ID {
		n.Newer = newest.ID
		return n, nil
	}
	open, err := s.findRuns(ctx, bson.D{
		{Key: "campaign", Value: r.Campaign},
		{Key: "state", Value: bson.D{{Key: "$in", Value: unfinished}}},
	}, bson.D{{Key: "slot", Value: 1}}, 0)
	if err != nil {
		return n, err
	}
	for i := range open {
		if open[i].ID != r.ID {
			n.Older = append(n.Older, open[i].ID)
		}
	}
	return n, nil
}

// Transition moves a run to another state if it is in one of the states named, and sets the fields of set with it. It
// reports whether it did. No state is ever left in another way.
func (s *Store) Transition(ctx context.Context, id string, from []RunState, to RunState, set bson.D) (bool, error) {
	fields := append(bson.D{{Key: "state", Value: to}}, set...)
	res, err := s.runs.UpdateOne(ctx, bson.D{
		{Key: "_id", Value: id},
		{Key: "state", Value: bson.D{{Key: "$in", Value: from}}},
	}, bson.D{{Key: "$set", Value: fields}})
	if err != nil {
		return false, fmt.Errorf("run %s: to %s: %w", id, to, err)
	}
	return res.MatchedCount == 1, nil
}

// PauseRun stops a run between waves, whatever its state. Who paused it first, and why, stays.
func (s *Store) PauseRun(ctx context.Context, id, reason, by string) error {
	if reason == "" {
		reason = "paused"
	}
	res, err := s.runs.UpdateOne(ctx, bson.D{
		{Key: "_id", Value: id},
		{Key: "state", Value: bson.D{{Key: "$in", Value: unfinished}}},
		{Key: "paused", Value: bson.D{{Key: "$exists", Value: false}}},
	}, bson.D{{Key: "$set", Value: bson.D{{Key: "paused", Value: reason}, {Key: "paused_by", Value: by}}}})
	if err != nil {
		return fmt.Errorf("run %s: pause: %w", id, err)
	}
	if res.MatchedCount == 1 {
		return nil
	}
	return s.stillOpen(ctx, id, "pause")
}

// ResumeRun lets a paused run go on.
func (s *Store) ResumeRun(ctx context.Context, id string) error {
	res, err := s.runs.UpdateOne(ctx, bson.D{
		{Key: "_id", Value: id},
		{Key: "state", Value: bson.D{{Key: "$in", Value: unfinished}}},
	}, bson.D{{Key: "$unset", Value: bson.D{{Key: "paused", Value: ""}, {Key: "paused_by", Value: ""}}}})
	if err != nil {
		return fmt.Errorf("run %s: resume: %w", id, err)
	}
	if res.MatchedCount == 1 {
		return nil
	}
	return s.stillOpen(ctx, id, "resume")
}

// CancelRun asks for the end of a run, paused or not. The run is cancelled once every batch that had an owner has been gone
// through; its remaining users count as cancelled. A run that is ending already is left alone.
func (s *Store) CancelRun(ctx context.Context, id, by string) error {
	done, err := s.Transition(ctx, id, []RunState{RunPlanning, RunSending}, RunCancelling, bson.D{{Key: "reason", Value: by}})
	if err != nil || done {
		return err
	}
	return s.stillOpen(ctx, id, "cancel")
}

// stillOpen tells why a run could not be steered: it is not there or finished. An unfinished one is what was wanted.
func (s *Store) stillOpen(ctx context.Context, id, what string) error {
	r, err := s.Run(ctx, id)
	if err != nil {
		return err
	}
	if r.State.Finished() {
		return fmt.Errorf("cannot %s run %s (%s): %w", what, id, r.State, ErrRunFinished)
	}
	return nil
}

// SetPlanned writes down that the plan of a run is complete, with n batches.
func (s *Store) SetPlanned(ctx context.Context, id string, n int) error {
	return s.updateRun(ctx, id, "plan", bson.D{{Key: "planned", Value: n}, {Key: "plan_done", Value: true}})
}

// SaveCounts keeps what the reconciler has just added up, for show and for the API; planned is the number of batches so far. A write that
// comes late, from a scheduler that was held up, changes nothing of a run that has ended.
func (s *Store) SaveCounts(ctx context.Context, id string, c Counts, planned int) error {
	_, err := s.runs.UpdateOne(ctx, bson.D{
		{Key: "_id", Value: id},
		{Key: "state", Value: bson.D{{Key: "$in", Value: unfinished}}},
	}, bson.D{
		{Key: "$set", Value: bson.D{{Key: "counts", Value: c}}},
		{Key: "$max", Value: bson.D{{Key: "planned", Value: planned}}}, // batches only grow in number
	})
	if err != nil {
		return fmt.Errorf("run %s: counts: %w", id, err)
	}
	return nil
}

func (s *Store) updateRun(ctx context.Context, id, what string, set bson.D) error {
	res, err := s.runs.UpdateOne(ctx, bson.D{{Key: "_id", Value: id}}, bson.D{{Key: "$set", Value: set}})
	if err != nil {
		return fmt.Errorf("run %s: %s: %w", id, what, err)
	}
	if res.MatchedCount == 0 {
		return fmt.Errorf("run %s: %s: %w", id, what, ErrNotFound)
	}
	return nil
}

// EndRun moves a run to its final state. It reports false where the run is not in the state that leads there.
func (s *Store) EndRun(ctx context.Context, id string, from, to RunState, c Counts, at time.Time) (bool, error) {
	return s.Transition(ctx, id, []RunState{from}, to, bson.D{
		{Key: "counts", Value: c},
		{Key: "ended_at", Value: utcMillis(at)},
	})
}

// FailUnplanned ends a run that has no batches and can't get any. It reports false where the run is not being planned.
func (s *Store) FailUnplanned(ctx context.Context, id, why string, at time.Time) (bool, error) {
	return s.Transition(ctx, id, []RunState{RunPlanning}, RunFailed, bson.D{
		{Key: "reason", Value: why},
		{Key: "ended_at", Value: utcMillis(at)},
	})
}

// UnfinishedBetween reports whether a run with a slot in [from, to) is unfinished.
func (s *Store) UnfinishedBetween(ctx context.Context, from, to time.Time) (bool, error) {
	runs, err := s.findRuns(ctx, bson.D{
		{Key: "state", Value: bson.D{{Key: "$in", Value: unfinished}}},
		{Key: "slot", Value: bson.D{{Key: "$gte", Value: from}, {Key: "$lt", Value: to}}},
	}, bson.D{{Key: "slot", Value: 1}}, 1)
	return len(runs) > 0, err
}
