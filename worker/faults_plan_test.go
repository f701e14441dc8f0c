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
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/queue"
)

// planInTrouble plans a run of two classes of ids in three goes, with the nth command of the planner in trouble (0: none), or another planner
// beside it. It returns how many commands there were.
func planInTrouble(t *testing.T, nth int, x mongotest.Trouble) int {
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

	var said atomic.Int64
	trouble := x.Inject(srv, nth, func(bson.Raw) { said.Add(1) })
	plan := func() error { return p.planner(2).HandlePlan(p.ctx, queue.PlanTask{Run: r.ID}) }
	for n := 1; n <= 5; n += 2 {
		trouble.Step(t, plan, plan)
		batches, _ := p.plan(r)
		for _, i := range []int{n, n + 1} {
			if i <= len(batches) {
				p.visit(r, i)
			}
		}
	}
	trouble.Over() // what was to come late comes now
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
	times := planInTrouble(t, 0, mongotest.Trouble{})
	if times < 12 {
		t.Fatalf("only %d commands", times)
	}
	for way, x := range mongotest.Troubles {
		t.Run(way, func(t *testing.T) {
			var running sync.WaitGroup
			defer running.Wait()
			for nth := 1; nth <= times; nth += sample { // all at once: after a lost connection the driver waits half a second
				running.Go(func() {
					t.Run(fmt.Sprint(nth), func(t *testing.T) { planInTrouble(t, nth, x) })
				})
			}
		})
	}
}
