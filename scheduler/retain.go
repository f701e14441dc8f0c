package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Retain drops the monthly collections of batches and opens as a whole once their month ended longer than Retention ago.
// A month in which a run is unfinished is kept.
func (s *Scheduler) Retain(ctx context.Context) error {
	names, err := s.DB.ListCollectionNames(ctx, bson.D{})
	if err != nil {
		return fmt.Errorf("list collections: %w", err)
	}
	now := s.Clock.Now()
	var errs []error
	for _, name := range names {
		month, ok := monthOf(name)
		if !ok || now.Before(month.AddDate(0, 1, 0).Add(s.Retention)) {
			continue
		}
		unfinished, err := s.Runs.UnfinishedBetween(ctx, month, month.AddDate(0, 1, 0))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if unfinished {
			s.Log.Warn("kept beyond retention: a run of that month is unfinished", "collection", name)
			continue
		}
		if err := s.DB.Collection(name).Drop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("drop %s: %w", name, err))
			continue
		}
		s.Log.Info("dropped after retention", "collection", name, "retention", s.Retention)
	}
	return errors.Join(errs...)
}

// monthOf reads batches.2026.12 and opens.2026.12.
func monthOf(collection string) (time.Time, bool) {
	for _, prefix := range []string{"batches.", "opens."} {
		if rest, ok := strings.CutPrefix(collection, prefix); ok {
			month, err := time.Parse("2006.01", rest)
			return month, err == nil
		}
	}
	return time.Time{}, false
}
