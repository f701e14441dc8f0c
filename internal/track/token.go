package track

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/url"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Kind is what a token permits, and what a hit was.
type Kind byte

const (
	Open        Kind = 1 // load the pixel
	Click       Kind = 2 // follow a link
	Unsubscribe Kind = 3
	Browser     Kind = 4 // see the mail in a browser
	View        Kind = 5 // a page of a site was seen; no token is of this kind
)

func (k Kind) String() string {
	switch k {
	case Open:
		return "open"
	case Click:
		return "click"
	case Unsubscribe:
		return "unsubscribe"
	case Browser:
		return "browser"
	case View:
		return "view"
	}
	return "unknown"
}

// Token says which mail a request belongs to.
type Token struct {
	Kind   Kind
	Run    [8]byte
	User   bson.RawValue
	SentAt time.Time // kept to the millisecond, UTC, from 1970 to the year 10889
	URL    string    // Click only: where to go
}

const (
	tokenVersion = 1
	maxUser      = 1024 // bytes of a user id's value
	maxURL       = 2048 // bytes of a click's target
	// maxBinary bounds a token before base64: version, key id, kind, run, user, time, URL, MAC.
	maxBinary = 1 + 1 + maxKeyID + 1 + 8 + 1 + 2 + maxUser + 6 + maxURL + macLen
)

// MaxToken is the length of the longest token, in characters.
var MaxToken = encoding.EncodedLen(maxBinary)

// ErrToken is returned for every token that isn't ours, whatever is wrong with it.
var ErrToken = errors.New("not a valid token")

var encoding = base64.RawURLEncoding.Strict()

// Sign returns the token as it stands in a URL. It returns "" for what can't be a token: a user id over 1,024 bytes, a URL over
// 2,048 or not http(s), a time before 1970. The layout is in docs/pixel.md.
func (ks *Keys) Sign(t Token) string {
	ms := t.SentAt.UnixMilli()
	if len(t.User.Value) > maxUser || t.User.Type == 0 || ms < 0 || ms >= 1<<48 || (t.Kind == Click) != (t.URL != "") || t.Kind == Click && !webURL(t.URL) {
		return ""
	}
	var buf [256]byte
	b := append(buf[:0], tokenVersion, byte(len(ks.first.id)))
	b = append(b, ks.first.id...)
	b = append(b, byte(t.Kind))
	b = append(b, t.Run[:]...)
	b = appendUser(b, t.User)
	b = append(b, byte(ms>>40), byte(ms>>32), byte(ms>>24), byte(ms>>16), byte(ms>>8), byte(ms))
	b = append(b, t.URL...)
	b = ks.first.appendMAC(b, b)
	return encoding.EncodeToString(b)
}

func appendUser(b []byte, u bson.RawValue) []byte {
	b = append(b, byte(u.Type))
	b = binary.AppendUvarint(b, uint64(len(u.Value)))
	return append(b, u.Value...)
}

// Verify returns what was signed, or ErrToken. The signature is compared in constant time.
func (ks *Keys) Verify(s string) (Token, error) {
	if len(s) > MaxToken || strings.ContainsAny(s, "\r\n") { // which base64 passes over
		return Token{}, ErrToken
	}
	b, err := encoding.DecodeString(s)
	if err != nil || len(b) < 2 || b[0] != tokenVersion {
		return Token{}, ErrToken
	}
	n := int(b[1])
	if len(b) < 2+n+macLen {
		return Token{}, ErrToken
	}
	k := ks.byID[string(b[2:2+n])]
	if k == nil {
		return Token{}, ErrToken
	}
	signed, mac := b[:len(b)-macLen], b[len(b)-macLen:]
	var want [macLen]byte
	if !hmac.Equal(k.appendMAC(want[:0], signed), mac) {
		return Token{}, ErrToken
	}
	return parseToken(signed[2+n:])
}

// parseToken reads what stands between the key id and the MAC. It is signed, but the program that signed it may have been another one.
func parseToken(b []byte) (Token, error) {
	if len(b) < 1+8 {
		return Token{}, ErrToken
	}
	t := Token{Kind: Kind(b[0]), Run: [8]byte(b[1:9])}
	user, b, ok := cutUser(b[9:])
	if !ok || len(b) < 6 {
		return Token{}, ErrToken
	}
	t.User = user
	ms := int64(b[0])<<40 | int64(b[1])<<32 | int64(b[2])<<24 | int64(b[3])<<16 | int64(b[4])<<8 | int64(b[5])
	t.SentAt, t.URL = time.UnixMilli(ms).UTC(), string(b[6:])
	if t.Kind < Open || t.Kind > Browser || (t.Kind == Click) != (t.URL != "") || t.Kind == Click && !webURL(t.URL) {
		return Token{}, ErrToken
	}
	return t, nil
}

func cutUser(b []byte) (u bson.RawValue, rest []byte, ok bool) {
	if len(b) < 2 {
		return u, nil, false
	}
	size, n := binary.Uvarint(b[1:])
	if n <= 0 || size > maxUser || uint64(len(b)) < 1+uint64(n)+size {
		return u, nil, false
	}
	end := 1 + n + int(size)
	u = bson.RawValue{Type: bson.Type(b[0]), Value: append([]byte(nil), b[1+n:end]...)}
	return u, b[end:], u.Validate() == nil
}

// webURL reports whether a click may be sent there: an absolute http or https URL that can stand in a Location header.
func webURL(s string) bool {
	if len(s) > maxURL {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] <= 0x20 || s[i] == 0x7f {
			return false
		}
	}
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.Opaque == ""
}
