package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/clock"
	"postbit/internal/hello"
)

// Bounds of FollowClock.
const (
	slowestAnswer = 2 * time.Second       // an answer that took longer says too little
	smallestError = 20 * time.Millisecond // hello has milliseconds, and answers are not symmetric
	largestError  = 5 * time.Second       // a clock that is further off is worth a warning
)

// KeepClock keeps clk with the database's clock until ctx ends: it asks once a minute, and within a second where this machine's wall clock
// was stepped or the machine has slept. Every process with a clock of its own needs it.
func KeepClock(ctx context.Context, db *mongo.Database, clk *clock.Clock, log *slog.Logger) {
	loop(ctx, log, "clock", fireEvery, keeping(db, clk, log))
}

// keeping is one look at whether the database has to be asked for the time.
func keeping(db *mongo.Database, clk *clock.Clock, log *slog.Logger) func(context.Context) error {
	var next time.Time // with a monotonic reading
	return func(ctx context.Context) error {
		now := time.Now()
		if now.Before(next) && !clk.Doubtful() {
			return nil
		}
		next = now.Add(upkeepEvery)
		return FollowClock(ctx, db, clk, log)
	}
}

// FollowClock puts clk right by the clock of the database, so that all processes agree on what time it is. An error
// smaller than the measurement's own is left alone. From then on clk does not go by this machine's wall clock, which may be stepped.
func FollowClock(ctx context.Context, db *mongo.Database, clk *clock.Clock, log *slog.Logger) error {
	asked := clk.Now()
	said, err := hello.Ask(ctx, db)
	if err != nil {
		return fmt.Errorf("the database's clock: %w", err)
	}
	answered := clk.Now()
	took := answered.Sub(asked)
	if said.LocalTime.IsZero() || took < 0 || took > slowestAnswer {
		return nil
	}
	off := said.LocalTime.Sub(asked.Add(took / 2))
	defer clk.Hold()
	if off.Abs() <= took/2+smallestError {
		return nil
	}
	clk.Correct(said.LocalTime, asked, answered)
	if off.Abs() > largestError {
		log.Warn("this machine's clock was put right by the database's", "off", off.Round(time.Millisecond))
	}
	return nil
}
