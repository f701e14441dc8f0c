package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"postbit/internal/backfill"
	"postbit/internal/quantity"
	"postbit/internal/users"
)

// markUsers suppresses one user or all of a file, or takes the marks of a file away.
type markUsers struct {
	user, from, missing, reason string
	take                        bool
}

func (c markUsers) run(ctx context.Context, a *app) error {
	if (c.user == "") == (c.from == "") {
		return usage("name one user, or a file with --from")
	}
	if c.missing != "" && c.from == "" {
		return usage("--missing is for lists (--from)")
	}
	if c.missing == "-" && a.json {
		return usage("--missing - and --json both want standard output")
	}
	if c.from == "" {
		return c.one(ctx, a)
	}
	data, err := a.readInput(c.from)
	if err != nil {
		return usage("%w", err)
	}
	name := c.from
	if name == "-" {
		name = "standard input"
	}
	list, err := backfill.ReadList(name, bytes.NewReader(data), c.reason, a.clk.Now())
	if err != nil {
		return &exitError{exitUsage, err}
	}
	return a.withGraph(ctx, mongoOnly, func(g *graph) error { return c.all(ctx, g, list) })
}

func (c markUsers) one(ctx context.Context, a *app) error {
	return a.withGraph(ctx, mongoOnly, func(g *graph) error {
		id, err := g.users.Find(ctx, c.user)
		if err != nil {
			return err
		}
		out, err := g.users.SuppressMany(ctx, []users.Suppression{{ID: id, Status: c.reason, At: g.clk.Now()}})
		if err != nil {
			return err
		}
		res := &backfill.Marked{Found: 1}
		switch m := out[0]; m.State {
		case users.MergeMissing: // since it was looked for
			return fmt.Errorf("%.80q: %w", c.user, users.ErrNotFound)
		case users.MergeUnreadable, users.MergeRefused:
			return fmt.Errorf("%s can't be suppressed: %w", users.FormatID(id), m.Err)
		case users.MergeChanged:
			res.Changed = 1
		}
		return c.show(g, res, []string{})
	})
}

func (c markUsers) all(ctx context.Context, g *graph, list []backfill.Listed) (err error) {
	missing, err := openMissing(g.app, c.missing)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, missing.close()) }()
	notFound := []string{}
	p := newStages(g.err)
	defer p.end()
	res, err := backfill.MarkUsers(ctx, list, c.take, backfill.Options{Users: g.users, Now: g.clk.Now(), Progress: p.show, Missing: func(user string) error {
		if c.missing != "" || !g.json {
			return missing.add(user)
		}
		notFound = append(notFound, user)
		return nil
	}})
	p.end()
	if err != nil {
		return err
	}
	for _, e := range res.Unwritten {
		g.say("%s: %s", visible(e.User), visible(e.Why))
	}
	if err := c.show(g, res, notFound); err != nil {
		return err
	}
	if res.Missing+res.Unmarked > 0 {
		return errNo
	}
	return nil
}

func (c markUsers) show(g *graph, m *backfill.Marked, notFound []string) error {
	if g.json && c.take {
		return g.printJSON(unsuppressJSON{m.Found, m.Changed, m.Unmarked, m.Missing, notFound})
	}
	if g.json {
		return g.printJSON(suppressJSON{m.Found, m.Changed, m.Unmarked, m.Missing, notFound})
	}
	what := "suppressed"
	if c.take {
		what = "may get mail again"
	}
	g.say("%s %s", count(m.Found), what)
	if m.Missing > 0 {
		g.say("%s %s not in the collection", count(m.Missing), quantity.Verb(m.Missing, "is", "are"))
	}
	return nil
}
