package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// Client puts tasks into the queue. It is safe for concurrent use.
type Client struct {
	redis     redis.UniversalClient
	asynq     atomic.Pointer[asynq.Client]
	inspector *asynq.Inspector
}

// NewClient returns a client on r, which stays the caller's to close.
func NewClient(r redis.UniversalClient) *Client {
	c := &Client{redis: r, inspector: asynq.NewInspectorFromRedisClient(r)}
	c.asynq.Store(asynq.NewClientFromRedisClient(r))
	return c
}

// Ping asks Redis for a sign of life.
func (c *Client) Ping(ctx context.Context) error {
	err := c.redis.Ping(ctx).Err()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET): // all that a server with TLS says to one who does not begin with it
		return fmt.Errorf("queue: redis closed the connection; if it wants TLS, write rediss://: %w", err)
	}
	return fmt.Errorf("queue: redis: %w", err)
}

// EnqueuePlan asks for a run to be planned further, unless that is waiting or under way.
func (c *Client) EnqueuePlan(ctx context.Context, t PlanTask) error {
	_, err := c.enqueue(ctx, planQueue, "plan/"+t.Run, encode(t), planTimeout, 0)
	return err
}

// EnqueueBatch asks for one pass of a batch; added is false where the task is waiting or under way already.
func (c *Client) EnqueueBatch(ctx context.Context, t BatchTask) (added bool, err error) {
	return c.enqueue(ctx, batchQueue, t.ID(), encode(t), batchTimeout, 0)
}

// EnqueueHits ships a chunk of the spool, unless it is waiting or under way already.
func (c *Client) EnqueueHits(ctx context.Context, id string, data []byte) error {
	_, err := c.enqueue(ctx, hitsQueue, id, data, hitsTimeout, 2)
	return err
}

// enqueue adds a task under a fixed id. An id that ended badly (archived) or was kept after its end would block all its later
// uses, so such a task gives way.
func (c *Client) enqueue(ctx context.Context, queue, id string, payload []byte, timeout time.Duration, retries int) (bool, error) {
	add := func() error {
		_, err := c.asynq.Load().EnqueueContext(ctx, asynq.NewTask(queue, payload),
			asynq.Queue(queue), asynq.TaskID(id), asynq.Timeout(timeout), asynq.MaxRetry(retries))
		return err
	}
	err := add()
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		if waiting, werr := c.giveWay(queue, id); werr != nil || waiting {
			return false, werr
		}
		err = add()
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, asynq.ErrTaskIDConflict):
		return false, nil // somebody else was faster
	default:
		return false, fmt.Errorf("queue: enqueue %s: %w", id, err)
	}
}

// giveWay removes a task that has ended, and reports whether it has not ended.
func (c *Client) giveWay(queue, id string) (waiting bool, err error) {
	info, err := c.inspector.GetTaskInfo(queue, id)
	if errors.Is(err, asynq.ErrQueueNotFound) {
		// Redis was flushed. A client registers a queue once in its life and the inspector knows registered queues only, so
		// take a new client; its next task registers the queue again. Until then this id counts as waiting.
		c.asynq.Store(asynq.NewClientFromRedisClient(c.redis))
		return false, nil
	}
	if errors.Is(err, asynq.ErrTaskNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("queue: look at %s: %w", id, err)
	}
	if info.State != asynq.TaskStateArchived && info.State != asynq.TaskStateCompleted {
		return true, nil
	}
	err = c.inspector.DeleteTask(queue, id)
	if err != nil && !errors.Is(err, asynq.ErrTaskNotFound) {
		return false, fmt.Errorf("queue: make way for %s: %w", id, err)
	}
	return false, nil
}

// Depth is how many tasks of each kind are waiting, being worked on, and given up, by queue.
type Depth struct{ Waiting, Active, Archived int }

// Depths are the sizes of the three queues under the names plan, batch and hits; a queue that was never used has none.
func (c *Client) Depths() (map[string]Depth, error) {
	known, err := c.inspector.Queues()
	if err != nil {
		return nil, fmt.Errorf("queue: sizes: %w", err)
	}
	out := map[string]Depth{}
	for name, queue := range map[string]string{"plan": planQueue, "batch": batchQueue, "hits": hitsQueue} {
		if !slices.Contains(known, queue) {
			continue
		}
		info, err := c.inspector.GetQueueInfo(queue)
		if err != nil {
			return nil, fmt.Errorf("queue: size of %s: %w", name, err)
		}
		out[name] = Depth{Waiting: info.Pending + info.Retry + info.Scheduled, Active: info.Active, Archived: info.Archived}
	}
	return out, nil
}
