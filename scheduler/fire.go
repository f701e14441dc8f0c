package scheduler

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"postbit/internal/campaign"
)

// Fire makes a run of every campaign whose slot has come. A slot that was missed is made up for if it is the campaign's
// last one and younger than its misfire_grace.
func (s *Scheduler) Fire(ctx context.Context) error {
	now := s.Clock.Now()
	due, err := s.Runs.DueCampaigns(ctx, now)
	if err != nil {
		return err
	}
	var errs []error
	for i := range due {
		if err := s.fire(ctx, &due[i], now); err != nil {
			errs = append(errs, fmt.Errorf("fire %s: %w", due[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

func (s *Scheduler) fire(ctx context.Context, c *campaign.Campaign, now time.Time) error {
	slots, err := c.Spec.Schedule.Slots()
	if err != nil {
		return err
	}
	m := missedUntil(slots, c.NextAt, now)
	next := slots(m.last)
	if late := now.Sub(m.last); late > c.Spec.MisfireGrace {
		won, err := s.Runs.Advance(ctx, c, m.last, next)
		if won {
			s.Log.Warn("skipped a slot that is older than misfire_grace: no run, no mail", "campaign", c.Name,
				"slot", m.last, "late", late.Round(time.Second), "misfire_grace", c.Spec.MisfireGrace,
				"slots_skipped", m.before+1, "first_skipped", c.NextAt, "next", next)
		}
		return err
	}
	// First the run and then the schedule: who dies in between leaves a slot that is fired again, and meets its run.
	if _, err := s.start(ctx, &campaign.Run{ID: campaign.RunID(c.Name, m.last), Slot: m.last}, c, now); err != nil && !errors.Is(err, campaign.ErrRunExists) {
		return err
	}
	won, err := s.Runs.Advance(ctx, c, m.last, next)
	if won && m.before > 0 {
		s.Log.Warn("skipped slots: only the last one that was missed is made up for", "campaign", c.Name,
			"slots_skipped", m.before, "first_skipped", c.NextAt, "fired", m.last)
	}
	return err
}

// missed are the slots that have come since a campaign was last looked at.
type missed struct {
	last   time.Time
	before int // how many came before it; the earliest of very many are not counted
}

// countedBack is how far back slots are counted one by one. A campaign of every minute and a scheduler that was down for a
// year must not keep the others waiting.
const countedBack = 32 * 24 * time.Hour

func missedUntil(slots func(time.Time) time.Time, first, now time.Time) missed {
	m := missed{last: first}
	if now.Sub(first) > countedBack {
		if late := slots(now.Add(-countedBack)); !late.IsZero() && !late.After(now) {
			m = missed{last: late, before: 1}
		}
	}
	for t := slots(m.last); !t.IsZero() && !t.After(now); t = slots(t) {
		m.last = t
		m.before++
	}
	return m
}

// start completes and inserts a run, and lets it look both ways. A template that can't be sent makes a run that has failed,
// so that the slot does not vanish in silence.
func (s *Scheduler) start(ctx context.Context, r *campaign.Run, c *campaign.Campaign, now time.Time) (*campaign.Run, error) {
	t, err := s.Templates.TemplateInfo(ctx, c.Spec.Template)
	if err != nil {
		return nil, fmt.Errorf("template %s: %w", c.Spec.Template, err)
	}
	r.Campaign, r.Spec, r.StartedAt, r.State, r.Template = c.Name, c.Spec, now, campaign.RunPlanning, t.Snapshot
	rand.Read(r.Short[:]) // never fails
	if why := cannotSend(c.Spec.Template, t); why != "" {
		r.State, r.Reason, r.EndedAt, r.PlanDone = campaign.RunFailed, why, now, true
	}
	if err := s.Runs.InsertRun(ctx, r); err != nil {
		return nil, err
	}
	log := s.Log.With("campaign", r.Campaign, "run", r.ID)
	if r.State == campaign.RunFailed {
		log.Error("a run failed at its start", "why", r.Reason)
		return r, nil
	}
	log.Info("a run has started", "slot", r.Slot, "template", c.Spec.Template)
	if _, err := s.lookBothWays(ctx, r); err != nil { // the run is there, and the feeder looks again before it is planned
		log.Warn("cannot look for other runs of the campaign yet", "err", err)
	}
	return r, nil
}

func cannotSend(name string, t campaign.TemplateInfo) string {
	switch {
	case !t.Exists:
		return fmt.Sprintf("there is no template %s to be sent", name)
	case t.Retired:
		return fmt.Sprintf("template %s is retired", name)
	}
	return ""
}
