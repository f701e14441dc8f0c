package analytics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"postbit/internal/clock"
	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// start runs a writer until the test ends or stop is called.
func start(t testing.TB, db *mongo.Database, opts ...Option) (w *Writer, stop func()) {
	t.Helper()
	w = NewWriter(db, clock.At(noon), quiet(), opts...)
	if err := w.EnsureIndexes(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return w, stop
}

func apply(t testing.TB, w *Writer, id string, incs []Increment) {
	t.Helper()
	if err := w.Apply(t.Context(), id, incs); err != nil {
		t.Fatal(err)
	}
}

// value reads a number of a counter document; a missing one is 0.
func value(t testing.TB, db *mongo.Database, collection, id string, path ...string) int64 {
	t.Helper()
	raw, err := db.Collection(collection).FindOne(t.Context(), bson.D{{Key: "_id", Value: id}}).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return number(raw.Lookup(path...))
}

func wantDay(t testing.TB, db *mongo.Database, id string, n int64) {
	t.Helper()
	for _, path := range [][]string{{"daily"}, {"hourly", "12"}, {"minute", "12", "00"}} {
		if got := value(t, db, "days.2026.12", id, path...); got != n {
			t.Errorf("%s %v = %d, want %d", id, path, got, n)
		}
	}
}

func undone(t testing.TB, db *mongo.Database) int64 {
	t.Helper()
	n, err := db.Collection(AppliedCollection).CountDocuments(t.Context(), bson.D{{Key: "done_at", Value: nil}})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAnIDCountsOnce(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	incs := Day("winback", Hits, noon, 1)
	apply(t, w, "chunk1", incs)
	apply(t, w, "chunk1", incs)
	other, _ := start(t, db)
	apply(t, other, "chunk1", incs)
	wantDay(t, db, "20261201/winback.hits", 1)
	wantDay(t, db, "20261201/all.hits", 1)
}

// O6: the second delivery comes after 1,000 other updates of the same counters.
func TestALateSecondDeliveryCountsOnce(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	incs := Day("winback", Hits, noon, 1)
	apply(t, w, "chunk1", incs)
	applyAll(t, []*Writer{w}, "other", 1000, incs)
	apply(t, w, "chunk1", incs)
	wantDay(t, db, "20261201/winback.hits", 1001)
}

// O4: 64 first hits of the day at once, spread over three processes.
func TestFirstHitsOfTheDayAtOnce(t *testing.T) {
	db := mongotest.DB(t)
	var ws []*Writer
	for range 3 {
		w, _ := start(t, db)
		ws = append(ws, w)
	}
	applyAll(t, ws, "chunk", 64, Day("winback", Hits, noon, 1))
	wantDay(t, db, "20261201/winback.hits", 64)
	if n := undone(t, db); n != 0 {
		t.Errorf("%d sets are left undone", n)
	}
}

// applyAll gives n ids to the writers in turn, all at once.
func applyAll(t testing.TB, ws []*Writer, prefix string, n int, incs []Increment) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := ws[i%len(ws)].Apply(t.Context(), fmt.Sprint(prefix, i), incs); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestWhatWaitsIsOneSet(t *testing.T) {
	db := mongotest.DB(t)
	w := NewWriter(db, clock.At(noon), quiet())
	if err := w.EnsureIndexes(t.Context()); err != nil {
		t.Fatal(err)
	}
	incs := Day("winback", Hits, noon, 1)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if err := w.Apply(t.Context(), fmt.Sprint("chunk", i%20), incs); err != nil {
				t.Error(err)
			}
		})
	}
	waitFor(t, func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.waiting) == 40 })
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = w.Run(ctx) })
	wg.Wait()
	cancel()
	run.Wait()
	wantDay(t, db, "20261201/winback.hits", 20)
	var sets []appliedSet
	cur, err := db.Collection(AppliedCollection).Find(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	if err := cur.All(t.Context(), &sets); err != nil {
		t.Fatal(err)
	}
	if len(sets) != 1 || len(sets[0].IDs) != 20 || sets[0].Number != 1 || sets[0].Increments != nil || sets[0].DoneAt == nil {
		t.Errorf("sets = %+v, want one of 20 ids, done, without its increments", sets)
	}
}

// waitFor looks until ok holds: what it looks for is written by a goroutine that tells nobody.
func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for !ok() {
		select {
		case <-t.Context().Done():
			t.Fatal("waited in vain")
		case <-time.After(time.Millisecond):
		}
	}
}

// A path that lies inside one of another id cannot be in the same update, but must be counted: in the next set.
func TestIDsThatObjectToEachOtherGoIntoTwoSets(t *testing.T) {
	db := mongotest.DB(t)
	w := NewWriter(db, clock.At(noon), quiet())
	if err := w.EnsureIndexes(t.Context()); err != nil {
		t.Fatal(err)
	}
	page := func(path string) []Increment {
		return []Increment{{Collection: "pages.2026.12", ID: "x:1", Inc: map[string]int64{path: 1}}, {Collection: "pages.2026.12", ID: "x:2", Inc: map[string]int64{"v": 1}}}
	}
	var wg sync.WaitGroup
	for i, path := range []string{"d.1", "d", "d.2"} {
		wg.Go(func() {
			if err := w.Apply(t.Context(), fmt.Sprint("id", i), page(path)); err != nil {
				t.Error(err)
			}
		})
	}
	waitFor(t, func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.waiting) == 3 })
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = w.Run(ctx) })
	wg.Wait()
	cancel()
	run.Wait()
	if got := value(t, db, "pages.2026.12", "x:2", "v"); got != 3 {
		t.Errorf("x:2 counts %d, want 3", got)
	}
}

// A counter that another service has broken is passed over, noted in the set, and holds nothing else up.
func TestADocumentThatCannotCountIsPassedOver(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	broken := "20261201/winback.hits"
	if _, err := db.Collection("days.2026.12").InsertOne(t.Context(), bson.D{{Key: "_id", Value: broken}, {Key: "daily", Value: "many"}}); err != nil {
		t.Fatal(err)
	}
	apply(t, w, "chunk1", Day("winback", Hits, noon, 1))
	apply(t, w, "chunk2", Day("winback", Hits, noon, 1))
	wantDay(t, db, "20261201/all.hits", 2)
	var set appliedSet
	if err := db.Collection(AppliedCollection).FindOne(t.Context(), bson.D{{Key: "ids", Value: "chunk1"}}).Decode(&set); err != nil {
		t.Fatal(err)
	}
	if len(set.Refused) != 1 || set.Refused[0].ID != broken || set.DoneAt == nil {
		t.Errorf("refused = %+v, done = %v; want the broken document, done", set.Refused, set.DoneAt)
	}
}

// A writer dies after it stored its set. Whoever gets one of the ids finishes the set whole, under its name.
func TestASetLeftUndoneIsFinishedByWhoGetsAnIDOfIt(t *testing.T) {
	srv, db := mongotest.Server(t)
	leaveUndone(t, srv, db, "chunk1")
	w, _ := start(t, db)
	apply(t, w, "chunk1", Day("winback", Hits, noon, 1))
	wantDay(t, db, "20261201/winback.hits", 1)
	if n := undone(t, db); n != 0 {
		t.Errorf("%d sets are left undone", n)
	}
}

func TestASetLeftUndoneIsFinishedByTheScheduler(t *testing.T) {
	srv, db := mongotest.Server(t)
	leaveUndone(t, srv, db, "chunk1")
	later := clock.At(noon.Add(time.Minute))
	w := NewWriter(db, later, quiet())
	for _, row := range []struct {
		olderThan time.Duration
		want      int
	}{{2 * time.Minute, 0}, {30 * time.Second, 1}, {30 * time.Second, 0}} {
		if got, err := w.FinishStale(t.Context(), row.olderThan); err != nil || got != row.want {
			t.Errorf("FinishStale(%s) = %d, %v; want %d", row.olderThan, got, err, row.want)
		}
	}
	wantDay(t, db, "20261201/winback.hits", 1)
	done, err := w.Done(t.Context(), []string{"chunk1", "chunk2"})
	if err != nil || !done["chunk1"] || done["chunk2"] {
		t.Errorf("Done = %v, %v; want chunk1 alone", done, err)
	}
}

// leaveUndone stores a set of one id and applies it nowhere.
func leaveUndone(t *testing.T, srv *minimongo.Server, db *mongo.Database, id string) {
	t.Helper()
	remove := srv.Inject(minimongo.Fault{Command: "update", Times: -1, Before: minimongo.Action{Error: lostReply}})
	defer remove()
	w, stop := start(t, db, WithPatience(20*time.Millisecond))
	name := w.name
	for undone(t, db) == 0 { // on a busy machine it may not even come to be stored
		if err := w.Apply(t.Context(), id, Day("winback", Hits, noon, 1)); err == nil {
			t.Fatal("Apply says that it is counted, but no update was let through")
		}
	}
	stop()
	if w.name == name {
		t.Error("a writer that could not finish a set goes on under the same name")
	}
	if done, err := w.Done(t.Context(), []string{id}); err != nil || done[id] {
		t.Fatalf("Done = %v, %v; want not done", done, err)
	}
}

func TestStoppedWriter(t *testing.T) {
	db := mongotest.DB(t)
	w, stop := start(t, db)
	stop()
	if err := w.Apply(t.Context(), "chunk1", Day("winback", Hits, noon, 1)); !errors.Is(err, ErrStopped) {
		t.Errorf("got %v, want ErrStopped", err)
	}
}

// The set in hand is finished, and nobody is left waiting or running.
func TestStopWhileASetIsInHand(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("", func(t *testing.T) {
		srv, db := mongotest.Server(t)
		w, stop := start(t, db)
		reached, release := make(chan struct{}), make(chan struct{})
		srv.Inject(minimongo.Fault{Command: "update", Reached: func() { close(reached) }, Before: minimongo.Action{Wait: release}})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := w.Apply(t.Context(), "in hand", Day("winback", Hits, noon, 1)); err != nil {
				t.Error(err)
			}
		})
		<-reached
		wg.Go(func() {
			if err := w.Apply(t.Context(), "waiting", nil); !errors.Is(err, ErrStopped) {
				t.Errorf("got %v, want ErrStopped", err)
			}
		})
		waitFor(t, func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.waiting) == 1 })
		wg.Go(stop)
		close(release)
		wg.Wait()
		wantDay(t, db, "20261201/winback.hits", 1)
	})
}

// Whoever gives up waiting does not keep the others from being counted.
func TestACallerThatGivesUp(t *testing.T) {
	db := mongotest.DB(t)
	w := NewWriter(db, clock.At(noon), quiet())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Apply(ctx, "gave up", Day("winback", Hits, noon, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	run, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.Run(run) })
	apply(t, w, "id", Day("winback", Hits, noon, 1))
	stop()
	wg.Wait()
	wantDay(t, db, "20261201/winback.hits", 1)
}

func TestAnIDWithoutIncrementsIsRemembered(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	apply(t, w, "empty", nil)
	if done, err := w.Done(t.Context(), []string{"empty"}); err != nil || !done["empty"] {
		t.Errorf("Done = %v, %v", done, err)
	}
}

func BenchmarkApply(b *testing.B) {
	db := mongotest.DB(b)
	w, _ := start(b, db)
	incs := Day("winback", Hits, noon, 1)
	b.Run("group commit of 64 callers", func(b *testing.B) {
		prefix := newName()
		next := make(chan int)
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for i := range next {
					if err := w.Apply(b.Context(), fmt.Sprint(prefix, i), incs); err != nil {
						b.Error(err)
					}
				}
			})
		}
		for i := range b.N {
			next <- i
		}
		close(next)
		wg.Wait()
		b.ReportMetric(float64(6*b.N)/b.Elapsed().Seconds(), "increments/s")
	})
	b.Run("one caller", func(b *testing.B) {
		prefix := newName()
		for i := range b.N {
			apply(b, w, fmt.Sprint(prefix, i), incs)
		}
		b.ReportMetric(float64(6*b.N)/b.Elapsed().Seconds(), "increments/s")
	})
	b.Run("reference: bare $inc, one bulk of 2 at a time", func(b *testing.B) {
		coll := durable(db, "days.2026.12")
		for range b.N {
			var models []mongo.WriteModel
			for _, inc := range incs {
				models = append(models, mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: inc.ID}}).SetUpdate(bson.D{{Key: "$inc", Value: inc.Inc}}).SetUpsert(true))
			}
			if _, err := coll.BulkWrite(b.Context(), models, options.BulkWrite().SetOrdered(false)); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(6*b.N)/b.Elapsed().Seconds(), "increments/s")
	})
}
