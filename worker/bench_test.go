package worker

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/campaign"
	"postbit/internal/mail"
	"postbit/internal/queue"
	"postbit/templates"
)

const (
	benchUsers  = 8_000
	benchAtOnce = 8
)

// BenchmarkMails is the rate of whole runs, rules, rendering and MIME included, over SMTP to a sink in this process. Compare it with
// BenchmarkMailsBare of the same run: the same writes to the database and the same SMTP dialogue, and nothing else.
// POSTBIT_TEST_MONGO_URI names the server; without it, it is a minimongo in this process.
func BenchmarkMails(b *testing.B) {
	sink := newSink(b)
	h := newHouse(b)
	h.seed(benchUsers)
	tr, err := mail.Open("smtp://"+sink.addr, mail.Options{})
	h.check(err)
	b.Cleanup(func() { tr.Close() })
	w := h.worker(func(c *Config) { c.Transport = tr })
	var cpu time.Duration
	for n := range b.N {
		b.StopTimer()
		t := template(100 + n)
		r := h.run(fmt.Sprintf("run%d", n), benchUsers, func(r *campaign.Run) { r.Template = templates.Snapshot(t) })
		cpu -= cpuTime()
		b.StartTimer()
		atOnce(benchUsers/500, func(k int) {
			h.check(w.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: k + 1, Pass: 1}))
		})
		b.StopTimer()
		cpu += cpuTime()
		if c := h.progress(r).Counts; c.Sent != benchUsers {
			b.Fatalf("%+v", c)
		}
	}
	report(b, cpu)
}

func BenchmarkMailsBare(b *testing.B) {
	sink := newSink(b)
	h := newHouse(b)
	h.seed(benchUsers)
	msg := bytes.Repeat([]byte("a line of a mail that is about as long as the real ones are\r\n"), 24)
	var cpu time.Duration
	for n := range b.N {
		b.StopTimer()
		r := h.run(fmt.Sprintf("run%d", n), benchUsers)
		pool := make(chan *smtp.Client, benchAtOnce)
		cpu -= cpuTime()
		b.StartTimer()
		atOnce(benchUsers/500, func(k int) {
			var c *smtp.Client
			select {
			case c = <-pool:
			default:
				var err error
				c, err = smtp.Dial(sink.addr)
				h.check(err)
				h.check(c.Hello("localhost"))
			}
			h.bareBatch(c, r, k+1, msg)
			pool <- c
		})
		b.StopTimer()
		cpu += cpuTime()
		close(pool)
		for c := range pool {
			c.Close()
		}
	}
	report(b, cpu)
}

// report gives the rate, and what a mail costs this process, the sink included: that can be compared on a busy machine, too.
func report(b *testing.B, cpu time.Duration) {
	mails := float64(benchUsers * b.N)
	b.ReportMetric(mails/b.Elapsed().Seconds(), "mails/s")
	b.ReportMetric(float64(cpu.Microseconds())/mails, "cpu-µs/mail")
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func (h *house) bareBatch(c *smtp.Client, r *campaign.Run, n int, msg []byte) {
	batches := h.db.Collection(campaign.BatchCollection(r.Slot), campaign.Durable())
	coll := h.db.Collection("users", campaign.Durable())
	id := bson.D{{Key: "_id", Value: campaign.BatchID(r.ID, n)}}
	set := func(d bson.D) {
		_, err := batches.UpdateOne(h.ctx, id, bson.D{{Key: "$set", Value: d}})
		h.check(err)
	}
	_, err := batches.FindOneAndUpdate(h.ctx, id, bson.D{{Key: "$inc", Value: bson.D{{Key: "epoch", Value: 1}}}}).Raw()
	h.check(err)
	cur, err := coll.Find(h.ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: int32((n - 1) * 500)}, {Key: "$lte", Value: int32(n*500 - 1)}}}})
	h.check(err)
	var docs []struct {
		ID    int32  `bson:"_id"`
		Email string `bson:"email"`
	}
	h.check(cur.All(h.ctx, &docs))
	log := make([]byte, 4500)
	for at := 0; at < len(docs); at += campaign.MaxWaveUsers {
		wave := docs[at:min(at+campaign.MaxWaveUsers, len(docs))]
		set(bson.D{{Key: "open", Value: bson.Binary{Data: make([]byte, 64)}}, {Key: "rev", Value: at}, {Key: "log", Value: bson.Binary{Data: log}}})
		models := make([]mongo.WriteModel, len(wave))
		for k, u := range wave {
			models[k] = mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: u.ID}, {Key: "postbit.status", Value: bson.D{{Key: "$exists", Value: false}}}}).
				SetUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: "tpls_sent_at_least_once", Value: bson.Binary{Data: make([]byte, 19)}},
					{Key: "postbit", Value: bson.D{{Key: "first_at", Value: testStart}, {Key: "last_at", Value: testStart}, {Key: "runs", Value: bson.Binary{Data: make([]byte, 16)}}}}}}})
		}
		_, err := coll.BulkWrite(h.ctx, models, options.BulkWrite().SetOrdered(false))
		h.check(err)
		for _, u := range wave {
			h.check(c.Mail("news@example.com", nil))
			h.check(c.Rcpt(u.Email, nil))
			d, err := c.Data()
			h.check(err)
			_, err = d.Write(msg)
			h.check(err)
			h.check(d.Close())
		}
		set(bson.D{{Key: "open", Value: nil}, {Key: "rev", Value: at + 1}, {Key: "log", Value: bson.Binary{Data: log}}})
	}
	set(bson.D{{Key: "state", Value: "done"}, {Key: "counts", Value: bson.D{{Key: "sent", Value: 500}}}, {Key: "log", Value: bson.Binary{Data: log}}})
}

// atOnce calls f for 0 to n-1, benchAtOnce at a time.
func atOnce(n int, f func(k int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range benchAtOnce {
		all.Go(func() {
			for k := int(next.Add(1)) - 1; k < n; k = int(next.Add(1)) - 1 {
				f(k)
			}
		})
	}
	all.Wait()
}

// sink is an SMTP server that accepts and forgets.
type sink struct {
	addr  string
	l     net.Listener
	wg    sync.WaitGroup
	mu    sync.Mutex
	open  map[net.Conn]bool
	mails atomic.Int64
}

func newSink(t testing.TB) *sink {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &sink{addr: l.Addr().String(), l: l, open: map[net.Conn]bool{}}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.open[c] = true
			s.mu.Unlock()
			s.wg.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for c := range s.open {
			c.Close()
		}
		s.mu.Unlock()
		s.wg.Wait()
	})
	return s
}

func (s *sink) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReaderSize(c, 64<<10)
	io.WriteString(c, "220 sink\r\n")
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		answer := "250 ok\r\n"
		switch verb := strings.ToUpper(strings.TrimSpace(line)); {
		case strings.HasPrefix(verb, "EHLO"):
			answer = "250-sink\r\n250-8BITMIME\r\n250 SMTPUTF8\r\n"
		case verb == "DATA":
			io.WriteString(c, "354 go on\r\n")
			for {
				data, err := r.ReadSlice('\n')
				if err != nil {
					return
				}
				if string(data) == ".\r\n" {
					break
				}
			}
			s.mails.Add(1)
		case verb == "QUIT":
			io.WriteString(c, "221 bye\r\n")
			return
		}
		io.WriteString(c, answer)
	}
}
