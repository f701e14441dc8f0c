package mail

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"postbit/internal/certtest"
)

// What a cut means depends on where it happens. Each row is a server that is in order up to a step and then does something else.
func TestCuts(t *testing.T) {
	hangUp := func(k *talk) {}
	say := func(s string) func(*talk) { return func(k *talk) { k.say(s) } }
	big := make([]byte, 32<<20) // more than the buffers of both sides take
	for i := range big {
		big[i] = "0123456789abcdef\r\n"[i%18]
	}
	for _, tc := range []struct {
		name   string
		play   func(*talk)
		msg    []byte
		want   Class
		code   int
		usable bool
	}{
		{"at MAIL", upTo("MAIL", hangUp), nil, Cut, 0, false},
		{"at MAIL in the middle of the reply", upTo("MAIL", func(k *talk) { k.Write([]byte("25")) }), nil, Cut, 0, false},
		{"MAIL 421", upTo("MAIL", say("421 4.3.2 going down")), nil, Cut, 421, false},
		{"MAIL 530", upTo("MAIL", say("530 5.7.0 log in first")), nil, SenderRefused, 530, true},
		{"at RCPT", upTo("RCPT", hangUp), nil, Cut, 0, false},
		{"RCPT is answered with nonsense", upTo("RCPT", say("who are you?")), nil, Cut, 0, false},
		{"RCPT 354", upTo("RCPT", say("354 go")), nil, Cut, 354, false},
		{"RCPT 421", upTo("RCPT", say("421 too many")), nil, Retry, 421, false},
		{"RCPT 550, then cut", upTo("RCPT", say("550 no such user")), nil, Bounced, 550, false},
		{"RCPT 550 in three lines", upTo("RCPT", func(k *talk) { k.say("550-5.1.1 no\r\n550-5.1.1 such\r\n550 5.1.1 user"); k.line(); k.say("250 ok") }), nil, Bounced, 550, true},
		{"at DATA", upTo("DATA", hangUp), nil, Cut, 0, false},
		{"DATA 451", upTo("DATA", say("451 later")), nil, Retry, 451, false},
		{"DATA 250", upTo("DATA", say("250 what?")), nil, Cut, 250, false},
		{"within the message", upTo("body", func(k *talk) { k.Read(make([]byte, 1000)); k.reset() }), big, Cut, 0, false},
		{"S5: after the end of the message", upTo("end", hangUp), nil, Unconfirmed, 0, false},
		{"after the end, in the middle of the code", upTo("end", func(k *talk) { k.Write([]byte("25")) }), nil, Unconfirmed, 0, false},
		{"after the end, in the middle of the text", upTo("end", func(k *talk) { k.Write([]byte("250 o")) }), nil, Accepted, 250, true},
		{"after the end, within a reply of more lines", upTo("end", say("250-one\r\n250-two")), nil, Unconfirmed, 0, false},
		{"nonsense after the end", upTo("end", say("thanks")), nil, Unconfirmed, 0, false},
		{"354 after the end", upTo("end", say("354 go on")), nil, Unconfirmed, 354, false},
		{"reset after the end", upTo("end", func(k *talk) { k.reset() }), nil, Unconfirmed, 0, false},
		{"250 after the end, then cut", upTo("end", say("250 2.0.0 queued")), nil, Accepted, 250, true},
		{"421 after the end", upTo("end", say("421 4.3.0 going down")), nil, Retry, 421, false},
		{"refused before the end was read", upTo("body", func(k *talk) { k.say("552 5.3.4 too large"); k.message() }), big[:1<<20], Failed, 552, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := startScript(t, tc.play)
			c := connect(t, open(t, "smtp://"+s.addr))
			defer c.Release()
			if tc.msg == nil {
				tc.msg = []byte("Subject: x\r\n\r\nx\r\n")
			}
			r := c.Send(t.Context(), "a@example.com", "b@example.com", false, tc.msg)
			if r.Class != tc.want || r.Code != tc.code || c.Usable() != tc.usable {
				t.Errorf("%v %+v usable %v; want %v %d usable %v", r.Class, r, c.Usable(), tc.want, tc.code, tc.usable)
			}
			if (r.Class == Cut || r.Class == Unconfirmed) && (r.Err == nil && r.Code == 0 || r.Text == "") {
				t.Errorf("it does not say why: %+v", r)
			}
		})
	}
}

func TestTimeouts(t *testing.T) {
	silent := func(k *talk) { k.line() } // returns when the client hangs up
	for _, tc := range []struct {
		name, step string
		msg        int
		want       Class
	}{
		{"no reply to MAIL", "MAIL", 10, Cut},
		{"no reply to RCPT", "RCPT", 10, Cut},
		{"no reply to DATA", "DATA", 10, Cut},
		{"the message isn't read", "body", 32 << 20, Cut},
		{"no reply to the end", "end", 10, Unconfirmed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			then := silent
			release := make(chan struct{})
			if tc.step == "body" {
				then = func(*talk) { <-release }
			}
			s := startScript(t, upTo(tc.step, then))
			c := connect(t, open(t, "smtp://"+s.addr+"?timeout=50ms&data_timeout=60ms"))
			r := c.Send(t.Context(), "a@example.com", "b@example.com", false, make([]byte, tc.msg))
			var ne net.Error
			if r.Class != tc.want || !errors.As(r.Err, &ne) || !ne.Timeout() {
				t.Errorf("%v %+v, want %v", r.Class, r, tc.want)
			}
			c.Release()
			close(release)
		})
	}
}

// faulty breaks after so many bytes that were written, or read.
type faulty struct {
	net.Conn
	writes, reads int // bytes left; -1: any number
	wrote, read   *int
}

var errFault = errors.New("the line is down")

func (f *faulty) Write(p []byte) (int, error) {
	n, broken := len(p), false
	if f.writes >= 0 && n > f.writes {
		n, broken = f.writes, true
	}
	n, err := f.Conn.Write(p[:n])
	*f.wrote += n
	if f.writes >= 0 {
		f.writes -= n
	}
	if broken && err == nil {
		f.Conn.Close()
		return n, errFault
	}
	return n, err
}

func (f *faulty) Read(p []byte) (int, error) {
	if f.reads == 0 {
		f.Conn.Close()
		return 0, errFault
	}
	if f.reads > 0 && len(p) > f.reads {
		p = p[:f.reads]
	}
	n, err := f.Conn.Read(p)
	*f.read += n
	if f.reads > 0 {
		f.reads -= n
	}
	return n, err
}

// TestEveryByte breaks the connection at each byte that is written and at each that is read, with and without TLS. Whenever the server has taken the
// mail, we must not think it can be sent again; whenever we can't know, it is unconfirmed; and where the last byte of the message never left, we know.
func TestEveryByte(t *testing.T) {
	certificate := certtest.New(t, "127.0.0.1")
	server, ca := certificate.Server, certificate.CA
	for name, url := range map[string]string{"plain": "smtp://%s?tls=none", "STARTTLS": "smtp://%s?tls=required&ca=" + ca, "smtps": "smtps://%s?ca=" + ca} {
		t.Run(name, func(t *testing.T) {
			s := startSink(t, func(s *sink) { s.TLSConfig = server })
			if name == "smtps" {
				s.addr = startTLSFront(t, s, server)
			}
			wrote, read := 0, 0
			greeted := [2]int{} // bytes written and read until the connection stood
			try := func(writes, reads int) (r Reply, connected bool, before int) {
				tr := open(t, fmt.Sprintf(url, s.addr))
				tr.netDial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					c, err := new(net.Dialer).DialContext(ctx, network, addr)
					wrote, read = 0, 0
					return &faulty{c, writes, reads, &wrote, &read}, err
				}
				c, err := tr.Connect(t.Context())
				if err != nil {
					return r, false, 0
				}
				before, greeted = len(s.received()), [2]int{wrote, read}
				r = send(t, c, "zoe@example.org")
				c.Release()
				tr.Close()
				return r, true, before
			}
			if r, _, _ := try(-1, -1); r.Class != Accepted {
				t.Fatalf("%+v", r)
			}
			firstWrite, firstRead, allWrites, allReads := greeted[0], greeted[1], wrote, read // with QUIT
			for n := firstWrite; n < allWrites; n += stride(name, allWrites-n) {
				r, connected, before := try(n, -1)
				if !connected {
					continue
				}
				switch got := len(s.received()) - before; {
				case r.Class != Cut && r.Class != Accepted:
					t.Errorf("cut after %d bytes: %+v", n, r)
				case got == 1 && r.Class != Accepted, got == 0 && r.Class != Cut:
					t.Errorf("cut after %d bytes: the server took %d, we think %v", n, got, r)
				}
			}
			seen := map[Class]int{}
			for n := firstRead; n < allReads; n += stride(name, allReads-n) {
				r, connected, before := try(-1, n)
				if !connected {
					continue
				}
				seen[r.Class]++
				got := len(s.received()) - before
				if got == 1 && r.Class != Accepted && r.Class != Unconfirmed || got == 0 && r.Class == Accepted {
					t.Errorf("deaf after %d bytes: the server took %d, we think %v", n, got, r)
				}
			}
			if seen[Cut] == 0 || seen[Unconfirmed] == 0 {
				t.Errorf("the test did not get there: %v", seen)
			}
		})
	}
}

// stride leaves bytes out where each costs a handshake, but not around the end of the message and its reply.
func stride(name string, left int) int {
	if name == "plain" || 25 < left && left < 80 {
		return 1
	}
	return 9
}
