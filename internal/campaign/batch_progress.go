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

// Progress is where a run's batches stand. It reads all of them: for a look by hand and for the end of a run, not every second.
type Progress struct {
	Batches   int       // planned so far
	Unvisited int       // without a first pass
	Open      int       // with somebody left to look at, Unvisited included
	Unsettled int       // with a delta that is not applied
	Ended     bool      // the plan is closed
	Counts    Counts    // sums of the stored deltas; Checked includes Deferred
	NextDue   time.Time // the earliest not_before of a batch that is open; zero where none is
}

// Progress sums the deltas of a run.
func (s *Batches) Progress(ctx context.Context, run *Run) (Progress, error) {
	sum := func(field string) bson.D { return bson.D{{Key: "$sum", Value: "$" + field}} }
	group := bson.D{
		{Key: "_id", Value: "$state"},
		{Key: "batches", Value: bson.D{{Key: "$sum", Value: 1}}},
		{Key: "audience", Value: sum("size")},
		{Key: "deferred", Value: sum("counts.deferred")},
		{Key: "sent", Value: sum("counts.sent")},
		{Key: "failed", Value: sum("counts.failed")},
		{Key: "unconfirmed", Value: sum("counts.unconfirmed")},
		{Key: "unknown_zone", Value: sum("counts.unknown_zone")},
	}
	for _, r := range SkipReasons {
		group = append(group, bson.E{Key: "skipped_" + r, Value: sum("counts.skipped." + r)})
	}
	var docs []bson.M
	err := answered(ctx, func(ctx context.Context) error {
		cur, err := s.coll(run.Slot).Aggregate(ctx, mongo.Pipeline{
			{{Key: "$match", Value: bson.D{{Key: "run", Value: run.ID}}}},
			{{Key: "$group", Value: group}},
		})
		if err != nil {
			return err
		}
		docs = nil
		return cur.All(ctx, &docs)
	})
	if err != nil {
		return Progress{}, fmt.Errorf("campaign: progress of %s: %w", run.ID, err)
	}
	p := Progress{Counts: Counts{Skipped: map[string]int64{}}}
	for _, d := range docs {
		n := int(number(d["batches"]))
		switch d["_id"] {
		case batchEnd:
			p.Ended = true
			continue
		case batchNew:
			p.Unvisited += n
			p.Open += n
		case batchOpen:
			p.Open += n
		}
		p.Batches += n
		c := &p.Counts
		c.Audience += number(d["audience"])
		c.Deferred += number(d["deferred"])
		c.Sent += number(d["sent"])
		c.Failed += number(d["failed"])
		c.Unconfirmed += number(d["unconfirmed"])
		c.UnknownZone += number(d["unknown_zone"])
		for _, r := range SkipReasons {
			if k := number(d["skipped_"+r]); k != 0 {
				c.Skipped[r] += k
			}
		}
	}
	p.Counts.Checked = p.Counts.Deferred + p.Counts.Sent + p.Counts.Failed + p.Counts.Unconfirmed
	for _, n := range p.Counts.Skipped {
		p.Counts.Checked += n
	}
	unsettled, err := s.Unsettled(ctx, run)
	if err != nil {
		return Progress{}, err
	}
	p.Unsettled = len(unsettled)
	if p.Open > p.Unvisited {
		p.NextDue, err = s.NextDue(ctx, run)
	}
	return p, err
}

// NextDue is the earliest not_before of a batch that has been looked at and is not finished; zero where there is none.
func (s *Batches) NextDue(ctx context.Context, run *Run) (time.Time, error) {
	var doc struct {
		NotBefore time.Time `bson:"not_before"`
	}
	err := answered(ctx, func(ctx context.Context) error {
		return s.coll(run.Slot).FindOne(ctx, bson.D{{Key: "run", Value: run.ID}, {Key: "state", Value: batchOpen}},
			options.FindOne().SetSort(bson.D{{Key: "not_before", Value: 1}}).SetProjection(project("not_before"))).Decode(&doc)
	})
	if errors.Is(err, mongo.ErrNoDocuments) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("campaign: next batch of %s: %w", run.ID, err)
	}
	return doc.NotBefore, nil
}

// Outcomes walks over the log of a run, batch by batch; an error of f ends the walk and is returned.
func (s *Batches) Outcomes(ctx context.Context, run *Run, f func(UserOutcome) error) error {
	return s.walk(ctx, run, bson.D{{Key: "run", Value: run.ID}}, func(UserOutcome) bool { return true }, f)
}

// Unconfirmed walks over the users of a run of whom nobody knows whether they have the mail.
func (s *Batches) Unconfirmed(ctx context.Context, run *Run, f func(UserOutcome) error) error {
	return s.walk(ctx, run, bson.D{{Key: "run", Value: run.ID}, {Key: "counts.unconfirmed", Value: bson.D{{Key: "$gt", Value: 0}}}},
		func(u UserOutcome) bool { return u.Outcome == Unconfirmed }, f)
}

func (s *Batches) walk(ctx context.Context, run *Run, filter bson.D, want func(UserOutcome) bool, f func(UserOutcome) error) error {
	cur, err := s.coll(run.Slot).Find(ctx, filter, options.Find().SetSort(bson.D{{Key: "n", Value: 1}}))
	if err != nil {
		return fmt.Errorf("campaign: batches of %s: %w", run.ID, err)
	}
	defer cur.Close(ctx)
	for cur.Next(ctx) {
		b, err := parseBatch(append(bson.Raw(nil), cur.Current...))
		if err != nil {
			return err
		}
		for i := range b.Users {
			if u := b.User(i); want(u) {
				if err := f(u); err != nil {
					return err
				}
			}
		}
	}
	if err := cur.Err(); err != nil {
		return fmt.Errorf("campaign: batches of %s: %w", run.ID, err)
	}
	return nil
}

func number(v any) int64 {
	switch n := v.(type) {
	case int32:
		return int64(n)
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}
