// Package mail makes messages and hands them to a mail server: MIME, headers, the pool of SMTP connections, and what a
// server's reply means for the recipient.
package mail

import (
	"errors"
	"fmt"
	netmail "net/mail"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// ErrAddress is what every refused address wraps.
var ErrAddress = errors.New("not a mail address")

// Limits of RFC 5321 section 4.5.3.1, in octets. A path holds 256 with its angle brackets.
const (
	maxLocal   = 64
	maxDomain  = 255
	maxAddress = 254
)

// Address is a mailbox with the name that mail programs show for it.
type Address struct {
	Name string // any UTF-8; may be empty
	Addr string // as Normalize returns it
}

// ParseAddress reads `Name <local@domain>` or a bare address, the name quoted or as encoded-words, and normalizes it.
// Errors wrap ErrAddress.
func ParseAddress(s string) (Address, error) {
	if strings.ContainsAny(s, "\r\n\x00") {
		return Address{}, fmt.Errorf("%w: %q holds a line break or a NUL", ErrAddress, clip(s, 80))
	}
	if i := strings.LastIndexByte(s, '<'); i < 0 {
		addr, _, _, err := Normalize(s)
		return Address{Addr: addr}, err
	}
	a, err := netmail.ParseAddress(s)
	if err != nil {
		return Address{}, fmt.Errorf("%w: %q: %v", ErrAddress, clip(s, 80), err)
	}
	addr, _, _, err := Normalize(a.Address)
	if err != nil {
		return Address{}, err
	}
	return Address{Name: a.Name, Addr: addr}, nil
}

// Normalize returns the address as it goes over the wire, with the domain in lower case A-labels (IDNA 2008 with the
// mapping of UTS 46), and the domain alone. Space around it is dropped. needsUTF8: the local part isn't ASCII, so only a server
// with SMTPUTF8 (RFC 6531) can take it. Quoted local parts and address literals are refused. Errors wrap ErrAddress.
func Normalize(s string) (addr, domain string, needsUTF8 bool, err error) {
	s = strings.TrimSpace(s)
	at := strings.IndexByte(s, '@')
	switch {
	case s == "":
		return "", "", false, fmt.Errorf("%w: it is empty", ErrAddress)
	case at < 0:
		return "", "", false, fmt.Errorf("%w: %q has no @", ErrAddress, clip(s, 80))
	case strings.IndexByte(s[at+1:], '@') >= 0:
		return "", "", false, fmt.Errorf("%w: %q has more than one @", ErrAddress, clip(s, 80))
	}
	local := s[:at]
	needsUTF8, err = checkLocal(local)
	if err != nil {
		return "", "", false, fmt.Errorf("%w: %q: %v", ErrAddress, clip(s, 80), err)
	}
	domain, err = normalizeDomain(s[at+1:])
	if err != nil {
		return "", "", false, fmt.Errorf("%w: %q: %v", ErrAddress, clip(s, 80), err)
	}
	if at+1+len(domain) > maxAddress {
		return "", "", false, fmt.Errorf("%w: %q is longer than %d octets", ErrAddress, clip(s, 80), maxAddress)
	}
	if domain == s[at+1:] {
		return s, domain, needsUTF8, nil
	}
	return local + "@" + domain, domain, needsUTF8, nil
}

// checkLocal takes a dot-atom of RFC 5322, widened to UTF-8 by RFC 6532.
func checkLocal(s string) (needsUTF8 bool, err error) {
	switch {
	case s == "":
		return false, errors.New("nothing before the @")
	case len(s) > maxLocal:
		return false, fmt.Errorf("more than %d octets before the @", maxLocal)
	case s[0] == '.' || s[len(s)-1] == '.' || strings.Contains(s, ".."):
		return false, errors.New("a dot at an end, or two in a row, before the @")
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= utf8.RuneSelf:
			needsUTF8 = true
		case !isAtext(c) && c != '.':
			return false, fmt.Errorf("%q can't stand before the @", c)
		}
	}
	if needsUTF8 && !printable(s) {
		return false, errors.New("invalid UTF-8 or an invisible character before the @")
	}
	return needsUTF8, nil
}

func isAtext(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-/=?^_`{|}~", c) >= 0
}

var errDomain = errors.New("the domain is not one that can be looked up")

// normalizeDomain has a way of its own for plain ASCII, since every evaluated user passes here.
func normalizeDomain(s string) (string, error) {
	if !plainDomain(s) {
		a, err := idna.Lookup.ToASCII(s)
		if err != nil || !utf8.ValidString(s) {
			return "", errDomain
		}
		if again, err := idna.Lookup.ToASCII(a); err != nil || again != a { // what was let through but can't be looked up
			return "", errDomain
		}
		s = a
	}
	s = strings.ToLower(s)
	if !plainLabels(s) {
		return "", errDomain
	}
	return s, nil
}

// plainDomain reports whether IDNA has nothing to say about the domain.
func plainDomain(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return !strings.Contains(s, "--") || !strings.Contains(strings.ToLower(s), "xn--")
}

// plainLabels checks letters, digits and hyphens, 1 to 63 a label, the last label not all digits (that would be an IPv4 address).
func plainLabels(s string) bool {
	if s == "" || len(s) > maxDomain {
		return false
	}
	start, alpha := 0, false
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '.' {
			c := s[i]
			switch {
			case 'a' <= c && c <= 'z':
				alpha = true
			case '0' <= c && c <= '9':
			case c == '-' && i > start && i+1 < len(s) && s[i+1] != '.':
				alpha = true
			default:
				return false
			}
			continue
		}
		if n := i - start; n < 1 || n > 63 {
			return false
		}
		if i < len(s) {
			start, alpha = i+1, false
		}
	}
	return alpha
}

// isASCII reports whether the whole of s is 7-bit.
func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// clip cuts s to at most n bytes without splitting a rune and makes it valid UTF-8.
func clip(s string, n int) string {
	if len(s) > n {
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
