package worker

import (
	"context"
	"time"

	"postbit/internal/campaign"
	"postbit/internal/users"
	"postbit/rules"
	"postbit/templates"
)

// Rehearsal is what a run would come to: all rules over the whole audience at one instant, and nothing written. Audience =
// Checked = WouldSend + Deferred + the sum of Skipped; nobody is Sent, Failed or Unconfirmed.
type Rehearsal struct {
	Campaign  string          `json:"campaign"`
	Template  string          `json:"template"`
	At        time.Time       `json:"at"`
	WouldSend int64           `json:"would_send"`
	Counts    campaign.Counts `json:"counts"`

	// When the deferred have their turn; nil where nobody is deferred.
	FirstOpening *time.Time `json:"first_opening"`
	LastOpening  *time.Time `json:"last_opening"`
}

// progressEvery is after how many users the progress of a rehearsal is reported.
const progressEvery = 1000

// Rehearse carries out the campaign's rules as a run that starts at that instant would. progress, which may be nil, is told
// now and then how many users have been checked.
func Rehearse(ctx context.Context, spec *campaign.Spec, template *templates.Template, store *users.Store, at time.Time, progress func(checked int64)) (*Rehearsal, error) {
	at = at.UTC()
	e, err := NewEvaluator(&campaign.Run{Spec: *spec, StartedAt: at}, template, nil, store)
	if err != nil {
		return nil, err
	}
	out := &Rehearsal{Campaign: spec.Name, Template: template.Name, At: at}
	c := &out.Counts
	var skipped [rules.TimeOfDay + 1]int64
	var first, last time.Time
	err = e.Each(ctx, at, func(u *users.User, d rules.Decision) error {
		switch d.Outcome {
		case rules.Send:
			out.WouldSend++
		case rules.Skip:
			skipped[d.Rule]++
		case rules.Defer:
			c.Deferred++
			if first.IsZero() || d.Until.Before(first) {
				first = d.Until
			}
			if d.Until.After(last) {
				last = d.Until
			}
		}
		if u.UnknownZone {
			c.UnknownZone++
		}
		if c.Checked++; progress != nil && c.Checked%progressEvery == 0 {
			progress(c.Checked)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if progress != nil {
		progress(c.Checked)
	}
	c.Audience = c.Checked
	c.Skipped = make(map[string]int64, len(campaign.SkipReasons))
	for _, reason := range campaign.SkipReasons {
		c.Skipped[reason] = 0
	}
	for r := rules.Expired; r < rules.TimeOfDay; r++ {
		c.Skipped[r.String()] = skipped[r]
	}
	if c.Deferred > 0 {
		out.FirstOpening, out.LastOpening = &first, &last
	}
	return out, nil
}
