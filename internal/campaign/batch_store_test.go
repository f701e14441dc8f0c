package campaign

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/clock"
	"postbit/internal/minimongo/mongotest"
)

var batchStart = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)

func testRun(id string) *Run {
	return &Run{ID: id, Short: ShortID{1, 2, 3}, Campaign: "winback", Slot: batchStart, StartedAt: batchStart, State: RunSending,
		Spec: Spec{Name: "winback", ExpiresAfter: 24 * time.Hour}}
}

func userIDs(n int) []bson.RawValue {
	ids := make([]bson.RawValue, n)
	for i := range ids {
		_, data, err := bson.MarshalValue(int32(i))
		if err != nil {
			panic(err)
		}
		ids[i] = bson.RawValue{Type: bson.TypeInt32, Value: data}
	}
	return ids
}

type batchTest struct {
	t   *testing.T
	ctx context.Context
	s   *Batches
	clk *clock.Clock
	run *Run
}

func newBatchTest(t *testing.T) batchTest {
	clk := clock.At(batchStart)
	b := batchTest{t, t.Context(), NewBatches(mongotest.DB(t), clk), clk, testRun("winback@2026-12-01T09:00:00Z")}
	b.check(b.s.EnsureIndexes(b.ctx, b.run.Slot))
	return b
}

func (b batchTest) check(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b batchTest) plan(n, users int) {
	b.t.Helper()
	b.check(b.s.Insert(b.ctx, b.run, n, userIDs(users)))
}

func (b batchTest) own(n int) *Owned {
	b.t.Helper()
	o, err := b.s.Own(b.ctx, b.run, n, 0, fmt.Sprintf("owner-%d-%d", n, time.Now().UnixNano()))
	b.check(err)
	return o
}

func waveOf(is ...int) []WaveUser {
	var us []WaveUser
	for _, i := range is {
		us = append(us, WaveUser{Index: i})
	}
	return us
}

func outcomes(b *Batch) map[string][]int {
	m := map[string][]int{}
	for i := range b.Users {
		u := b.User(i)
		key := u.Outcome.String()
		if x := u.Outcome.Class() + u.Outcome.Rule(); x != "" {
			key += "/" + x
		}
		m[key] = append(m[key], i)
	}
	return m
}

func TestPlannersShareNumbers(t *testing.T) {
	b := newBatchTest(t)
	_, ok, err := b.s.Last(b.ctx, b.run)
	if ok || err != nil {
		t.Fatalf("last of an empty run: %t, %v", ok, err)
	}
	b.plan(1, 3)
	if err := b.s.Insert(b.ctx, b.run, 1, userIDs(3)); !errors.Is(err, ErrBatchExists) {
		t.Errorf("second planner: %v", err)
	}
	h, ok, err := b.s.Last(b.ctx, b.run)
	b.check(err)
	if !ok || h.N != 1 || h.End || h.LastID.Int32() != 2 {
		t.Errorf("last: %+v %t", h, ok)
	}
	b.check(b.s.InsertEnd(b.ctx, b.run, 2))
	if err := b.s.Insert(b.ctx, b.run, 2, userIDs(3)); !errors.Is(err, ErrBatchExists) {
		t.Errorf("a late planner behind the end: %v", err)
	}
	if h, _, _ := b.s.Last(b.ctx, b.run); !h.End || h.N != 2 {
		t.Errorf("end marker: %+v", h)
	}
	if _, err := b.s.Own(b.ctx, b.run, 2, 0, "x"); !errors.Is(err, ErrNoBatch) {
		t.Errorf("own the end marker: %v", err)
	}
}

func TestOneOwner(t *testing.T) {
	b := newBatchTest(t)
	b.plan(1, 2)
	o, err := b.s.Own(b.ctx, b.run, 1, 1, "a")
	b.check(err)
	if _, err := b.s.Own(b.ctx, b.run, 1, 1, "b"); !errors.Is(err, ErrBatchOwned) {
		t.Errorf("a second worker: %v", err)
	}
	if due, _ := b.s.Due(b.ctx, b.run, b.clk.Now(), 10); len(due) != 0 {
		t.Errorf("an owned batch is due: %v", due)
	}
	b.clk.Advance(30*time.Second + TakeoverAfter - time.Millisecond)
	if _, err := b.s.Own(b.ctx, b.run, 1, 1, "b"); !errors.Is(err, ErrBatchOwned) {
		t.Errorf("just before the takeover: %v", err)
	}
	b.check(o.Renew(b.ctx))
	b.clk.Advance(30 * time.Second)
	if _, err := b.s.Own(b.ctx, b.run, 1, 1, "b"); !errors.Is(err, ErrBatchOwned) {
		t.Errorf("after a renewal: %v", err)
	}
	b.clk.Advance(TakeoverAfter)
	if _, err = b.s.Own(b.ctx, b.run, 1, 1, "b"); err != nil {
		t.Fatalf("takeover: %v", err)
	}
	if err := o.Renew(b.ctx); !errors.Is(err, ErrLostOwnership) || o.Alive() {
		t.Errorf("the former owner renews: %v, alive %t", err, o.Alive())
	}
	if err := o.PushWave(b.ctx, waveOf(0), nil, b.clk.Now()); !errors.Is(err, ErrLostOwnership) {
		t.Errorf("the former owner pushes: %v", err)
	}
}

// Renewals come from a timer while waves are written: under the race detector this fails if one looks at what the other replaces.
func TestRenewedBesideWaves(t *testing.T) {
	b := newBatchTest(t)
	b.plan(1, 20)
	o, err := b.s.Own(b.ctx, b.run, 1, 1, "a")
	b.check(err)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for range 20 {
			if err := o.Renew(b.ctx); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 20 {
		b.check(o.PushWave(b.ctx, waveOf(i), nil, b.clk.Now()))
		b.check(o.EndWave(b.ctx, []Result{{Index: i, Outcome: Sent}}, b.clk.Now()))
	}
	renewing.Wait()
}

func TestWaveLifecycle(t *testing.T) {
	b := newBatchTest(t)
	b.plan(1, 6)
	o := b.own(1)
	b.check(o.PushWave(b.ctx, waveOf(0, 1, 2, 3), []Result{{Index: 5, Outcome: Skipped("address"), UnknownZone: true}}, b.clk.Now()))
	claim := HeldClaim{LastAt: batchStart, Before: true}
	b.check(o.EndWave(b.ctx, []Result{
		{Index: 0, Outcome: Sent, Claim: &claim},
		{Index: 1, Outcome: FailedBounced, Claim: &claim, Reply: "550 5.1.1 no such user"},
		{Index: 2, Claim: &claim, Tried: true, Reply: "451 later"},
	}, b.clk.Now()))

	got, err := b.s.Get(b.ctx, b.run, 1)
	b.check(err)
	want := map[string][]int{"sent": {0}, "failed/bounced": {1}, "waiting": {2, 3, 4}, "skipped/address": {5}}
	if d := cmp.Diff(want, outcomes(got)); d != "" {
		t.Error(d)
	}
	if c, ok := got.Held(2); !ok || c != claim {
		t.Errorf("4xx keeps its claim: %v %t", c, ok)
	}
	if u := got.User(2); u.Tries != 1 || u.Reply != "451 later" || !u.At.Equal(batchStart) {
		t.Errorf("4xx: %+v", u)
	}
	if d := cmp.Diff([]int{1}, got.TakeBacks()); d != "" {
		t.Error(d)
	}
	if len(got.Open) != 0 || got.Waves != 1 || got.Rev != 2 {
		t.Errorf("open %v, waves %d, rev %d", got.Open, got.Waves, got.Rev)
	}

	// The run ends: the holder is given up, and his claim goes the same way, in the same write.
	b.check(o.Record(b.ctx, []Result{{Index: 2, Outcome: FailedTemporary}, {Index: 3, Outcome: Skipped("expired")}, {Index: 4, Outcome: Skipped("expired")}}, b.clk.Now()))
	if d := cmp.Diff([]int{1, 2}, o.TakeBacks()); d != "" {
		t.Error(d)
	}
	d, err := o.StorePass(b.ctx, PassEnd{Now: b.clk.Now(), Visited: true, TookBack: true, NotBefore: b.clk.Now()})
	b.check(err)
	if len(d.Rows) != 5 || d.ID("r", 1) != "r/1/1" {
		t.Errorf("delta: %+v", d)
	}
	p, err := b.s.Progress(b.ctx, b.run)
	b.check(err)
	wantCounts := Counts{Audience: 6, Checked: 6, Sent: 1, Failed: 2, UnknownZone: 1, Skipped: map[string]int64{"address": 1, "expired": 2}}
	if diff := cmp.Diff(wantCounts, p.Counts); diff != "" {
		t.Error(diff)
	}
	if p.Open != 0 || p.Unsettled != 1 {
		t.Errorf("progress: %+v", p)
	}
	b.check(b.s.MarkApplied(b.ctx, b.run, 1, 1))
	b.check(b.s.MarkApplied(b.ctx, b.run, 1, 1))
	if un, _ := b.s.Unsettled(b.ctx, b.run); len(un) != 0 {
		t.Errorf("unsettled: %v", un)
	}
	if _, err := b.s.Own(b.ctx, b.run, 1, 0, "z"); !errors.Is(err, ErrBatchDone) {
		t.Errorf("own a finished batch: %v", err)
	}
}

func TestRecoverListsTheOpenWave(t *testing.T) {
	b := newBatchTest(t)
	b.plan(1, 4)
	o := b.own(1)
	b.check(o.PushWave(b.ctx, []WaveUser{{Index: 1, UnknownZone: true}, {Index: 3}}, nil, b.clk.Now()))
	b.clk.Advance(time.Hour)
	n := b.own(1)
	got, err := n.Recover(b.ctx, b.clk.Now())
	b.check(err)
	if got != 2 {
		t.Errorf("recovered %d", got)
	}
	if err := o.EndWave(b.ctx, []Result{{Index: 1, Outcome: Sent}}, b.clk.Now()); !errors.Is(err, ErrLostOwnership) {
		t.Errorf("the former owner ends its wave: %v", err)
	}
	_, err = n.StorePass(b.ctx, PassEnd{Now: b.clk.Now(), Visited: true, TookBack: true, NotBefore: b.clk.Now()})
	b.check(err)
	var names []int
	b.check(b.s.Unconfirmed(b.ctx, b.run, func(u UserOutcome) error { names = append(names, int(u.User.Int32())); return nil }))
	if d := cmp.Diff([]int{1, 3}, names); d != "" {
		t.Error(d)
	}
	if p, _ := b.s.Progress(b.ctx, b.run); p.Counts.Deferred != 2 || p.Counts.Checked != 4 || p.Counts.UnknownZone != 1 {
		t.Errorf("counts: %+v", p.Counts)
	}
}

func TestDue(t *testing.T) {
	b := newBatchTest(t)
	for n := 1; n <= 3; n++ {
		b.plan(n, 2)
	}
	end := func(n int, at time.Time, visited bool) {
		_, err := b.own(n).StorePass(b.ctx, PassEnd{Now: b.clk.Now(), NotBefore: at, Visited: visited, TookBack: true})
		b.check(err)
	}
	later := batchStart.Add(time.Hour)
	end(2, later, true)
	due := func(run Run, now time.Time, limit int) []int {
		t.Helper()
		ds, err := b.s.Due(b.ctx, &run, now, limit)
		b.check(err)
		var ns []int
		for _, d := range ds {
			ns = append(ns, d.N*10+d.Pass)
		}
		return ns
	}
	if d := cmp.Diff([]int{11, 31}, due(*b.run, batchStart, 9)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]int{22, 11}, due(*b.run, later, 2)); d != "" {
		t.Error("looked at before come first:", d)
	}
	cancelling := *b.run
	cancelling.State = RunCancelling
	if d := cmp.Diff([]int{22, 11, 31}, due(cancelling, batchStart, 9)); d != "" {
		t.Error("cancelled:", d)
	}
	if d := cmp.Diff([]int{22, 11, 31}, due(*b.run, batchStart.Add(24*time.Hour), 9)); d != "" {
		t.Error("expired:", d)
	}
	end(1, later.Add(time.Hour), false) // throttled before everybody was looked at
	unvisited, open, err := b.s.Unfinished(b.ctx, b.run)
	b.check(err)
	if unvisited != 2 || open != 1 {
		t.Errorf("unvisited %d, open %d", unvisited, open)
	}
	next, err := b.s.NextDue(b.ctx, b.run)
	b.check(err)
	if !next.Equal(later) {
		t.Errorf("next due %s", next)
	}
}

func TestStalePass(t *testing.T) {
	b := newBatchTest(t)
	b.plan(1, 1)
	_, err := b.own(1).StorePass(b.ctx, PassEnd{Now: b.clk.Now(), Visited: true, TookBack: true})
	b.check(err)
	if _, err := b.s.Own(b.ctx, b.run, 1, 1, "late"); !errors.Is(err, ErrStalePass) {
		t.Errorf("a task for the pass that is over: %v", err)
	}
	if _, err := b.s.Own(b.ctx, b.run, 1, 2, "next"); err != nil {
		t.Errorf("the next pass: %v", err)
	}
}
