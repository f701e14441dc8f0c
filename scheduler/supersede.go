package scheduler

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
)

// lookBothWays looks for other runs of the run's campaign: a newer one supersedes it, unfinished older ones are superseded.
// It reports whether the run may be planned: the older ones have ended and nobody is newer. Every scheduler does it
// after its insert and again at every feeding, so it does not matter which of them dies.
func (s *Scheduler) lookBothWays(ctx context.Context, r *campaign.Run) (mayPlan bool, err error) {
	n, err := s.Runs.LookBothWays(ctx, r)
	if err != nil {
		return false, err
	}
	if n.Newer != "" {
		done, err := s.supersede(ctx, r.ID, n.Newer)
		if done {
			r.State = campaign.RunSuperseding
		}
		return false, err
	}
	for _, older := range n.Older {
		if _, err := s.supersede(ctx, older, r.ID); err != nil {
			return false, err
		}
	}
	return len(n.Older) == 0, nil
}

func (s *Scheduler) supersede(ctx context.Context, id, by string) (bool, error) {
	done, err := s.Runs.Transition(ctx, id, []campaign.RunState{campaign.RunPlanning, campaign.RunSending},
		campaign.RunSuperseding, bson.D{{Key: "reason", Value: "superseded by " + by}})
	if done {
		s.Log.Info("a run is superseded: whoever is left in it gets no mail from it", "run", id, "by", by)
	}
	return done, err
}
