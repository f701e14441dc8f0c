package analytics

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	if err := w.ensureForgetting(ctx); err != nil {
		return fmt.Errorf("index of %s that forgets after %s: %w", AppliedCollection, w.memory+memoryMargin, err)
	}
	return nil
}

func differs(err error, codes ...int32) bool {
	var command mongo.CommandError
	return errors.As(err, &command) && slices.Contains(codes, command.Code)
}
