package analytics

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// ValueKind is what a top list is of; it begins the names of its collections.
type ValueKind string

// The kinds of top lists. Links are counted for campaigns, the others for sites.
const (
	Pages     ValueKind = "pages"
	Referrers ValueKind = "referrers"
	Terms     ValueKind = "terms"
	Links     ValueKind = "links"
)

// ValuesCollection is where the values of a month are kept: "pages.2026.12".
func ValuesCollection(kind ValueKind, month string) string { return string(kind) + "." + month }

// Value is a line of a top list.
type Value struct {
	ID    string // the document's _id; of the first month in which it was seen, where several were asked for
	Value string // OtherValues for what came when there was no room for more
	Title string
	N     int64
	Days  map[int]int64 // by day of the month, where days are counted; nil over several months
}

// PageKey is where a page of a top list ended. The zero value is the beginning.
type PageKey struct {
	N  int64
	ID string
}

// String gives a key as a query parameter: "17:shop:0123456789abcdef".
func (k PageKey) String() string {
	if k == (PageKey{}) {
		return ""
	}
	return strconv.FormatInt(k.N, 10) + ":" + k.ID
}

// ParsePageKey reads what String gives.
func ParsePageKey(s string) (PageKey, error) {
	if s == "" {
		return PageKey{}, nil
	}
	var k PageKey
	if i := slices.Index([]byte(s), ':'); i > 0 {
		n, err := strconv.ParseInt(s[:i], 10, 64)
		if err == nil && n > 0 && i+1 < len(s) && len(s) < 2*MaxIDBytes {
			k = PageKey{n, s[i+1:]}
		}
	}
	if k == (PageKey{}) {
		return k, fmt.Errorf("%.80q is no place in a list; take the one that the page before gave", s)
	}
	return k, nil
}

// TopPage is a page of a top list, most frequent first, and by _id where two are as frequent.
type TopPage struct {
	Values []Value
	Next   PageKey // zero: this was the last page
}

// MaxTop is the longest page.
const MaxTop = 1000

// TopValues returns n values of a campaign or site (at most MaxTop) in the months from..to, both included, from a page key on. The
// lists of several months are merged, which takes longer the deeper the page is.
func (r *Reader) TopValues(ctx context.Context, kind ValueKind, sid string, from, to time.Time, n int, after PageKey) (TopPage, error) {
	months, err := monthsOf(from, to)
	if err != nil {
		return TopPage{}, err
	}
	n = min(max(n, 1), MaxTop)
	var page TopPage
	if len(months) == 1 {
		page, err = r.topOfMonth(ctx, kind, sid, months[0], n, after)
	} else {
		page, err = r.topOfMonths(ctx, kind, sid, months, n, after)
	}
	if err != nil {
		return TopPage{}, fmt.Errorf("top %s of %s: %w", kind, sid, err)
	}
	return page, nil
}

// maxReportMonths bounds what is merged: ten years.
const maxReportMonths = 120

func monthsOf(from, to time.Time) ([]string, error) {
	from, to = from.UTC(), to.UTC()
	first := time.Date(from.Year(), from.Month(), 1, 0, 0, 0, 0, time.UTC)
	if to.Before(from) {
		return nil, fmt.Errorf("a range of months that ends (%s) before it begins (%s)", Month(to), Month(from))
	}
	var months []string
	for m := first; !m.After(to); m = m.AddDate(0, 1, 0) {
		if len(months) == maxReportMonths {
			return nil, fmt.Errorf("more than %d months", maxReportMonths)
		}
		months = append(months, Month(m))
	}
	return months, nil
}

// valueDoc is a document of a top list.
type valueDoc struct {
	ID    string        `bson:"_id"`
	Value string        `bson:"k"`
	Title string        `bson:"t"`
	N     bson.RawValue `bson:"v"`
	Days  bson.Raw      `bson:"d"`
}

func (d *valueDoc) value() Value {
	v := Value{ID: d.ID, Value: d.Value, Title: d.Title, N: number(d.N)}
	if len(d.Days) > 0 {
		v.Days = map[int]int64{}
		eachNumbered(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: d.Days}, 32, func(day int, n bson.RawValue) { v.Days[day] = number(n) })
	}
	return v
}

// byFrequency is the order of a top list.
func byFrequency(a, b Value) int {
	if c := cmp.Compare(b.N, a.N); c != 0 {
		return c
	}
	return cmp.Compare(a.ID, b.ID)
}

// topOfMonth reads one page.
func (r *Reader) topOfMonth(ctx context.Context, kind ValueKind, sid, month string, n int, after PageKey) (TopPage, error) {
	l := &topList{coll: r.db.Collection(ValuesCollection(kind, month)), sid: sid}
	values, err := l.page(ctx, after, n+1)
	if err != nil {
		return TopPage{}, err
	}
	return cutPage(values, n), nil
}

// cutPage takes n values of at least as many, and remembers where the page ended if there are more.
func cutPage(values []Value, n int) TopPage {
	if len(values) <= n {
		return TopPage{Values: values}
	}
	last := values[n-1]
	return TopPage{Values: values[:n], Next: PageKey{last.N, last.ID}}
}
