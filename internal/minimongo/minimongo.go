// Package minimongo is a small MongoDB server inside the process: the part of the wire protocol and of the
// commands that postbit uses, through the ordinary driver, stored with bbolt in a folder or in memory.
// What it does, it does as MongoDB does it; what it does not know, it refuses by name. It is meant for tests, the
// demo and lists of up to some 100,000 users on one machine.
package minimongo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Config says where and how a server stores. The zero value is a server in memory.
type Config struct {
	// Dir is the data folder, made if missing; one process at a time. Empty: in memory, gone at Close.
	Dir string
	// NoSync leaves it to the operating system when commits reach the disk: a crash of the machine may lose or
	// damage data, one of the process does not. In memory it is always so.
	NoSync bool
	// Logger gets what goes wrong; nil: nothing.
	Logger *slog.Logger
	// Now is the clock of hello's localTime and of TTL indexes; nil: time.Now.
	Now func() time.Time
	// SweepEvery is how often TTL indexes are looked at; 0: every 60 s, as MongoDB.
	SweepEvery time.Duration
}

// Server is a running store; all its methods may be called from any goroutine.
type Server struct {
	cfg     Config
	log     *slog.Logger
	store   *store
	cursors cursors
	faults  faults

	ctx  context.Context
	stop context.CancelCauseFunc
	wg   sync.WaitGroup // listeners, connections, the sweeper

	mu        sync.Mutex
	listeners []net.Listener
	conns     map[net.Conn]struct{}
	lastConn  int32
	closed    bool
	closeErr  error
}

var errClosing = errors.New("minimongo: the server is closing")

// Open starts a store; clients reach it after Listen. The caller must Close it.
func Open(cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.SweepEvery <= 0 {
		cfg.SweepEvery = time.Minute
	}
	st, err := openStore(cfg.Dir, cfg.NoSync, cfg.Logger)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Logger, store: st, conns: map[net.Conn]struct{}{}}
	s.cursors.open = map[int64]*cursor{}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	s.wg.Add(1)
	go s.sweepLoop()
	return s, nil
}

// Listen accepts connections on "tcp" (port 0: a free one) or "unix". The path of a unix socket has to end
// in ".sock", by which the driver knows it.
func (s *Server) Listen(network, addr string) (net.Addr, error) {
	if network == "unix" && !strings.HasSuffix(addr, ".sock") {
		return nil, fmt.Errorf("minimongo: the driver takes only paths that end in .sock for sockets, not %s", addr)
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return nil, fmt.Errorf("minimongo: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		l.Close()
		return nil, errClosing
	}
	s.listeners = append(s.listeners, l)
	s.wg.Add(1)
	go s.accept(l)
	return l.Addr(), nil
}

// URI is the connection string for the first address that Listen opened, or "" before that.
func (s *Server) URI() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listeners) == 0 {
		return ""
	}
	addr := s.listeners[0].Addr()
	host := addr.String()
	if addr.Network() == "unix" {
		host = url.PathEscape(host)
	}
	return "mongodb://" + host + "/"
}

// Close ends all connections and waits for every goroutine of the server. Commands that are being
// carried out are finished or fail; none is half done.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		defer s.mu.Unlock()
		return s.closeErr
	}
	s.closed = true
	s.stop(errClosing)
	for _, l := range s.listeners {
		l.Close()
	}
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	s.cursors.expire(time.Now().Add(time.Hour))
	err := s.store.close()
	s.mu.Lock()
	s.closeErr = err
	s.mu.Unlock()
	return err
}

func (s *Server) accept(l net.Listener) {
	defer s.wg.Done()
	for {
		nc, err := l.Accept()
		if err != nil {
			if s.ctx.Err() == nil {
				s.log.Error("minimongo: accept", "addr", l.Addr(), "err", err)
			}
			return
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			nc.Close()
			return
		}
		s.conns[nc] = struct{}{}
		s.lastConn++
		c := &conn{server: s, net: nc, id: s.lastConn}
		s.wg.Add(1)
		s.mu.Unlock()
		go c.serve()
	}
}
