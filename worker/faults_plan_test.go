package worker

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/queue"
)

// planInTrouble plans a run of two classes of ids in three goes, with the nth command of the planner in trouble. With beside it is held up
// until another planner has gone as far as it can. It returns how many commands there were.
func planInTrouble(t *testing.T, nth int, f minimongo.Fault, late, beside bool) int {
	srv, db := mongotest.Server(t)
	p := &planning{t: t, ctx: t.Context(), clk: clock.At(testStart), runs: campaign.NewStore(db), users: db.Collection("users")}
	p.batches = campaign.NewBatches(db, p.clk)
	p.ok(p.runs.EnsureIndexes(p.ctx))
	ids := numbered(1700)
	for i := range 100 {
		ids = append(ids, fmt.Sprintf("user %03d", i))
	}
	p.insert(ids...)
	r := p.start("x", "{}", testStart)

	var planning atomic.Bool
	var said atomic.Int64
	reached, release := make(chan struct{}), make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	f.Nth, f.Reached = nth, func() { close(reached) }
	switch {
	case late || beside && f.After.Delay == 0:
		f.Before.Wait = release
	case beside:
		f.After.Wait = release
	}
	f.Where = func(string, bson.Raw) bool {
		if planning.Load() {
			said.Add(1)
		}
		return planning.Load()
	}
	srv.Inject(f)
	task := queue.PlanTask{Run: r.ID}
	once := func() error {
		took := make(chan error, 1)
		go func() { took <- p.planner(2).HandlePlan(p.ctx, task) }()
		if beside {
			select {
			case err := <-took:
				return err
			case <-reached:
				if err := p.planner(2).HandlePlan(p.ctx, task); err != nil {
					t.Errorf("the other planner: %v", err)
				}
				let()
			}
		}
		return <-took
	}
	for n := 1; n <= 5; n += 2 {
		planning.Store(true)
		for try := 1; ; try++ { // the queue does it again
			err := once()
			if err == nil {
				break
			}
			if try == 5 {
				t.Fatal(err)
			}
		}
		planning.Store(false)
		batches, _ := p.plan(r)
		for _, i := range []int{n, n + 1} {
			if i <= len(batches) {
				p.visit(r, i)
			}
		}
	}
	let()
	p.handle(p.planner(2), r)

	batches, ended := p.plan(r)
	if d := cmp.Diff([]int{500, 500, 500, 200, 100}, sizes(batches)); d != "" || !ended {
		t.Error(ended, d)
	}
	for i, id := range slices.Concat(batches...) {
		if want := rawID(ids[i]); !id.Equal(want) && id.String() != want.String() {
			t.Fatalf("user %d is %s, want %s", i, id, want)
		}
	}
	now, err := p.runs.Run(p.ctx, r.ID)
	if err != nil || !now.PlanDone || now.Planned != 5 {
		t.Errorf("planned %d, done %t, %v", now.Planned, now.PlanDone, err)
	}
	return int(said.Load())
}

// Each command of a planner meets each trouble. The queue tries again, or another planner goes on: everybody of the audience is in one
// batch, and nobody in two.
func TestEveryCommandOfAPlannerFailsInEveryWay(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for many reconnections")
	}
	times := planInTrouble(t, 1<<30, minimongo.Fault{}, false, false)
	if times < 12 {
		t.Fatalf("only %d commands", times)
	}
	for way, x := range map[string]struct {
		fault        minimongo.Fault
		late, beside bool
	}{
		"fails":                    {fault: minimongo.Fault{Before: minimongo.Action{Error: noAnswer}}},
		"lost":                     {fault: minimongo.Fault{Before: minimongo.Action{Drop: true}}},
		"reply lost":               {fault: minimongo.Fault{After: minimongo.Action{Drop: true}}},
		"applied when all is over": {fault: minimongo.Fault{Before: minimongo.Action{Hangup: true}}, late: true},
		"held up":                  {beside: true},
		"answered late":            {fault: minimongo.Fault{After: minimongo.Action{Delay: 1}}, beside: true},
	} {
		t.Run(way, func(t *testing.T) {
			var running sync.WaitGroup
			defer running.Wait()
			for nth := 1; nth <= times; nth += sample { // all at once: after a lost connection the driver waits half a second
				running.Go(func() {
					t.Run(fmt.Sprint(nth), func(t *testing.T) { planInTrouble(t, nth, x.fault, x.late, x.beside) })
				})
			}
		})
	}
}
