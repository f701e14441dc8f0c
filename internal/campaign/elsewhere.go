package campaign

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// ElsewhereRun is the run that the pixels of mails name which other services send for a campaign: one for each month, done from
// its first day on and without batches. It has a part in no schedule: nothing supersedes it, and it is never the latest run.
func (s *Store) ElsewhereRun(ctx context.Context, name string, now time.Time) (*Run, error) {
	c, err := s.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	month := time.Date(now.UTC().Year(), now.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
	id := "elsewhere/" + name + "@" + month.Format("2006-01")
	there, err := s.Run(ctx, id)
	if !errors.Is(err, ErrNotFound) {
		return there, err
	}
	r := &Run{ID: id, Campaign: name, Elsewhere: true, Slot: month, StartedAt: month, EndedAt: month, State: RunDone, PlanDone: true, Spec: c.Spec}
	rand.Read(r.Short[:]) // never fails, by its documentation
	err = s.InsertRun(ctx, r)
	if errors.Is(err, ErrRunExists) { // somebody else was faster
		return s.Run(ctx, id)
	}
	return r, err
}

// dispatched are the runs of a campaign that postbit sends itself.
func dispatched(name string) bson.D {
	return bson.D{{Key: "campaign", Value: name}, {Key: "elsewhere", Value: bson.D{{Key: "$ne", Value: true}}}}
}
