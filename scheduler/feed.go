package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"postbit/internal/campaign"
	"postbit/internal/queue"
)

// Feed puts what is due into the queue: plans that have room for more batches, and up to Window batches of every run, one run
// after the other in turns. What is in the queue already stays as it is, so nothing has to be remembered here, and a queue
// that was flushed is full again after one call.
func (s *Scheduler) Feed(ctx context.Context) error {
	runs, err := s.Runs.Unfinished(ctx)
	if err != nil {
		return err
	}
	now := s.Clock.Now()
	var tasks [][]queue.BatchTask
	errs := []error{eachRun(ctx, runs, func(r *campaign.Run) error {
		due, err := s.dueTasks(ctx, r, now)
		if len(due) > 0 {
			tasks = append(tasks, due)
		}
		return err
	})}
	first := int(s.turn.Add(1))
	for turn := range s.Window {
		for i := range tasks {
			of := tasks[(first+i)%len(tasks)]
			if turn >= len(of) {
				continue
			}
			if _, err := s.Queue.EnqueueBatch(ctx, of[turn]); err != nil {
				return errors.Join(append(errs, err)...) // the queue is out of reach for all of them
			}
		}
	}
	return errors.Join(errs...)
}

// dueTasks asks for more of a run's plan where there is room, and returns the tasks of its batches that are due. A pause holds back
// everything but the end: a run that was cancelled, superseded or has expired while it is paused goes through its batches.
func (s *Scheduler) dueTasks(ctx context.Context, r *campaign.Run, now time.Time) ([]queue.BatchTask, error) {
	mayPlan, err := s.lookBothWays(ctx, r)
	if err != nil {
		return nil, err
	}
	ending := r.State == campaign.RunCancelling || r.State == campaign.RunSuperseding
	if r.Paused != "" && !ending && now.Before(r.ExpiresAt()) {
		return nil, nil
	}
	if mayPlan && !ending && !r.PlanDone {
		if err := s.feedPlan(ctx, r); err != nil {
			return nil, err
		}
	}
	if !ending {
		if full, err := s.limited(ctx, r, now); full || err != nil {
			return nil, err
		}
	}
	due, err := s.Batches.Due(ctx, r, now, s.Window)
	if err != nil {
		return nil, err
	}
	tasks := make([]queue.BatchTask, len(due))
	for i, d := range due {
		tasks[i] = queue.BatchTask{Run: r.ID, N: d.N, Pass: d.Pass}
	}
	return tasks, nil
}

func (s *Scheduler) feedPlan(ctx context.Context, r *campaign.Run) error {
	unvisited, err := s.Batches.Unvisited(ctx, r)
	if err != nil || unvisited >= s.Window {
		return err
	}
	if err := s.Queue.EnqueuePlan(ctx, queue.PlanTask{Run: r.ID}); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	return nil
}

// limited reports whether the run's own rates leave no room now. What has expired needs none.
func (s *Scheduler) limited(ctx context.Context, r *campaign.Run, now time.Time) (bool, error) {
	if s.Limits == nil || len(r.Spec.Limits.Rate) == 0 || !now.Before(r.ExpiresAt()) {
		return false, nil
	}
	next, err := s.Limits.Next(ctx, r.Campaign, r.Spec.Limits.Rate)
	if err != nil {
		return false, fmt.Errorf("limits: %w", err)
	}
	return next.After(now), nil
}
