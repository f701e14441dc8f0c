package main

import (
	"context"
	"errors"

	"postbit/internal/analytics"
	"postbit/internal/config"
	"postbit/internal/report"
	"postbit/internal/web"
)

type reportCmd struct {
	Campaign string `arg:"" help:"Name of a campaign or a site, or all."`
	From     string `placeholder:"DATE" help:"First day, UTC; 29 days before the last one otherwise."`
	To       string `placeholder:"DATE" help:"Last day, UTC; today otherwise."`
	CSV      bool   `name:"csv" help:"One row per day; with --list one row per line of the list."`
	Top      int    `default:"10" help:"Lines of each top list, at most 1000."`
	List     string `placeholder:"LIST" help:"One top list alone: links, pages, referrers or terms."`
	After    string `placeholder:"PLACE" help:"With --list: go on behind the page before, which says where."`
	ASCII    bool   `name:"ascii" help:"Draw with plain ASCII, also where the terminal could do better."`
}

func (reportCmd) Help() string {
	return `What is kept by day (the funnel, opens, hours) is exact for the days asked for. What is kept by month (time to open, clients, top lists) is of
the months that these days touch, and the report says so.

Examples:

    postbit report winback
    postbit report winback --from 2026-12-01 --to 2026-12-24 --csv
    postbit report winback --list links --top 100`
}

func (c reportCmd) Run(ctx context.Context, a *app) error {
	if c.Top < 1 || c.Top > analytics.MaxTop {
		return usage("--top: %d is not a number from 1 to %d", c.Top, analytics.MaxTop)
	}
	if c.After != "" && c.List == "" {
		return usage("--after is a place in a list: say which one by --list")
	}
	return a.withGraph(ctx, config.Needs{Mongo: true}, func(g *graph) error {
		o := &operations{graph: g}
		if c.List != "" {
			return c.list(ctx, o)
		}
		r, err := o.reportTop(ctx, c.Campaign, c.From, c.To, c.Top)
		switch {
		case err != nil:
			return err
		case c.CSV:
			return writeReportCSV(g.out, r)
		case g.json:
			return g.printReportJSON(r)
		}
		return printReport(g.out, r, screenOf(g.out, c.ASCII))
	})
}

func (c reportCmd) list(ctx context.Context, o *operations) error {
	l, err := o.reportList(ctx, c.Campaign, c.List, c.From, c.To, c.Top, c.After)
	switch {
	case err != nil:
		return err
	case c.CSV:
		err = writeListCSV(o.out, l)
	case o.json:
		return o.printReportJSON(l)
	default:
		err = printList(o.out, l, screenOf(o.out, c.ASCII))
	}
	if err == nil && l.Next != "" {
		o.say("more: --after %s", l.Next)
	}
	return err
}

// sources are what reports are read from.
func (o *operations) sources() report.Sources {
	return report.Sources{Counters: o.reader, Runs: o.campaigns, Sites: o.cfg.Sites}
}

// report reads a campaign's counts; from and to are dates, "" for the last 30 days.
func (o *operations) report(ctx context.Context, name, from, to string) (*report.Report, error) {
	return o.reportTop(ctx, name, from, to, report.DefaultTop)
}

func (o *operations) reportTop(ctx context.Context, name, from, to string, top int) (*report.Report, error) {
	q, err := o.reportQuery(name, from, to, top)
	if err != nil {
		return nil, err
	}
	r, err := o.sources().Gather(ctx, q)
	return r, invalid(err)
}

func (o *operations) reportList(ctx context.Context, name, list, from, to string, n int, after string) (*report.List, error) {
	q, err := o.reportQuery(name, from, to, n)
	if err != nil {
		return nil, err
	}
	l, err := o.sources().Page(ctx, report.ListQuery{Query: q, List: list, After: after})
	return l, invalid(err)
}

func (o *operations) reportQuery(name, from, to string, top int) (report.Query, error) {
	now := o.clk.Now()
	days, err := report.ParseRange(from, to, now)
	return report.Query{Name: name, Range: days, Now: now, Top: top}, invalid(err)
}

// invalid marks what was wrong with the question itself: exit code 2, or status 400.
func invalid(err error) error {
	if errors.Is(err, report.ErrRange) || errors.Is(err, report.ErrList) {
		return &exitError{exitUsage, sorted{err, web.ErrInvalid}}
	}
	return err
}

func (o *operations) Report(ctx context.Context, name, from, to string) (any, error) {
	return forWeb(o.report(ctx, name, from, to))
}

// ReportList is a page of one of a report's top lists.
func (o *operations) ReportList(ctx context.Context, name, list, from, to string, n int, after string) (any, error) {
	return forWeb(o.reportList(ctx, name, list, from, to, n, after))
}
