package mail

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"postbit/internal/certtest"
)

func TestSend(t *testing.T) {
	s := startSink(t, nil)
	tr := open(t, "smtp://"+s.addr)
	c := connect(t, tr)
	r := send(t, c, "zoe@example.org")
	if r.Class != Accepted || r.Code != 250 || r.Err != nil {
		t.Errorf("%+v", r)
	}
	if r := c.Send(t.Context(), "news@example.com", "jörg@xn--exmple-cua.de", true, []byte("\r\nx\r\n")); r.Class != Accepted {
		t.Errorf("%+v", r)
	}
	c.Release()
	got := s.received()
	if len(got) != 2 || got[0].from != "news@example.com" || got[0].to != "zoe@example.org" || got[0].utf8 || string(got[0].data) != "Subject: x\r\n\r\n.dot\r\n..\r\nbody\r\n" {
		t.Errorf("%+v", got)
	}
	if !got[1].utf8 || got[1].to != "jörg@xn--exmple-cua.de" {
		t.Errorf("%+v", got[1])
	}
}

func TestEncodedMailArrivesUnchanged(t *testing.T) {
	s := startSink(t, nil)
	c := connect(t, open(t, "smtp://"+s.addr))
	defer c.Release()
	m := benchMessage()
	m.HTML = strings.Repeat(".", 40000)
	raw := encode(t, m)
	if r := c.Send(t.Context(), m.From.Addr, m.To.Addr, false, raw); r.Class != Accepted {
		t.Fatalf("%+v", r)
	}
	if got := s.received()[0].data; string(got) != string(raw) {
		t.Error("other bytes arrived")
	}
}

// A line break that isn't CRLF must not be able to end the message for a server that takes it for one.
func TestMessagesThatAreNotQuiteMail(t *testing.T) {
	for name, tc := range map[string]struct{ msg, want string }{
		"dots":              {".\r\n..\r\n.a\r\n\r\n.\r\n", ".\r\n..\r\n.a\r\n\r\n.\r\n"},
		"no last line end":  {"a\r\nb", "a\r\nb\r\n"},
		"empty":             {"", "\r\n"},
		"one line end":      {"\r\n", "\r\n"},
		"LF alone":          {"a\n.\nMAIL FROM:<x@example.com>\n", "a\r\n.\r\nMAIL FROM:<x@example.com>\r\n"},
		"LF before a dot":   {"a\n.\r\nb\r\n", "a\r\n.\r\nb\r\n"},
		"ends in a lone LF": {"a\r\nb\n", "a\r\nb\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startSink(t, nil)
			c := connect(t, open(t, "smtp://"+s.addr))
			defer c.Release()
			for range 2 {
				if r := c.Send(t.Context(), "a@example.com", "b@example.com", false, []byte(tc.msg)); r.Class != Accepted {
					t.Errorf("%+v", r)
				}
			}
			got := s.received()
			if len(got) != 2 || string(got[0].data) != tc.want || string(got[1].data) != tc.want {
				t.Errorf("%+v", got)
			}
		})
	}
}

// S6: what comes after a refused recipient, over the same connection, arrives.
func TestNextMailAfterARefusal(t *testing.T) {
	for _, tc := range []struct {
		name   string
		refuse func(*sink)
		want   Class
	}{
		{"RCPT 550", func(s *sink) {
			s.rcpt = onlyFor("bad@", refuse(550, smtp.EnhancedCode{5, 1, 1}, "no such user"))
		}, Bounced},
		{"RCPT 451", func(s *sink) {
			s.rcpt = onlyFor("bad@", refuse(451, smtp.EnhancedCode{4, 2, 1}, "later"))
		}, Retry},
		{"end of DATA 554", func(s *sink) {
			s.data = onlyFor("bad@", refuse(554, smtp.EnhancedCode{-1, -1, -1}, "no"))
		}, Bounced},
		{"end of DATA 550 5.7.1", func(s *sink) {
			s.data = onlyFor("bad@", refuse(550, smtp.EnhancedCode{5, 7, 1}, "not you"))
		}, Policy},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := startSink(t, tc.refuse)
			c := connect(t, open(t, "smtp://"+s.addr))
			defer c.Release()
			for i := range 3 {
				if r := send(t, c, "bad@example.org"); r.Class != tc.want {
					t.Errorf("%d: %+v, want %v", i, r, tc.want)
				}
				if r := send(t, c, fmt.Sprintf("good%d@example.org", i)); r.Class != Accepted {
					t.Errorf("%d: %+v", i, r)
				}
			}
			if sessions, _ := s.count(); len(s.received()) != 3 || !c.Usable() {
				t.Errorf("%d mails, %d sessions", len(s.received()), sessions)
			}
		})
	}
}

func onlyFor(prefix string, err error) func(string) error {
	return func(addr string) error {
		if strings.HasPrefix(addr, prefix) {
			return err
		}
		return nil
	}
}

func TestSenderRefused(t *testing.T) {
	s := startSink(t, func(s *sink) {
		s.mail = func(string) error { return refuse(550, smtp.EnhancedCode{5, 7, 1}, "not your domain") }
	})
	c := connect(t, open(t, "smtp://"+s.addr))
	defer c.Release()
	if r := send(t, c, "zoe@example.org"); r.Class != SenderRefused || r.Text != "not your domain" {
		t.Errorf("%+v", r)
	}
}

func TestNotSent(t *testing.T) {
	s := startSink(t, func(s *sink) { s.EnableSMTPUTF8, s.MaxMessageBytes = false, 1000 })
	c := connect(t, open(t, "smtp://"+s.addr))
	defer c.Release()
	if c.SupportsUTF8() {
		t.Error("SMTPUTF8 is not on offer")
	}
	if r := c.Send(t.Context(), "a@example.com", "jörg@example.com", true, []byte("\r\n")); r.Class != Failed {
		t.Errorf("%+v", r)
	}
	if r := c.Send(t.Context(), "a@example.com", "b@example.com", false, make([]byte, 1001)); r.Class != Failed || r.Enhanced != "5.3.4" {
		t.Errorf("%+v", r)
	}
	if r := c.Send(t.Context(), "a@example.com", "b@example.com", false, []byte("a\r.\rb\r\n")); r.Class != Failed || r.Enhanced != "5.6.0" {
		t.Errorf("%+v", r)
	}
	if r := send(t, c, "a@example.com\r\nRCPT TO:<evil@example.com>"); r.Class == Accepted {
		t.Errorf("%+v", r)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if r := c.Send(ended, "a@example.com", "b@example.com", false, []byte("\r\n")); r.Class != Cut || !errors.Is(r.Err, context.Canceled) {
		t.Errorf("%+v", r)
	}
	if got := s.received(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// A mail in flight is finished though its context ends.
func TestContextDoesNotCutAMail(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := startSink(t, func(s *sink) {
		s.rcpt = func(string) error { cancel(); return nil }
	})
	c := connect(t, open(t, "smtp://"+s.addr))
	defer c.Release()
	if r := c.Send(ctx, "a@example.com", "b@example.com", false, []byte("\r\nx\r\n")); r.Class != Accepted || len(s.received()) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestPool(t *testing.T) {
	t.Run("a connection is used again", func(t *testing.T) {
		s := startSink(t, nil)
		tr := open(t, "smtp://"+s.addr)
		for range 5 {
			c := connect(t, tr)
			send(t, c, "zoe@example.org")
			c.Release()
			c.Release() // does nothing
			if r := send(t, c, "zoe@example.org"); r.Class != Cut {
				t.Errorf("after Release: %+v", r)
			}
		}
		if sessions, _ := s.count(); sessions != 1 || len(s.received()) != 5 {
			t.Errorf("%d sessions, %d mails", sessions, len(s.received()))
		}
	})
	t.Run("max_messages", func(t *testing.T) {
		s := startSink(t, nil)
		tr := open(t, "smtp://"+s.addr+"?max_messages=2&max_conns=1")
		for range 6 {
			c := connect(t, tr)
			send(t, c, "zoe@example.org")
			c.Release()
		}
		if sessions, _ := s.count(); sessions != 3 || len(s.received()) != 6 {
			t.Errorf("%d sessions, %d mails", sessions, len(s.received()))
		}
	})
	t.Run("a used up connection gives its place away before it is released", func(t *testing.T) {
		s := startSink(t, nil)
		tr := open(t, "smtp://"+s.addr+"?max_messages=1&max_conns=1")
		c := connect(t, tr)
		send(t, c, "zoe@example.org")
		if c.Usable() {
			t.Fatal("max_messages is 1")
		}
		next := connect(t, tr)
		c.Release()
		if r := send(t, next, "zoe@example.org"); r.Class != Accepted {
			t.Errorf("%+v", r)
		}
		next.Release()
	})
	t.Run("max_conns waits, and gives up with its context", func(t *testing.T) {
		s := startSink(t, nil)
		tr := open(t, "smtp://"+s.addr+"?max_conns=1")
		c := connect(t, tr)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := tr.Connect(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { connect(t, tr).Release() })
		c.Release()
		wg.Wait()
		if sessions, _ := s.count(); sessions != 1 {
			t.Errorf("%d sessions", sessions)
		}
	})
	t.Run("the server hung up on a waiting connection", func(t *testing.T) {
		s := startSink(t, nil)
		tr := open(t, "smtp://"+s.addr)
		c := connect(t, tr)
		c.Release()
		tr.mu.Lock()
		waiting := tr.idle[0]
		waiting.since = time.Now().Add(-checkAfter)
		waiting.wire.Conn.Close()
		tr.mu.Unlock()
		c = connect(t, tr)
		defer c.Release()
		if r := send(t, c, "zoe@example.org"); r.Class != Accepted {
			t.Errorf("%+v", r)
		}
	})
	t.Run("one that has waited too long is closed", func(t *testing.T) {
		s := startSink(t, nil)
		tr := open(t, "smtp://"+s.addr+"?idle=1m")
		first, second := connect(t, tr), connect(t, tr)
		first.Release()
		tr.mu.Lock()
		tr.idle[0].since = time.Now().Add(-2 * time.Minute)
		tr.mu.Unlock()
		second.Release()
		tr.mu.Lock()
		defer tr.mu.Unlock()
		if len(tr.idle) != 1 {
			t.Errorf("%d wait", len(tr.idle))
		}
	})
	t.Run("closed", func(t *testing.T) {
		s := startSink(t, nil)
		tr := open(t, "smtp://"+s.addr)
		c := connect(t, tr)
		tr.Close()
		if _, err := tr.Connect(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
		if r := send(t, c, "zoe@example.org"); r.Class != Accepted {
			t.Errorf("a connection in use goes on: %+v", r)
		}
		c.Release()
		if len(tr.idle) != 0 {
			t.Error("it went back into a closed pool")
		}
	})
}

// Many senders share few connections; every mail arrives once, and no more connections are open than allowed.
func TestPoolIsShared(t *testing.T) {
	const senders, each, conns = 12, 20, 3
	s := startSink(t, func(s *sink) { s.rcpt = onlyFor("bad@", refuse(550, smtp.EnhancedCode{5, 1, 1}, "no")) })
	tr := open(t, fmt.Sprintf("smtp://%s?max_conns=%d&max_messages=7", s.addr, conns))
	var wg sync.WaitGroup
	for w := range senders {
		wg.Go(func() {
			for i := range each {
				c, err := tr.Connect(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				to := fmt.Sprintf("u%d-%d@example.org", w, i)
				if i%5 == 0 {
					to = "bad@example.org"
				}
				if r := send(t, c, to); (r.Class == Bounced) != (i%5 == 0) || r.Class != Accepted && r.Class != Bounced {
					t.Errorf("%s: %+v", to, r)
				}
				c.Release()
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, r := range s.received() {
		if seen[r.to] {
			t.Errorf("%s came twice", r.to)
		}
		seen[r.to] = true
	}
	if len(seen) != senders*each*4/5 || len(tr.slots) != 0 || len(tr.idle) > conns {
		t.Errorf("%d mails, %d places taken, %d wait", len(seen), len(tr.slots), len(tr.idle))
	}
}

func TestTLSAndAuth(t *testing.T) {
	certificate := certtest.New(t, "127.0.0.1")
	server, ca := certificate.Server, certificate.CA
	user := "zo%C3%AB:s3cret%3A%2F%40%20word@"
	for _, tc := range []struct {
		name, scheme, user, query string
		starttls                  bool
		auth                      []string
		login                     string // as the server saw it
		permanent                 bool
		step                      string // of the error; empty: it works
	}{
		{"plain text without a user", "smtp", "", "", false, nil, "", false, ""},
		{"STARTTLS", "smtp", "", "?tls=required&ca=" + ca, true, nil, "", false, ""},
		{"STARTTLS where offered", "smtp", "", "?tls=auto&ca=" + ca, true, nil, "", false, ""},
		{"STARTTLS where offered, but it isn't", "smtp", "", "?tls=auto", false, nil, "", false, ""},
		{"STARTTLS required, but not offered", "smtp", "", "?tls=required", false, nil, "", true, "STARTTLS"},
		{"STARTTLS, unknown authority", "smtp", "", "?tls=required", true, nil, "", true, "TLS"},
		{"STARTTLS, any certificate", "smtp", "", "?tls=required&skip_verify=true", true, nil, "", false, ""},
		{"smtps", "smtps", "", "?ca=" + ca, false, nil, "", false, ""},
		{"smtps, unknown authority", "smtps", "", "", false, nil, "", true, "TLS"},
		{"PLAIN", "smtp", user, "", false, []string{"PLAIN", "LOGIN"}, "PLAIN zoë", false, ""},
		{"LOGIN where it is all there is", "smtp", user, "", false, []string{"LOGIN"}, "LOGIN zoë", false, ""},
		{"LOGIN by setting", "smtp", user, "?auth=login", false, []string{"PLAIN", "LOGIN"}, "LOGIN zoë", false, ""},
		{"PLAIN over STARTTLS", "smtp", user, "?tls=required&ca=" + ca, true, []string{"PLAIN"}, "PLAIN zoë", false, ""},
		{"LOGIN over smtps", "smtps", user, "?auth=login&ca=" + ca, false, []string{"LOGIN"}, "LOGIN zoë", false, ""},
		{"S9: the password is wrong", "smtp", "zo%C3%AB:wr0ng-pass@", "", false, []string{"PLAIN"}, "PLAIN zoë", true, "AUTH"},
		{"wrong with LOGIN", "smtp", "zo%C3%AB:wr0ng-pass@", "?auth=login", false, []string{"LOGIN"}, "LOGIN zoë", true, "AUTH"},
		{"no mechanism on offer", "smtp", user, "", false, []string{"CRAM-MD5"}, "", true, "AUTH"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := startSink(t, func(s *sink) {
				s.auth = tc.auth
				if tc.starttls {
					s.TLSConfig = server
				}
			})
			addr := s.addr
			if tc.scheme == "smtps" {
				addr = startTLSFront(t, s, server)
			}
			tr := open(t, tc.scheme+"://"+tc.user+addr+tc.query)
			for range 2 {
				c, err := tr.Connect(t.Context())
				if tc.step == "" {
					if err != nil {
						t.Fatal(err)
					}
					if r := send(t, c, "zoe@example.org"); r.Class != Accepted {
						t.Errorf("%+v", r)
					}
					c.Release()
					continue
				}
				var ce *ConnectError
				if !errors.As(err, &ce) || ce.Step != tc.step || ce.Permanent != tc.permanent {
					t.Fatalf("%#v", err)
				}
				if s := err.Error(); strings.Contains(s, "wr0ng-pass") || strings.Contains(s, "s3cret") {
					t.Errorf("it shows the password: %s", s)
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if tc.login != "" && s.logins[0] != tc.login {
				t.Errorf("%q", s.logins)
			}
		})
	}
}

// startTLSFront is a port of the sink with TLS from the first byte.
func startTLSFront(t *testing.T, s *sink, cfg *tls.Config) string {
	l, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(l) }()
	t.Cleanup(func() { s.Close(); l.Close(); <-done })
	return l.Addr().String()
}

func TestConnectErrors(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, tc := range []struct {
		name      string
		play      func(*talk)
		query     string
		step      string
		permanent bool
	}{
		{"nobody listens", nil, "", "dial", false},
		{"greeting 554", upTo("greeting", func(k *talk) { k.say("554 5.7.1 your network is blocked") }), "", "greeting", true},
		{"greeting 421", upTo("greeting", func(k *talk) { k.say("421 too busy") }), "", "greeting", false},
		{"greeting is no SMTP", upTo("greeting", func(k *talk) { k.say("SSH-2.0-OpenSSH_9.6") }), "", "greeting", false},
		{"hangs up before the greeting", upTo("greeting", func(k *talk) {}), "", "greeting", false},
		{"says nothing", upTo("greeting", func(k *talk) { k.line() }), "?timeout=30ms", "greeting", false},
		{"EHLO 550", upTo("EHLO", func(k *talk) { k.say("550 bad name") }), "", "greeting", true},
		{"hangs up at EHLO", upTo("EHLO", func(k *talk) {}), "", "greeting", false},
		{"TLS on a plain port", upTo("greeting", func(k *talk) { k.say("220 hi") }), "smtps", "TLS", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url := "smtp://" + closed.Addr().String()
			if tc.play != nil {
				url = "smtp://" + startScript(t, tc.play).addr + tc.query
			}
			if tc.query == "smtps" {
				url = strings.Replace(strings.TrimSuffix(url, "smtps"), "smtp:", "smtps:", 1)
			}
			_, err := open(t, url).Connect(t.Context())
			var ce *ConnectError
			if !errors.As(err, &ce) || ce.Step != tc.step || ce.Permanent != tc.permanent {
				t.Errorf("%#v", err)
			}
		})
	}
	t.Run("S9: the host does not resolve", func(t *testing.T) {
		_, err := open(t, "smtp://no-such-host.invalid:25").Connect(t.Context())
		var ce *ConnectError
		if !errors.As(err, &ce) || ce.Permanent || !strings.Contains(err.Error(), "no-such-host.invalid") {
			t.Errorf("%#v", err)
		}
	})
	t.Run("the context ends while the server says nothing", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := startScript(t, upTo("EHLO", func(k *talk) { cancel(); k.line() }))
		if _, err := open(t, "smtp://"+s.addr).Connect(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}
