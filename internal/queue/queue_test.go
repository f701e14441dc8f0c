package queue_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"postbit/internal/queue"
	"postbit/internal/queue/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var batch = queue.BatchTask{Run: "winback@2026-12-01T09:00:00Z", N: 3, Pass: 1}

// serve runs a server until the returned func is called, which waits for its end.
func serve(t *testing.T, r redis.UniversalClient, h queue.Handlers) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := queue.NewServer(queue.ServerConfig{Redis: r, Grace: 5 * time.Second}, h).Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return stop
}

func add(t *testing.T, c *queue.Client, b queue.BatchTask) bool {
	t.Helper()
	added, err := c.EnqueueBatch(context.Background(), b)
	if err != nil {
		t.Fatal(err)
	}
	return added
}

// A server that wants TLS hangs up on who speaks without. That says little, so Ping says more.
func TestPingOfAServerThatHangsUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1))
			_ = c.Close()
		}
	})
	r := redis.NewClient(&redis.Options{Addr: l.Addr().String(), Password: "hunter2"})
	err = queue.NewClient(r).Ping(t.Context())
	if err == nil || !strings.Contains(err.Error(), "rediss://") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
	_ = r.Close()
	_ = l.Close()
	serving.Wait()
}

func TestABatchWaitsOnce(t *testing.T) {
	c := queue.NewClient(redistest.Client(t))
	if !add(t, c, batch) {
		t.Error("the first was not added")
	}
	if add(t, c, batch) {
		t.Error("the second was added though the first is waiting")
	}
	next := batch
	next.Pass++
	if !add(t, c, next) {
		t.Error("another pass is another task")
	}
	d, err := c.Depths()
	if err != nil {
		t.Fatal(err)
	}
	if d["batch"].Waiting != 2 {
		t.Errorf("waiting = %d, want 2", d["batch"].Waiting)
	}
}

// Case S13: an id whose task was given up must not block its later uses.
func TestAnArchivedTaskGivesWay(t *testing.T) {
	r := redistest.Client(t)
	c := queue.NewClient(r)
	add(t, c, batch)
	if err := asynq.NewInspectorFromRedisClient(r).ArchiveTask("postbit-batch", batch.ID()); err != nil {
		t.Fatal(err)
	}
	if !add(t, c, batch) {
		t.Error("the archived task blocks its id")
	}
}

// Case S14, and worse: after the flush the id is archived before the client has registered its queue again.
func TestAFlushOfRedisLosesNothingForGood(t *testing.T) {
	r := redistest.Client(t)
	c := queue.NewClient(r)
	add(t, c, batch)
	if err := r.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if !add(t, c, batch) {
		t.Fatal("not added after the flush")
	}
	if added := add(t, c, batch); added {
		t.Error("added twice")
	}
	if err := asynq.NewInspectorFromRedisClient(r).ArchiveTask("postbit-batch", batch.ID()); err != nil {
		t.Fatal(err)
	}
	if !add(t, c, batch) {
		t.Error("the archived task blocks its id")
	}
}

func TestEveryKindReachesItsHandler(t *testing.T) {
	r := redistest.Client(t)
	c := queue.NewClient(r)
	ctx := context.Background()
	plans, batches, hits := make(chan queue.PlanTask, 1), make(chan queue.BatchTask, 1), make(chan queue.HitsTask, 1)
	serve(t, r, queue.Handlers{
		Plan:  func(_ context.Context, p queue.PlanTask) error { plans <- p; return nil },
		Batch: func(_ context.Context, b queue.BatchTask) error { batches <- b; return nil },
		Hits:  func(_ context.Context, h queue.HitsTask) error { hits <- h; return nil },
	})
	if err := errors.Join(c.EnqueuePlan(ctx, queue.PlanTask{Run: batch.Run}), c.EnqueueHits(ctx, "chunk-1", []byte{0, 255})); err != nil {
		t.Fatal(err)
	}
	add(t, c, batch)
	if got := <-plans; got.Run != batch.Run {
		t.Errorf("plan = %+v", got)
	}
	if got := <-batches; got != batch {
		t.Errorf("batch = %+v", got)
	}
	if got := <-hits; got.ID != "chunk-1" || string(got.Data) != "\x00\xff" {
		t.Errorf("hits = %+v", got)
	}
}

func TestAFailedBatchMayBeAddedAgainAtOnce(t *testing.T) {
	r := redistest.Client(t)
	c := queue.NewClient(r)
	calls := make(chan struct{}, 2)
	stop := serve(t, r, queue.Handlers{Batch: func(context.Context, queue.BatchTask) error {
		calls <- struct{}{}
		return errors.New("no database")
	}})
	add(t, c, batch)
	<-calls
	for !add(t, c, batch) { // until the server has written the failure down
		<-time.After(time.Millisecond)
	}
	<-calls
	stop()
}

func TestRunWaitsForItsHandlers(t *testing.T) {
	r := redistest.Client(t)
	c := queue.NewClient(r)
	started := make(chan struct{})
	var ended atomic.Bool
	stop := serve(t, r, queue.Handlers{Batch: func(ctx context.Context, _ queue.BatchTask) error {
		close(started)
		<-ctx.Done() // the stop reaches the handler, which finishes what it must
		ended.Store(true)
		return nil
	}})
	add(t, c, batch)
	<-started
	stop()
	if !ended.Load() {
		t.Error("Run returned before its handler")
	}
	if !add(t, c, batch) {
		t.Error("a handler that ended well leaves its id free")
	}
}
