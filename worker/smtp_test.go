package worker

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/emersion/go-smtp"
	"github.com/google/go-cmp/cmp"

	"postbit/internal/mail"
)

// server is a real SMTP server whose answers a test chooses.
type server struct {
	mu   sync.Mutex
	got  map[int]int
	rcpt func(user int) error
	data func(user int) error // after the message has come
}

func (s *server) NewSession(*smtp.Conn) (smtp.Session, error) { return &session{s: s}, nil }

type session struct {
	s    *server
	user int
	open bool // MAIL was accepted
}

func (c *session) Mail(string, *smtp.MailOptions) error {
	if c.open {
		return &smtp.SMTPError{Code: 503, Message: "nested MAIL"}
	}
	c.open = true
	return nil
}

func (c *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	c.user = addressee(to)
	if c.s.rcpt != nil {
		return c.s.rcpt(c.user)
	}
	return nil
}

func (c *session) Data(r io.Reader) error {
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	if c.s.data != nil {
		if err := c.s.data(c.user); err != nil {
			return err
		}
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.got[c.user]++
	return nil
}

func (c *session) Reset()        { c.open = false }
func (c *session) Logout() error { return nil }

// S6, S5 and S7 over a real connection: a refusal at RCPT does not spoil the mail after it, and a reply that never comes leaves one
// user unconfirmed.
func TestOverARealConnection(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.seed(20)
	s := &server{got: map[int]int{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	h.check(err)
	srv := smtp.NewServer(s)
	srv.Domain = "mx.example.net"
	hung := make(chan struct{})
	s.rcpt = func(user int) error {
		switch user {
		case 1, 2, 3:
			return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user"}
		case 4:
			return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 7, 1}, Message: "greylisted"}
		}
		return nil
	}
	s.data = func(user int) error {
		if user == 10 { // accepted, and then nothing
			s.mu.Lock()
			s.got[user]++
			s.mu.Unlock()
			close(hung)
			srv.Close()
			return errors.New("gone")
		}
		return nil
	}
	var serving sync.WaitGroup
	serving.Go(func() { srv.Serve(l) })
	tr, err := mail.Open("smtp://"+l.Addr().String(), mail.Options{})
	h.check(err)
	t.Cleanup(func() { tr.Close(); srv.Close(); serving.Wait() })

	r := h.run("winback", 20)
	w := h.worker(func(c *Config) { c.Transport = tr; c.Connections = 1 })
	h.handle(w, r)
	<-hung
	got := h.outcomes(r)
	want := map[string][]int{"sent": {0, 5, 6, 7, 8, 9}, "failed/bounced": {1, 2, 3}, "unconfirmed": {10},
		"waiting": {4, 11, 12, 13, 14, 15, 16, 17, 18, 19}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for user, n := range s.got {
		if n != 1 {
			t.Errorf("user %d has %d copies", user, n)
		}
	}
}
