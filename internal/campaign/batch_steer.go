package campaign

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Steering is what a worker has to know of a run between two mails.
type Steering struct {
	State  RunState `bson:"state"`
	Paused string   `bson:"paused"` // the reason; empty: not paused
}

// Steer reads how the given runs are to go on. One that is missing from the answer is gone.
func (s *Batches) Steer(ctx context.Context, runs []string) (map[string]Steering, error) {
	cur, err := s.db.Collection("runs", Durable()).Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: runs}}}},
		options.Find().SetProjection(project("state", "paused")))
	if err != nil {
		return nil, fmt.Errorf("campaign: states of runs: %w", err)
	}
	var docs []struct {
		ID       string `bson:"_id"`
		Steering `bson:",inline"`
	}
	if err := cur.All(ctx, &docs); err != nil {
		return nil, fmt.Errorf("campaign: states of runs: %w", err)
	}
	states := make(map[string]Steering, len(docs))
	for _, d := range docs {
		states[d.ID] = d.Steering
	}
	return states, nil
}
