package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
)

// Both listeners of serve refuse what has no end. How long anybody may take is tested in internal/web, which serves both.
func TestServeRefusesWhatIsTooLarge(t *testing.T) {
	s := newShell(t)
	s.serve()
	long := strings.Repeat("x", 64<<10)
	json := fmt.Sprintf("Host: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{\"user\":%q", 2*len(long), long)
	for _, c := range []struct {
		name, request string
		want          map[string]int // by side
	}{
		{"nothing is", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", map[string]int{"public": 404, "admin": 200}},
		{"the URL", "GET /o/" + long + ".gif HTTP/1.1\r\nHost: localhost\r\n\r\n", map[string]int{"public": 431, "admin": 431}},
		{"a header", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: " + long + "\r\n\r\n", map[string]int{"public": 431, "admin": 431}},
		{"the body", "POST /api/send HTTP/1.1\r\n" + json, map[string]int{"admin": 413}},
	} {
		for side, want := range c.want {
			conn, err := net.Dial("tcp", s.address(side))
			if err != nil {
				t.Fatal(err)
			}
			sent := make(chan struct{})
			go func() { _, _ = conn.Write([]byte(c.request)); close(sent) }()
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Errorf("%s: %s: %v", side, c.name, err)
			} else {
				_ = res.Body.Close()
				if res.StatusCode != want {
					t.Errorf("%s: %s: %d, want %d", side, c.name, res.StatusCode, want)
				}
			}
			_ = conn.Close()
			<-sent
		}
	}
}
