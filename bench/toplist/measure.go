package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/analytics"
)

const (
	pageSize = 15
	deepPage = 1000
)

var pageNames = []string{"top 15", "page 1,000, by key", "in the middle of the tail, by key", "page 1,000, by skip (for comparison)"}

// measure reads the pages. A server that is asked for the first time has nothing in its cache, so that time is among the longest.
func measure(ctx context.Context, db *mongo.Database, seen *finds, o settings, middle string, r *result) error {
	reader := analytics.NewReader(db)
	page := func(after analytics.PageKey) (analytics.TopPage, error) {
		return reader.TopValues(ctx, analytics.Pages, sid, month, month, pageSize, after)
	}
	at := func(name string, after analytics.PageKey) (err error) {
		seen.clear()
		if _, err := page(after); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if r.Plans[name], err = seen.explain(ctx, db); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.Pages[name], err = timed(o.repeat, func() error { _, err := page(after); return err })
		return err
	}
	if err := at(pageNames[0], analytics.PageKey{}); err != nil {
		return err
	}
	r.Heap["first"] = heap()
	var after analytics.PageKey
	rank := 0
	for n := 1; n < deepPage && (n == 1 || after != analytics.PageKey{}); n++ {
		p, err := page(after)
		if err != nil {
			return err
		}
		for _, v := range p.Values {
			if rank++; v.N != int64(views(o.values, rank)) {
				return fmt.Errorf("rank %d is %+v; want %d", rank, v, views(o.values, rank))
			}
		}
		after = p.Next
	}
	if err := at(pageNames[1], after); err != nil {
		return err
	}
	r.Heap["last"] = heap()
	if err := at(pageNames[2], analytics.PageKey{N: 1, ID: middle}); err != nil {
		return err
	}
	var err error
	r.Pages[pageNames[3]], err = timed(o.repeat, func() error {
		cur, err := db.Collection(collection).Find(ctx, bson.D{{Key: "sid", Value: sid}}, options.Find().SetSort(bson.D{{Key: "v", Value: -1}}).SetSkip((deepPage-1)*pageSize).SetLimit(pageSize))
		if err != nil {
			return err
		}
		var docs []bson.Raw
		return cur.All(ctx, &docs)
	})
	return err
}

func timed(n int, f func() error) (times, error) {
	var all []time.Duration
	for range n {
		begin := time.Now()
		if err := f(); err != nil {
			return times{}, err
		}
		all = append(all, time.Since(begin))
	}
	slices.Sort(all)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return times{ms(all[n/2]), ms(all[n-1])}, nil
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// finds remembers the find commands that the reader sends, so that the very same can be explained.
type finds struct {
	mu       sync.Mutex
	commands []bson.Raw
}

func (f *finds) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if e.CommandName == "find" && len(f.commands) < 30 {
			f.commands = append(f.commands, slices.Clone(e.Command))
		}
	}}
}

func (f *finds) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commands = nil
}

func (f *finds) explain(ctx context.Context, db *mongo.Database) ([]way, error) {
	f.mu.Lock()
	commands := f.commands
	f.mu.Unlock()
	var ways []way
	for _, c := range distinct(commands) {
		elements, err := c.Elements()
		if err != nil {
			return nil, err
		}
		var find bson.D
		for _, e := range elements {
			if !strings.HasPrefix(e.Key(), "$") && e.Key() != "lsid" {
				find = append(find, bson.E{Key: e.Key(), Value: e.Value()})
			}
		}
		answer, err := db.RunCommand(ctx, bson.D{{Key: "explain", Value: find}, {Key: "verbosity", Value: "executionStats"}}).Raw()
		if err != nil {
			return nil, fmt.Errorf("explain: %w", err)
		}
		stats := func(field string) int64 {
			n, _ := answer.Lookup("executionStats", field).AsInt64OK()
			return n
		}
		plan, _ := answer.Lookup("queryPlanner", "winningPlan").DocumentOK()
		ways = append(ways, way{strings.Join(stagesOf(plan), "<"), stats("totalKeysExamined"), stats("totalDocsExamined"), stats("nReturned")})
	}
	return ways, nil
}

// distinct leaves one command of each shape, the last one: some servers take as long as a scan to explain anything.
func distinct(commands []bson.Raw) []bson.Raw {
	last := map[string]int{}
	for i, c := range commands {
		last[shape(c)] = i
	}
	var left []bson.Raw
	for i, c := range commands {
		if last[shape(c)] == i {
			left = append(left, c)
		}
	}
	return left
}

// shape is which fields a find asks for, by which operators.
func shape(find bson.Raw) string {
	filter, _ := find.Lookup("filter").DocumentOK()
	elements, _ := filter.Elements()
	var b strings.Builder
	for _, e := range elements {
		b.WriteString(e.Key() + " ")
		operators, _ := e.Value().DocumentOK()
		list, _ := operators.Elements()
		for _, o := range list {
			b.WriteString(o.Key() + " ")
		}
	}
	return b.String()
}

// stagesOf are the stages of a plan from the outermost to the innermost, with the name of an index where one is used.
func stagesOf(plan bson.Raw) []string {
	if len(plan) == 0 {
		return nil
	}
	name, _ := plan.Lookup("stage").StringValueOK()
	if index, ok := plan.Lookup("indexName").StringValueOK(); ok {
		name += "(" + index + ")"
	}
	inner, _ := plan.Lookup("inputStage").DocumentOK()
	return append([]string{name}, stagesOf(inner)...)
}
