// Package web is the admin side of postbit over HTTP: a JSON API with the shapes of the command line (docs/json.md, docs/openapi.yaml), metrics for
// Prometheus, and health. The public side (pixel, links, unsubscribe) is package track; the two never share a listener.
package web

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Errors that Operations wrap, so that the API answers with the status that fits. Everything else is a 500, whose text stays in
// the log.
var (
	ErrInvalid  = errors.New("invalid request") // 400
	ErrNotFound = errors.New("not found")       // 404
	ErrConflict = errors.New("conflict")        // 409
)

// Operations is what the API can be asked to do. What they return is encoded as it is.
type Operations interface {
	Templates(ctx context.Context) (any, error)
	Campaigns(ctx context.Context) (any, error)
	Campaign(ctx context.Context, name string) (any, error)
	// RunCampaign starts a run. With a key, only the first call does; later ones answer with that run.
	RunCampaign(ctx context.Context, name, key string) (any, error)
	// Steer is pause, resume or cancel of a campaign's latest run, or of its schedule where schedule is set.
	Steer(ctx context.Context, name, action string, schedule bool, reason string) (any, error)
	Send(ctx context.Context, r SendRequest) (any, error)
	Explain(ctx context.Context, campaign, user string, at time.Time) (any, error)
	Report(ctx context.Context, campaign, from, to string) (any, error)
	// ReportList is a page of n lines of one of a report's top lists, from a place that the page before gave.
	ReportList(ctx context.Context, campaign, list, from, to string, n int, after string) (any, error)
	Pixel(ctx context.Context, campaign, user string) (any, error)
}

// SendRequest is one mail through all rules. The key makes it idempotent: the same key again reports the first.
type SendRequest struct {
	Template string `json:"template"`
	User     string `json:"user"`
	Key      string `json:"key,omitempty"`
}

// Config says what the handler is made of.
type Config struct {
	Operations Operations // nil: a process without the role web, which has metrics and health alone
	// Token is asked of every request but the health checks. Without one the handler answers loopback clients alone.
	Token   string
	Metrics prometheus.Gatherer                    // nil: /metrics is empty
	Ready   map[string]func(context.Context) error // by name; each is given two seconds
	Log     *slog.Logger
}

// maxBody bounds the body of a request, in bytes. None of them holds more than a few names.
const maxBody = 64 << 10

// New returns the admin handler.
func New(c Config) http.Handler {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	a := &api{Config: c}
	guarded := router{mux: http.NewServeMux(), missing: http.HandlerFunc(a.noSuchPath)}
	if c.Operations != nil {
		a.routes(guarded.mux.HandleFunc)
	}
	guarded.mux.Handle("GET /metrics", promhttp.HandlerFor(c.Metrics, promhttp.HandlerOpts{}))
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, http.StatusForbidden, "a page of another origin may not ask for this")
	}))

	open := router{mux: http.NewServeMux(), missing: a.guard(http.MaxBytesHandler(sameOrigin.Handler(guarded), maxBody))}
	open.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	open.mux.HandleFunc("GET /readyz", a.ready)
	return harden(open)
}

// harden sets what no answer of this side should lack: it is data for programs, never a page.
func harden(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// guard lets a request pass that carries the token, or, where there is none, one from this machine that was meant for this
// machine: a Host that is not a loopback name is a page in somebody's browser that was pointed here (DNS rebinding).
func (a *api) guard(next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(a.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.Token == "" {
			if !loopback(r.RemoteAddr) || !loopback(r.Host) {
				writeError(w, http.StatusForbidden, "without POSTBIT_ADMIN_TOKEN only clients on this machine are answered")
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		ok := strings.EqualFold(scheme, "Bearer") // RFC 9110, section 11.1
		got := sha256.Sum256([]byte(token))
		if !ok || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeError(w, http.StatusUnauthorized, "send the admin token as Authorization: Bearer …")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loopback reports whether a host, with or without a port, is this machine's own.
func loopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// ready answers 200 where every dependency does, else 503; in both cases with what each said.
func (a *api) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	type answer struct {
		name string
		err  error
	}
	answers := make(chan answer, len(a.Ready))
	for name, check := range a.Ready {
		go func() { answers <- answer{name, check(ctx)} }() // ends with ctx at the latest; the channel takes every answer
	}
	status, said := http.StatusOK, map[string]string{}
	for range a.Ready {
		got := <-answers
		said[got.name] = "ok"
		if got.err != nil {
			status, said[got.name] = http.StatusServiceUnavailable, "unreachable" // the reason may hold addresses: it goes to the log
			a.Log.Warn("not ready", "dependency", got.name, "err", got.err)
		}
	}
	write(w, status, said)
}

func write(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		writeError(w, http.StatusInternalServerError, "the answer could not be encoded")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}

func writeError(w http.ResponseWriter, status int, text string) {
	write(w, status, map[string]string{"error": text})
}
