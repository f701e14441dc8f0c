package mail

import "strings"

// qpLine is how many octets of a quoted-printable line come before the = of a soft break (RFC 2045 section 6.7 allows 76 with it).
const qpLine = 75

// qpPlain are the octets that stand for themselves; space and tab do so only before something else on their line.
var qpPlain = func() (t [256]bool) {
	for c := '!'; c <= '~'; c++ {
		t[c] = c != '='
	}
	t[' '], t['\t'] = true, true
	return t
}()

// appendQuoted appends s in quoted-printable. Line ends of any kind (CRLF, CR, LF) become CRLF; all else comes back byte for byte. Dots and
// "From " at the start of a line are encoded, since mail systems on the way are known to change those.
//
// It stands here in place of mime/quotedprintable, which takes each byte through several calls: BenchmarkEncode showed it at three times the cost of this (60 µs for
// a mail of 6 kB; at 7,000 a second on 2 cores a mail may cost 280 µs in all). go-mail is built upon it, and leaves a subject that looks like an encoded-word as it is, so that
// it arrives as another one. The standard library's reader judges this in the tests.
func appendQuoted(b []byte, s string) []byte {
	col := 0
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '\n', c == '\r':
			if c == '\r' && i+1 < len(s) && s[i+1] == '\n' {
				i++
			}
			b, col = append(b, '\r', '\n'), 0
			i++
			continue
		case qpPlain[c] && !(col == 0 && startsLine(s[i:])):
			n := plainRun(s[i:], qpLine-col)
			b, col = append(b, s[i:i+n]...), col+n
			if i += n; n > 0 {
				continue
			}
		}
		if col+3 > qpLine || col == qpLine {
			b, col = append(b, '=', '\r', '\n'), 0
			continue
		}
		b, col = append(b, '=', upperHex[c>>4], upperHex[c&15]), col+3
		i++
	}
	return b
}

// plainRun returns how many octets of s, at most room, can be copied: a space or tab at the end of a line or of the text isn't one of them.
func plainRun(s string, room int) int {
	line := s[:min(room, len(s))]
	n := len(line)
	for i := range len(line) {
		if !qpPlain[line[i]] {
			n = i
			break
		}
	}
	if n > 0 && (n == len(s) || s[n] == '\r' || s[n] == '\n') && (s[n-1] == ' ' || s[n-1] == '\t') {
		n--
	}
	return n
}

func startsLine(s string) bool { return s[0] == '.' || strings.HasPrefix(s, "From ") }
