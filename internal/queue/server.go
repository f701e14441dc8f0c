package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// Handlers are what a worker does with each kind of task. A nil handler's queue is not served. They may run any
// number of times for one task, also at once.
type Handlers struct {
	Plan  func(ctx context.Context, t PlanTask) error
	Batch func(ctx context.Context, t BatchTask) error
	Hits  func(ctx context.Context, t HitsTask) error
}

// ServerConfig says how much a server does at once.
type ServerConfig struct {
	Redis   redis.UniversalClient // stays the caller's to close
	Batches int                   // batches at once; 0: 8
	Grace   time.Duration         // how long Run waits for handlers after its context has ended; 0: 30 s
	Log     *slog.Logger
}

// Server takes tasks out of the queues and hands them to the handlers.
type Server struct {
	cfg      ServerConfig
	handlers Handlers
	running  sync.WaitGroup // handlers, also those that asynq has given up on
}

// NewServer returns a server; Run starts it.
func NewServer(cfg ServerConfig, h Handlers) *Server {
	if cfg.Batches <= 0 {
		cfg.Batches = 8
	}
	if cfg.Grace <= 0 {
		cfg.Grace = 30 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{cfg: cfg, handlers: h}
}

// Run serves until ctx ends, then takes no new task, lets the handlers finish what they must (their context has ended too) and
// returns when all of them have.
func (s *Server) Run(ctx context.Context) error {
	var servers []*asynq.Server
	start := func(queue string, concurrency int, h asynq.HandlerFunc) error {
		srv := asynq.NewServerFromRedisClient(s.cfg.Redis, asynq.Config{
			Concurrency:       concurrency,
			Queues:            map[string]int{queue: 1},
			TaskCheckInterval: 250 * time.Millisecond, // an empty queue is asked this often: the delay of a lone hit
			RetryDelayFunc:    func(int, error, *asynq.Task) time.Duration { return 5 * time.Second },
			ShutdownTimeout:   s.cfg.Grace,
			Logger:            logger{s.cfg.Log.With("queue", queue)},
		})
		if err := srv.Start(h); err != nil {
			return fmt.Errorf("queue: serve %s: %w", queue, err)
		}
		servers = append(servers, srv)
		return nil
	}
	err := errors.Join(
		startIf(s.handlers.Plan != nil, func() error { return start(planQueue, 2, s.plan(ctx)) }),
		startIf(s.handlers.Batch != nil, func() error { return start(batchQueue, s.cfg.Batches, s.batch(ctx)) }),
		startIf(s.handlers.Hits != nil, func() error { return start(hitsQueue, 2, s.hits(ctx)) }),
	)
	if err == nil {
		<-ctx.Done()
	}
	var down sync.WaitGroup
	for _, srv := range servers {
		down.Go(srv.Shutdown)
	}
	down.Wait()
	s.running.Wait()
	return err
}

func startIf(wanted bool, start func() error) error {
	if !wanted {
		return nil
	}
	return start()
}

// The handlers get the context of Run, not the task's: asynq's ends with a lease that a busy Redis may fail to renew, and
// whether a worker still owns a batch is for the batch document to say.

func (s *Server) plan(ctx context.Context) asynq.HandlerFunc {
	return func(_ context.Context, task *asynq.Task) error {
		var t PlanTask
		if err := json.Unmarshal(task.Payload(), &t); err != nil {
			return fmt.Errorf("queue: plan task: %w (%w)", err, asynq.RevokeTask)
		}
		return s.do(ctx, "plan", t.Run, func() error { return s.handlers.Plan(ctx, t) })
	}
}

func (s *Server) batch(ctx context.Context) asynq.HandlerFunc {
	return func(_ context.Context, task *asynq.Task) error {
		var t BatchTask
		if err := json.Unmarshal(task.Payload(), &t); err != nil {
			return fmt.Errorf("queue: batch task: %w (%w)", err, asynq.RevokeTask)
		}
		return s.do(ctx, "batch", t.ID(), func() error { return s.handlers.Batch(ctx, t) })
	}
}

func (s *Server) hits(ctx context.Context) asynq.HandlerFunc {
	return func(taskCtx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(taskCtx)
		return s.do(ctx, "hits", id, func() error { return s.handlers.Hits(ctx, HitsTask{ID: id, Data: task.Payload()}) })
	}
}

func (s *Server) do(ctx context.Context, kind, id string, handle func() error) error {
	s.running.Add(1)
	defer s.running.Done()
	err := handle()
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.Error("task failed", "kind", kind, "task", id, "err", err)
	}
	return err
}
