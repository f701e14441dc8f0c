// Package redistest gives tests a Redis: miniredis in the process, or the server that POSTBIT_TEST_REDIS_URI names.
package redistest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"postbit/internal/clock"
)

// databases of a real server that tests share out among themselves, 1 to this; 0 holds the claims.
const databases = 15

// Client returns a client of an empty Redis that ends with the test. On a real server it is one of its databases
// 1 to 15, flushed before and after: never point the variable at a server that is in use.
func Client(t testing.TB) *redis.Client {
	t.Helper()
	uri := os.Getenv("POSTBIT_TEST_REDIS_URI")
	if uri == "" {
		c := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	opt, err := redis.ParseURL(uri)
	if err != nil {
		t.Fatalf("POSTBIT_TEST_REDIS_URI: %v", err)
	}
	ctx := context.Background() // the cleanup outlives the test's own
	opt.DB = 0
	claims := redis.NewClient(opt)
	own := *opt
	own.DB = claim(t, claims)
	c := redis.NewClient(&own)
	if err := c.FlushDB(ctx).Err(); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() {
		_ = c.FlushDB(ctx).Err()
		_ = c.Close()
		_ = claims.Del(ctx, claimKey(own.DB)).Err()
		_ = claims.Close()
	})
	return c
}

func claimKey(db int) string { return fmt.Sprintf("postbit-test-db-%d", db) }

// claim takes a database that no other test holds, also in other processes, and waits where there is none.
func claim(t testing.TB, c *redis.Client) int {
	t.Helper()
	for {
		for db := 1; db <= databases; db++ {
			ok, err := c.SetNX(t.Context(), claimKey(db), os.Getpid(), 5*time.Minute).Result()
			if err != nil {
				t.Fatalf("redistest: %v", err)
			}
			if ok {
				return db
			}
		}
		if clock.Sleep(t.Context(), 50*time.Millisecond) != nil {
			t.Fatal("redistest: no free database")
		}
	}
}
