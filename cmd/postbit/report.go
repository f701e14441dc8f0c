package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/config"
	"postbit/internal/web"
)

type reportCmd struct {
	Campaign string `arg:"" help:"Name of a campaign, or all."`
	From     string `placeholder:"DATE" help:"First day, UTC; 29 days before the last one otherwise."`
	To       string `placeholder:"DATE" help:"Last day, UTC; today otherwise."`
	CSV      bool   `name:"csv" help:"One line per day and metric."`
}

func (reportCmd) Help() string {
	return `Examples:

    postbit report winback
    postbit report winback --from 2026-12-01 --to 2026-12-24 --csv`
}

func (c reportCmd) Run(ctx context.Context, a *app) error {
	return a.withGraph(ctx, config.Needs{Mongo: true}, func(g *graph) error {
		r, err := (&operations{graph: g}).report(ctx, c.Campaign, c.From, c.To)
		switch {
		case err != nil:
			return err
		case c.CSV:
			return r.writeCSV(g.out)
		case g.json:
			return g.printJSON(r)
		}
		return r.print(g.out)
	})
}

// reportJSON are the counts of a campaign over a range of days.
type reportJSON struct {
	Campaign     string           `json:"campaign"`
	From         string           `json:"from"`
	To           string           `json:"to"`
	Sent         int64            `json:"sent"`
	Failed       int64            `json:"failed"`
	Unconfirmed  int64            `json:"unconfirmed"`
	Skipped      map[string]int64 `json:"skipped"`
	Opens        opensJSON        `json:"opens"`
	Clicked      int64            `json:"clicked"`
	Unsubscribed int64            `json:"unsubscribed"`
	Bounced      int64            `json:"bounced"`
	Days         []reportDayJSON  `json:"days"`
}

type opensJSON struct {
	Hits     int64 `json:"hits"` // human + proxy + prefetch + machine
	Human    int64 `json:"human"`
	Proxy    int64 `json:"proxy"`
	Prefetch int64 `json:"prefetch"`
	Machine  int64 `json:"machine"`
	Opened   int64 `json:"opened"` // those that count as a sign of life, clicks included
	Unique   int64 `json:"unique"` // users
}

type reportDayJSON struct {
	Day     string           `json:"day"`
	Metrics map[string]int64 `json:"metrics"`
}

// report reads a campaign's days; from and to are dates, "" for the last 30 days.
func (o *operations) report(ctx context.Context, name, from, to string) (*reportJSON, error) {
	end, err := parseDay("to", to, o.clk.Now())
	if err != nil {
		return nil, err
	}
	begin, err := parseDay("from", from, end.AddDate(0, 0, -29))
	if err != nil {
		return nil, err
	}
	if end.Before(begin) {
		return nil, &exitError{exitUsage, fmt.Errorf("%w: the range ends (%s) before it begins (%s)", web.ErrInvalid, end.Format(time.DateOnly), begin.Format(time.DateOnly))}
	}
	days, err := o.reader.Daily(ctx, name, begin, end)
	if err != nil {
		return nil, err
	}
	r := &reportJSON{Campaign: name, From: begin.Format(time.DateOnly), To: end.Format(time.DateOnly), Skipped: map[string]int64{}, Days: []reportDayJSON{}}
	total := map[string]int64{}
	for _, d := range days {
		if len(d.Metrics) == 0 {
			continue
		}
		r.Days = append(r.Days, reportDayJSON{Day: d.Day.Format(time.DateOnly), Metrics: d.Metrics})
		for metric, n := range d.Metrics {
			total[metric] += n
		}
	}
	if len(r.Days) == 0 && name != analytics.All {
		if _, err := o.campaigns.Get(ctx, name); err != nil { // a name that never was, rather than one that was idle
			return nil, err
		}
	}
	r.fill(total)
	return r, nil
}

func (r *reportJSON) fill(total map[string]int64) {
	for _, reason := range campaign.SkipReasons {
		r.Skipped[reason] = total[analytics.Skipped+reason]
	}
	r.Sent, r.Failed, r.Unconfirmed = total["sent"], total["failed"], total["unconfirmed"]
	r.Clicked, r.Unsubscribed, r.Bounced = total[analytics.Clicked], total[analytics.Unsubscribed], total["bounced"]
	r.Opens = opensJSON{
		Hits: total[analytics.Hits], Opened: total[analytics.Opened], Unique: total[analytics.OpenedUnique],
		Human: total[analytics.OpenedKind+"human"], Proxy: total[analytics.OpenedKind+"proxy"],
		Prefetch: total[analytics.OpenedKind+"prefetch"], Machine: total[analytics.OpenedKind+"machine"],
	}
}

func parseDay(what, text string, otherwise time.Time) (time.Time, error) {
	if text == "" {
		return otherwise.UTC().Truncate(24 * time.Hour), nil
	}
	day, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return day, &exitError{exitUsage, fmt.Errorf("%w: %s: %q is no date such as 2026-12-01", web.ErrInvalid, what, text)}
	}
	return day, nil
}

func (o *operations) Report(ctx context.Context, name, from, to string) (any, error) {
	return forWeb(o.report(ctx, name, from, to))
}

func (r *reportJSON) print(w io.Writer) error {
	t := table{header: []string{strings.ToUpper(r.Campaign), r.From + " to " + r.To, "OF SENT"}}
	line := func(name string, n int64) { t.add(name, count(n), percent(n, r.Sent)) }
	line("sent", r.Sent)
	line("failed", r.Failed)
	line("unconfirmed", r.Unconfirmed)
	for _, reason := range campaign.SkipReasons {
		if n := r.Skipped[reason]; n > 0 {
			t.add("skipped "+reason, count(n), "")
		}
	}
	line("opened by (unique)", r.Opens.Unique)
	line("hits", r.Opens.Hits)
	line("  human", r.Opens.Human)
	line("  proxy", r.Opens.Proxy)
	line("  prefetch", r.Opens.Prefetch)
	line("  machine", r.Opens.Machine)
	line("clicked", r.Clicked)
	line("unsubscribed", r.Unsubscribed)
	line("bounced", r.Bounced)
	return t.print(w)
}

func percent(n, of int64) string {
	if of == 0 {
		return ""
	}
	return strconv.FormatFloat(100*float64(n)/float64(of), 'f', 1, 64) + "%"
}

func (r *reportJSON) writeCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"day", "campaign", "metric", "n"}) // errors come with Flush
	for _, d := range r.Days {
		for _, metric := range sortedKeys(d.Metrics) {
			_ = out.Write([]string{d.Day, r.Campaign, metric, strconv.FormatInt(d.Metrics[metric], 10)})
		}
	}
	out.Flush()
	return out.Error()
}

// printCounts shows the funnel of a run.
func printCounts(w io.Writer, c campaign.Counts) error {
	t := table{header: []string{"USERS", "", "OF AUDIENCE"}}
	line := func(name string, n int64) { t.add(name, count(n), percent(n, c.Audience)) }
	line("audience", c.Audience)
	line("checked", c.Checked)
	for _, reason := range campaign.SkipReasons {
		if n := c.Skipped[reason]; n > 0 {
			line("  skipped "+reason, n)
		}
	}
	if c.Deferred > 0 {
		line("  deferred", c.Deferred)
	}
	line("  failed", c.Failed)
	line("  unconfirmed", c.Unconfirmed)
	line("  sent", c.Sent)
	if c.UnknownZone > 0 {
		t.add("in the default zone", count(c.UnknownZone), "")
	}
	return t.print(w)
}
