package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Bounds are how long a connection may take for each of its steps, and how much may stand before the body of a request. A time of 0 is none.
// What a body may hold is for the handlers to say: they know what it is.
type Bounds struct {
	Header      time.Duration // from the first byte of a request, or the connection, to the end of its header
	Request     time.Duration // the same to the end of its body
	Answer      time.Duration // from the end of the header to the end of the answer: slow handlers and slow readers
	Idle        time.Duration // between two requests
	HeaderBytes int           // request line and header; net/http adds 4 kB for its own buffer
}

// Usual is what both the public and the admin side have. Mail programs and browsers need a fraction of it.
var Usual = Bounds{Header: 5 * time.Second, Request: 10 * time.Second, Answer: 30 * time.Second, Idle: 2 * time.Minute, HeaderBytes: 16 << 10}

// Serve is ServeWithin the usual bounds.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, grace time.Duration, log *slog.Logger) error {
	return ServeWithin(ctx, Usual, ln, h, grace, log)
}

// ServeWithin answers on ln until ctx ends, then finishes the requests under way, for at most grace. Whoever keeps a connection
// beyond its bounds is let go.
func ServeWithin(ctx context.Context, b Bounds, ln net.Listener, h http.Handler, grace time.Duration, log *slog.Logger) error {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: b.Header,
		ReadTimeout:       b.Request,
		WriteTimeout:      b.Answer,
		IdleTimeout:       b.Idle,
		MaxHeaderBytes:    b.HeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // what clients do wrong is no error of ours
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	var err error
	select {
	case err = <-served:
		return fmt.Errorf("web: serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err = srv.Shutdown(end); err != nil {
		_ = srv.Close()
	}
	if served := <-served; !errors.Is(served, http.ErrServerClosed) {
		return fmt.Errorf("web: serve %s: %w", ln.Addr(), served)
	}
	return nil
}
