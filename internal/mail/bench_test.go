package mail

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkSend compares mails per second with those of a bare sender that speaks the same dialogue over the same number of connections, and prints the ratio.
// POSTBIT_BENCH_SMTP names a server that takes everything (such as the sink of bench/); without it a server in this process is
// used, which takes its share of the processor.
func BenchmarkSend(b *testing.B) {
	addr := os.Getenv("POSTBIT_BENCH_SMTP")
	if addr == "" {
		addr = startSink(b, nil).addr
	}
	m := benchMessage()
	raw, err := m.Encode()
	if err != nil {
		b.Fatal(err)
	}
	const senders = 16
	var next atomic.Int64
	measure := func(name string, sender func(pb *testing.PB)) (perSecond float64) {
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(senders / 2)
			start := time.Now()
			b.RunParallel(sender)
			perSecond = float64(b.N) / time.Since(start).Seconds()
			b.ReportMetric(perSecond, "mails/s")
		})
		return perSecond
	}
	bare := measure("bare", func(pb *testing.PB) { bareSender(b, addr, raw, pb, &next) })
	tr := open(b, "smtp://"+addr)
	send := func(encode bool) func(pb *testing.PB) {
		return func(pb *testing.PB) {
			c := connect(b, tr)
			defer func() { c.Release() }()
			for pb.Next() {
				if !c.Usable() {
					c.Release()
					c = connect(b, tr)
				}
				msg := raw
				if encode {
					msg, _ = m.Encode()
				}
				if r := c.Send(b.Context(), "news@example.com", fmt.Sprintf("u%d@example.org", next.Add(1)), false, msg); r.Class != Accepted {
					b.Errorf("%+v", r)
				}
			}
		}
	}
	pooled := measure("pool", send(false))
	whole := measure("pool+MIME", send(true))
	b.Logf("of the bare sender's rate: %.0f %% over the pool, %.0f %% with MIME", 100*pooled/bare, 100*whole/bare)
}

func bareSender(b *testing.B, addr string, raw []byte, pb *testing.PB, next *atomic.Int64) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Error(err)
		return
	}
	defer c.Close()
	r := bufio.NewReader(c)
	expect := func(code string) {
		for {
			line, err := r.ReadSlice('\n')
			if err != nil || len(line) < 4 || string(line[:3]) != code {
				b.Errorf("%q, %v; want %s", line, err, code)
				return
			}
			if line[3] == ' ' {
				return
			}
		}
	}
	say := func(s, code string) { c.Write([]byte(s)); expect(code) }
	expect("220")
	say("EHLO localhost\r\n", "250")
	data := append(bytes.ReplaceAll(raw, []byte("\r\n."), []byte("\r\n..")), ".\r\n"...)
	for pb.Next() {
		say("MAIL FROM:<news@example.com> BODY=8BITMIME\r\n", "250")
		say(fmt.Sprintf("RCPT TO:<u%d@example.org>\r\n", next.Add(1)), "250")
		say("DATA\r\n", "354")
		c.Write(data)
		expect("250")
	}
}
