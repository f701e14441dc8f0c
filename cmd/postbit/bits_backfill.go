package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"postbit/internal/backfill"
	"postbit/internal/quantity"
)

type bitsBackfillCmd struct {
	sourceFlags `embed:""`
	Apply       bool `help:"Write. Without it the plan is shown and nothing is written."`
}

func (bitsBackfillCmd) Help() string {
	return `Fills the bitfield from what you have today. Bits are only ever added, and by compare-and-set, so it may run beside postbit's
own campaigns and beside other services, be interrupted, and be done again. Names of templates must be registered first
(templates push, templates import). See docs/backfill.md.

Examples:

    postbit bits backfill --array sent_templates
    postbit bits backfill --collection sends --user user_id --template mail \
        --sent-at at --apply
    postbit bits backfill --from sends.csv --opened-at opened \
        --skip-unknown --apply`
}

type backfillJSON struct {
	Source      string           `json:"source"`
	Applied     bool             `json:"applied"`
	Resumed     bool             `json:"resumed"`
	Rows        int64            `json:"rows"` // of the log; with --array the users looked at
	SkippedRows int64            `json:"skipped_rows"`
	Unknown     map[string]int64 `json:"unknown"` // names that are no template's, and how often they stood there
	BadDates    int64            `json:"bad_dates"`
	Users       int64            `json:"users"` // in the source
	Missing     int64            `json:"missing"`
	Shared      int64            `json:"shared"`
	Changed     int64            `json:"changed"`
	Unchanged   int64            `json:"unchanged"`
	Unreadable  int64            `json:"unreadable"`
	Refused     int64            `json:"refused"`
	Dates       int64            `json:"dates"`
	LastAtStays int64            `json:"last_at_stays"`
	StateStays  int64            `json:"state_stays"`
	Templates   []backfillBit    `json:"templates"`
	examples    []backfill.Example
	took        time.Duration
}

// backfillBit is how many users get a bit.
type backfillBit struct {
	Name     string `json:"name"`
	BitIndex int    `json:"bitIndex"`
	Users    int64  `json:"users"`
}

func (c bitsBackfillCmd) Run(ctx context.Context, a *app) error {
	return c.read(ctx, a, func(g *graph, o backfill.Options, p *stages) (err error) {
		if c.Array == g.users.BitsField() {
			return usage("%s is the bitfield itself: `postbit bits convert` turns its arrays into bits", c.Array)
		}
		out := &backfillJSON{Applied: c.Apply}
		start := time.Now()
		if c.Array != "" {
			err = g.backfillArray(ctx, backfill.Array{Field: c.Array}, o, out)
		} else {
			err = c.backfillLog(ctx, g, o, out)
		}
		p.end()
		if err != nil {
			return sourceError(ctx, err, c.Apply)
		}
		out.took = time.Since(start)
		return g.showBackfill(ctx, out)
	})
}

// sourceError gives faults of the source the exit code of wrong usage: nothing was written.
func sourceError(ctx context.Context, err error, wrote bool) error {
	var fault *backfill.SourceError
	var unknown *backfill.UnknownError
	switch {
	case errors.As(err, &fault), errors.As(err, &unknown):
		return &exitError{exitUsage, err}
	case ctx.Err() != nil && wrote:
		return fmt.Errorf("interrupted; the same command goes on where this one was: %w", err)
	}
	return err
}

func (c bitsBackfillCmd) backfillLog(ctx context.Context, g *graph, o backfill.Options, out *backfillJSON) error {
	src, err := c.source(g)
	if err != nil {
		return err
	}
	log, err := backfill.Read(ctx, src, o)
	if err != nil {
		return err
	}
	defer log.Close()
	var res *backfill.Result
	if c.Apply {
		res, out.Resumed, err = log.Apply(ctx, o, backfill.NewMarks(g.db, g.usersNamespace(), g.clk))
	} else {
		res, err = log.Compare(ctx, o)
	}
	if err != nil {
		return err
	}
	out.Source = src.String()
	out.fill(&log.Counts, res, o.Names)
	return nil
}

func (g *graph) usersNamespace() string {
	return g.usersColl.Database().Name() + "." + g.usersColl.Name()
}

func (g *graph) backfillArray(ctx context.Context, array backfill.Array, o backfill.Options, out *backfillJSON) error {
	counts, res, err := array.Plan(ctx, o)
	if err != nil {
		return err
	}
	if out.Applied {
		if res, err = array.Apply(ctx, o, counts.Rows); err != nil {
			return err
		}
	}
	out.Source = array.String()
	out.fill(&counts, res, o.Names)
	return nil
}

func (b *backfillJSON) fill(c *backfill.Counts, r *backfill.Result, names *backfill.Names) {
	b.Rows, b.SkippedRows, b.Unknown, b.BadDates, b.Shared = c.Rows, c.Skipped, c.Unknown, c.BadDates, c.SharedWith
	if b.Unknown == nil {
		b.Unknown = map[string]int64{}
	}
	b.Users, b.Missing = r.Users+c.Emails, r.Missing+c.Emails
	b.Changed, b.Unchanged, b.Unreadable, b.Refused = r.Changed, r.Same, r.Unreadable, r.Refused
	b.Dates, b.LastAtStays, b.StateStays = r.Dates, r.LastStays, r.StateStays
	b.Templates = []backfillBit{}
	for bit, n := range r.Bits {
		b.Templates = append(b.Templates, backfillBit{names.Name(bit), bit, n})
	}
	slices.SortFunc(b.Templates, func(x, y backfillBit) int { return x.BitIndex - y.BitIndex })
	b.examples = r.Examples
}

func (g *graph) showBackfill(ctx context.Context, b *backfillJSON) error {
	for _, e := range b.examples {
		g.say("%s: %s", visible(e.User), visible(e.Why))
	}
	if b.Applied {
		g.say("%s in %s, %s a second", quantity.Of(b.Users, "user"), b.took.Round(10*time.Millisecond), count(int64(perSecond(b.Users, b.took))))
		runs, err := g.campaigns.Unfinished(ctx)
		if err != nil {
			return err
		}
		if len(runs) > 0 {
			g.say("%s under way. A mail of such a run that is refused takes its bit back, also where your records have it; look with `bits check` when it is done",
				quantity.Of(len(runs), "run")+" "+quantity.Verb(len(runs), "is", "are"))
		}
	}
	if g.json {
		return g.printJSON(b)
	}
	written := func(done, planned string) string {
		if b.Applied {
			return done
		}
		return planned
	}
	t := table{header: []string{"USERS", ""}}
	for _, row := range []struct {
		what   string
		n      int64
		always bool
	}{
		{"in the source", b.Users, true}, {written("changed", "to be changed"), b.Changed, true}, {"  of them with a date", b.Dates, false},
		{"have it already", b.Unchanged, true}, {"not in the collection", b.Missing, true}, {"share an address", b.Shared, false},
		{"unreadable, left alone", b.Unreadable, false}, {"refused by the server", b.Refused, false},
		{"last_at stays: a claim's", b.LastAtStays, false}, {"dates left out: no room", b.StateStays, false},
		{"rows", b.Rows, true}, {"rows left out", b.SkippedRows, false}, {"dates of no use", b.BadDates, false},
	} {
		if row.always || row.n > 0 {
			t.add(row.what, count(row.n))
		}
	}
	if err := t.print(g.out); err != nil {
		return err
	}
	bits := table{header: []string{"BIT", "TEMPLATE", written("USERS", "USERS TO GET IT")}}
	for _, x := range b.Templates {
		bits.add(strconv.Itoa(x.BitIndex), orDash(x.Name), count(x.Users))
	}
	if len(bits.rows) > 0 {
		fmt.Fprintln(g.out)
		if err := bits.print(g.out); err != nil {
			return err
		}
	}
	if !b.Applied && b.Changed > 0 {
		g.say("nothing was written; --apply does it")
	}
	return nil
}

type bitsConvertCmd struct {
	SkipUnknown bool `help:"Convert arrays that name what is no template, too, and lose these names."`
	Apply       bool `help:"Write. Without it the plan is shown and nothing is written."`
}

func (bitsConvertCmd) Help() string {
	return `Turns bitfields (users.bits) that are arrays of template names or bit indexes into blobs, in place. Until then nothing is sent
to these users: their field is unreadable. See docs/backfill.md.

Example:

    postbit bits convert --apply`
}

func (c bitsConvertCmd) Run(ctx context.Context, a *app) error {
	return a.withGraph(ctx, mongoOnly, func(g *graph) error {
		f := sourceFlags{SkipUnknown: c.SkipUnknown}
		p := newStages(g.err)
		defer p.end()
		o, err := f.options(ctx, g, p, &missingList{app: a})
		if err != nil {
			return err
		}
		out := &backfillJSON{Applied: c.Apply}
		start := time.Now()
		err = g.backfillArray(ctx, backfill.Array{Field: g.users.BitsField()}, o, out)
		p.end()
		if err != nil {
			return sourceError(ctx, err, c.Apply)
		}
		out.took = time.Since(start)
		return g.showBackfill(ctx, out)
	})
}
