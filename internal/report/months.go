package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"postbit/internal/analytics"
)

// ByMonth is what is kept by month: all of it is of Months, whole.
type ByMonth struct {
	Months []string `json:"months"` // "2026-12", those that the range of days touches
	Exact  bool     `json:"exact"`  // the months hold nothing beside the range

	Delay   []Bucket `json:"delay"` // from the send to a person's first open; named by the lower bound, the first takes what is smaller
	Clients []Bucket `json:"clients"`
	Devices []Bucket `json:"devices"`
	Systems []Bucket `json:"systems"`

	// Of the pages of a site that bears this name.
	ScreenWidths   []Bucket `json:"screen_widths"` // in pixels, by the same rule as Delay
	BrowserWidths  []Bucket `json:"browser_widths"`
	BrowserHeights []Bucket `json:"browser_heights"`

	Links     []Value `json:"links"` // those that were followed
	Pages     []Value `json:"pages"`
	Referrers []Value `json:"referrers"`
	Terms     []Value `json:"terms"`
}

// Bucket is how often something was counted that is kept in ranges.
type Bucket struct {
	Name string `json:"name"`
	N    int64  `json:"n"`
}

// Value is a line of a top list. Value and Title come from outside, and may hold anything that is valid UTF-8.
type Value struct {
	Value string `json:"value"`
	Title string `json:"title,omitempty"` // of a page
	N     int64  `json:"n"`
}

func (s Sources) byMonth(ctx context.Context, q Query) (ByMonth, error) {
	m := ByMonth{Months: monthNames(q.Range), Exact: q.Range.whole(q.Now)}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		ranges, err := s.Counters.Ranges(ctx, q.Name, q.Range.From, q.Range.To)
		if err != nil {
			return err
		}
		for _, f := range []struct {
			field string
			to    *[]Bucket
		}{
			{analytics.DelayField, &m.Delay}, {analytics.ClientField, &m.Clients}, {analytics.DeviceField, &m.Devices}, {analytics.OSField, &m.Systems},
			{analytics.ScreenWidth, &m.ScreenWidths}, {analytics.BrowserWidth, &m.BrowserWidths}, {analytics.BrowserHeight, &m.BrowserHeights},
		} {
			*f.to = buckets(f.field, ranges[f.field])
		}
		return nil
	})
	for _, l := range []struct {
		kind analytics.ValueKind
		to   *[]Value
	}{{analytics.Links, &m.Links}, {analytics.Pages, &m.Pages}, {analytics.Referrers, &m.Referrers}, {analytics.Terms, &m.Terms}} {
		g.Go(func() error {
			page, err := s.Counters.TopValues(ctx, l.kind, q.Name, q.Range.From, q.Range.To, cmp.Or(q.Top, DefaultTop), analytics.PageKey{})
			*l.to = values(page.Values)
			return err
		})
	}
	err := g.Wait()
	return m, err
}

func monthNames(r Range) []string {
	names := []string{}
	for _, m := range r.Months() {
		names = append(names, m.Format("2006-01"))
	}
	return names
}

// buckets puts what was counted in order: sizes and delays in theirs, all of them where there is anything; names by
// frequency. What is unknown comes last.
func buckets(field string, counts map[string]int64) []Bucket {
	list := []Bucket{}
	if len(counts) == 0 {
		return list
	}
	if order := analytics.Buckets(field); order != nil {
		for _, name := range order {
			list = append(list, Bucket{name, counts[name]})
		}
		return list
	}
	for name, n := range counts {
		list = append(list, Bucket{name, n})
	}
	slices.SortFunc(list, func(a, b Bucket) int {
		if (a.Name == analytics.Unknown) != (b.Name == analytics.Unknown) {
			return map[bool]int{true: 1, false: -1}[a.Name == analytics.Unknown]
		}
		return cmp.Or(cmp.Compare(b.N, a.N), strings.Compare(a.Name, b.Name))
	})
	return list
}

func values(found []analytics.Value) []Value {
	list := make([]Value, len(found))
	for i, v := range found {
		list[i] = Value{Value: v.Value, Title: v.Title, N: v.N}
	}
	return list
}

// Lists are the top lists that can be paged through.
var Lists = []analytics.ValueKind{analytics.Links, analytics.Pages, analytics.Referrers, analytics.Terms}

// ErrList says that somebody asked for a list, a number of lines or a place in it that there is not.
var ErrList = errors.New("top list")

// List is a page of a top list, of the months that a range of days touches.
type List struct {
	Campaign string   `json:"campaign"`
	List     string   `json:"list"`
	From     string   `json:"from"`
	To       string   `json:"to"`
	Months   []string `json:"months"`
	Exact    bool     `json:"exact"`
	Values   []Value  `json:"values"`
	Next     string   `json:"next"` // where the next page begins; "": this was the last
}

// ListQuery says which page of a list is wanted.
type ListQuery struct {
	Query
	List  string
	After string // Next of the page before
}

// Page reads a page of a top list. Errors wrap ErrList or campaign.ErrNotFound where the question was wrong.
func (s Sources) Page(ctx context.Context, q ListQuery) (*List, error) {
	kind := analytics.ValueKind(q.List)
	if !slices.Contains(Lists, kind) {
		return nil, fmt.Errorf("%w: %.40q is none; links, pages, referrers, terms", ErrList, q.List)
	}
	if q.Top < 0 || q.Top > analytics.MaxTop {
		return nil, fmt.Errorf("%w: %d lines; 1 to %d", ErrList, q.Top, analytics.MaxTop)
	}
	after, err := analytics.ParsePageKey(q.After)
	if err != nil {
		return nil, fmt.Errorf("%w: after: %w", ErrList, err)
	}
	if !name.MatchString(q.Name) {
		return nil, unknown(q.Name)
	}
	page, err := s.Counters.TopValues(ctx, kind, q.Name, q.Range.From, q.Range.To, cmp.Or(q.Top, DefaultTop), after)
	if err != nil {
		return nil, err
	}
	if len(page.Values) == 0 {
		if err := s.known(ctx, q.Name); err != nil {
			return nil, err
		}
	}
	return &List{Campaign: q.Name, List: q.List, From: q.Range.From.Format(time.DateOnly), To: q.Range.To.Format(time.DateOnly),
		Months: monthNames(q.Range), Exact: q.Range.whole(q.Now), Values: values(page.Values), Next: page.Next.String()}, nil
}
