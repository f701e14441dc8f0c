package e2e

import (
	"context"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/limits"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/queue"
	"postbit/internal/users"
	"postbit/worker"
)

type ctxt = context.Context

func containsInt(is []int, i int) bool { return slices.Contains(is, i) }

func (h *house) totals(name string) (map[string]int64, error) {
	return analytics.NewReader(h.db).Totals(h.ctx, name, start.AddDate(0, 0, -1), h.clk.Now().AddDate(0, 0, 1))
}

func (h *house) planner() *worker.Planner {
	return worker.NewPlanner(worker.PlannerConfig{Runs: h.runs, Batches: h.batches, Users: h.coll, Queue: h.queue, Clock: h.clk, Log: h.log})
}

// hireWith starts a worker process that dispatches only, with a batch store of its own.
func (h *house) hireWith(b *campaign.Batches) (stop func()) {
	return h.dispatch(h.newWorker(b, h.runs, h.users, h.transport(), oneConnection), 20*time.Second)
}

func (h *house) dispatch(w *worker.Worker, grace time.Duration) (stop func()) {
	srv := queue.NewServer(queue.ServerConfig{Redis: h.redis, Grace: grace, Log: h.log}, queue.Handlers{Plan: h.planner().HandlePlan, Batch: w.HandleBatch})
	return h.background(func(ctx context.Context) {
		var parts sync.WaitGroup
		parts.Go(func() { _ = w.Run(ctx) })
		parts.Go(func() { _ = srv.Run(ctx) })
		parts.Wait()
	})
}

// tap is a line to the database that can be cut.
type tap struct {
	l     net.Listener
	to    string
	mu    sync.Mutex
	dead  bool
	conns []net.Conn
	wg    sync.WaitGroup
	uri   string
}

// tap opens a line to the test's database.
func (h *house) tap() *tap {
	h.t.Helper()
	t := &tap{}
	var err error
	t.l, err = net.Listen("tcp", "127.0.0.1:0")
	h.check(err)
	t.to = h.mongoAddr()
	t.uri = "mongodb://" + t.l.Addr().String() + "/?directConnection=true"
	t.wg.Go(func() {
		for {
			c, err := t.l.Accept()
			if err != nil {
				return
			}
			t.join(c)
		}
	})
	h.t.Cleanup(func() { _ = t.l.Close(); t.cut(); t.wg.Wait() })
	return t
}

func (t *tap) join(c net.Conn) {
	s, err := net.Dial("tcp", t.to)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil || t.dead {
		_ = c.Close()
		if s != nil {
			_ = s.Close()
		}
		return
	}
	t.conns = append(t.conns, c, s)
	for _, p := range [][2]net.Conn{{c, s}, {s, c}} {
		t.wg.Go(func() {
			_, _ = io.Copy(p[0], p[1])
			_ = p[0].Close()
			_ = p[1].Close()
		})
	}
}

// cut ends the line for good.
func (t *tap) cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead = true
	for _, c := range t.conns {
		_ = c.Close()
	}
}

// mongoAddr is where the server of h.db listens.
func (h *house) mongoAddr() string {
	uri := os.Getenv(mongotest.EnvURI)
	if uri == "" {
		uri = h.uri
	}
	uri = strings.TrimPrefix(uri, "mongodb://")
	if i := strings.IndexAny(uri, "/?"); i >= 0 {
		uri = uri[:i]
	}
	return uri
}

// hireOver starts a worker that reaches the database over the line only. kill ends it without any grace.
func (h *house) hireOver(line *tap) (kill func()) {
	h.t.Helper()
	client := must(mongo.Connect(options.Client().ApplyURI(line.uri)))(h.t)
	h.t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	db := client.Database(h.db.Name())
	u := must(users.New(db.Collection("users"), users.Config{}))(h.t)
	w := h.newWorker(campaign.NewBatches(db, h.clk), campaign.NewStore(db), u, h.transport(), func(c *worker.Config) {
		c.Grace, c.Limiter, c.Connections = time.Millisecond, limits.New(db.Collection(limits.Collection), h.clk), 1
	})
	return h.dispatch(w, time.Millisecond)
}
