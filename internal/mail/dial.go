package mail

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// dial opens a connection and brings it to the point where it takes mails. ctx cancels it at any step.
func (p *pool) dial(ctx context.Context) (*conn, error) {
	useTLS := p.startTLS.Load()
	c, err := p.handshake(ctx, useTLS)
	if err != nil || useTLS || p.s.startTLS != tlsAuto {
		return c, err
	}
	// The client can't start TLS on a session it has greeted, so the first look costs a connection.
	if ok, _ := c.client.Extension("STARTTLS"); !ok {
		p.unsealed.Do(func() {
			p.log.Warn("the SMTP server does not offer STARTTLS: mails go to it unencrypted; tls=required in its URL forbids that, tls=none says it is meant", "server", p.s.addr)
		})
		return c, nil
	}
	c.client.Quit()
	c.client.Close()
	p.startTLS.Store(true)
	return p.handshake(ctx, true)
}

func (p *pool) handshake(ctx context.Context, startTLS bool) (c *conn, err error) {
	step := "dial"
	fail := func(err error) (*conn, error) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, p.connectError(step, err)
	}
	raw, err := p.netDial(ctx, "tcp", p.s.addr)
	if err != nil {
		return fail(err)
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer func() {
		if !stop() && err == nil { // ctx ended behind the last step
			c, err = nil, ctx.Err()
		}
		if err != nil {
			raw.Close()
		}
	}()
	w := &wire{Conn: raw}
	if p.s.implicitTLS {
		w.Conn = tls.Client(raw, p.s.tls)
	}
	step = "greeting"
	var client *smtp.Client
	switch {
	case startTLS:
		step = "STARTTLS"
		raw.SetDeadline(p.deadline())
		if client, err = smtp.NewClientStartTLS(w, p.s.tls); err != nil {
			return fail(err)
		}
	default:
		client = smtp.NewClient(w)
	}
	client.CommandTimeout, client.SubmissionTimeout = p.s.timeout, p.s.dataTimeout
	if err = client.Hello(p.s.hello); err != nil {
		return fail(err)
	}
	if p.s.user != "" {
		step = "AUTH"
		if err = p.authenticate(client); err != nil {
			return fail(err)
		}
	}
	c = &conn{pool: p, client: client, wire: w, direct: !startTLS}
	c.utf8, _ = client.Extension("SMTPUTF8")
	c.maxSize, _ = client.MaxMessageSize()
	return c, nil
}

// errNoAuth is permanent: the server's list of mechanisms won't change by waiting.
var errNoAuth = errors.New("the server offers neither PLAIN nor LOGIN here; check port, tls and auth in the URL")

func (p *pool) authenticate(client *smtp.Client) error {
	offered := func(mech string) bool {
		return (p.s.auth == "" || p.s.auth == mech) && client.SupportsAuth(mech)
	}
	switch {
	case offered(sasl.Plain):
		return client.Auth(sasl.NewPlainClient("", p.s.user, p.s.password))
	case offered(sasl.Login):
		return client.Auth(&login{user: p.s.user, password: p.s.password})
	}
	return errNoAuth
}

// login is AUTH LOGIN by position: the prompts' words differ from server to server, and go-sasl takes only one of them.
type login struct {
	user, password string
	step           int
}

func (l *login) Start() (mech string, ir []byte, err error) { return sasl.Login, nil, nil }

func (l *login) Next([]byte) ([]byte, error) {
	l.step++
	switch l.step {
	case 1:
		return []byte(l.user), nil
	case 2:
		return []byte(l.password), nil
	}
	return nil, errors.New("the server asked a third question in AUTH LOGIN")
}

// connectError sorts what went wrong and keeps the password out of what is said about it.
func (p *pool) connectError(step string, err error) *ConnectError {
	e := &ConnectError{Step: step, Host: p.s.addr}
	if code, enhanced, text, ok := smtpReply(err); ok {
		e.Permanent = code >= 500
		text = strings.TrimSpace(fmt.Sprintf("%d %s", code, enhanced) + " " + oneLine(text, maxReply))
		e.Err = errors.New(p.scrub(strings.Join(strings.Fields(text), " ")))
		return e
	}
	var verify *tls.CertificateVerificationError
	var host x509.HostnameError
	var unknown x509.UnknownAuthorityError
	var header tls.RecordHeaderError
	switch {
	case errors.As(err, &verify), errors.As(err, &host), errors.As(err, &unknown), errors.As(err, &header):
		e.Permanent, e.Step = true, "TLS"
	case errors.Is(err, errNoAuth), step == "STARTTLS" && strings.Contains(err.Error(), "support STARTTLS"):
		e.Permanent = true
	}
	e.Err = err
	if s := err.Error(); s != p.scrub(s) {
		e.Err = errors.New(p.scrub(s))
	}
	return e
}

// scrub takes the password out of a text in the forms in which a server might repeat it.
func (p *pool) scrub(s string) string {
	if p.s.password == "" {
		return s
	}
	for _, secret := range []string{
		base64.StdEncoding.EncodeToString([]byte("\x00" + p.s.user + "\x00" + p.s.password)),
		base64.StdEncoding.EncodeToString([]byte(p.s.password)),
		p.s.password,
	} {
		s = strings.ReplaceAll(s, secret, "[password]")
	}
	return s
}
