package campaign

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// RunsBetween are the runs of a campaign whose slot lies in [from, until), the latest first, at most limit of them, and how many there are.
func (s *Store) RunsBetween(ctx context.Context, campaign string, from, until time.Time, limit int) (latest []Run, all int64, err error) {
	filter := append(dispatched(campaign), bson.E{Key: "slot", Value: bson.D{{Key: "$gte", Value: utcMillis(from)}, {Key: "$lt", Value: utcMillis(until)}}})
	if latest, err = s.findRuns(ctx, filter, latestFirst, limit); err != nil || len(latest) < limit {
		return latest, int64(len(latest)), err
	}
	if all, err = s.runs.CountDocuments(ctx, filter); err != nil {
		return nil, 0, fmt.Errorf("runs of %s: count: %w", campaign, err)
	}
	return latest, all, nil
}
