package main

import (
	"context"
	"fmt"
	"time"

	"postbit/internal/campaign"
	"postbit/internal/web"
	"postbit/worker"
)

type explainCmd struct {
	Campaign string `required:"" placeholder:"C" help:"Name of the campaign."`
	User     string `required:"" placeholder:"U" help:"User: an email, or an id; oid: int: str: uuid: force a type."`
	At       string `placeholder:"TIME" help:"As if it were then, RFC 3339; now otherwise."`
}

func (explainCmd) Help() string {
	return `All rules are asked, as a run that starts just then would ask them. Exit code 3: the user would not be mailed now.

Example:

    postbit explain --campaign winback --user ada@example.com`
}

func (c explainCmd) Run(ctx context.Context, a *app) error {
	at, err := parseTime("--at", c.At)
	if err != nil {
		return err
	}
	return a.withGraph(ctx, mongoOnly, func(g *graph) error {
		x, err := (&operations{graph: g}).explain(ctx, c.Campaign, c.User, at)
		if err != nil {
			return err
		}
		if g.json {
			err = g.printJSON(x)
		} else {
			err = g.printExplanation(x)
		}
		if err == nil && x.Decision != "send" {
			return errNo
		}
		return err
	})
}

// parseTime reads a time of RFC 3339; zero for "".
func parseTime(what, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, usage("%s: %q is no time such as 2026-12-01T09:00:00Z", what, text)
	}
	return t.UTC(), nil
}

// explain asks all rules about a user as a run that starts at that instant would; at zero is now.
func (o *operations) explain(ctx context.Context, name, ref string, at time.Time) (*worker.Explanation, error) {
	if at.IsZero() {
		at = o.clk.Now()
	}
	c, err := o.campaigns.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	t, err := o.templates.Get(ctx, c.Spec.Template)
	if err != nil {
		return nil, err
	}
	id, err := o.users.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	run := &campaign.Run{Campaign: name, Spec: c.Spec, StartedAt: at}
	return worker.Explain(ctx, run, t, o.users, id, at)
}

func (o *operations) Explain(ctx context.Context, name, ref string, at time.Time) (any, error) {
	return forWeb(o.explain(ctx, name, ref, at))
}

func (g *graph) printExplanation(x *worker.Explanation) error {
	fmt.Fprintf(g.out, "%s: %s", visible(x.User), x.Decision)
	if x.Rule != nil {
		fmt.Fprintf(g.out, ", by %s", *x.Rule)
	}
	if x.Until != nil {
		fmt.Fprintf(g.out, " until %s", stamp(*x.Until))
	}
	fmt.Fprintf(g.out, " (%s at %s)\n\n", x.Campaign, stamp(x.At))
	t := table{header: []string{"RULE", "OBJECTS", "WHY", "FACTS"}}
	for _, r := range x.Rules {
		objects := "no"
		if r.Objects {
			objects = "yes"
		}
		facts := ""
		for i, f := range r.Facts {
			if i > 0 {
				facts += ", "
			}
			facts += f.Name + "=" + f.Value
		}
		t.add(r.Rule, objects, r.Why, facts)
	}
	return t.print(g.out)
}

type campaignsRehearseCmd struct {
	Name string `arg:"" help:"Name of the campaign."`
	At   string `placeholder:"TIME" help:"As if it were then, RFC 3339; now otherwise."`
}

func (campaignsRehearseCmd) Help() string {
	return `Nothing is written. would_send counts whom a run would mail at once; deferred, who would wait for a window.

Example:

    postbit campaigns rehearse winback --at 2026-12-01T08:00:00Z`
}

func (c campaignsRehearseCmd) Run(ctx context.Context, a *app) error {
	at, err := parseTime("--at", c.At)
	if err != nil {
		return err
	}
	return a.withGraph(ctx, mongoOnly, func(g *graph) error {
		if at.IsZero() {
			at = g.clk.Now()
		}
		there, err := g.campaigns.Get(ctx, c.Name)
		if err != nil {
			return err
		}
		t, err := g.templates.Get(ctx, there.Spec.Template)
		if err != nil {
			return err
		}
		bar := newProgress(g.err, "users")
		r, err := worker.Rehearse(ctx, &there.Spec, t, g.users, at, func(checked int64) { bar.show(int(checked), int(checked)) })
		bar.end()
		if err != nil {
			return err
		}
		if g.json {
			return g.printJSON(r)
		}
		if err := printFunnel(g.out, r.Counts, []outcome{{"would be sent", r.WouldSend}}); err != nil {
			return err
		}
		if r.FirstOpening != nil {
			fmt.Fprintf(g.out, "\ndeferred users have their turn from %s to %s\n", stamp(*r.FirstOpening), stamp(*r.LastOpening))
		}
		return nil
	})
}

var _ web.Operations = (*operations)(nil)
