package scheduler

import (
	"context"
	"errors"
	"time"
)

// staleAfter is when a set of increments that is not done counts as left undone by its writer.
const staleAfter = time.Minute

// Upkeep makes tomorrow's counter documents ahead of midnight (UTC, as the model counts) and finishes the sets of
// increments that dead writers left.
func (s *Scheduler) Upkeep(ctx context.Context) error {
	now := s.Clock.Now()
	tomorrow := now.Truncate(24 * time.Hour).Add(24 * time.Hour)
	made, errMake := s.Counters.Preallocate(ctx, tomorrow, now)
	if made > 0 {
		s.Log.Debug("made counter documents ahead", "day", tomorrow.Format(time.DateOnly), "documents", made)
	}
	finished, errFinish := s.Counters.FinishStale(ctx, staleAfter)
	if finished > 0 {
		s.Log.Warn("finished sets of increments that were left undone", "sets", finished)
	}
	return errors.Join(errMake, errFinish)
}
