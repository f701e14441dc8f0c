package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/campaign"
	"postbit/internal/config"
)

type campaignsCmd struct {
	Apply    campaignsApplyCmd    `cmd:"" help:"Take over a folder of campaign files."`
	Rehearse campaignsRehearseCmd `cmd:"" help:"Run all rules over the audience and send nothing."`
	List     campaignsListCmd     `cmd:"" help:"List the campaigns and where they stand."`
	Show     campaignsShowCmd     `cmd:"" help:"Show a campaign and its latest run."`
	Run      campaignsRunCmd      `cmd:"" help:"Start a run now."`
	Pause    campaignsPauseCmd    `cmd:"" help:"Pause the run, or the schedule."`
	Resume   campaignsResumeCmd   `cmd:"" help:"Let a paused run, or a paused schedule, go on."`
	Cancel   campaignsCancelCmd   `cmd:"" help:"End the run; who has not been mailed counts as cancelled."`
}

type campaignsApplyCmd struct {
	Dir   string `arg:"" help:"Folder of *.yaml files."`
	Start bool   `help:"Start the schedules of new campaigns; otherwise they begin paused."`
	Plan  bool   `name:"plan" help:"Print the plan and change nothing."`
}

func (campaignsApplyCmd) Help() string {
	return `Example:

    postbit campaigns apply ./campaigns --start`
}

type applyJSON struct {
	Applied bool              `json:"applied"`
	Changes []campaign.Change `json:"changes"`
	Gone    []string          `json:"gone"`
}

func (c campaignsApplyCmd) Run(ctx context.Context, a *app) error {
	return a.withGraph(ctx, mongoOnly, func(g *graph) error {
		plan, err := g.applyCampaigns(ctx, c.Dir, c.Start, c.Plan)
		if err != nil {
			return err
		}
		if g.json {
			return g.printJSON(applyJSON{Applied: !c.Plan, Changes: plan.Changes, Gone: plan.Gone})
		}
		return g.printApply(plan, c.Plan)
	})
}

// applyCampaigns plans and, unless planOnly, applies. What is wrong with the files is an error of usage: nothing was applied.
func (g *graph) applyCampaigns(ctx context.Context, dir string, start, planOnly bool) (*campaign.ApplyPlan, error) {
	if err := g.campaigns.EnsureIndexes(ctx); err != nil {
		return nil, err
	}
	if err := g.checkShape(ctx); err != nil {
		return nil, err
	}
	plan, err := g.campaigns.PlanApply(ctx, dir, campaign.ApplyOptions{
		Now: g.clk.Now(), Start: start, Templates: registry{g.templates}, MisfireGrace: g.cfg.MisfireGrace, Count: g.countUsers,
	})
	var faults campaign.FileErrors
	if errors.As(err, &faults) {
		return nil, &exitError{exitUsage, fmt.Errorf("nothing was applied:\n%w", err)}
	}
	if err != nil || planOnly {
		return plan, err
	}
	return plan, g.campaigns.Apply(ctx, plan)
}

// sampleSize is how many users are looked at before postbit trusts the shape of a collection.
const sampleSize = 1000

// checkShape looks at a sample of the users before the first campaign: a state field of somebody else's would be
// overwritten by a claim, if claims were not refused there.
func (g *graph) checkShape(ctx context.Context) error {
	there, err := g.campaigns.List(ctx)
	if err != nil || len(there) > 0 {
		return err
	}
	shape, err := g.users.Sample(ctx, sampleSize)
	if err != nil {
		return err
	}
	if err := shape.Err(); err != nil {
		return &exitError{exitUsage, fmt.Errorf("nothing was applied: %w", err)}
	}
	for _, w := range shapeWarnings(shape) {
		g.say("warning: %s", w)
	}
	return nil
}

func (g *graph) countUsers(ctx context.Context, query bson.D, limit int64) (int64, error) {
	opts := options.Count()
	if limit > 0 {
		opts.SetLimit(limit)
	}
	return g.usersColl.CountDocuments(ctx, query, opts)
}

func (g *graph) printApply(plan *campaign.ApplyPlan, planOnly bool) error {
	var b strings.Builder
	for _, c := range plan.Changes {
		fmt.Fprintf(&b, "%-6s %s (%s)", c.Action, c.Name, c.State)
		if len(c.Firings) == 0 {
			b.WriteString(": by hand, `postbit campaigns run " + c.Name + "`")
		}
		b.WriteString("\n")
		for _, f := range c.Firings {
			fmt.Fprintf(&b, "       %s   %s UTC\n", f.Local.Format("Mon 2006-01-02 15:04 -0700 MST"), f.UTC.Format("Mon 2006-01-02 15:04"))
		}
	}
	if _, err := g.out.Write([]byte(b.String())); err != nil {
		return err
	}
	for _, c := range plan.Changes {
		for _, w := range c.Warnings {
			g.say("warning: %s: %s", c.Name, w)
		}
		if c.State == campaign.StatePaused && c.Action == campaign.ActionCreate && len(c.Firings) > 0 {
			g.say("%s begins paused; `postbit campaigns resume --schedule %s` starts its schedule", c.Name, c.Name)
		}
	}
	for _, name := range plan.Gone {
		g.say("%s has no file any more; it is left as it is", name)
	}
	if planOnly {
		g.say("nothing was applied: this is the plan")
	}
	return nil
}

type campaignsListCmd struct{}

func (campaignsListCmd) Help() string {
	return `Example:

    postbit campaigns list`
}

func (campaignsListCmd) Run(ctx context.Context, a *app) error {
	return a.withGraph(ctx, mongoOnly, func(g *graph) error {
		list, err := (&operations{graph: g}).campaignList(ctx)
		if err != nil {
			return err
		}
		if g.json {
			return g.printJSON(list)
		}
		t := table{header: []string{"NAME", "TEMPLATE", "SCHEDULE", "NEXT", "LATEST RUN", "STARTED", "SENT"}}
		for _, c := range list {
			row := []string{c.Name, c.Template, c.Schedule, "-", "-", "-", "-"}
			if c.NextAt != nil {
				row[3] = stamp(*c.NextAt)
			}
			if c.Run != nil {
				row[4], row[5], row[6] = c.Run.stateText(), stamp(c.Run.StartedAt), count(c.Run.Counts.Sent)
			}
			t.add(row...)
		}
		return t.print(g.out)
	})
}

type campaignsShowCmd struct {
	Name        string `arg:"" help:"Name of the campaign."`
	Unconfirmed bool   `help:"List by name who may or may not have got the mail."`
	Failed      bool   `help:"List by name who was refused, with the reply."`
	RunID       string `name:"run" help:"Another run than the latest, by its id." placeholder:"ID"`
}

func (campaignsShowCmd) Help() string {
	return `Example:

    postbit campaigns show winback --unconfirmed`
}

func (c campaignsShowCmd) Run(ctx context.Context, a *app) error {
	return a.withGraph(ctx, mongoOnly, func(g *graph) error {
		shown, err := (&operations{graph: g}).campaign(ctx, c.Name, c.RunID, showLists{unconfirmed: c.Unconfirmed, failed: c.Failed})
		if err != nil {
			return err
		}
		if g.json {
			return g.printJSON(shown)
		}
		return g.printCampaign(shown)
	})
}

func (g *graph) printCampaign(s *campaignJSON) error {
	view := table{header: []string{"CAMPAIGN", s.Name}}
	view.add("template", s.Template)
	view.add("schedule", s.Schedule)
	if s.NextAt != nil {
		view.add("next", stamp(*s.NextAt))
	}
	if s.Run == nil {
		view.add("run", "none so far")
		return view.print(g.out)
	}
	view.add("run", s.RunID)
	view.add("state", s.Run.stateText())
	if s.Reason != "" {
		view.add("reason", s.Reason)
	}
	view.add("started", stamp(s.Run.StartedAt))
	if s.Run.EndedAt != nil {
		view.add("ended", stamp(*s.Run.EndedAt))
	}
	if p := s.Progress; p != nil {
		view.add("batches", fmt.Sprintf("%d of %s done", p.Batches-p.Open, p.planned()))
		if p.NextDue != nil {
			view.add("next look", stamp(*p.NextDue))
		}
	}
	if err := view.print(g.out); err != nil {
		return err
	}
	fmt.Fprintln(g.out)
	if err := printCounts(g.out, s.Counts); err != nil {
		return err
	}
	for _, list := range []struct {
		title string
		users []outcomeJSON
	}{{"UNCONFIRMED", s.Unconfirmed}, {"FAILED", s.Failed}} {
		if list.users == nil {
			continue
		}
		t := table{header: []string{list.title, "AT", "BATCH", "CLASS", "REPLY"}}
		for _, u := range list.users {
			t.add(u.User, stamp(u.At), strconv.Itoa(u.Batch), orDash(u.Class), orDash(u.Reply))
		}
		fmt.Fprintln(g.out)
		if err := t.print(g.out); err != nil {
			return err
		}
	}
	return nil
}

var mongoAndRedis = config.Needs{Mongo: true, Redis: true}

type campaignsRunCmd struct {
	Name string `arg:"" help:"Name of the campaign."`
	Key  string `help:"Idempotency key: the same key again makes no second run."`
}

func (campaignsRunCmd) Help() string {
	return `A run by hand goes to the audience now, also while the schedule is paused. It supersedes a run of the campaign that is not finished.

Example:

    postbit campaigns run winback --key 2026-12-01`
}

func (c campaignsRunCmd) Run(ctx context.Context, a *app) error {
	return a.withGraph(ctx, mongoAndRedis, func(g *graph) error {
		if err := errors.Join(g.ensureIndexes(ctx), g.setClock(ctx)); err != nil {
			return err
		}
		run, err := g.newScheduler(nil).StartManual(ctx, c.Name, c.Key)
		if err != nil {
			return err
		}
		if g.stack != nil && g.stack.Owner {
			g.say("no `postbit serve` is running in %s; the run begins when one is", g.cfg.DataDir)
		}
		return g.printRun(run)
	})
}

func (g *graph) printRun(run *campaign.Run) error {
	if g.json {
		return g.printJSON(runOf(run, run.Counts))
	}
	_, err := fmt.Fprintln(g.out, run.ID)
	return err
}

type campaignsPauseCmd struct {
	Name     string `arg:"" help:"Name of the campaign."`
	Schedule bool   `help:"Pause the schedule; a run that is under way goes on."`
	Reason   string `help:"Why, for those who wonder."`
}

func (campaignsPauseCmd) Help() string {
	return `A pause takes effect within two seconds. It does not stop the clock of expires_after.

Example:

    postbit campaigns pause winback --reason "wrong price in the subject"`
}

func (c campaignsPauseCmd) Run(ctx context.Context, a *app) error {
	return a.steer(ctx, c.Name, "pause", c.Schedule, c.Reason)
}

type campaignsResumeCmd struct {
	Name     string `arg:"" help:"Name of the campaign."`
	Schedule bool   `help:"Start the schedule, with its first slot from now on."`
}

func (campaignsResumeCmd) Help() string {
	return `Example:

    postbit campaigns resume winback`
}

func (c campaignsResumeCmd) Run(ctx context.Context, a *app) error {
	return a.steer(ctx, c.Name, "resume", c.Schedule, "")
}

type campaignsCancelCmd struct {
	Name string `arg:"" help:"Name of the campaign."`
}

func (campaignsCancelCmd) Help() string {
	return `Example:

    postbit campaigns cancel winback`
}

func (c campaignsCancelCmd) Run(ctx context.Context, a *app) error {
	return a.steer(ctx, c.Name, "cancel", false, "")
}

func (a *app) steer(ctx context.Context, name, action string, schedule bool, reason string) error {
	return a.withGraph(ctx, mongoOnly, func(g *graph) error {
		shown, err := (&operations{graph: g}).steer(ctx, name, action, schedule, reason)
		if err != nil {
			return err
		}
		if g.json {
			return g.printJSON(shown)
		}
		return g.printCampaign(shown)
	})
}
