package mail

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// settings are what an smtp:// or smtps:// URL says.
//
//	smtp://user:password@host:587?tls=required&max_messages=500
//
// The parts of the query: tls (smtp:// only: required, auto, none), skip_verify (true: any certificate will do), ca (a PEM file), auth (plain, login),
// hello (our name in EHLO), max_messages (per connection), max_conns (0: no limit), idle (how long a connection may wait in the pool),
// timeout (dial, and each command), data_timeout (sending a message, and waiting for the last reply).
type settings struct {
	host, addr     string // name; name:port
	implicitTLS    bool   // smtps://
	startTLS       string // tlsRequired, tlsAuto, tlsNone
	tls            *tls.Config
	user, password string
	auth           string // "": the better of what is offered
	hello          string
	maxMessages    int
	maxConns       int
	idle           time.Duration
	timeout        time.Duration
	dataTimeout    time.Duration
}

const (
	tlsRequired = "required" // STARTTLS or nothing; the default with a user name
	tlsAuto     = "auto"     // STARTTLS where it is offered; the default without one
	tlsNone     = "none"     // the default on loopback, where certificates seldom verify and nobody listens
)

// RFC 5321 section 4.5.3.2 wants 5 minutes for most commands and 10 for the last reply. Ours are shorter before the end of DATA, where giving up costs nothing, and
// as long as asked after it, where it makes the mail unconfirmed.
const (
	defaultTimeout     = 30 * time.Second
	defaultDataTimeout = 10 * time.Minute
	defaultIdle        = 30 * time.Second // many servers hang up after a minute
	defaultMaxMessages = 1000
)

// parseSettings reads the URL; hello is our name where it says none, "" the machine's.
func parseSettings(raw, hello string) (*settings, error) {
	u, err := url.Parse(raw)
	if err != nil { // its text would show the URL, and the password in it
		return nil, fmt.Errorf("%w: it can't be parsed; percent-encode what isn't a letter or digit in user and password", ErrURL)
	}
	if u.Hostname() == "" {
		return nil, fmt.Errorf("%w: it names no host", ErrURL)
	}
	if u.Path != "" && u.Path != "/" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: nothing may follow the port but ?settings; percent-encode / and # in user and password", ErrURL)
	}
	s := &settings{
		host: u.Hostname(), implicitTLS: u.Scheme == "smtps",
		maxMessages: defaultMaxMessages, idle: defaultIdle, timeout: defaultTimeout, dataTimeout: defaultDataTimeout,
	}
	s.tls = &tls.Config{ServerName: s.host, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(4)}
	port := u.Port()
	if port == "" {
		port = map[bool]string{true: "465", false: "25"}[s.implicitTLS]
	}
	s.addr = net.JoinHostPort(s.host, port)
	if u.User != nil {
		s.user = u.User.Username()
		s.password, _ = u.User.Password()
	}
	s.startTLS = s.defaultTLS()
	if s.hello, err = os.Hostname(); err != nil || !plainLabels(strings.ToLower(s.hello)) {
		s.hello = "localhost"
	}
	if hello != "" {
		if err := s.set("hello", hello); err != nil {
			return nil, fmt.Errorf("our name for SMTP servers: %w", err)
		}
	}
	if err := s.applyQuery(u); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *settings) defaultTLS() string {
	if ip := net.ParseIP(s.host); s.host == "localhost" || ip != nil && ip.IsLoopback() {
		return tlsNone
	}
	if s.user != "" {
		return tlsRequired
	}
	return tlsAuto
}

func (s *settings) applyQuery(u *url.URL) error {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fmt.Errorf("%w: what follows ? can't be parsed", ErrURL)
	}
	for name, values := range q {
		if err := s.set(name, values[len(values)-1]); err != nil {
			return fmt.Errorf("%w: %s: %v", ErrURL, clip(name, 40), err)
		}
	}
	return nil
}

func (s *settings) set(name, v string) (err error) {
	switch name {
	case "tls":
		switch {
		case s.implicitTLS:
			return fmt.Errorf("smtps:// is always encrypted")
		case v != tlsRequired && v != tlsAuto && v != tlsNone:
			return fmt.Errorf("%q is not required, auto or none", clip(v, 40))
		}
		s.startTLS = v
	case "skip_verify":
		s.tls.InsecureSkipVerify, err = strconv.ParseBool(v)
	case "ca":
		pem, err := os.ReadFile(v)
		if err != nil {
			return err
		}
		s.tls.RootCAs = x509.NewCertPool()
		if !s.tls.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s holds no PEM certificate", v)
		}
	case "auth":
		s.auth = strings.ToUpper(v)
		if s.auth != "PLAIN" && s.auth != "LOGIN" {
			return fmt.Errorf("%q is not plain or login", clip(v, 40))
		}
	case "hello":
		if !plainLabels(strings.ToLower(v)) && net.ParseIP(strings.Trim(v, "[]")) == nil {
			return fmt.Errorf("%q is not a host name", clip(v, 80))
		}
		s.hello = v
	case "max_messages":
		s.maxMessages, err = positive(v, 1)
	case "max_conns":
		s.maxConns, err = positive(v, 0)
	case "idle":
		s.idle, err = duration(v)
	case "timeout":
		s.timeout, err = duration(v)
	case "data_timeout":
		s.dataTimeout, err = duration(v)
	default:
		return fmt.Errorf("unknown; there are tls, skip_verify, ca, auth, hello, max_messages, max_conns, idle, timeout, data_timeout")
	}
	return err
}

func positive(v string, least int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < least {
		return 0, fmt.Errorf("%q is not a number of at least %d", clip(v, 40), least)
	}
	return n, nil
}

func duration(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not a duration like 30s", clip(v, 40))
	}
	return d, nil
}
