package track

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// URLs make the addresses that stand in a mail.
type URLs struct {
	base string
	keys *Keys
}

// ErrBase is what a refused public URL wraps.
var ErrBase = errors.New("not a usable public URL")

// NewURLs takes the public address of the handler, such as https://m.example.com or https://example.com/mail.
func NewURLs(base string, keys *Keys) (*URLs, error) {
	u, err := url.Parse(base)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil:
		return nil, fmt.Errorf("%w: %q; it must look like https://m.example.com", ErrBase, base)
	case u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(base, "\"'<> \r\n"):
		return nil, fmt.Errorf("%w: %q; nothing may follow its path", ErrBase, base)
	}
	return &URLs{base: strings.TrimRight(base, "/"), keys: keys}, nil
}

// Base is the public address without a slash at its end.
func (u *URLs) Base() string { return u.base }

// Pixel is the address of the image that tells an open; "" where the user's id can't be in a token (see Keys.Sign).
func (u *URLs) Pixel(run [8]byte, user bson.RawValue, sentAt time.Time) string {
	return u.make("/o/", Token{Kind: Open, Run: run, User: user, SentAt: sentAt}, ".gif")
}

// Unsubscribe is the address for List-Unsubscribe and for the link in the mail.
func (u *URLs) Unsubscribe(run [8]byte, user bson.RawValue, sentAt time.Time) string {
	return u.make("/u/", Token{Kind: Unsubscribe, Run: run, User: user, SentAt: sentAt}, "")
}

// Browser is the address of the mail as a web page.
func (u *URLs) Browser(run [8]byte, user bson.RawValue, sentAt time.Time) string {
	return u.make("/b/", Token{Kind: Browser, Run: run, User: user, SentAt: sentAt}, "")
}

// Click is a counted way to target. What isn't an absolute http or https URL (mailto:, tel:, #top), or is longer than 2,048 bytes, is returned as it is.
func (u *URLs) Click(run [8]byte, user bson.RawValue, sentAt time.Time, target string) string {
	if s := u.make("/c/", Token{Kind: Click, Run: run, User: user, SentAt: sentAt, URL: target}, ""); s != "" {
		return s
	}
	return target
}

func (u *URLs) make(path string, t Token, suffix string) string {
	token := u.keys.Sign(t)
	if token == "" {
		return ""
	}
	return u.base + path + token + suffix
}
