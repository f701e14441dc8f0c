package analytics

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// topOfMonths merges the lists of several months: it walks down all of them at once, asks for each value that it meets what
// the other months have of it, and stops when no value that was not met can belong to the page any more (a value that
// is below the heads of all lists has at most their sum). What it holds is what it met.
func (r *Reader) topOfMonths(ctx context.Context, kind ValueKind, sid string, months []string, n int, after PageKey) (TopPage, error) {
	m := merge{found: map[string]Value{}}
	for _, month := range months {
		m.lists = append(m.lists, &monthList{topList: topList{coll: r.db.Collection(ValuesCollection(kind, month)), sid: sid}, reader: r, kind: kind, month: month})
	}
	for step := max(n, 100); ; step = min(2*step, MaxTop) {
		bound, err := m.walk(ctx, step)
		if err != nil {
			return TopPage{}, err
		}
		values := m.ordered(after)
		if bound == 0 || len(values) > n && values[n].N > bound {
			return cutPage(values, n), nil
		}
	}
}

// merge is the walk down the lists of several months.
type merge struct {
	lists []*monthList
	found map[string]Value // by value
}

// monthList is one of them, read page by page.
type monthList struct {
	topList
	reader *Reader
	kind   ValueKind
	month  string
	next   PageKey
	over   bool
}

// walk reads the next page of every list, and returns how often a value may have been counted that was not met.
func (m *merge) walk(ctx context.Context, step int) (bound int64, err error) {
	for i, l := range m.lists {
		if l.over {
			continue
		}
		page, err := l.reader.topOfMonth(ctx, l.kind, l.sid, l.month, step, l.next)
		if err != nil {
			return 0, err
		}
		l.next, l.over = page.Next, page.Next == PageKey{}
		var met []Value
		for _, v := range page.Values {
			if _, known := m.found[v.Value]; !known {
				v.Days = nil
				met = append(met, v)
			}
		}
		for j, other := range m.lists {
			if i != j && len(met) > 0 {
				if err := other.addTo(ctx, met); err != nil {
					return 0, err
				}
			}
		}
		for _, v := range met {
			m.found[v.Value] = v
		}
	}
	for _, l := range m.lists {
		bound += l.next.N // 0 where the list is over
	}
	return bound, nil
}

// addTo adds what this month has of the values.
func (l *monthList) addTo(ctx context.Context, values []Value) error {
	var ids []string
	for _, v := range values {
		base, _, _ := strings.Cut(v.ID, "~")
		ids = append(ids, sameHash(base)...)
	}
	for part := range slices.Chunk(ids, 1000) {
		there, err := l.find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: part}}}}, options.Find())
		if err != nil {
			return fmt.Errorf("%s: %w", l.month, err)
		}
		byValue := make(map[string]Value, len(there))
		for _, v := range there {
			byValue[v.Value] = v
		}
		for i := range values {
			if v, ok := byValue[values[i].Value]; ok {
				values[i].N += v.N
				values[i].ID = min(values[i].ID, v.ID) // the same from whichever month it was met
				values[i].Title = cmp.Or(values[i].Title, v.Title)
			}
		}
	}
	return nil
}

// ordered are the values that were met behind a page key.
func (m *merge) ordered(after PageKey) []Value {
	var values []Value
	for _, v := range m.found {
		if after.N == 0 || byFrequency(v, Value{N: after.N, ID: after.ID}) > 0 {
			values = append(values, v)
		}
	}
	slices.SortFunc(values, byFrequency)
	return values
}
