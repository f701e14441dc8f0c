package campaign

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/clock"
	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
)

// Whatever is lost, the server's reply or the command, a write is there once and its author knows it. (The tests of worker do this to every
// command of a dispatch.)
func TestWritesWithoutAReply(t *testing.T) {
	drop := minimongo.Action{Drop: true}
	for name, f := range map[string]minimongo.Fault{
		"insert lost":               {Command: "insert", Before: drop},
		"insert, reply lost":        {Command: "insert", After: drop},
		"own, reply lost twice":     {Command: "findAndModify", After: drop, Times: 2},
		"push lost":                 {Command: "update", Before: drop},
		"push, reply lost":          {Command: "update", After: drop},
		"end of wave, reply lost":   {Command: "update", Nth: 2, After: drop},
		"end of pass, refused once": {Command: "update", Nth: 4, Before: minimongo.Action{Error: &minimongo.Error{Code: 91, Message: "shutting down"}}},
		"end of pass, reply lost":   {Command: "update", Nth: 4, After: drop},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, db := mongotest.Server(t)
			clk := clock.At(batchStart)
			b := batchTest{t, t.Context(), NewBatches(db, clk), clk, testRun("r")}
			srv.Inject(f)
			if err := b.s.Insert(b.ctx, b.run, 1, userIDs(3)); err != nil && !errors.Is(err, ErrBatchExists) {
				t.Fatal(err)
			}
			o := b.own(1)
			b.check(o.PushWave(b.ctx, waveOf(0, 1), nil, clk.Now()))
			b.check(o.EndWave(b.ctx, []Result{{Index: 0, Outcome: Sent}, {Index: 1, Outcome: FailedPolicy, Claim: &HeldClaim{LastAt: batchStart}}}, clk.Now()))
			b.check(o.Record(b.ctx, []Result{{Index: 2, Outcome: Skipped("left")}}, clk.Now()))
			_, err := o.StorePass(b.ctx, PassEnd{Now: clk.Now(), Visited: true, TookBack: true, NotBefore: clk.Now()})
			b.check(err)
			b.check(b.s.MarkApplied(b.ctx, b.run, 1, 1))
			got, err := b.s.Get(b.ctx, b.run, 1)
			b.check(err)
			if d := cmp.Diff(map[string][]int{"sent": {0}, "failed/policy": {1}, "skipped/left": {2}}, outcomes(got)); d != "" {
				t.Error(d)
			}
			if got.Rev != 4 || got.Waves != 1 || got.Pass != 1 || got.Unsettled() != nil {
				t.Errorf("rev %d, waves %d, pass %d", got.Rev, got.Waves, got.Pass)
			}
		})
	}
}

// A lost connection takes the pool with it, and with the pool whoever was waiting for a connection: those writes were not answered either.
func TestWritesWhoseConnectionPoolIsCleared(t *testing.T) {
	srv, db := mongotest.Server(t)
	waiting := make(chan struct{}, 64)
	client, err := mongo.Connect(options.Client().ApplyURI(srv.URI()).SetMaxPoolSize(1).SetRetryWrites(false).SetPoolMonitor(&event.PoolMonitor{Event: func(e *event.PoolEvent) {
		if e.Type == event.ConnectionCheckOutStarted {
			waiting <- struct{}{}
		}
	}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Disconnect(context.Background()) })
	clk := clock.At(batchStart)
	b := batchTest{t, t.Context(), NewBatches(client.Database(db.Name()), clk), clk, testRun("r")}
	b.plan(1, 2)
	b.plan(2, 2)
	first, second := b.own(1), b.own(2)
	for len(waiting) > 0 {
		<-waiting
	}
	let := make(chan struct{})
	srv.Inject(minimongo.Fault{Command: "update", Before: minimongo.Action{Wait: let, Drop: true}})
	var both sync.WaitGroup
	for _, o := range []*Owned{first, second} {
		both.Go(func() {
			if err := o.PushWave(b.ctx, waveOf(0), nil, clk.Now()); err != nil {
				t.Errorf("batch %d: %v", o.N, err)
			}
		})
		<-waiting
	}
	close(let)
	both.Wait()
}

// LateEnd of the model: an end of a wave whose reply was lost is applied after the one that was issued again, and after the next wave.
func TestALateWriteChangesNothing(t *testing.T) {
	srv, db := mongotest.Server(t)
	clk := clock.At(batchStart)
	b := batchTest{t, t.Context(), NewBatches(db, clk), clk, testRun("r")}
	b.plan(1, 2)
	o := b.own(1)
	b.check(o.PushWave(b.ctx, waveOf(0), nil, clk.Now()))
	let := make(chan struct{})
	srv.Inject(minimongo.Fault{Command: "update", Before: minimongo.Action{Hangup: true, Wait: let}})
	b.check(o.EndWave(b.ctx, []Result{{Index: 0, Tried: true, Reply: "451 later", Claim: &HeldClaim{LastAt: batchStart}}}, clk.Now()))
	b.check(o.PushWave(b.ctx, waveOf(0), nil, clk.Now()))
	close(let)
	b.check(o.EndWave(b.ctx, []Result{{Index: 0, Outcome: Sent}}, clk.Now()))
	got, err := b.s.Get(b.ctx, b.run, 1)
	b.check(err)
	if got.User(0).Outcome != Sent || got.Rev != 4 {
		t.Errorf("%+v, rev %d", got.User(0), got.Rev)
	}
}

func TestCutReply(t *testing.T) {
	for _, s := range []string{strings.Repeat("é", 150), strings.Repeat("x", 199) + "é", "a\xffb", "a\x00b", strings.Repeat("😀", 60)} {
		got := cutReply(s)
		if len(got) > MaxReplyBytes || !slices.Equal([]rune(got), []rune(strings.ToValidUTF8(got, ""))) {
			t.Errorf("%q: %q, %d bytes", s, got, len(got))
		}
	}
}
