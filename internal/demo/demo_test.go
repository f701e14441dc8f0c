package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/smtp"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var world = World{Now: time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC), Bit: 7, Old: []int{0, 3}}

func TestPeopleAreTheSameEachTime(t *testing.T) {
	marshal := func() (out []string) {
		for p := range People(300, world) {
			data, err := bson.MarshalExtJSON(p, true, false)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(data))
		}
		return out
	}
	if diff := cmp.Diff(marshal(), marshal()); diff != "" {
		t.Error(diff)
	}
}

func TestADeckHoldsAHundred(t *testing.T) {
	sum := 0
	for _, n := range deck {
		if n == 0 {
			t.Error("a state that nobody is in")
		}
		sum += n
	}
	if sum != 100 {
		t.Errorf("got %d", sum)
	}
}

func TestIDsAreUniqueAndOfThreeTypes(t *testing.T) {
	seen, types := map[string]bool{}, map[string]bool{}
	for p := range People(2000, world) {
		id := p[0].Value
		key := fmt.Sprintf("%T %v", id, id)
		if seen[key] {
			t.Fatalf("%s twice", key)
		}
		seen[key], types[fmt.Sprintf("%T", id)] = true, true
	}
	if len(types) != 3 {
		t.Errorf("types: %v", types)
	}
}

func TestEveryHomeHasAZone(t *testing.T) {
	for _, h := range homes {
		if _, err := time.LoadLocation(h.zone); err != nil {
			t.Error(err)
		}
	}
}

func TestInbox(t *testing.T) {
	var mu sync.Mutex
	var got []Letter
	in, err := OpenInbox(t.Context(), slog.New(slog.DiscardHandler), func(l Letter) { mu.Lock(); defer mu.Unlock(); got = append(got, l) })
	if err != nil {
		t.Fatal(err)
	}
	c, err := smtp.Dial(strings.TrimPrefix(in.URL(), "smtp://"))
	if err != nil {
		t.Fatal(err)
	}
	send := func(to string) int {
		t.Helper()
		if err := c.Mail("a@a.example"); err != nil {
			t.Fatal(err)
		}
		var reply *textproto.Error
		if err := c.Rcpt(to); err != nil {
			if !errors.As(err, &reply) {
				t.Fatal(err)
			}
			if err := c.Reset(); err != nil {
				t.Fatal(err)
			}
			return reply.Code
		}
		w, err := c.Data()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(w, "Subject: x\r\nContent-Type: multipart/alternative; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nhttp://x/o/none.gif\r\n"+
			"--b\r\nContent-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n<a href=3D\"http://h:1/c/AQx-_=\r\n7\">b</a><a href=3D\"http://h:1/u/no\">u</a><img src=3D\"http://h:1/o/AQ=\r\nab-_9.gif\" width=3D1>\r\n--b--\r\n")
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return 250
	}
	for _, tc := range []struct {
		to   string
		want int
	}{{"a@x.example", 250}, {"a+gone@x.example", 550}, {"a+full@x.example", 552}, {"a+policy@x.example", 550}, {"a+later@x.example", 451}, {"a+later@x.example", 250}} {
		if got := send(tc.to); got != tc.want {
			t.Errorf("%s: got %d, want %d", tc.to, got, tc.want)
		}
	}
	_ = c.Close()
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	links := []string{"http://h:1/c/AQx-_7"}
	want := []Letter{{"a@x.example", "http://h:1/o/AQab-_9.gif", links}, {"a+later@x.example", "http://h:1/o/AQab-_9.gif", links}}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReaders(t *testing.T) {
	var machines, others atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.UserAgent() == agentScanner {
			machines.Add(1)
		} else {
			others.Add(1)
		}
	}))
	defer srv.Close()
	r := StartReaders(context.Background(), 4)
	for i := range 100 {
		for _, domain := range []string{proxyDomain, privacyDomain, scannerDomain, "post.example"} {
			r.Deliver(Letter{To: fmt.Sprintf("u%d@%s", i, domain), Pixel: srv.URL + "/o/x.gif"})
		}
	}
	r.Settle()
	if machines.Load() != 100 || others.Load() != 0 {
		t.Errorf("at once: %d machines, %d others", machines.Load(), others.Load())
	}
	n, _, err := r.Read(context.Background(), 4, func(int, int) {})
	r.Close()
	if err != nil || int64(n) != others.Load() || n < 150 || r.Loaded() != int64(n)+100 {
		t.Errorf("later: %d of %d, loaded %d, %v", others.Load(), n, r.Loaded(), err)
	}
}
