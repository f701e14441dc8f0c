// Package report gathers what is known about a campaign, or about a site, over a range of days into one value. It renders
// nothing: the command line and the API show the same Report.
//
// The model keeps some things by day and others by month (docs/analytics.md). What is kept by day is exact for any range.
// What is kept by month is of the months that the range touches, whole, and stands apart in Report.ByMonth, which says whether
// that makes a difference.
package report

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
)

// Runs are the campaigns and what they did; errors wrap campaign.ErrNotFound. *campaign.Store is one.
type Runs interface {
	Get(ctx context.Context, name string) (*campaign.Campaign, error)
	// RunsBetween are those whose slot lies in [from, until), the latest first, at most limit of them, and how many there are.
	RunsBetween(ctx context.Context, campaign string, from, until time.Time, limit int) ([]campaign.Run, int64, error)
}

// Sources are what a report is read from.
type Sources struct {
	Counters *analytics.Reader
	Runs     Runs
	Sites    map[string][]string // by name; a site has no mails but pages, and may bear the name of a campaign
}

// Query says what a report is about.
type Query struct {
	Name  string // of a campaign or a site, or analytics.All
	Range Range
	Now   time.Time
	Top   int // lines of each top list; 0: DefaultTop
}

// DefaultTop is how many lines a top list has where nobody says otherwise.
const DefaultTop = 10

// Report is one campaign over a range of days. Its JSON is a stable shape (docs/json.md, docs/openapi.yaml).
type Report struct {
	Campaign     string           `json:"campaign"`
	From         string           `json:"from"` // days, UTC, both included
	To           string           `json:"to"`
	Decided      int64            `json:"decided"` // sent + failed + unconfirmed + skipped
	Sent         int64            `json:"sent"`
	Failed       int64            `json:"failed"`
	Unconfirmed  int64            `json:"unconfirmed"`
	Skipped      map[string]int64 `json:"skipped"` // by campaign.SkipReasons
	Opens        Opens            `json:"opens"`
	Clicked      int64            `json:"clicked"`
	Unsubscribed int64            `json:"unsubscribed"`
	Bounced      int64            `json:"bounced"`
	Complained   int64            `json:"complained"`
	Hours        Hours            `json:"hours"`
	Days         []Day            `json:"days"`     // on which anything was counted
	Runs         []Run            `json:"runs"`     // the latest first, at most MaxRuns
	RunsAll      int64            `json:"runs_all"` // how many runs have their slot in the range
	ByMonth      ByMonth          `json:"by_month"`

	days Range
}

// Opens are loads of pixels, signs of life and users.
type Opens struct {
	Hits     int64 `json:"hits"` // human + proxy + prefetch + machine
	Human    int64 `json:"human"`
	Proxy    int64 `json:"proxy"`
	Prefetch int64 `json:"prefetch"`
	Machine  int64 `json:"machine"`
	Opened   int64 `json:"opened"` // those that count as a sign of life, clicks included
	Unique   int64 `json:"unique"` // users
}

// Hours are counts by hour of the day, UTC, summed over the range.
type Hours struct {
	Hits   [24]int64 `json:"hits"`
	Opened [24]int64 `json:"opened"`
}

// Day is what was counted on a day by metric of the model.
type Day struct {
	Day     string           `json:"day"`
	Metrics map[string]int64 `json:"metrics"`
}

// Run is a run whose slot lies in the range. While it is not finished its counts are those of the reconciler's last look.
type Run struct {
	ID     string            `json:"run"`
	State  campaign.RunState `json:"state"`
	Paused string            `json:"paused"` // the reason; "": not paused
	Slot   time.Time         `json:"slot"`
	Counts campaign.Counts   `json:"counts"`
}

// MaxRuns is how many runs a report has, the latest ones of its range.
const MaxRuns = 50

// name is what a campaign or a site may be called. Anything else is not even asked for: it would be read as a part of an _id.
var name = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// Gather reads a report. The error wraps campaign.ErrNotFound where nobody ever heard of the name.
func (s Sources) Gather(ctx context.Context, q Query) (*Report, error) {
	if !name.MatchString(q.Name) {
		return nil, unknown(q.Name)
	}
	r := &Report{Campaign: q.Name, From: q.Range.From.Format(time.DateOnly), To: q.Range.To.Format(time.DateOnly),
		Skipped: map[string]int64{}, Days: []Day{}, days: q.Range}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.days(gctx, r) })
	g.Go(func() (err error) { r.ByMonth, err = s.byMonth(gctx, q); return err })
	g.Go(func() (err error) { r.Runs, r.RunsAll, err = s.runs(gctx, q); return err })
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("report of %s: %w", q.Name, err)
	}
	if len(r.Days) == 0 {
		if err := s.known(ctx, q.Name); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// known tells a name that was idle from one that never was.
func (s Sources) known(ctx context.Context, asked string) error {
	if asked == analytics.All || s.Sites[asked] != nil {
		return nil
	}
	_, err := s.Runs.Get(ctx, asked)
	if errors.Is(err, campaign.ErrNotFound) {
		return unknown(asked)
	}
	return err
}

func unknown(asked string) error {
	return fmt.Errorf("%.80q is no campaign and no site: %w; `postbit campaigns list` shows the campaigns", asked, campaign.ErrNotFound)
}

func (s Sources) days(ctx context.Context, r *Report) error {
	days, err := s.Counters.Daily(ctx, r.Campaign, r.days.From, r.days.To)
	if err != nil {
		return err
	}
	total := map[string]int64{}
	var opened []time.Time // days with anything in their hours
	for _, d := range days {
		if len(d.Metrics) == 0 {
			continue
		}
		r.Days = append(r.Days, Day{Day: d.Day.Format(time.DateOnly), Metrics: d.Metrics})
		for metric, n := range d.Metrics {
			total[metric] += n
		}
		if d.Metrics[analytics.Hits] != 0 || d.Metrics[analytics.Opened] != 0 {
			opened = append(opened, d.Day)
		}
	}
	r.fill(total)
	return s.hours(ctx, r, opened)
}

func (r *Report) fill(total map[string]int64) {
	r.Sent, r.Failed, r.Unconfirmed = total["sent"], total["failed"], total["unconfirmed"]
	r.Decided = r.Sent + r.Failed + r.Unconfirmed
	for _, reason := range campaign.SkipReasons {
		n := total[analytics.Skipped+reason]
		r.Skipped[reason] = n
		r.Decided += n
	}
	r.Clicked, r.Unsubscribed, r.Bounced = total[analytics.Clicked], total[analytics.Unsubscribed], total[analytics.Bounced]
	r.Complained = total[analytics.Complained]
	r.Opens = Opens{
		Hits: total[analytics.Hits], Opened: total[analytics.Opened], Unique: total[analytics.OpenedUnique],
		Human: total[analytics.OpenedKind+"human"], Proxy: total[analytics.OpenedKind+"proxy"],
		Prefetch: total[analytics.OpenedKind+"prefetch"], Machine: total[analytics.OpenedKind+"machine"],
	}
}

// hours sums the hours of the days that have any. Neighbouring days are one question.
func (s Sources) hours(ctx context.Context, r *Report, days []time.Time) error {
	for len(days) > 0 {
		n := 1
		for n < len(days) && days[n].Equal(days[n-1].AddDate(0, 0, 1)) {
			n++
		}
		for metric, hours := range map[string]*[24]int64{analytics.Hits: &r.Hours.Hits, analytics.Opened: &r.Hours.Opened} {
			counts, err := s.Counters.Hours(ctx, r.Campaign, metric, days[0], days[n-1])
			if err != nil {
				return err
			}
			for _, c := range counts {
				hours[c.At.Hour()] += c.N
			}
		}
		days = days[n:]
	}
	return nil
}

func (s Sources) runs(ctx context.Context, q Query) (runs []Run, all int64, err error) {
	runs = []Run{}
	if q.Name == analytics.All {
		return runs, 0, nil
	}
	latest, all, err := s.Runs.RunsBetween(ctx, q.Name, q.Range.From, q.Range.To.AddDate(0, 0, 1), MaxRuns)
	if err != nil {
		return nil, 0, err
	}
	for i := range latest {
		r := &latest[i]
		c := r.Counts
		c.Skipped = map[string]int64{}
		for _, reason := range campaign.SkipReasons {
			c.Skipped[reason] = r.Counts.Skipped[reason]
		}
		runs = append(runs, Run{ID: r.ID, State: r.State, Paused: r.Paused, Slot: r.Slot.UTC(), Counts: c})
	}
	return runs, all, nil
}

// Month is the sum of the days of a range that are in one month.
type Month struct {
	Month    string // "2026-12"
	From, To string // the days of it that are in the range
	Partly   bool   // other days of it are not
	Metrics  map[string]int64
}

// Months sums the days by month, all months of the range in order.
func (r *Report) Months() []Month {
	var months []Month
	for _, m := range r.days.Months() {
		first, last := m, m.AddDate(0, 1, -1)
		if first.Before(r.days.From) {
			first = r.days.From
		}
		if last.After(r.days.To) {
			last = r.days.To
		}
		partly := first.Day() != 1 || last.AddDate(0, 0, 1).Day() != 1
		months = append(months, Month{Month: m.Format("2006-01"), Partly: partly, From: first.Format(time.DateOnly), To: last.Format(time.DateOnly), Metrics: map[string]int64{}})
	}
	for _, d := range r.Days {
		i := slices.IndexFunc(months, func(m Month) bool { return m.Month == d.Day[:len("2006-01")] })
		for metric, n := range d.Metrics {
			months[i].Metrics[metric] += n
		}
	}
	return months
}

// EveryDay are the days of the range in order, also those on which nothing was counted.
func (r *Report) EveryDay() []Day {
	known := make(map[string]map[string]int64, len(r.Days))
	for _, d := range r.Days {
		known[d.Day] = d.Metrics
	}
	var days []Day
	for d := r.days.From; !d.After(r.days.To); d = d.AddDate(0, 0, 1) {
		day := d.Format(time.DateOnly)
		days = append(days, Day{day, known[day]})
	}
	return days
}
