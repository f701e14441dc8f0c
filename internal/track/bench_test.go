package track

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/clock"
)

// BenchmarkPixel compares the pixel, from the request to the spool on disk, with a bare net/http handler that serves the same image without looking at the
// request, over 32 kept connections each. The two take turns, so that whatever else the machine does weighs on both. The client in this process has its share
// of the processor, in both, too.
func BenchmarkPixel(b *testing.B) {
	paths, handler := benchPixel(b)
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"], w.Header()["Content-Length"], w.Header()["Cache-Control"] = hGIF, hGIFLength, hNoStore
		w.Write(pixelGIF)
	})
	const conns, turn = 32, 1000
	rounds := map[string]func(n int){}
	for name, h := range map[string]http.Handler{"bare": bare, "pixel": handler} {
		server := httptest.NewServer(h)
		defer server.Close()
		var clients [conns]*httpConn
		for i := range clients {
			clients[i] = dialHTTP(b, server.Listener.Addr().String())
			defer clients[i].Close()
		}
		rounds[name] = func(n int) {
			var next atomic.Int64
			var wg sync.WaitGroup
			for _, c := range clients {
				wg.Go(func() {
					for k := int(next.Add(1)); k <= n; k = int(next.Add(1)) {
						c.get(b, paths[k%len(paths)])
					}
				})
			}
			wg.Wait()
		}
		rounds[name](turn) // warm
	}
	spent := map[string]time.Duration{}
	b.ResetTimer()
	for left := b.N; left > 0; left -= turn {
		for _, name := range []string{"bare", "pixel"} {
			start := time.Now()
			rounds[name](min(turn, left))
			spent[name] += time.Since(start)
		}
	}
	b.ReportMetric(float64(b.N)/spent["pixel"].Seconds(), "hits/s")
	b.ReportMetric(float64(b.N)/spent["bare"].Seconds(), "bare/s")
	b.ReportMetric(100*float64(spent["bare"])/float64(spent["pixel"]), "%of-bare")
}

// BenchmarkPixelLatency asks 2,000 times a second, whatever the answers take, and prints how long they took.
func BenchmarkPixelLatency(b *testing.B) {
	paths, handler := benchPixel(b)
	server := httptest.NewServer(handler)
	defer server.Close()
	const conns, rate = 64, 2000
	var mu sync.Mutex
	var all []time.Duration
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	start := time.Now()
	for range conns {
		wg.Go(func() {
			c := dialHTTP(b, server.Listener.Addr().String())
			defer c.Close()
			var own []time.Duration
			for {
				n := next.Add(1) - 1
				if n >= int64(b.N) {
					break
				}
				due := start.Add(time.Duration(n) * time.Second / rate)
				time.Sleep(time.Until(due))
				c.get(b, paths[int(n)%len(paths)])
				own = append(own, time.Since(due)) // from when it was due: what waits in line counts
			}
			mu.Lock()
			all = append(all, own...)
			mu.Unlock()
		})
	}
	wg.Wait()
	slices.Sort(all)
	at := func(q float64) float64 { return all[int(q*float64(len(all)-1))].Seconds() * 1000 }
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
	b.ReportMetric(at(1), "max-ms")
	b.ReportMetric(float64(len(all))/time.Since(start).Seconds(), "hits/s")
}

func benchPixel(b *testing.B) ([]string, http.Handler) {
	keys := testKeys(b)
	paths := make([]string, 1000)
	for i := range paths {
		paths[i] = "/o/" + keys.Sign(Token{Kind: Open, Run: testRun, User: userID(b, bson.NewObjectID()), SentAt: noon}) + ".gif"
	}
	spool, err := OpenSpool(b.TempDir(), SpoolOptions{Sync: DefaultSync})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { spool.Close() })
	return paths, NewHandler(HandlerConfig{Keys: keys, Spool: spool, Clock: clock.New()})
}

// httpConn is a client that costs little.
type httpConn struct {
	net.Conn
	r   *bufio.Reader
	buf []byte
}

func dialHTTP(b *testing.B, addr string) *httpConn {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	return &httpConn{Conn: c, r: bufio.NewReader(c)}
}

func (c *httpConn) get(b *testing.B, path string) {
	c.buf = append(append(append(c.buf[:0], "GET "...), path...), " HTTP/1.1\r\nHost: localhost\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: image/*\r\n\r\n"...)
	if _, err := c.Write(c.buf); err != nil {
		b.Error(err)
		return
	}
	length := 0
	for first := true; ; first = false {
		line, err := c.r.ReadSlice('\n')
		if err != nil || first && string(line[9:12]) != "200" {
			b.Errorf("%q, %v", line, err)
			return
		}
		if len(line) == 2 {
			break
		}
		if name := "Content-Length: "; len(line) > len(name) && string(line[:len(name)]) == name {
			length, _ = strconv.Atoi(string(line[len(name) : len(line)-2]))
		}
	}
	if n, err := io.CopyN(io.Discard, c.r, int64(length)); err != nil || n != int64(len(pixelGIF)) {
		b.Error(fmt.Errorf("%d bytes, %w", n, err))
	}
}
