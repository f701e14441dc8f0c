package mail

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// ErrMessage is what every message wraps that can't be made for a reason other than its headers or addresses.
var ErrMessage = errors.New("not a message that can be sent")

// Message is one mail to one recipient.
type Message struct {
	From, To Address
	ReplyTo  Address // optional
	Subject  string
	Text     string // plain text; with HTML, the alternative for those who don't see that
	HTML     string
	// MessageID is an id without angle brackets, as the function MessageID makes it.
	MessageID string
	Date      time.Time
	// UnsubscribeURL is the https (or http) address of List-Unsubscribe, which takes one-click POSTs (RFC 8058); optional.
	UnsubscribeURL string
}

// MessageID names the mail of a run to a user, without angle brackets. The same run and user have the same id at all times,
// so that a copy sent twice can be told by any mail system. domain is that of the sender.
func MessageID(run [8]byte, user bson.RawValue, domain string) string {
	h := sha256.New()
	h.Write(run[:])
	h.Write([]byte{byte(user.Type)})
	h.Write(user.Value)
	sum := h.Sum(nil)
	return hex.EncodeToString(run[:]) + "." + hex.EncodeToString(sum[:12]) + "@" + domain
}

// Encode returns the message with CRLF line ends, ready for DATA (dots aren't stuffed yet). The same message gives the same
// bytes. Bodies are sent as text: line ends of any kind become CRLF, invalid UTF-8 becomes U+FFFD, all else arrives byte for byte.
// What can't be a header is refused with ErrHeader, a bad address with ErrAddress; nothing is repaired in silence.
func (m *Message) Encode() ([]byte, error) {
	return m.AppendTo(make([]byte, 0, 1536+len(m.Text)*9/8+len(m.HTML)*9/8))
}

// AppendTo is Encode into a buffer that is used again for the next mail.
func (m *Message) AppendTo(b []byte) ([]byte, error) {
	b, err := m.appendHeaders(b)
	if err != nil {
		return nil, fmt.Errorf("mail to %q: %w", clip(m.To.Addr, 80), err)
	}
	switch {
	case m.Text != "" && m.HTML != "":
		boundary := m.boundary()
		b = append(b, "Content-Type: multipart/alternative;\r\n boundary=\""...)
		b = append(append(b, boundary...), "\"\r\n\r\n"...)
		for _, part := range []struct{ kind, body string }{{"plain", m.Text}, {"html", m.HTML}} { // the best one last: RFC 2046 section 5.1.4
			b = append(append(append(b, "--"...), boundary...), "\r\n"...)
			b = append(appendBody(b, part.kind, part.body), "\r\n"...)
		}
		b = append(append(append(b, "--"...), boundary...), "--\r\n"...)
	case m.HTML != "":
		b = endLine(appendBody(b, "html", m.HTML))
	case m.Text != "":
		b = endLine(appendBody(b, "plain", m.Text))
	default:
		return nil, fmt.Errorf("mail to %q: %w: it has neither text nor HTML", clip(m.To.Addr, 80), ErrMessage)
	}
	return b, nil
}

func (m *Message) appendHeaders(b []byte) ([]byte, error) {
	if m.Date.IsZero() {
		return nil, fmt.Errorf("%w: it has no date", ErrMessage)
	}
	id, err := messageID(m.MessageID)
	if err != nil {
		return nil, err
	}
	b = m.Date.UTC().AppendFormat(append(b, "Date: "...), "Mon, 02 Jan 2006 15:04:05 +0000")
	b = append(b, "\r\n"...)
	if b, err = appendAddress(b, "From", m.From); err != nil {
		return nil, err
	}
	if m.ReplyTo.Addr != "" {
		if b, err = appendAddress(b, "Reply-To", m.ReplyTo); err != nil {
			return nil, err
		}
	}
	if b, err = appendAddress(b, "To", m.To); err != nil {
		return nil, err
	}
	if b, err = appendText(b, "Subject", m.Subject); err != nil {
		return nil, err
	}
	b = append(append(append(b, "Message-ID: <"...), id...), ">\r\n"...)
	if m.UnsubscribeURL != "" {
		if err := unsubscribeURL(m.UnsubscribeURL); err != nil {
			return nil, err
		}
		b = append(append(append(b, "List-Unsubscribe:\r\n <"...), m.UnsubscribeURL...), ">\r\n"...)
		b = append(b, "List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n"...)
	}
	return append(b, "MIME-Version: 1.0\r\n"...), nil
}

// boundary can't occur in a quoted-printable body, where = is followed by hex digits or the end of the line.
func (m *Message) boundary() string {
	sum := sha256.Sum256([]byte(m.MessageID))
	return "=_" + hex.EncodeToString(sum[:12])
}

// appendBody appends the headers and the body of a part.
func appendBody(b []byte, kind, body string) []byte {
	b = append(append(append(b, "Content-Type: text/"...), kind...), "; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n"...)
	return appendQuoted(b, validUTF8(body))
}

// endLine ends the last line where the body didn't.
func endLine(b []byte) []byte {
	if b[len(b)-1] == '\n' {
		return b
	}
	return append(b, "\r\n"...)
}

// messageID checks what stands between the angle brackets (RFC 5322 section 3.6.4, without the obsolete forms).
func messageID(id string) (string, error) {
	left, right, ok := strings.Cut(id, "@")
	if !ok || left == "" || right == "" || len(id) > 250 {
		return "", fmt.Errorf("%w: Message-ID: %q is not of the form left@right", ErrHeader, clip(id, 80))
	}
	for i := 0; i < len(id); i++ {
		if c := id[i]; !isAtext(c) && c != '.' && i != len(left) {
			return "", fmt.Errorf("%w: Message-ID: %q holds %q", ErrHeader, clip(id, 80), c)
		}
	}
	return id, nil
}

// unsubscribeURL checks a URL that stands between angle brackets in a header and is not folded (RFC 2369, RFC 8058).
func unsubscribeURL(s string) error {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c <= 0x20 || c >= 0x7f || strings.IndexByte("<>\"", c) >= 0 {
			return fmt.Errorf("%w: List-Unsubscribe: %q holds %q; percent-encode it", ErrHeader, clip(s, 80), c)
		}
	}
	if len(s)+3 > lineHard {
		return fmt.Errorf("%w: List-Unsubscribe: the URL has %d octets, a line holds %d", ErrHeader, len(s), lineHard-3)
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("%w: List-Unsubscribe: %q is no https or http URL", ErrHeader, clip(s, 80))
	}
	return nil
}
