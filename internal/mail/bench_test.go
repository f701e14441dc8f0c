package mail

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// BenchmarkSend compares mails per second over the pool, and over the pool with MIME made for each, with those of a bare sender that speaks the same
// dialogue with one finished message. They take turns over 16 connections each, so that whatever else the machine does weighs on all. POSTBIT_BENCH_SMTP names a
// server that takes everything (such as the sink of bench/); without it there is one in this process.
func BenchmarkSend(b *testing.B) {
	addr := os.Getenv("POSTBIT_BENCH_SMTP")
	if addr == "" {
		addr = startSink(b, func(s *sink) { s.forget = true }).addr
	}
	m := benchMessage()
	raw, err := m.Encode()
	if err != nil {
		b.Fatal(err)
	}
	const conns, turn = 16, 500
	var next atomic.Int64
	recipient := func() string { return fmt.Sprintf("u%d@example.org", next.Add(1)) }
	ways := map[string][]func(){}
	tr := open(b, "smtp://"+addr+"?max_messages=100000000")
	for range conns {
		bare := dialBare(b, addr)
		defer bare.Close()
		ways["bare"] = append(ways["bare"], func() { bare.send(b, recipient(), raw) })
		for way, encode := range map[string]bool{"pool": false, "pool+MIME": true} {
			c := connect(b, tr)
			defer c.Release()
			var buf []byte
			ways[way] = append(ways[way], func() {
				msg := raw
				if encode {
					buf, _ = m.AppendTo(buf[:0])
					msg = buf
				}
				if r := c.Send(b.Context(), "news@example.com", recipient(), false, msg); r.Class != Accepted {
					b.Errorf("%+v", r)
				}
			})
		}
	}
	spent := takeTurns(b, turn, ways, "bare", "pool", "pool+MIME")
	bare := spent["bare"].wall.Seconds()
	b.ReportMetric(float64(b.N)/bare, "bare/s")
	b.ReportMetric(float64(b.N)/spent["pool+MIME"].wall.Seconds(), "mails/s")
	b.ReportMetric(100*bare/spent["pool"].wall.Seconds(), "%pool")
	b.ReportMetric(100*bare/spent["pool+MIME"].wall.Seconds(), "%with-MIME")
}

// effort is what some mails took. The processor's part of this process, with the sink's where that is in it, hardly depends on what else the machine does.
type effort struct{ wall, processor time.Duration }

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// takeTurns sends b.N mails in each way, in rounds, and gives what each took.
func takeTurns(b *testing.B, turn int, ways map[string][]func(), order ...string) map[string]effort {
	spent := map[string]effort{}
	b.ResetTimer()
	for left := b.N; left > 0; left -= turn {
		for _, way := range order {
			start, before := time.Now(), processorTime(b)
			var todo atomic.Int64
			var wg sync.WaitGroup
			for _, send := range ways[way] {
				wg.Go(func() {
					for todo.Add(1) <= int64(min(turn, left)) {
						send()
					}
				})
			}
			wg.Wait()
			so := spent[way]
			spent[way] = effort{so.wall + time.Since(start), so.processor + processorTime(b) - before}
		}
	}
	return spent
}

// BenchmarkSignedSend compares mails per second with signatures of each kind with those without, MIME and SMTP included, as BenchmarkSend does.
func BenchmarkSignedSend(b *testing.B) {
	addr := os.Getenv("POSTBIT_BENCH_SMTP")
	if addr == "" {
		addr = startSink(b, func(s *sink) { s.forget = true }).addr
	}
	m := benchMessage()
	r, e := rsaKey(b), edKey(b)
	ways := map[string][]func(){}
	for way, keys := range map[string][]*SigningKey{"unsigned": nil, "rsa": {r}, "ed25519": {e}, "both": {r, e}} {
		o := Options{}
		if keys != nil {
			o.Signer = signer(b, keys...)
		}
		tr, err := Open("smtp://"+addr+"?max_messages=100000000", o)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { tr.Close() })
		for range 16 {
			c := connect(b, tr)
			defer c.Release()
			var buf []byte
			ways[way] = append(ways[way], func() {
				buf, _ = m.AppendTo(buf[:0])
				if r := c.Send(b.Context(), "news@example.com", "zoe@example.org", false, buf); r.Class != Accepted {
					b.Errorf("%+v", r)
				}
			})
		}
	}
	spent := takeTurns(b, 200, ways, "unsigned", "rsa", "ed25519", "both")
	unsigned := spent["unsigned"]
	for _, way := range []string{"unsigned", "rsa", "ed25519", "both"} {
		b.ReportMetric(float64(b.N)/spent[way].wall.Seconds(), way+"/s")
		b.ReportMetric(100*unsigned.wall.Seconds()/spent[way].wall.Seconds(), "%"+way)
		b.ReportMetric(float64(spent[way].processor.Microseconds())/float64(b.N), "µs-cpu-"+way)
	}
}

// BenchmarkSign is the signatures alone, of a mail of 6 kB.
func BenchmarkSign(b *testing.B) {
	raw, err := benchMessage().Encode()
	if err != nil {
		b.Fatal(err)
	}
	for name, keys := range map[string][]*SigningKey{"rsa": {rsaKey(b)}, "ed25519": {edKey(b)}, "both": {rsaKey(b), edKey(b)}} {
		s := signer(b, keys...)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Sign(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// bareSender is as fast as one can be that waits for each reply.
type bareSender struct {
	net.Conn
	r    *bufio.Reader
	data []byte
}

func dialBare(b *testing.B, addr string) *bareSender {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	s := &bareSender{Conn: c, r: bufio.NewReader(c)}
	s.expect(b, "220")
	s.say(b, "EHLO localhost\r\n", "250")
	return s
}

func (s *bareSender) say(b *testing.B, line, code string) {
	s.Write([]byte(line))
	s.expect(b, code)
}

func (s *bareSender) expect(b *testing.B, code string) {
	for {
		line, err := s.r.ReadSlice('\n')
		if err != nil || len(line) < 4 || string(line[:3]) != code {
			b.Errorf("%q, %v; want %s", line, err, code)
			return
		}
		if line[3] == ' ' {
			return
		}
	}
}

func (s *bareSender) send(b *testing.B, to string, raw []byte) {
	if s.data == nil {
		s.data = append(bytes.ReplaceAll(raw, []byte("\r\n."), []byte("\r\n..")), ".\r\n"...)
	}
	s.say(b, "MAIL FROM:<news@example.com> BODY=8BITMIME\r\n", "250")
	s.say(b, "RCPT TO:<"+to+">\r\n", "250")
	s.say(b, "DATA\r\n", "354")
	s.Write(s.data)
	s.expect(b, "250")
}
