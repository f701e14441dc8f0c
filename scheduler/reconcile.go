package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"postbit/internal/campaign"
)

// Reconcile goes over all unfinished runs: it settles what was stored and not applied, moves them on to their next state, and is
// the only one that declares a run done, cancelled or superseded. It never resumes what somebody paused.
func (s *Scheduler) Reconcile(ctx context.Context) error {
	runs, err := s.Runs.Unfinished(ctx)
	if err != nil {
		return err
	}
	return eachRun(ctx, runs, func(r *campaign.Run) error { return s.reconcile(ctx, r) })
}

func (s *Scheduler) reconcile(ctx context.Context, r *campaign.Run) error {
	if err := s.settle(ctx, r); err != nil {
		return err
	}
	begun, err := s.plan(ctx, r)
	if err != nil {
		return err
	}
	if begun && r.State == campaign.RunPlanning {
		moved, err := s.Runs.Transition(ctx, r.ID, []campaign.RunState{campaign.RunPlanning}, campaign.RunSending, nil)
		if err != nil || !moved {
			return err // cancelled or superseded meanwhile: its turn comes again
		}
		r.State = campaign.RunSending
	}
	return s.finish(ctx, r)
}

// plan brings what the run says of its plan in step with the batches: closes the plan of a run that ends, and notes that one is
// closed. It reports whether there is a batch or an end marker.
func (s *Scheduler) plan(ctx context.Context, r *campaign.Run) (begun bool, err error) {
	head, begun, err := s.Batches.Last(ctx, r)
	if err != nil {
		return false, err
	}
	if !head.End && s.complete(r, begun) {
		if head, err = s.closePlan(ctx, r, head); err != nil {
			return false, err
		}
		begun = true
	}
	if head.End && !r.PlanDone {
		if err := s.Runs.SetPlanned(ctx, r.ID, head.N-1); err != nil {
			return false, err
		}
		r.PlanDone, r.Planned = true, head.N-1
	}
	return begun, nil
}

// complete reports whether a run may get no more batches. A single mail's plan is complete from the start, and its maker may have
// died before the end marker, or before the one batch.
func (s *Scheduler) complete(r *campaign.Run, begun bool) bool {
	switch r.State {
	case campaign.RunCancelling, campaign.RunSuperseding:
		return true
	}
	return r.PlanDone && (begun || !s.Clock.Now().Before(r.ExpiresAt()))
}

// settle finishes the batches whose worker stored the counts of a pass and did not get to apply them.
func (s *Scheduler) settle(ctx context.Context, r *campaign.Run) error {
	ns, err := s.Batches.Unsettled(ctx, r)
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range ns {
		if err := s.Settle(ctx, r, n); err != nil {
			errs = append(errs, fmt.Errorf("settle batch %d: %w", n, err))
		}
	}
	return errors.Join(errs...)
}

// closePlan puts the end marker behind the last batch, as the batch that a late planner would insert next: one of the two
// loses, and if it is this one, it goes on behind that batch.
func (s *Scheduler) closePlan(ctx context.Context, r *campaign.Run, head campaign.BatchHead) (campaign.BatchHead, error) {
	for !head.End {
		err := s.Batches.InsertEnd(ctx, r, head.N+1)
		if err != nil && !errors.Is(err, campaign.ErrBatchExists) {
			return head, err
		}
		if head, _, err = s.Batches.Last(ctx, r); err != nil {
			return head, err
		}
	}
	return head, nil
}

// finish ends a run in which nothing is left to do, and otherwise keeps its counts, the more rarely the larger it is.
func (s *Scheduler) finish(ctx context.Context, r *campaign.Run) error {
	unvisited, open, err := s.Batches.Unfinished(ctx, r)
	if err != nil {
		return err
	}
	over := r.PlanDone && unvisited+open == 0
	now := s.Clock.Now()
	if !over && !s.countAgain(r, now) {
		return nil
	}
	p, err := s.Batches.Progress(ctx, r)
	if err != nil {
		return err
	}
	if !over || !p.Ended || p.Open > 0 || p.Unsettled > 0 {
		return s.Runs.SaveCounts(ctx, r.ID, p.Counts, p.Batches)
	}
	final := map[campaign.RunState]campaign.RunState{
		campaign.RunSending:     campaign.RunDone,
		campaign.RunCancelling:  campaign.RunCancelled,
		campaign.RunSuperseding: campaign.RunSuperseded,
	}[r.State]
	ended, err := s.Runs.EndRun(ctx, r.ID, r.State, final, p.Counts, now)
	if err != nil || !ended {
		return err
	}
	c := p.Counts
	s.Log.Info("a run has ended", "campaign", r.Campaign, "run", r.ID, "state", final, "audience", c.Audience, "sent", c.Sent,
		"failed", c.Failed, "unconfirmed", c.Unconfirmed, "skipped", c.Skipped, "took", now.Sub(r.StartedAt).Round(time.Second))
	s.mu.Lock()
	delete(s.counted, r.ID)
	s.mu.Unlock()
	return nil
}

// batchesPerPause is how many batches cost one more reconcileEvery between two looks at all of them.
const batchesPerPause = 500

// countAgain reports whether it is time to add up the batches of a run again.
func (s *Scheduler) countAgain(r *campaign.Run, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := reconcileEvery * time.Duration(r.Planned/batchesPerPause)
	last, seen := s.counted[r.ID]
	if since := now.Sub(last); seen && since >= 0 && since < pause {
		return false
	}
	s.counted[r.ID] = now
	return true
}
