package worker

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/minimongo/mongotest"
)

// oddIDs holds an _id of every type that can be one, in MongoDB's order.
func oddIDs() []any {
	dec := func(s string) bson.Decimal128 {
		d, err := bson.ParseDecimal128(s)
		if err != nil {
			panic(err)
		}
		return d
	}
	return []any{
		bson.MinKey{},
		nil,
		math.NaN(), math.Inf(-1), dec("-1E+400"), int64(math.MinInt64), -1.5, int32(0), dec("0.5"), int64(1), 2.5, int64(math.MaxInt64), math.Inf(1),
		"", "a", "a\x00b", "b", "ünï",
		bson.D{}, bson.D{{Key: "a", Value: 1}}, bson.D{{Key: "a", Value: 2}}, bson.D{{Key: "b", Value: "x"}},
		bson.Binary{}, bson.Binary{Data: []byte{1}}, bson.Binary{Subtype: 4, Data: make([]byte, 16)},
		bson.ObjectID{}, bson.ObjectID{1}, bson.ObjectID{255},
		false, true,
		yearOne - 1, yearOne, bson.DateTime(-1), bson.DateTime(0), bson.DateTime(1 << 40),
		bson.Timestamp{}, bson.Timestamp{T: 1, I: 2},
		bson.MaxKey{},
	}
}

// insertOdd inserts the odd ids, from the last to the first, and returns those that are there. Another server than minimongo may
// know no dates outside of its calendar; and SecantusDB sorts binary data by length, as MongoDB does, but compares it by bytes.
func (p *planning) insertOdd() []any {
	p.t.Helper()
	ids := oddIDs()
	other := os.Getenv(mongotest.EnvURI) != ""
	for i := len(ids) - 1; i >= 0; i-- {
		if b, ok := ids[i].(bson.Binary); ok && other && len(b.Data) < 16 {
			ids = slices.Delete(ids, i, i+1)
			continue
		}
		_, err := p.users.InsertOne(p.ctx, bson.D{{Key: "_id", Value: ids[i]}})
		if err != nil && other {
			ids = slices.Delete(ids, i, i+1)
			continue
		}
		p.ok(err)
	}
	return ids
}

func TestPlanWalksTypeByType(t *testing.T) {
	p := newPlanning(t)
	ids := p.insertOdd()
	r := p.start("x", "{}", testStart)
	p.handle(p.planner(0), r)
	batches, ended := p.plan(r)
	got := slices.Concat(batches...)
	if !ended || len(got) != len(ids) {
		t.Fatalf("%d of %d users, ended %v: %v", len(got), len(ids), ended, got)
	}
	for i, id := range ids {
		if want := rawID(id); !got[i].Equal(want) {
			t.Errorf("user %d is %s, want %s", i, got[i], want)
		}
	}
	for _, b := range batches { // what a worker loads by one range of _id
		for _, id := range b {
			if classOf(id) != classOf(b[0]) {
				t.Fatalf("%s and %s in one batch", b[0], id)
			}
		}
	}
}

// TestPlanResumesBehindAnyID stops after every batch, with users of all types, until the plan ends: everybody is in it once.
func TestPlanResumesBehindAnyID(t *testing.T) {
	p := newPlanning(t)
	var many []any
	for i := range 1300 { // so that a class has several batches
		many = append(many, bson.ObjectID{2, byte(i >> 8), byte(i)}, fmt.Sprintf("u%04d", i))
	}
	p.insert(many...)
	ids := append(p.insertOdd(), many...)
	r := p.start("x", "{}", testStart)
	pl := p.planner(1)
	seen := map[string]int{}
	for n := 1; ; n++ {
		if n > 50 {
			t.Fatal("the plan does not end")
		}
		p.handle(pl, r)
		batches, ended := p.plan(r)
		if ended {
			for _, id := range slices.Concat(batches...) {
				seen[id.String()]++
			}
			break
		}
		if len(batches) != n {
			t.Fatalf("%d batches after %d calls", len(batches), n)
		}
		p.visit(r, n)
	}
	for id, times := range seen {
		if times != 1 {
			t.Errorf("%s is planned %d times", id, times)
		}
	}
	if len(seen) != len(ids) {
		t.Fatalf("%d of %d users", len(seen), len(ids))
	}
}

func TestPlanLongIDs(t *testing.T) {
	p := newPlanning(t)
	var ids []any
	for i := range 200 {
		ids = append(ids, fmt.Sprintf("%04d", i)+strings.Repeat("x", 1000))
	}
	p.insert(ids...)
	r := p.start("x", "{}", testStart)
	p.handle(p.planner(0), r)
	batches, ended := p.plan(r)
	if d := cmp.Diff([]int{64, 64, 64, 8}, sizes(batches)); d != "" || !ended {
		t.Fatal(ended, d)
	}
}

// TestPlanLeavesOutAnIDThatFitsNoBatch is done without a server: not every one takes such an id.
func TestPlanLeavesOutAnIDThatFitsNoBatch(t *testing.T) {
	p := newPlanning(t)
	r := p.start("x", "{}", testStart)
	c := &cutter{planner: p.planner(0), run: r, room: 1}
	large := rawID(strings.Repeat("b", campaign.MaxBatchIDBytes))
	for _, id := range []bson.RawValue{rawID("a"), large, rawID("c"), large} {
		p.ok(c.add(p.ctx, id))
	}
	p.ok(p.batches.EnsureIndexes(p.ctx, r.Slot))
	p.ok(c.flush(p.ctx))
	batches, _ := p.plan(r)
	if d := cmp.Diff([]int{2}, sizes(batches)); d != "" || strings.Count(p.log.String(), "a user is left out") != 2 || !c.last.Equal(large) {
		t.Fatal(d, p.log.String())
	}
}

// A server that sorts by another order than it compares by would have users planned twice: the planner stops, and says so.
func TestPlanRefusesIDsThatDoNotAscend(t *testing.T) {
	binary := func(subtype byte, b ...byte) any { return bson.Binary{Subtype: subtype, Data: b} }
	for _, c := range []struct {
		name string
		a, b any
		want bool
	}{
		{"numbers", int32(1), int32(2), true},
		{"numbers, back", int64(2), int64(1), false},
		{"numbers of two types, back", 2.5, int32(1), false},
		{"numbers of two types", int64(2), 2.5, true},
		{"numbers that are not the same as a double", int64(1<<60 + 1), float64(1 << 60), true},
		{"the same string", "a", "a", false},
		{"strings go by a collation", "b", "A", true},
		{"ObjectIDs", bson.ObjectID{1}, bson.ObjectID{2}, true},
		{"ObjectIDs, back", bson.ObjectID{2}, bson.ObjectID{1}, false},
		{"a longer binary first in bytes", binary(0, 9), binary(0, 1, 1), true},
		{"a shorter one behind it", binary(0, 1, 1), binary(0, 9), false},
		{"subtypes before bytes", binary(0, 9), binary(4, 1), true},
		{"old subtypes count an inner length", binary(0, 1, 1), binary(2, 1), true},
		{"dates", bson.DateTime(-1), bson.DateTime(-2), false},
		{"a type that is not compared here", bson.Timestamp{T: 2}, bson.Timestamp{T: 1}, true},
	} {
		if got := ascends(rawID(c.a), rawID(c.b)); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
	p := newPlanning(t)
	r := p.start("x", "{}", testStart)
	c := &cutter{planner: p.planner(0), run: r, room: 9, last: rawID(int32(7))}
	if err := c.add(p.ctx, rawID(int32(7))); !errors.Is(err, errOrder) || !refused(err) {
		t.Errorf("the same id again: %v", err)
	}
	p.ok(p.batches.Insert(p.ctx, r, 1, []bson.RawValue{rawID(int32(7))}))
	p.ok(c.planner.refuse(p.ctx, r, 1, errOrder))
	now, err := p.runs.Run(p.ctx, r.ID)
	p.ok(err)
	if !strings.Contains(now.Paused, "does not sort") {
		t.Errorf("paused: %q", now.Paused)
	}
	p.clk.Advance(time.Hour)
	p.ok(c.planner.refuse(p.ctx, r, 1, errOrder))
	if _, ended := p.plan(r); !ended {
		t.Error("it has expired, and its plan is not closed")
	}
}
