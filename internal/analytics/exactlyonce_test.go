package analytics

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"pgregory.net/rapid"

	"postbit/internal/clock"
	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
)

// lostReply is an answer that says nothing about whether the command was applied, and costs the driver no new connection.
var lostReply = &minimongo.Error{Code: 50, Message: "operation exceeded time limit"}

// troubles are what can happen to one command.
var troubles = []struct {
	name  string
	fault func(release <-chan struct{}) minimongo.Fault
}{
	{"not applied", func(<-chan struct{}) minimongo.Fault {
		return minimongo.Fault{Before: minimongo.Action{Error: lostReply}}
	}},
	{"applied, answer lost", func(<-chan struct{}) minimongo.Fault {
		return minimongo.Fault{After: minimongo.Action{Error: lostReply}}
	}},
	{"connection lost before", func(<-chan struct{}) minimongo.Fault { return minimongo.Fault{Before: minimongo.Action{Drop: true}} }},
	{"connection lost after", func(<-chan struct{}) minimongo.Fault { return minimongo.Fault{After: minimongo.Action{Drop: true}} }},
	{"connection lost, applied late", func(release <-chan struct{}) minimongo.Fault {
		return minimongo.Fault{Before: minimongo.Action{Hangup: true, Wait: release}}
	}},
	{"held up", func(release <-chan struct{}) minimongo.Fault {
		return minimongo.Fault{Before: minimongo.Action{Wait: release}}
	}},
	{"answered late", func(release <-chan struct{}) minimongo.Fault {
		return minimongo.Fault{After: minimongo.Action{Wait: release}}
	}},
}

// Every single command of an Apply, and of the redelivery of its id to another writer, meets every trouble in turn.
func TestTroubleAtEveryCommand(t *testing.T) {
	for _, trouble := range troubles {
		t.Run(trouble.name, func(t *testing.T) {
			// A server of its own for each command, all at once: after a lost connection the driver waits half a second.
			const most = 16
			var hits atomic.Int64
			var wg sync.WaitGroup
			for nth := 1; nth <= most; nth++ {
				srv, db := mongotest.Server(t)
				a, _ := start(t, db)
				b, _ := start(t, db)
				wg.Go(func() {
					if troubleAt(t, nth, trouble.fault, srv, db, a, b) {
						hits.Add(1)
					}
				})
			}
			wg.Wait()
			if n := hits.Load(); n < 8 || n == most {
				t.Errorf("%d of the first %d commands met trouble; the test has lost its point", n, most)
			}
		})
	}
}

// troubleAt lets the nth command meet trouble, and reports whether there was one.
func troubleAt(t *testing.T, nth int, trouble func(<-chan struct{}) minimongo.Fault, srv *minimongo.Server, db *mongo.Database, a, b *Writer) bool {
	incs := append(Day("winback", Hits, noon, 1), Day("winback", Opened, noon, 1)...)
	release, hit := make(chan struct{}), atomic.Bool{}
	f := trouble(release)
	reached := make(chan struct{})
	f.Nth, f.Reached = nth, func() { hit.Store(true); close(reached) }
	f.Where = func(_ string, command bson.Raw) bool { // but Run's, which are no part of it
		ofMemory := command.Lookup("filter", "_id", "$gte").Type != 0
		return command.Lookup("createIndexes").Type == 0 && !ofMemory
	}
	remove := srv.Inject(f)
	delivered := make(chan struct{})
	go func() {
		defer close(delivered)
		deliver(t, a, "x", incs)
	}()
	let := sync.OnceFunc(func() { close(release) })
	select {
	case <-delivered:
		if held := f.After.Wait != nil || f.Before.Wait != nil && !f.Before.Hangup; held {
			let() // only the first writer is held up
		}
	case <-reached: // its answer may come only when another writer has counted
	}
	deliver(t, b, "x", incs)
	deliver(t, b, "y", incs)
	remove()
	let() // what was held back is applied now, after everything else
	<-delivered
	deliver(t, a, "x", incs)
	for i := range 2 { // and while all this goes on
		deliver(t, a, fmt.Sprint("z", i), incs)
	}
	for _, metric := range []string{Hits, Opened} {
		if got := value(t, db, "days.2026.12", DayID("winback", metric, noon), "daily"); got != 4 {
			t.Errorf("trouble at command %d: %s counts %d, want 4", nth, metric, got)
		}
	}
	if n := undone(t, db); n != 0 {
		t.Errorf("trouble at command %d: %d sets are left undone", nth, n)
	}
	return hit.Load()
}

// deliver gives an id to a writer until it is taken, as a queue does.
func deliver(t testing.TB, w *Writer, id string, incs []Increment) {
	t.Helper()
	for {
		err := w.Apply(t.Context(), id, incs)
		if err == nil {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

// Several writers; ids delivered at least once, to any of them, again and again; writers killed and started anew;
// commands refused, answers lost: every id adds exactly 1 to each of its documents.
func TestEveryIDIsCountedExactlyOnce(t *testing.T) {
	srv, db := mongotest.Server(t)
	if err := NewWriter(db, clock.At(noon), quiet()).EnsureIndexes(t.Context()); err != nil {
		t.Fatal(err)
	}
	var round atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		var (
			ids       = rapid.IntRange(1, 12).Draw(rt, "ids")
			writers   = rapid.IntRange(1, 4).Draw(rt, "writers")
			copies    = rapid.IntRange(1, 3).Draw(rt, "copies")
			patience  = time.Duration(rapid.IntRange(5, 60).Draw(rt, "patience in ms")) * time.Millisecond
			seed      = rapid.Uint64().Draw(rt, "seed")
			badLuck   = rapid.IntRange(0, 30).Draw(rt, "commands in trouble")
			collected = fmt.Sprint("t", round.Add(1), ".2026")
		)
		rng := rand.New(rand.NewPCG(seed, 1))
		var removes []func()
		for range badLuck {
			f := troubles[rng.IntN(2)].fault(nil)
			f.Nth = 1 + rng.IntN(60)
			f.Command = []string{"", "insert", "update", "find"}[rng.IntN(4)]
			removes = append(removes, srv.Inject(f))
		}
		everyID(t, db, rng, collected, ids, writers, copies, patience)
		for _, remove := range removes {
			remove()
		}
		settle(t, db, collected, ids)
		for i := range 3 {
			if got := value(t, db, collected, fmt.Sprint("doc", i), "n", "x"); got != wantOf(ids, i) {
				rt.Fatalf("doc%d counts %d, want %d", i, got, wantOf(ids, i))
			}
		}
	})
}

// incsOf gives id i an increment in doc0, and in doc1 or doc2.
func incsOf(collection string, i int) []Increment {
	return []Increment{
		{Collection: collection, ID: "doc0", Inc: map[string]int64{"n.x": 1}},
		{Collection: collection, ID: fmt.Sprint("doc", 1+i%2), Inc: map[string]int64{"n.x": 1}},
	}
}

func wantOf(ids, doc int) (n int64) {
	for i := range ids {
		for _, inc := range incsOf("", i) {
			if inc.ID == fmt.Sprint("doc", doc) {
				n++
			}
		}
	}
	return n
}

// everyID delivers each id some times to some writers, of which one is killed and replaced on the way.
func everyID(t testing.TB, db *mongo.Database, rng *rand.Rand, collection string, ids, writers, copies int, patience time.Duration) {
	var wg, runs sync.WaitGroup
	stopAll, cancel := context.WithCancel(t.Context())
	var ws []*Writer
	for range writers {
		w := NewWriter(db, clock.At(noon), quiet(), WithPatience(patience))
		ws = append(ws, w)
		life, kill := stopAll, context.CancelFunc(func() {})
		if rng.IntN(3) == 0 {
			life, kill = context.WithTimeout(stopAll, time.Duration(rng.IntN(20))*time.Millisecond)
		}
		runs.Go(func() { defer kill(); _ = w.Run(life) })
	}
	for i := range ids {
		for range copies {
			w := ws[rng.IntN(writers)]
			wg.Go(func() { _ = w.Apply(t.Context(), fmt.Sprint(collection, "/", i), incsOf(collection, i)) })
		}
	}
	wg.Wait()
	cancel()
	runs.Wait()
}

// settle is what the queue does in the end: every id once more, until it is taken. Then no set can be left, since each holds
// an id that was given again.
func settle(t testing.TB, db *mongo.Database, collection string, ids int) {
	w, stop := start(t, db)
	defer stop()
	for i := range ids {
		deliver(t, w, fmt.Sprint(collection, "/", i), incsOf(collection, i))
	}
	left, err := NewWriter(db, clock.At(noon.Add(time.Hour)), quiet()).FinishStale(t.Context(), time.Minute)
	if err != nil || left != 0 {
		t.Errorf("%d sets were left undone, %v", left, err)
	}
}
