package web_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/clock"
	"postbit/internal/track"
	"postbit/internal/web"
)

// patience is how long a test that fails waits for what never comes. No test that passes waits for it.
const patience = time.Minute

type nowhere struct{}

func (nowhere) Append(context.Context, track.Hit) error { return nil }

// sides are the handlers of both listeners, and a request with a body that each of them reads.
func sides(t *testing.T) map[string]struct {
	handler http.Handler
	post    string
} {
	t.Helper()
	keys, err := track.ParseKeys("k:" + strings.Repeat("QUFB", 16))
	if err != nil {
		t.Fatal(err)
	}
	urls, err := track.NewURLs("http://h", keys)
	if err != nil {
		t.Fatal(err)
	}
	user := bson.RawValue{Type: bson.TypeInt32, Value: []byte{7, 0, 0, 0}}
	return map[string]struct {
		handler http.Handler
		post    string
	}{
		"public": {track.NewHandler(track.HandlerConfig{Keys: keys, Spool: nowhere{}, Clock: clock.New()}),
			"POST " + strings.TrimPrefix(urls.Unsubscribe([8]byte{1}, user, time.Now()), "http://h") + " HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-www-form-urlencoded\r\n"},
		"admin": {web.New(web.Config{Operations: &operations{}}),
			"POST /api/send HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"},
	}
}

// dialled serves h within bounds and gives a connection to it.
func dialled(t *testing.T, b web.Bounds, h http.Handler) *net.TCPConn {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := web.ServeWithin(ctx, b, ln, h, 0, slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); serving.Wait() })
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

// Of all times only the one that a row is about is bounded, so nothing else can close the connection; and the client says no more by itself.
func TestWhoKeepsAConnectionIsLetGo(t *testing.T) {
	const short = 30 * time.Millisecond
	for side, s := range sides(t) {
		for _, c := range []struct {
			name    string
			bounds  web.Bounds
			said    string
			answers []int // before the connection is closed, where it comes to that
		}{
			{"says nothing", web.Bounds{Header: short}, "", nil},
			{"stops within the request line", web.Bounds{Header: short}, "GET /heal", nil},
			{"stops within the header", web.Bounds{Header: short}, "GET /healthz HTTP/1.1\r\nHost: h\r\nA: ", nil},
			{"says nothing, and the whole request has a bound", web.Bounds{Request: short}, "", nil},
			{"stops within the body", web.Bounds{Request: short}, s.post + "Content-Length: 1000\r\n\r\n{", []int{400}},
			{"stops within a chunk of the body", web.Bounds{Request: short}, s.post + "Transfer-Encoding: chunked\r\n\r\n5\r\n{", []int{400}},
			{"idle after a request", web.Bounds{Idle: short}, "HEAD /o/x.gif HTTP/1.1\r\nHost: localhost\r\n\r\n", []int{map[string]int{"public": 200, "admin": 404}[side]}},
			{"idle after a request, and the next begins", web.Bounds{Header: short, Idle: patience * 2}, "HEAD /o/x.gif HTTP/1.1\r\nHost: localhost\r\n\r\nGET /", []int{map[string]int{"public": 200, "admin": 404}[side]}},
		} {
			t.Run(side+" "+c.name, func(t *testing.T) {
				t.Parallel()
				conn := dialled(t, c.bounds, s.handler)
				_, _ = io.WriteString(conn, c.said) // a slow machine finds the connection closed already
				r := bufio.NewReader(conn)
				for _, want := range c.answers {
					method := http.MethodHead
					if strings.HasPrefix(c.said, "POST") {
						method = http.MethodPost
					}
					res, err := http.ReadResponse(r, &http.Request{Method: method})
					if errors.Is(err, os.ErrDeadlineExceeded) {
						t.Fatalf("no answer, and the connection stays open; want %d", want)
					}
					if err != nil {
						return // closed: the bound ran out on a slow machine before the request was there
					}
					_, _ = io.Copy(io.Discard, res.Body)
					if res.StatusCode != want {
						t.Errorf("%d, want %d", res.StatusCode, want)
					}
				}
				if rest, err := io.ReadAll(r); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the connection stays open; after %q", rest)
				}
			})
		}
	}
}

// Both listeners have all of the bounds.
func TestUsualBoundsLeaveNothingOut(t *testing.T) {
	v := reflect.ValueOf(web.Usual)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%s is not bounded", v.Type().Field(i).Name)
		}
	}
}

// Who asks and doesn't read the answer holds the handler no longer than the bound.
func TestWhoDoesNotReadIsLetGo(t *testing.T) {
	ended := make(chan error, 1)
	page := make([]byte, 1<<20)
	conn := dialled(t, web.Bounds{Answer: 30 * time.Millisecond}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(page); err != nil { // no buffer takes all of them
				ended <- err
				return
			}
		}
	}))
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	select {
	case err := <-ended:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("the handler still writes")
	}
}

// A body beyond what the handler of it needs is refused without being read to its end: this one has none.
func TestABodyWithoutEndIsRefused(t *testing.T) {
	for side, s := range sides(t) {
		want := map[string]int{"public": http.StatusBadRequest, "admin": http.StatusRequestEntityTooLarge}[side]
		open := map[string]string{"public": "x=", "admin": `{"template":"`}[side]
		for _, c := range []struct{ name, header, begin, more string }{
			{"a length of 1 TB", "Content-Length: 1000000000000\r\n", open, strings.Repeat("x", 1<<10)},
			{"chunks without end", "Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n", len(open), open), "400\r\n" + strings.Repeat("x", 1<<10) + "\r\n"},
		} {
			t.Run(side+" "+c.name, func(t *testing.T) {
				t.Parallel()
				conn := dialled(t, web.Bounds{}, s.handler) // no time-out ends it
				sent := make(chan int64, 1)
				go func() {
					n, err := io.WriteString(conn, s.post+c.header+"\r\n"+c.begin)
					total := int64(n)
					for err == nil { // until the server closes
						n, err = io.WriteString(conn, c.more)
						total += int64(n)
					}
					sent <- total
				}()
				res, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err == nil && res.StatusCode != want {
					t.Errorf("%d, want %d", res.StatusCode, want)
				}
				if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("no answer")
				}
				// A reset may overtake the answer; that it is refused shows in that the sender gets no further.
				if total := <-sent; total > 32<<20 {
					t.Errorf("%d bytes were taken", total)
				}
			})
		}
	}
}
