package users

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Open is what a chunk of hits knows of one user's opens.
type Open struct {
	User        bson.RawValue
	First, Last time.Time
}

// Opened moves the open times of users: the first can only go back, the last only forward, so it may be done again. A user
// who is gone, and one whose document has no room for it, is passed over and counted.
func (s *Store) Opened(ctx context.Context, opens []Open) (passedOver int, err error) {
	if len(opens) == 0 {
		return 0, nil
	}
	models := make([]mongo.WriteModel, len(opens))
	for i, o := range opens {
		models[i] = mongo.NewUpdateOneModel().
			SetFilter(bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: o.User}}}}).
			SetUpdate(bson.D{
				{Key: "$min", Value: bson.D{{Key: s.paths.openFirstAt, Value: milli(o.First)}}},
				{Key: "$max", Value: bson.D{{Key: s.paths.openLastAt, Value: milli(o.Last)}}},
			})
	}
	matched, failed, err := s.bulk(ctx, models)
	if err != nil {
		return 0, fmt.Errorf("users: opens of %d users: %w", len(opens), err)
	}
	passedOver = len(opens) - matched
	if len(failed) == 0 {
		return passedOver, nil
	}
	// A state of null takes no fields; as for a claim, it counts as missing and the whole of it is written.
	models = models[:0]
	for _, i := range failed {
		models = append(models, mongo.NewUpdateOneModel().
			SetFilter(bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: opens[i].User}}}, {Key: s.cfg.State, Value: bson.D{{Key: "$type", Value: 10}}}}).
			SetUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: s.cfg.State, Value: bson.D{
				{Key: "open_first_at", Value: milli(opens[i].First)}, {Key: "open_last_at", Value: milli(opens[i].Last)},
			}}}}}))
	}
	matched, _, err = s.bulk(ctx, models)
	if err != nil {
		return 0, fmt.Errorf("users: opens of %d users: %w", len(opens), err)
	}
	return passedOver - matched, nil
}

// bulk carries out an unordered bulk and returns how many documents were matched without an error, and which models failed
// on their own document.
func (s *Store) bulk(ctx context.Context, models []mongo.WriteModel) (matched int, failed []int, err error) {
	res, err := s.coll.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	var we mongo.BulkWriteException
	if errors.As(err, &we) && we.WriteConcernError == nil && len(we.WriteErrors) > 0 {
		for _, e := range we.WriteErrors {
			failed = append(failed, e.Index)
		}
		err = nil
	}
	if err != nil {
		return 0, nil, err
	}
	return int(res.MatchedCount), failed, nil
}

func milli(t time.Time) bson.DateTime { return bson.NewDateTimeFromTime(t) }
