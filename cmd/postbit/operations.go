package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"postbit/internal/campaign"
	"postbit/internal/users"
	"postbit/internal/web"
	"postbit/scheduler"
	"postbit/templates"
	"postbit/worker"
)

// operations are what the command line and the API have in common. The shapes of their answers are in docs/json.md.
type operations struct {
	*graph
	worker *worker.Worker       // for send
	sched  *scheduler.Scheduler // for run
}

// runJSON is a run.
type runJSON struct {
	RunID     string            `json:"run"`
	State     campaign.RunState `json:"state"`
	Paused    string            `json:"paused"` // the reason; "": not paused
	PausedBy  string            `json:"paused_by"`
	Reason    string            `json:"reason"` // why it failed, or by whom it was cancelled or superseded
	Slot      time.Time         `json:"slot"`
	StartedAt time.Time         `json:"started_at"`
	EndedAt   *time.Time        `json:"ended_at"`
	Counts    campaign.Counts   `json:"counts"`
}

func runOf(r *campaign.Run, c campaign.Counts) *runJSON {
	return &runJSON{RunID: r.ID, State: r.State, Paused: r.Paused, PausedBy: r.PausedBy, Reason: r.Reason, Slot: r.Slot.UTC(), StartedAt: r.StartedAt.UTC(),
		EndedAt: optionalTime(r.EndedAt), Counts: allReasons(c)}
}

func (r *runJSON) stateText() string {
	if r.Paused != "" {
		return fmt.Sprintf("%s, paused: %s", r.State, r.Paused)
	}
	return string(r.State)
}

// allReasons fills in the reasons of a skip that nobody had: the keys are always the same.
func allReasons(c campaign.Counts) campaign.Counts {
	skipped := make(map[string]int64, len(campaign.SkipReasons))
	for _, reason := range campaign.SkipReasons {
		skipped[reason] = c.Skipped[reason]
	}
	c.Skipped = skipped
	return c
}

type progressJSON struct {
	Batches   int        `json:"batches"`   // planned so far
	Unvisited int        `json:"unvisited"` // without a first pass
	Open      int        `json:"open"`      // with somebody left to look at, unvisited ones included
	Planned   bool       `json:"planned"`   // the plan is complete
	NextDue   *time.Time `json:"next_due"`
}

func (p *progressJSON) planned() string {
	if p.Planned {
		return strconv.Itoa(p.Batches)
	}
	return strconv.Itoa(p.Batches) + " so far"
}

type outcomeJSON struct {
	User  string    `json:"user"`
	At    time.Time `json:"at"`
	Batch int       `json:"batch"`
	Class string    `json:"class"` // of a failure
	Reply string    `json:"reply"`
}

// campaignJSON is a campaign with its latest run; the run's keys are missing where there is none.
type campaignJSON struct {
	Name          string     `json:"name"`
	Template      string     `json:"template"`
	Schedule      string     `json:"schedule"`
	ScheduleState string     `json:"schedule_state"` // active or paused
	NextAt        *time.Time `json:"next_at"`
	*runJSON
	Run         *runJSON      `json:"-"` // the same
	Progress    *progressJSON `json:"progress,omitempty"`
	Unconfirmed []outcomeJSON `json:"unconfirmed,omitzero"`
	Failed      []outcomeJSON `json:"failed,omitzero"`
	Spec        campaign.Spec `json:"spec"`
}

func campaignOf(c *campaign.Campaign, run *runJSON) *campaignJSON {
	return &campaignJSON{Name: c.Name, Template: c.Spec.Template, Schedule: scheduleText(c), ScheduleState: c.State, NextAt: optionalTime(c.NextAt),
		runJSON: run, Run: run, Spec: c.Spec}
}

func scheduleText(c *campaign.Campaign) string {
	s := c.Spec.Schedule
	text := ""
	switch {
	case s.ByHand():
		return "by hand"
	case s.Recurring():
		text = s.Cron + " " + cmp.Or(s.Timezone, "UTC")
	default:
		text = "at " + stamp(s.At)
	}
	if c.State == campaign.StatePaused {
		text += " (paused)"
	}
	return text
}

func (o *operations) campaignList(ctx context.Context) ([]*campaignJSON, error) {
	all, err := o.campaigns.List(ctx)
	if err != nil {
		return nil, err
	}
	list := []*campaignJSON{}
	for i := range all {
		run, err := o.campaigns.LatestRun(ctx, all[i].Name)
		if err != nil && !errors.Is(err, campaign.ErrNotFound) {
			return nil, err
		}
		var r *runJSON
		if err == nil {
			r = runOf(run, run.Counts)
		}
		list = append(list, campaignOf(&all[i], r))
	}
	return list, nil
}

// showLists says which users are to be listed by name.
type showLists struct{ unconfirmed, failed bool }

// campaign shows one campaign with its latest run, or with another one.
func (o *operations) campaign(ctx context.Context, name, runID string, lists showLists) (*campaignJSON, error) {
	c, err := o.campaigns.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	var run *campaign.Run
	if runID == "" {
		run, err = o.campaigns.LatestRun(ctx, name)
		if errors.Is(err, campaign.ErrNotFound) {
			return campaignOf(c, nil), nil
		}
	} else if run, err = o.campaigns.Run(ctx, runID); err == nil && run.Campaign != name {
		err = fmt.Errorf("run %s is one of %s: %w", runID, run.Campaign, campaign.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	shown, err := o.withProgress(ctx, c, run)
	if err != nil {
		return nil, err
	}
	if lists.unconfirmed {
		if shown.Unconfirmed, err = o.outcomes(ctx, run, func(u campaign.UserOutcome) bool { return u.Outcome == campaign.Unconfirmed }); err != nil {
			return nil, err
		}
	}
	if lists.failed {
		if shown.Failed, err = o.outcomes(ctx, run, func(u campaign.UserOutcome) bool { return u.Outcome.Failed() }); err != nil {
			return nil, err
		}
	}
	return shown, nil
}

// withProgress looks into the batches of a run that is not finished; what a finished one came to stands in the run itself.
func (o *operations) withProgress(ctx context.Context, c *campaign.Campaign, run *campaign.Run) (*campaignJSON, error) {
	if run.State.Finished() {
		return campaignOf(c, runOf(run, run.Counts)), nil
	}
	p, err := o.batches.Progress(ctx, run)
	if err != nil {
		return nil, err
	}
	shown := campaignOf(c, runOf(run, p.Counts))
	shown.Progress = &progressJSON{Batches: p.Batches, Unvisited: p.Unvisited, Open: p.Open, Planned: p.Ended, NextDue: optionalTime(p.NextDue)}
	return shown, nil
}

// outcomes lists users of a run by name; never nil.
func (o *operations) outcomes(ctx context.Context, run *campaign.Run, want func(campaign.UserOutcome) bool) ([]outcomeJSON, error) {
	list := []outcomeJSON{}
	err := o.batches.Outcomes(ctx, run, func(u campaign.UserOutcome) error {
		if want(u) {
			list = append(list, outcomeJSON{User: users.FormatID(u.User), At: u.At, Batch: u.Batch, Class: u.Outcome.Class(), Reply: u.Reply})
		}
		return nil
	})
	return list, err
}

// steer is pause, resume or cancel of a campaign's latest run, or of its schedule.
func (o *operations) steer(ctx context.Context, name, action string, schedule bool, reason string) (*campaignJSON, error) {
	if schedule {
		return o.steerSchedule(ctx, name, action)
	}
	if _, err := o.campaigns.Get(ctx, name); err != nil {
		return nil, err
	}
	run, err := o.campaigns.LatestRun(ctx, name)
	if errors.Is(err, campaign.ErrNotFound) {
		return nil, fmt.Errorf("campaign %s has had no run so far; its schedule is another matter (--schedule): %w", name, err)
	}
	if err != nil {
		return nil, err
	}
	switch action {
	case "pause":
		err = o.campaigns.PauseRun(ctx, run.ID, reason, "operator")
	case "resume":
		err = o.campaigns.ResumeRun(ctx, run.ID)
	case "cancel":
		err = o.campaigns.CancelRun(ctx, run.ID, cmp.Or(reason, "operator"))
	default:
		err = sorted{fmt.Errorf("%q is no way to steer a run", action), web.ErrInvalid}
	}
	if err != nil {
		return nil, err
	}
	return o.campaign(ctx, name, run.ID, showLists{})
}

func (o *operations) steerSchedule(ctx context.Context, name, action string) (*campaignJSON, error) {
	var err error
	switch action {
	case "pause":
		err = o.campaigns.Pause(ctx, name)
	case "resume":
		_, err = o.campaigns.Resume(ctx, name, o.clk.Now())
	default:
		err = sorted{fmt.Errorf("a schedule can be paused and resumed; %s is for its runs", action), web.ErrInvalid}
	}
	if err != nil {
		return nil, err
	}
	return o.campaign(ctx, name, "", showLists{})
}

// What follows is the API's side: the same, with errors that it gives a status for.

func (o *operations) Templates(ctx context.Context) (any, error) {
	return forWeb(o.templates.List(ctx))
}

func (o *operations) Campaigns(ctx context.Context) (any, error) { return forWeb(o.campaignList(ctx)) }

func (o *operations) Campaign(ctx context.Context, name string) (any, error) {
	return forWeb(o.campaign(ctx, name, "", showLists{}))
}

func (o *operations) RunCampaign(ctx context.Context, name, key string) (any, error) {
	run, err := o.sched.StartManual(ctx, name, key)
	if err != nil {
		return forWeb[any](nil, err)
	}
	return runOf(run, run.Counts), nil
}

func (o *operations) Steer(ctx context.Context, name, action string, schedule bool, reason string) (any, error) {
	return forWeb(o.steer(ctx, name, action, schedule, reason))
}

// sorted is an error that says of which kind it is to whoever asks, and not once more in its text.
type sorted struct{ err, kind error }

func (e sorted) Error() string   { return e.err.Error() }
func (e sorted) Unwrap() []error { return []error{e.err, e.kind} }

// forWeb sorts errors into those that the API tells its client about.
func forWeb[T any](v T, err error) (any, error) {
	if err == nil {
		return v, nil
	}
	var ambiguous *users.AmbiguousError
	for _, c := range []struct {
		is bool
		as error
	}{
		{errors.Is(err, campaign.ErrNotFound) || errors.Is(err, users.ErrNotFound) || errors.Is(err, templates.ErrNotFound), web.ErrNotFound},
		{errors.Is(err, campaign.ErrRunFinished) || errors.Is(err, scheduler.ErrTemplate), web.ErrConflict},
		{errors.As(err, &ambiguous) || errors.Is(err, scheduler.ErrKey), web.ErrInvalid},
	} {
		if c.is {
			return nil, sorted{err, c.as}
		}
	}
	return nil, err
}
