// Package queue names the tasks that travel through asynq and builds its client and servers. A task only says when to
// look at something; what there is to do stands in MongoDB. So the whole of Redis can be lost at any time: the
// feeder and the spool put back what is missing.
package queue

import (
	"encoding/json"
	"fmt"
	"time"
)

// PlanTask asks a worker to go on planning a run.
type PlanTask struct {
	Run string `json:"run"`
}

// BatchTask asks a worker to take a batch through one pass.
type BatchTask struct {
	Run  string `json:"run"`
	N    int    `json:"n"`
	Pass int    `json:"pass"`
}

// ID is the same for everyone who wants this very pass, so that it waits in the queue once.
func (t BatchTask) ID() string { return fmt.Sprintf("%s/%d/%d", t.Run, t.N, t.Pass) }

// HitsTask carries a sealed chunk of the hit spool under the chunk's own id.
type HitsTask struct {
	ID   string
	Data []byte
}

// Queues are kept apart because an asynq server has one fetch loop: hits must not wait behind batches, nor batches behind
// plans.
const (
	planQueue  = "postbit-plan"
	batchQueue = "postbit-batch"
	hitsQueue  = "postbit-hits"
)

// Timeouts are the ends that asynq puts to a task so that none is lost in a stuck process. Handlers run on contexts of
// their own and are expected to be far shorter.
const (
	planTimeout  = 10 * time.Minute
	batchTimeout = 30 * time.Minute
	hitsTimeout  = 5 * time.Minute
)

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers: cannot fail
	}
	return b
}
