package clock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"postbit/internal/clock"
)

func TestSleepEndsWithItsTimeOrItsContext(t *testing.T) {
	cause := errors.New("the house is shut")
	for _, c := range []struct {
		name        string
		d, contexts time.Duration
		want        time.Duration
		err         error
	}{
		{"the time is over first", time.Hour, 2 * time.Hour, time.Hour, nil},
		{"the context ends first", 2 * time.Hour, time.Hour, time.Hour, context.Canceled},
		{"no time at all", 0, time.Hour, 0, nil},
		{"a time that is over", -time.Hour, time.Hour, 0, nil},
		{"the context has ended", time.Hour, 0, 0, context.Canceled},
		{"nothing to wait for, and the context has ended", 0, 0, 0, context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if c.contexts == 0 {
					cancel(cause)
				} else {
					defer time.AfterFunc(c.contexts, func() { cancel(cause) }).Stop()
				}
				began := time.Now()
				err := clock.Sleep(ctx, c.d)
				if took := time.Since(began); took != c.want || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
					t.Errorf("%v after %v, want %v after %v", err, took, c.err, c.want)
				}
			})
		})
	}
}
