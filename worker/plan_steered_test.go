package worker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/queue"
)

// steered lets a test steer the run just before batch n is inserted.
type steered struct {
	PlanBatches
	n  int
	do func()
}

func (s steered) Insert(ctx context.Context, run *campaign.Run, n int, ids []bson.RawValue) error {
	err := s.PlanBatches.Insert(ctx, run, n, ids)
	if n == s.n {
		s.do()
	}
	return err
}

func TestPlanStopsWhenTheRunIsSteered(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(p *planning, r *campaign.Run) error
	}{
		{"paused", func(p *planning, r *campaign.Run) error { return p.runs.PauseRun(p.ctx, r.ID, "operator", "operator") }},
		{"cancelled", func(p *planning, r *campaign.Run) error { return p.runs.CancelRun(p.ctx, r.ID, "operator") }},
		{"the plan was closed", func(p *planning, r *campaign.Run) error { return p.batches.InsertEnd(p.ctx, r, 3) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlanning(t)
			p.insert(numbered(2500)...)
			r := p.start("x", "{}", testStart)
			pl := p.planner(0)
			pl.Batches = steered{p.batches, 2, func() { p.ok(c.do(p, r)) }}
			p.handle(pl, r)
			if batches, _ := p.plan(r); len(batches) != 2 {
				t.Fatalf("it planned on: %v", sizes(batches))
			}
			p.handle(pl, r)
			if batches, _ := p.plan(r); len(batches) != 2 {
				t.Fatalf("it planned on when asked again: %v", sizes(batches))
			}
		})
	}
}

func TestPlanWaitsForTheOlderRun(t *testing.T) {
	p := newPlanning(t)
	p.insert(numbered(3)...)
	older, newer := p.start("x", "{}", testStart), p.start("x", "{}", testStart.Add(time.Hour))
	p.handle(p.planner(0), newer)
	p.handle(p.planner(0), older) // which is not planned any more
	for _, r := range []*campaign.Run{older, newer} {
		if batches, ended := p.plan(r); len(batches) > 0 || ended {
			t.Fatalf("%s was planned", r.ID)
		}
	}
	_, err := p.runs.EndRun(p.ctx, older.ID, campaign.RunPlanning, campaign.RunSuperseded, campaign.Counts{}, testStart)
	p.ok(err)
	p.handle(p.planner(0), newer)
	if batches, ended := p.plan(newer); len(batches) != 1 || !ended {
		t.Fatal(sizes(batches), ended)
	}
}

func TestPlanOfARefusedQuery(t *testing.T) {
	for _, c := range []struct {
		name, audience string
		visited        bool
		state          campaign.RunState
		paused         bool
	}{
		{"MongoDB refuses it", `{"a":{"$foo":1}}`, false, campaign.RunFailed, false},
		{"it is no query", `{"a":{"$ago":1}}`, false, campaign.RunFailed, false},
		{"after the first batches", `{"a":{"$foo":1}}`, true, campaign.RunPlanning, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlanning(t)
			p.insert(numbered(3)...)
			r := p.start("x", c.audience, testStart)
			if c.visited {
				p.ok(p.batches.Insert(p.ctx, r, 1, []bson.RawValue{rawID(1)}))
			}
			p.handle(p.planner(0), r)
			now, err := p.runs.Run(p.ctx, r.ID)
			p.ok(err)
			if now.State != c.state || (now.Paused != "") != c.paused || !strings.Contains(now.Reason+now.Paused, "the audience cannot be asked for: ") {
				t.Fatalf("%s, %q, paused %q", now.State, now.Reason, now.Paused)
			}
		})
	}
}

func TestPlanOfARunThatIsGone(t *testing.T) {
	p := newPlanning(t)
	if err := p.planner(0).HandlePlan(p.ctx, queue.PlanTask{Run: "x@never"}); err != nil {
		t.Fatal(err)
	}
}

// The audience of a run that expires while it is paused is planned all the same: everybody in it gets an outcome.
func TestPlanOfAPausedRunThatHasExpired(t *testing.T) {
	p := newPlanning(t)
	p.insert(numbered(700)...)
	r := p.start("x", "{}", testStart)
	p.ok(p.runs.PauseRun(p.ctx, r.ID, "operator", "operator"))
	p.handle(p.planner(0), r)
	if batches, ended := p.plan(r); len(batches) > 0 || ended {
		t.Fatalf("paused: %v, ended %t", sizes(batches), ended)
	}
	p.clk.Advance(time.Hour)
	p.handle(p.planner(0), r)
	if batches, ended := p.plan(r); !cmp.Equal(sizes(batches), []int{500, 200}) || !ended {
		t.Fatalf("expired: %v, ended %t", sizes(batches), ended)
	}
}
