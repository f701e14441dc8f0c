package mail

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net"
	"sync"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// sink is an SMTP server in the test's process that remembers what it was told.
type sink struct {
	*smtp.Server
	addr string
	auth []string // mechanisms on offer

	forget bool // what was received

	rcpt func(to string) error
	mail func(from string) error
	data func(to string) error

	mu       sync.Mutex
	got      []received
	sessions int
	resets   int
	logins   []string
}

type received struct {
	from, to string
	utf8     bool
	data     []byte
}

func startSink(t testing.TB, change func(*sink)) *sink {
	t.Helper()
	s := &sink{}
	s.Server = smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sessions++
		return &session{s: s}, nil
	}))
	s.Domain, s.ErrorLog, s.EnableSMTPUTF8, s.AllowInsecureAuth = "localhost", log.New(io.Discard, "", 0), true, true
	if change != nil {
		change(s)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-done })
	return s
}

func (s *sink) received() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]received(nil), s.got...)
}

func (s *sink) count() (sessions, resets int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions, s.resets
}

type session struct {
	s   *sink
	now received
}

func (x *session) AuthMechanisms() []string { return x.s.auth }

func (x *session) Auth(mech string) (sasl.Server, error) {
	check := func(user, password string) error {
		x.s.mu.Lock()
		defer x.s.mu.Unlock()
		x.s.logins = append(x.s.logins, mech+" "+user)
		if user != "zoë" || password != "s3cret:/@ word" {
			return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.EnhancedCode{5, 7, 8}, Message: "no: " + password}
		}
		return nil
	}
	if mech == sasl.Plain {
		return sasl.NewPlainServer(func(_, user, password string) error { return check(user, password) }), nil
	}
	return &loginServer{check: check}, nil
}

// loginServer is AUTH LOGIN with prompts in a style of its own.
type loginServer struct {
	step  int
	user  string
	check func(user, password string) error
}

func (l *loginServer) Next(response []byte) (challenge []byte, done bool, err error) {
	l.step++
	switch {
	case l.step == 1 && response == nil:
		return []byte("user name please"), false, nil
	case l.user == "":
		l.user = string(response)
		return []byte("and the password"), false, nil
	}
	return nil, true, l.check(l.user, string(response))
}

func (x *session) Reset() {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	x.s.resets++
}

func (x *session) Logout() error { return nil }

func (x *session) Mail(from string, o *smtp.MailOptions) error {
	x.now = received{from: from, utf8: o.UTF8}
	if x.s.mail != nil {
		return x.s.mail(from)
	}
	return nil
}

func (x *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	x.now.to = to
	if x.s.rcpt != nil {
		return x.s.rcpt(to)
	}
	return nil
}

func (x *session) Data(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if x.s.data != nil {
		if err := x.s.data(x.now.to); err != nil {
			return err
		}
	}
	if x.s.forget {
		return nil
	}
	x.now.data = b
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	x.s.got = append(x.s.got, x.now)
	return nil
}

func open(t testing.TB, url string) *pool {
	t.Helper()
	tr, err := Open(url, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr.(*pool)
}

func connect(t testing.TB, tr Transport) Conn {
	t.Helper()
	c, err := tr.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func send(t testing.TB, c Conn, to string) Reply {
	t.Helper()
	return c.Send(t.Context(), "news@example.com", to, false, []byte("Subject: x\r\n\r\n.dot\r\n..\r\nbody\r\n"))
}

func refuse(code int, enhanced smtp.EnhancedCode, text string) error {
	return &smtp.SMTPError{Code: code, EnhancedCode: enhanced, Message: text}
}

// script is a server that says what it is told to, for what no well-behaved one does.
type script struct {
	addr string
	done chan struct{}
}

// talk plays the server's side of one connection.
type talk struct {
	net.Conn
	buf []byte
}

// line reads a command; empty when the client has gone.
func (k *talk) line() string {
	for {
		if i := bytes.IndexByte(k.buf, '\n'); i >= 0 {
			l := string(bytes.TrimRight(k.buf[:i], "\r"))
			k.buf = k.buf[i+1:]
			return l
		}
		p := make([]byte, 4096)
		n, err := k.Read(p)
		k.buf = append(k.buf, p[:n]...)
		if err != nil {
			return ""
		}
	}
}

// message reads up to the end of DATA and reports whether it came.
func (k *talk) message() bool {
	for {
		if i := bytes.Index(k.buf, []byte("\r\n.\r\n")); i >= 0 {
			k.buf = k.buf[i+5:]
			return true
		}
		p := make([]byte, 64<<10)
		n, err := k.Read(p)
		k.buf = append(k.buf, p[:n]...)
		if err != nil {
			return false
		}
	}
}

func (k *talk) say(s string) { io.WriteString(k, s+"\r\n") }

// reset closes so that the other side's writes fail, too.
func (k *talk) reset() {
	k.Conn.(*net.TCPConn).SetLinger(0)
	k.Close()
}

func startScript(t testing.TB, play func(*talk)) *script {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &script{addr: l.Addr().String(), done: make(chan struct{})}
	var conns sync.WaitGroup
	go func() {
		defer close(s.done)
		defer conns.Wait()
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			conns.Go(func() { defer c.Close(); play(&talk{Conn: c}) })
		}
	}()
	t.Cleanup(func() { l.Close(); <-s.done })
	return s
}

// upTo plays a server that is in order until the step that is named, and then does what the test says.
func upTo(step string, then func(*talk)) func(*talk) {
	return func(k *talk) {
		for _, s := range []struct{ name, reply string }{{"greeting", "220 hi"}, {"EHLO", "250-hi\r\n250 8BITMIME"}, {"MAIL", "250 ok"}, {"RCPT", "250 ok"}, {"DATA", "354 go"}, {"end", "250 ok"}} {
			switch s.name {
			case "greeting":
			case "end":
				if step == "body" {
					then(k)
					return
				}
				if !k.message() {
					return
				}
			default:
				k.line()
			}
			if s.name == step {
				then(k)
				return
			}
			k.say(s.reply)
		}
		k.line() // QUIT
	}
}
