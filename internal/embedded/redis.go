package embedded

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// ttlTick is how often miniredis's time goes on. asynq's shortest expiry is counted in seconds.
const ttlTick = 250 * time.Millisecond

// startRedis serves miniredis on a unix socket, which the permissions of the directory guard.
func (s *Stack) startRedis(ctx context.Context, socket string) error {
	m := miniredis.NewMiniRedis()
	first, err := m.Dial() // starts it without a TCP port
	if err != nil {
		return fmt.Errorf("embedded Redis: %w", err)
	}
	_ = first.Close()
	_ = os.Remove(socket) // of an owner that was killed; the lock is ours
	l, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		m.Close()
		return fmt.Errorf("embedded Redis: %w", err)
	}
	var parts sync.WaitGroup
	parts.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			m.Server().ServeConn(conn)
		}
	})
	done := make(chan struct{})
	parts.Go(func() { ageKeys(m, done) })
	s.RedisURI = "redis-socket:" + socket
	s.close = append(s.close, func() error {
		err := l.Close()
		close(done)
		parts.Wait()
		m.Close()
		return err
	})
	return nil
}

// ageKeys lets keys expire in real time, whatever postbit's own clock does: leases and heartbeats of asynq are real.
func ageKeys(m *miniredis.Miniredis, done <-chan struct{}) {
	tick := time.NewTicker(ttlTick)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			now := time.Now()
			m.FastForward(now.Sub(last))
			last = now
		}
	}
}
