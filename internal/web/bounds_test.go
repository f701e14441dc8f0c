package web_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"postbit/internal/web"
)

// Both listeners are served by Serve: a request whose line or headers have no end is refused before any handler sees it.
func TestServeBoundsWhatItReads(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	seen := 0
	var serving sync.WaitGroup
	serving.Go(func() {
		_ = web.Serve(ctx, l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { mu.Lock(); seen++; mu.Unlock() }), time.Second, slog.New(slog.DiscardHandler))
	})
	defer serving.Wait()
	defer stop()
	for _, c := range []struct {
		name, line, header string
		want               int
	}{
		{"plain", "/o/x.gif", "A: b", 200},
		{"a URL of 10 kB", "/o/" + strings.Repeat("x", 10_000), "A: b", 200},
		{"a URL of 64 kB", "/o/" + strings.Repeat("x", 64<<10), "A: b", 431},
		{"a header of 64 kB", "/o/x.gif", "A: " + strings.Repeat("b", 64<<10), 431},
		{"thousands of headers", "/o/x.gif", strings.TrimSuffix(strings.Repeat("A: b\r\n", 10_000), "\r\n"), 431},
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		go fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n%s\r\n\r\n", c.line, c.header)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else {
			_ = res.Body.Close()
			if res.StatusCode != c.want {
				t.Errorf("%s: %d, want %d", c.name, res.StatusCode, c.want)
			}
		}
		_ = conn.Close()
	}
	mu.Lock()
	defer mu.Unlock()
	if seen != 2 {
		t.Errorf("%d requests came through", seen)
	}
}
