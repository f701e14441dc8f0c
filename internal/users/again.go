package users

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/clock"
)

// attemptTimeout ends the wait for one reply; the command is then issued again on another connection.
const attemptTimeout = 15 * time.Second

// transientCodes are errors of servers that are starting, stopping, electing or out of time. The write may or may not have
// been carried out.
var transientCodes = []int{
	6,     // HostUnreachable
	7,     // HostNotFound
	50,    // MaxTimeMSExpired
	64,    // WriteConcernFailed
	89,    // NetworkTimeout
	91,    // ShutdownInProgress
	112,   // WriteConflict
	133,   // FailedToSatisfyReadPreference
	134,   // ReadConcernMajorityNotAvailableYet
	189,   // PrimarySteppedDown
	262,   // ExceededTimeLimit
	9001,  // SocketException
	10107, // NotWritablePrimary
	11600, // InterruptedAtShutdown
	11602, // InterruptedDueToReplStateChange
	13435, // NotPrimaryNoSecondaryOk
	13436, // NotPrimaryOrSecondary
}

// worthAgain reports whether the same command may be answered when it is issued again. Only a server's plain refusal and
// our own mistakes are not worth it: what is unknown counts as an outage, which is no loss of ownership.
func worthAgain(err error) bool {
	if errors.Is(err, mongo.ErrClientDisconnected) || errors.Is(err, ErrRefused) {
		return false
	}
	var we mongo.WriteException
	var be mongo.BulkWriteException
	if errors.As(err, &be) {
		return be.WriteConcernError != nil || anyTransient(be.WriteErrors)
	}
	if errors.As(err, &we) {
		return we.WriteConcernError != nil
	}
	var se mongo.ServerError
	if !errors.As(err, &se) || mongo.IsNetworkError(err) {
		return true
	}
	if se.HasErrorLabel("RetryableWriteError") || se.HasErrorLabel("TransientTransactionError") {
		return true
	}
	for _, code := range transientCodes {
		if se.HasErrorCode(code) {
			return true
		}
	}
	return false
}

func anyTransient(errs []mongo.BulkWriteError) bool {
	for _, e := range errs {
		for _, code := range transientCodes {
			if e.Code == code {
				return true
			}
		}
	}
	return false
}

// backoff waits longer from time to time: 20 ms, then twice as long up to 2 s, each with jitter.
type backoff struct{ next time.Duration }

// sleep waits and reports whether ctx is still alive.
func (b *backoff) sleep(ctx context.Context) bool {
	b.next = min(max(2*b.next, 20*time.Millisecond), 2*time.Second)
	return clock.Sleep(ctx, b.next/2+rand.N(b.next/2)) == nil
}
