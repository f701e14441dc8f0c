package clock

import (
	"context"
	"time"
)

// Sleep waits for d by this machine's clock, whatever a Clock says. It returns early, with ctx's error, when ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
