package main

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// proxy is a link between a client and a server that can be disturbed.
type proxy struct {
	backend string
	ln      net.Listener
	open    sync.WaitGroup

	mu      sync.Mutex
	pairs   map[*pair]bool
	delay   time.Duration // of everything that is sent, each way
	mute    bool          // replies are held back
	shut    bool          // connections are refused
	changed chan struct{} // closed when one of these is
}

type pair struct {
	client, server net.Conn
	once           sync.Once
	closed         chan struct{}
}

// link listens on a free loopback port and carries what comes to backend.
func link(backend string) (*proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{backend: backend, ln: ln, pairs: map[*pair]bool{}, changed: make(chan struct{})}
	p.open.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

// close ends the link and everything on it.
func (p *proxy) close() {
	p.ln.Close()
	p.set(func() { p.shut = true })
	p.cut()
	p.open.Wait()
}

func (p *proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.open.Go(func() { p.carry(c) })
	}
}

func (p *proxy) carry(client net.Conn) {
	server, err := net.DialTimeout("tcp", p.backend, 5*time.Second)
	if err != nil {
		reset(client)
		return
	}
	x := &pair{client: client, server: server, closed: make(chan struct{})}
	p.mu.Lock()
	shut := p.shut
	if !shut {
		p.pairs[x] = true
	}
	p.mu.Unlock()
	if shut {
		x.close(true)
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() { p.pump(x, server, client, false) })
	ways.Go(func() { p.pump(x, client, server, true) })
	ways.Wait()
	p.mu.Lock()
	delete(p.pairs, x)
	p.mu.Unlock()
}

// pump carries one direction until either side ends; then it ends the other one.
func (p *proxy) pump(x *pair, to, from net.Conn, replies bool) {
	defer x.close(false)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !p.pass(x, replies) {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits until something may go through, and reports whether the connection is still there.
func (p *proxy) pass(x *pair, replies bool) bool {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	if delay > 0 {
		t := time.NewTimer(delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-x.closed:
			return false
		}
	}
	for {
		p.mu.Lock()
		held, changed := p.mute && replies, p.changed
		p.mu.Unlock()
		if !held {
			return true
		}
		select {
		case <-changed:
		case <-x.closed:
			return false
		}
	}
}

// set changes how the link behaves.
func (p *proxy) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

// cut resets every connection and returns how many there were.
func (p *proxy) cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for x := range p.pairs {
		x.close(true)
	}
	return len(p.pairs)
}

// carries returns how many connections there are.
func (p *proxy) carries() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pairs)
}

func (x *pair) close(hard bool) {
	x.once.Do(func() {
		close(x.closed)
		if hard {
			reset(x.client)
			reset(x.server)
			return
		}
		x.client.Close()
		x.server.Close()
	})
}

// reset closes a connection so that the other side gets an error rather than an end.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	c.Close()
}

func (p *proxy) String() string { return fmt.Sprintf("%s -> %s", p.addr(), p.backend) }
