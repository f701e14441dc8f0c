package mail

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
)

// Transport hands out connections to the place where mails go. It is safe for concurrent use.
type Transport interface {
	// Connect returns a connection that was alive a moment ago: greeted, encrypted and authenticated. Errors are *ConnectError, or
	// ctx's where it ended first.
	Connect(ctx context.Context) (Conn, error)
	// Close closes the connections that wait in the pool; those in use are closed when they are released.
	Close() error
}

// Conn is one connection, for one goroutine. Whoever got it calls Release when done with it, whatever happened.
type Conn interface {
	// Send hands over one message. from and to are addresses as Normalize returns them, utf8 says that one of them (or a header) needs SMTPUTF8.
	// A context that has ended keeps a mail from being begun (Cut); one that is in flight is always finished.
	Send(ctx context.Context, from, to string, utf8 bool, msg []byte) Reply
	SupportsUTF8() bool
	// Usable reports whether another mail may be sent over this connection; if not, Release it and Connect again.
	Usable() bool
	Release()
}

// Options are what the URL doesn't say.
type Options struct {
	// Observe is called by outbox: for each mail after it was written; the demo and tests learn from it who got what.
	// It is called by the sending goroutine and must not keep Message.
	Observe func(Delivery)
	Log     *slog.Logger // nil: silent
	Hello   string       // our name in EHLO, where the URL says none; "": the machine's
	// Signer signs every message on its way out; nil: none. A message that it refuses is Failed and isn't sent.
	Signer *Signer
}

// ErrURL is what every refused transport URL wraps.
var ErrURL = errors.New("not a usable SMTP URL")

// Open makes a transport from smtp://, smtps:// or outbox:DIR without connecting yet. Errors wrap ErrURL and never show a password.
func Open(rawURL string, o Options) (Transport, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	t, err := openTransport(rawURL, o)
	if err != nil || o.Signer == nil {
		return t, err
	}
	return &signing{t, o.Signer}, nil
}

func openTransport(rawURL string, o Options) (Transport, error) {
	scheme, rest, _ := strings.Cut(rawURL, ":")
	switch strings.ToLower(scheme) {
	case "outbox":
		return openOutbox(rest, o)
	case "smtp", "smtps":
		s, err := parseSettings(rawURL, o.Hello)
		if err != nil {
			return nil, err
		}
		return newPool(s, o.Log), nil
	}
	return nil, fmt.Errorf("%w: it must begin with smtp://, smtps:// or outbox:", ErrURL)
}

// ConnectError says why there is no connection. Permanent: waiting won't help (authentication refused, a 5xx greeting, a certificate that
// doesn't verify). Its text never holds the password.
type ConnectError struct {
	Permanent bool
	Step      string // dial, greeting (with EHLO), STARTTLS, TLS, AUTH
	Host      string // host:port
	Err       error
}

func (e *ConnectError) Error() string {
	return fmt.Sprintf("SMTP server %s: %s: %v", e.Host, e.Step, e.Err)
}

func (e *ConnectError) Unwrap() error { return e.Err }
