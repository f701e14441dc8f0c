package config

import (
	"encoding/json"
	"log/slog"
	"net/url"
	"strings"
)

const redacted = "[redacted]"

// Secret is a text that is never printed, logged or marshalled. The value hangs on a pointer, so that even a struct
// printed with %+v through an unexported field shows an address and no secret.
type Secret struct{ v *string }

// NewSecret hides s.
func NewSecret(s string) Secret {
	if s == "" {
		return Secret{}
	}
	return Secret{&s}
}

// Reveal gives the secret itself.
func (s Secret) Reveal() string {
	if s.v == nil {
		return ""
	}
	return *s.v
}

// IsZero reports whether there is none.
func (s Secret) IsZero() bool { return s.v == nil }

func (s Secret) String() string {
	if s.v == nil {
		return ""
	}
	return redacted
}

func (s Secret) GoString() string             { return s.String() }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(s.String()) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// URI is an address that may hold a password. Printed, it shows scheme, hosts and path alone.
type URI struct{ v *string }

// NewURI wraps s, which is not checked.
func NewURI(s string) URI {
	if s == "" {
		return URI{}
	}
	return URI{&s}
}

// Reveal gives the address as it was set, with its password.
func (u URI) Reveal() string {
	if u.v == nil {
		return ""
	}
	return *u.v
}

// IsZero reports whether there is none.
func (u URI) IsZero() bool { return u.v == nil }

// String leaves out whatever stands before the last @ (a password that nobody escaped may itself hold / or @) and the
// query (which may hold one, too).
func (u URI) String() string {
	if u.v == nil {
		return ""
	}
	scheme, rest, ok := strings.Cut(*u.v, ":")
	if !ok {
		return redacted
	}
	slashes := ""
	if strings.HasPrefix(rest, "//") {
		slashes, rest = "//", rest[2:]
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = redacted + rest[at:]
	}
	if q := strings.IndexByte(rest, '?'); q >= 0 {
		rest = rest[:q] + "?…"
	}
	return scheme + ":" + slashes + rest
}

func (u URI) GoString() string             { return u.String() }
func (u URI) LogValue() slog.Value         { return slog.StringValue(u.String()) }
func (u URI) MarshalText() ([]byte, error) { return []byte(u.String()), nil }
func (u URI) MarshalJSON() ([]byte, error) { return json.Marshal(u.String()) }

// Scheme is what stands before the colon, in lower case.
func (u URI) Scheme() string {
	scheme, _, _ := strings.Cut(u.Reveal(), ":")
	return strings.ToLower(scheme)
}

// password finds the password as it is written, "" where there is none.
func (u URI) password() string {
	_, rest, _ := strings.Cut(u.Reveal(), "://")
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return ""
	}
	_, pw, _ := strings.Cut(rest[:at], ":")
	if plain, err := url.PathUnescape(pw); err == nil && plain != pw {
		return plain // the escaped form is part of the whole URI, which is scrubbed as such
	}
	return pw
}
