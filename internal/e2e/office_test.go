package e2e

import (
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"net"
	"net/mail"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"postbit/internal/clock"
	postbitmail "postbit/internal/mail"
)

func address(i int) string { return fmt.Sprintf("u%d@d%d.example", i, i%7) }

func addressee(to string) int {
	i, _ := strconv.Atoi(strings.TrimPrefix(to[:strings.IndexByte(to, '@')], "u"))
	return i
}

// office is an SMTP server that answers as a test wants and remembers what it took.
type office struct {
	*smtp.Server
	addr string
	clk  *clock.Clock

	// Set before the first connection: they are read without a lock.
	rcpt func(user, nth int) error // before it is accepted; nth counts this user's mails from 1. errCut closes the connection instead of answering
	data func(user, nth int) error // after the message has come, before it counts as taken
	done func(user, nth int) error // after it was taken, before the answer

	mu    sync.Mutex
	tries map[int]int
	took  map[int][]taken
	total int
	down  atomic.Int64 // so many sessions are refused
}

func openTransport(url string) (postbitmail.Transport, error) {
	return postbitmail.Open(url, postbitmail.Options{})
}

func contains(s, part string) bool { return strings.Contains(s, part) }

type taken struct {
	subject, id string
	at          time.Time
}

// errCut closes the connection where an answer is due.
var errCut = errors.New("cut")

func openOffice(t testing.TB) *office {
	t.Helper()
	o := &office{tries: map[int]int{}, took: map[int][]taken{}}
	o.Server = smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		if o.down.Add(-1) >= 0 {
			return nil, errCut
		}
		o.down.Store(0)
		return &visit{o: o, c: c}, nil
	}))
	o.Domain, o.ErrorLog, o.AllowInsecureAuth = "localhost", log.New(io.Discard, "", 0), true
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.addr = l.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() { _ = o.Serve(l) })
	t.Cleanup(func() { _ = o.Close(); serving.Wait() })
	return o
}

// accepted is how many mails it took.
func (o *office) accepted() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total
}

// copies is how many mails of a campaign a user has.
func (o *office) copies(user int, campaign string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, m := range o.took[user] {
		if strings.HasPrefix(m.subject, campaign+" for") {
			n++
		}
	}
	return n
}

// times are when mails were taken.
func (o *office) times() (at []time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, ms := range o.took {
		for _, m := range ms {
			at = append(at, m.at)
		}
	}
	return at
}

type visit struct {
	o    *office
	c    *smtp.Conn
	user int
	nth  int
	open bool
}

func (v *visit) AuthMechanisms() []string { return []string{sasl.Plain} }

func (v *visit) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, _, _ string) error {
		return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.EnhancedCode{5, 7, 8}, Message: "authentication failed"}
	}), nil
}

func (v *visit) Mail(string, *smtp.MailOptions) error {
	if v.open {
		return &smtp.SMTPError{Code: 503, Message: "nested MAIL"}
	}
	v.open = true
	return nil
}

func (v *visit) Rcpt(to string, _ *smtp.RcptOptions) error {
	v.user = addressee(to)
	v.o.mu.Lock()
	v.o.tries[v.user]++
	v.nth = v.o.tries[v.user]
	v.o.mu.Unlock()
	return v.ask(v.o.rcpt)
}

func (v *visit) ask(f func(user, nth int) error) error {
	if f == nil {
		return nil
	}
	err := f(v.user, v.nth)
	if errors.Is(err, errCut) {
		_ = v.c.Conn().Close()
	}
	return err
}

func (v *visit) Data(r io.Reader) error {
	m, err := mail.ReadMessage(r)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	if err := v.ask(v.o.data); err != nil {
		return err
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	if err != nil {
		return err
	}
	v.o.mu.Lock()
	v.o.took[v.user] = append(v.o.took[v.user], taken{subject, m.Header.Get("Message-Id"), v.o.clk.Now()})
	v.o.total++
	v.o.mu.Unlock()
	return v.ask(v.o.done)
}

func (v *visit) Reset()        { v.open = false }
func (v *visit) Logout() error { return nil }
