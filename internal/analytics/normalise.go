package analytics

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"
)

// The longest value and title that are kept, in bytes.
const (
	MaxValueBytes = 1024
	MaxTitleBytes = 256
)

// NormaliseURL is a page, referrer or link as it is counted: NFC, scheme and host in lower case, without user, fragment and
// the parameters by which campaigns and ad networks tell their visitors apart (utm_*, gclid, fbclid); at most 1,024 bytes. What
// is no web address (a path alone, an app) is kept as a text. Empty where nothing is left.
func NormaliseURL(s string) string {
	s = NormaliseText(s, 4*MaxValueBytes)
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" {
		s, _, _ = strings.Cut(s, "#")
		return cutRunes(s, MaxValueBytes)
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	u.Scheme, u.Host = strings.ToLower(u.Scheme), normaliseHost(u.Scheme, u.Host)
	u.RawQuery = keepParameters(u.RawQuery)
	u.ForceQuery = false
	if u.Host != "" && u.Path == "" {
		u.Path = "/"
	}
	return cutRunes(readable(u), MaxValueBytes)
}

// readable is the address with its letters as they are read, wherever taking off the escapes and putting them back gives
// the same: /caf%C3%A9 and /café are one page.
func readable(u *url.URL) string {
	escaped := u.EscapedPath()
	var b strings.Builder
	if u.Scheme != "" {
		b.WriteString(u.Scheme + ":")
	}
	if u.Scheme != "" && u.Host != "" || u.Host != "" {
		b.WriteString("//" + u.Host)
	}
	b.WriteString(unescapeLetters(escaped))
	if u.RawQuery != "" {
		b.WriteString("?" + unescapeLetters(u.RawQuery))
	}
	return norm.NFC.String(b.String())
}

// unescapeLetters takes the escapes off characters beyond ASCII that can be shown; those of ASCII mean something.
func unescapeLetters(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b, run []byte
	flush := func() {
		for len(run) > 0 {
			r, n := utf8.DecodeRune(run)
			if r == utf8.RuneError || !unicode.IsPrint(r) {
				for _, c := range run[:n] {
					b = append(b, '%', upperHex[c>>4], upperHex[c&15])
				}
			} else {
				b = append(b, run[:n]...)
			}
			run = run[n:]
		}
	}
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, ok := unhex(s[i+1], s[i+2]); ok && c >= 0x80 {
				run = append(run, c)
				i += 2
				continue
			}
		}
		flush()
		b = append(b, s[i])
	}
	flush()
	return string(b)
}

const upperHex = "0123456789ABCDEF"

func unhex(a, b byte) (byte, bool) {
	hi, ok1 := nibble(a)
	lo, ok2 := nibble(b)
	return hi<<4 | lo, ok1 && ok2
}

func nibble(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// normaliseHost puts a host into one spelling, and leaves out the port that its scheme has anyway.
func normaliseHost(scheme, host string) string {
	host = strings.ToLower(host)
	switch strings.ToLower(scheme) {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	if ascii, err := idna.Lookup.ToASCII(host); err == nil {
		host = ascii
	}
	return strings.TrimSuffix(host, ".")
}

// keepParameters drops what tells visitors apart and not pages. The others keep their order and their spelling.
func keepParameters(query string) string {
	var kept []string
	for p := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(p, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		name = strings.ToLower(name)
		if p == "" || strings.HasPrefix(name, "utm_") || name == "gclid" || name == "fbclid" {
			continue
		}
		kept = append(kept, p)
	}
	return strings.Join(kept, "&")
}

// NormaliseText makes a text from outside fit to be kept: valid UTF-8 in NFC, without control characters, white space as
// single spaces, at most limit bytes.
func NormaliseText(s string, limit int) string {
	s = cutRunes(s, 4*limit) // before the work, whatever somebody sends
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r), r == '\uFEFF':
			return -1
		}
		return r
	}, norm.NFC.String(s))
	return cutRunes(strings.Join(strings.Fields(s), " "), limit)
}

// cutRunes cuts a text to limit bytes and not through a character.
func cutRunes(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return strings.TrimRight(s[:limit], " ")
}
