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

// Serve answers on ln until ctx ends, then finishes the requests under way, for at most grace. Every connection has bounds:
// slow headers, slow bodies, slow readers and idle peers are let go.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, grace time.Duration, log *slog.Logger) error {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
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
