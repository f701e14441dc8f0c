package mail

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// pool keeps connections for the next mail. The one that was used last is taken first, so that the others grow old and go.
type pool struct {
	s        *settings
	log      *slog.Logger
	slots    chan struct{} // one token per connection in use; nil: no limit
	startTLS atomic.Bool
	unsealed sync.Once                                                         // says once that nothing is encrypted
	netDial  func(ctx context.Context, network, addr string) (net.Conn, error) // a test's own network

	mu     sync.Mutex
	idle   []*conn
	closed bool
}

// checkAfter is how long a connection may have waited and still be taken without a NOOP.
const checkAfter = 2 * time.Second

const (
	checkTimeout = 5 * time.Second        // of that NOOP
	goodbye      = 250 * time.Millisecond // for the reply to QUIT, which tells us nothing
)

// ErrClosed is returned by Connect after Close.
var ErrClosed = errors.New("the mail transport is closed")

func newPool(s *settings, log *slog.Logger) *pool {
	p := &pool{s: s, log: log, netDial: (&net.Dialer{Timeout: s.timeout}).DialContext}
	p.startTLS.Store(!s.implicitTLS && s.startTLS == tlsRequired)
	if s.maxConns > 0 {
		p.slots = make(chan struct{}, s.maxConns)
	}
	return p
}

func (p *pool) deadline() time.Time { return time.Now().Add(p.s.timeout) }

func (p *pool) Connect(ctx context.Context) (Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if p.slots != nil {
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	for {
		c, err := p.take()
		if err != nil {
			p.freeSlot()
			return nil, err
		}
		if c == nil {
			break
		}
		if time.Since(c.since) < checkAfter || c.alive() {
			return c, nil
		}
		c.client.Close()
	}
	c, err := p.dial(ctx)
	if err != nil {
		p.freeSlot()
		return nil, err
	}
	return c, nil
}

// alive asks a connection that has waited.
func (c *conn) alive() bool {
	c.client.CommandTimeout = min(checkTimeout, c.pool.s.timeout)
	defer func() { c.client.CommandTimeout = c.pool.s.timeout }()
	return c.client.Noop() == nil
}

// take returns a waiting connection, nil if there is none, and closes those that have waited too long.
func (p *pool) take() (*conn, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	var c *conn
	if n := len(p.idle); n > 0 {
		c, p.idle = p.idle[n-1], p.idle[:n-1]
	}
	old := p.takeOld()
	p.mu.Unlock()
	quit(old)
	return c, nil
}

// takeOld removes from the pool what has waited longer than allowed; p.mu is held. The oldest stand first.
func (p *pool) takeOld() []*conn {
	n := 0
	for n < len(p.idle) && time.Since(p.idle[n].since) > p.s.idle {
		n++
	}
	old := append([]*conn(nil), p.idle[:n]...)
	p.idle = append(p.idle[:0], p.idle[n:]...)
	return old
}

// quit says goodbye, and stops being polite when a server doesn't answer.
func quit(cs []*conn) {
	answered := true
	for _, c := range cs {
		c.client.CommandTimeout = goodbye
		if answered {
			answered = c.client.Quit() == nil
		}
		c.client.Close()
	}
}

func (p *pool) freeSlot() {
	if p.slots != nil {
		<-p.slots
	}
}

// retire closes a connection that can send nothing more.
func (p *pool) retire(c *conn) {
	if c.retired {
		return
	}
	c.retired = true
	if c.broken {
		c.client.Close()
	} else {
		quit([]*conn{c})
	}
	p.freeSlot()
}

func (p *pool) release(c *conn) {
	if !c.Usable() {
		p.retire(c)
		return
	}
	p.mu.Lock()
	closed := p.closed
	if !closed {
		waiting := *c // a copy: whoever still holds c can do nothing with it any more
		waiting.released, waiting.since = false, time.Now()
		p.idle = append(p.idle, &waiting)
	}
	old := p.takeOld()
	p.mu.Unlock()
	if closed {
		p.retire(c)
		return
	}
	p.freeSlot()
	quit(old)
}

func (p *pool) Close() error {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	quit(idle)
	return nil
}
