package analytics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// EnsureIndexes makes the two indexes of `applied`: each id once over all sets, without which nothing is counted exactly
// once, and the one by which sets are forgotten. Run does so, too. Counters and opens are found by their _id alone.
func (w *Writer) EnsureIndexes(ctx context.Context) error {
	ids := mongo.IndexModel{
		Keys:    bson.D{{Key: "ids", Value: 1}},
		Options: options.Index().SetName("ids").SetUnique(true),
	}
	if _, err := w.applied.Indexes().CreateOne(ctx, ids); err != nil {
		return fmt.Errorf("unique index of %s over ids: %w", AppliedCollection, err)
	}
	seconds := int32((w.memory + memoryMargin) / time.Second)
	forget := mongo.IndexModel{
		Keys:    bson.D{{Key: "done_at", Value: 1}},
		Options: options.Index().SetName("done_at").SetExpireAfterSeconds(seconds),
	}
	_, err := w.applied.Indexes().CreateOne(ctx, forget)
	if differs(err, 85, 86) { // IndexOptionsConflict, IndexKeySpecsConflict: the setting has changed
		if err = w.applied.Indexes().DropOne(ctx, "done_at"); err == nil || differs(err, 27) { // IndexNotFound: another process was faster
			_, err = w.applied.Indexes().CreateOne(ctx, forget)
		}
	}
	if err != nil {
		return fmt.Errorf("index of %s that forgets after %s: %w", AppliedCollection, w.memory+memoryMargin, err)
	}
	return nil
}

func differs(err error, codes ...int32) bool {
	var command mongo.CommandError
	return errors.As(err, &command) && slices.Contains(codes, command.Code)
}
