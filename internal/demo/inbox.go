package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
)

// What an address asks of the server, in its local part.
const (
	tagGone   = "+gone"   // 550 5.1.1: no such user
	tagFull   = "+full"   // 552 5.2.2: mailbox full
	tagPolicy = "+policy" // 550 5.7.1: not from you
	tagLater  = "+later"  // 451 4.3.0 the first time
)

// Letter is a mail that was accepted.
type Letter struct {
	To    string
	Pixel string   // URL; "" where the mail has none
	Links []string // URLs whose clicks are counted
}

// Inbox is a mail server on the loopback interface. It is a real one (go-smtp) with made-up recipients.
type Inbox struct {
	server   *smtp.Server
	listener net.Listener
	served   sync.WaitGroup
	deliver  func(Letter)

	mu    sync.Mutex
	asked map[string]bool // recipients who were told to come later
}

// OpenInbox starts a server; every mail that it accepts goes to deliver, on the connection's goroutine.
func OpenInbox(ctx context.Context, log *slog.Logger, deliver func(Letter)) (*Inbox, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("demo: mail server: %w", err)
	}
	in := &Inbox{listener: l, deliver: deliver, asked: map[string]bool{}}
	in.server = smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &session{in: in}, nil }))
	in.server.Domain = "inbox.example"
	in.server.EnableSMTPUTF8 = true
	in.server.ReadTimeout = 5 * time.Minute
	in.server.MaxMessageBytes = 10 << 20
	in.server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	in.served.Go(func() {
		if err := in.server.Serve(l); err != nil && !errors.Is(err, smtp.ErrServerClosed) {
			log.Error("the demo's mail server ended", "err", err)
		}
	})
	return in, nil
}

// URL is the address for POSTBIT_SMTP_URL.
func (in *Inbox) URL() string { return "smtp://" + in.listener.Addr().String() }

// Close ends the server and its connections.
func (in *Inbox) Close() error {
	err := in.server.Close()
	in.served.Wait()
	return err
}

// later reports whether a recipient is asked to come again, which happens once.
func (in *Inbox) later(to string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	first := !in.asked[to]
	in.asked[to] = true
	return first
}

type session struct {
	in *Inbox
	to []string
}

func (s *session) Mail(string, *smtp.MailOptions) error { return nil }
func (s *session) Reset()                               { s.to = nil }
func (s *session) Logout() error                        { return nil }

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	local, _, _ := strings.Cut(to, "@")
	switch {
	case strings.HasSuffix(local, tagGone):
		return refusal(550, 5, 1, 1, "no such user here")
	case strings.HasSuffix(local, tagFull):
		return refusal(552, 5, 2, 2, "mailbox full")
	case strings.HasSuffix(local, tagPolicy):
		return refusal(550, 5, 7, 1, "this list takes mail from members only")
	case strings.HasSuffix(local, tagLater) && s.in.later(to):
		return refusal(451, 4, 3, 0, "busy, try again later")
	}
	s.to = append(s.to, to)
	return nil
}

func refusal(code, class, subject, detail int, text string) error {
	return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{class, subject, detail}, Message: text}
}

func (s *session) Data(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	html, err := findHTML(data)
	if err != nil {
		return refusal(554, 5, 6, 0, "not a mail: "+err.Error())
	}
	for _, to := range s.to {
		s.in.deliver(Letter{To: to, Pixel: pixelURL.FindString(html), Links: linkURL.FindAllString(html, -1)})
	}
	return nil
}

var (
	pixelURL = regexp.MustCompile(`https?://[^\s"'<>]+/o/[A-Za-z0-9_-]+\.gif`)
	linkURL  = regexp.MustCompile(`https?://[^\s"'<>]+/c/[A-Za-z0-9_-]+`)
)

// findHTML reads a mail as a mail program does: it knows nothing of how postbit writes one. A mail without HTML gives "".
func findHTML(data []byte) (string, error) {
	m, err := mail.ReadMessage(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	return findIn(m.Header.Get("Content-Type"), m.Header.Get("Content-Transfer-Encoding"), m.Body)
}

func findIn(contentType, encoding string, body io.Reader) (string, error) {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(media, "multipart/") {
		parts := multipart.NewReader(body, params["boundary"])
		for {
			p, err := parts.NextRawPart()
			if errors.Is(err, io.EOF) {
				return "", nil
			}
			if err != nil {
				return "", err
			}
			if html, err := findIn(p.Header.Get("Content-Type"), p.Header.Get("Content-Transfer-Encoding"), p); html != "" || err != nil {
				return html, err
			}
		}
	}
	if media != "text/html" {
		return "", nil
	}
	if strings.EqualFold(encoding, "quoted-printable") {
		body = quotedprintable.NewReader(body)
	}
	text, err := io.ReadAll(body)
	return string(text), err
}
