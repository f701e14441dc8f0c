package campaign

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"postbit/internal/clock"
)

// attemptTimeout bounds one attempt of a write, so that a connection that swallows everything is not waited for.
const attemptTimeout = 10 * time.Second

// answered issues a command until the server has answered it, or ctx ends: a database outage is not a loss of ownership. The
// command must be one that may be issued twice: f sets values under a filter that the first application makes false, or reads.
func answered(ctx context.Context, f func(context.Context) error) error {
	pause := 20 * time.Millisecond
	for {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := f(attempt)
		cancel()
		if err == nil || !unanswered(err) {
			return err
		}
		if ended := clock.Sleep(ctx, pause/2+rand.N(pause)); ended != nil {
			return errors.Join(ended, err)
		}
		pause = min(2*pause, 2*time.Second)
	}
}

// unanswered reports whether an error leaves open what the server did, or says that it is no time to ask: the network, a timeout, no
// primary, a shutdown, a write that is not yet durable. A connection that is lost takes with it whoever was waiting for one.
func unanswered(err error) bool {
	if mongo.IsNetworkError(err) || mongo.IsTimeout(err) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	if _, ok := errors.AsType[topology.ServerSelectionError](err); ok {
		return true
	}
	if _, ok := errors.AsType[topology.ConnectionError](err); ok {
		return true
	}
	var cleared driver.RetryablePoolError
	if errors.As(err, &cleared) && cleared.Retryable() {
		return true
	}
	if we, ok := errors.AsType[mongo.WriteException](err); ok && len(we.WriteErrors) == 0 && we.WriteConcernError != nil {
		return true
	}
	se, ok := errors.AsType[mongo.ServerError](err)
	if !ok {
		return false
	}
	for _, code := range []int{6, 7, 50, 64, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436} {
		if se.HasErrorCode(code) {
			return true
		}
	}
	return se.HasErrorLabel("RetryableWriteError") || se.HasErrorLabel("TransientTransactionError")
}
