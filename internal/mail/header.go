package mail

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrHeader is what a refused header value wraps: one that would end its line and start a header of its own, or one that no
// line of a message can hold.
var ErrHeader = errors.New("not a header value")

const (
	lineSoft = 76  // RFC 2047 section 2: lines with encoded-words; RFC 5322 recommends 78 for the others
	wordMax  = 75  // RFC 2047 section 2: an encoded-word
	lineHard = 998 // RFC 5322 section 2.1.1, without CRLF
)

const (
	wordOpen  = "=?utf-8?q?"
	wordOpenB = "=?utf-8?b?"
	wordEnd   = "?="
)

// safeValue refuses what could end a header line. Values are never cut or mended on the way: what somebody put a line break
// into isn't a name or a subject any more.
func safeValue(header, s string) error {
	if i := strings.IndexAny(s, "\r\n\x00"); i >= 0 {
		return fmt.Errorf("%w: %s: %q holds a line break or a NUL", ErrHeader, header, clip(s, 80))
	}
	return nil
}

// appendText appends `name: value CRLF` for an unstructured header (RFC 5322 section 2.2.1), folded, such that a reader gets
// back value byte for byte. mime.WordEncoder is not used: it leaves ASCII that looks like an encoded-word as it is, doesn't know
// how much of the first line the header's name has taken, and doesn't fold.
func appendText(b []byte, name, value string) ([]byte, error) {
	if err := safeValue(name, value); err != nil {
		return nil, err
	}
	value = validUTF8(value)
	b = append(append(b, name...), ": "...)
	col := len(name) + 2
	if plainText(value, lineSoft-col) {
		b, _ = appendFolded(b, value, col)
	} else {
		b, _ = appendWords(b, value, col)
	}
	return append(b, "\r\n"...), nil
}

// plainText reports whether value may stand in a header as it is: visible ASCII, words that fit a line (the first one beside
// the header's name), single spaces between them and nothing that would be read as an encoded-word.
func plainText(value string, first int) bool {
	if strings.Contains(value, "=?") || strings.HasPrefix(value, " ") || strings.HasSuffix(value, " ") || strings.Contains(value, "  ") {
		return false
	}
	word, room := 0, first
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == ' ':
			word, room = 0, lineSoft-1
		case c < 0x21 || c > 0x7e:
			return false
		default:
			if word++; word > room {
				return false
			}
		}
	}
	return true
}

// appendFolded appends s with CRLF before those spaces where the next word would leave the line, and returns the column.
func appendFolded(b []byte, s string, col int) ([]byte, int) {
	for i, word := range strings.Split(s, " ") {
		if i > 0 {
			if col+1+len(word) > lineSoft {
				b, col = append(b, "\r\n"...), 0
			}
			b, col = append(b, ' '), col+1
		}
		b, col = append(b, word...), col+len(word)
	}
	return b, col
}

// appendWords appends s as encoded-words (RFC 2047), Q or B, whichever is shorter, each of whole characters, each on a line of its own.
// In Q only what may stand in a phrase is left as it is (section 5, rule 3), so it is good for names, too.
func appendWords(b []byte, s string, col int) ([]byte, int) {
	q := 0
	for i := 0; i < len(s); i++ {
		q += qWidth(s[i])
	}
	useB := q > base64.StdEncoding.EncodedLen(len(s))
	line := len(b) - col
	for first := true; first || s != ""; first = false {
		if !first {
			b = append(b, "\r\n "...)
			line = len(b) - 1
		}
		room := min(wordMax, lineSoft-(len(b)-line)) - len(wordOpen) - len(wordEnd)
		n := fits(s, room, useB)
		if useB {
			b = append(b, wordOpenB...)
			b = base64.StdEncoding.AppendEncode(b, []byte(s[:n]))
		} else {
			b = append(b, wordOpen...)
			for i := 0; i < n; i++ {
				b = appendQ(b, s[i])
			}
		}
		b = append(b, wordEnd...)
		s = s[n:]
	}
	return b, len(b) - line
}

// fits returns how many bytes of s, in whole characters, can be encoded in room octets.
func fits(s string, room int, useB bool) int {
	n, used := 0, 0
	for n < len(s) {
		_, size := utf8.DecodeRuneInString(s[n:])
		if useB {
			used = base64.StdEncoding.EncodedLen(n + size)
		} else {
			for i := n; i < n+size; i++ {
				used += qWidth(s[i])
			}
		}
		if used > room {
			break
		}
		n += size
	}
	return n
}

func qPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!*+-/", c) >= 0
}

func qWidth(c byte) int {
	if qPlain(c) || c == ' ' {
		return 1
	}
	return 3
}

const upperHex = "0123456789ABCDEF"

func appendQ(b []byte, c byte) []byte {
	switch {
	case qPlain(c):
		return append(b, c)
	case c == ' ':
		return append(b, '_')
	}
	return append(b, '=', upperHex[c>>4], upperHex[c&15])
}

// appendAddress appends `name: mailbox CRLF` (RFC 5322 section 3.4).
func appendAddress(b []byte, name string, a Address) ([]byte, error) {
	if err := safeValue(name, a.Name); err != nil {
		return nil, err
	}
	addr, _, _, err := Normalize(a.Addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	b = append(append(b, name...), ": "...)
	col := len(name) + 2
	if a.Name == "" {
		return append(append(b, addr...), "\r\n"...), nil
	}
	display := validUTF8(a.Name)
	if quoted := quote(display); isASCII(display) && plainText(quoted, lineSoft-col) {
		b, col = appendFolded(b, quoted, col)
	} else {
		b, col = appendWords(b, display, col)
	}
	if col+3+len(addr) > lineSoft {
		b = append(b, "\r\n"...)
	}
	b = append(append(append(b, " <"...), addr...), ">\r\n"...)
	return b, nil
}

var quotedPairs = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// quote makes a quoted-string of a name that isn't made of atoms.
func quote(s string) string {
	atoms := true
	for i := 0; i < len(s); i++ {
		if !isAtext(s[i]) && s[i] != ' ' {
			atoms = false
			break
		}
	}
	if atoms {
		return s
	}
	return `"` + quotedPairs.Replace(s) + `"`
}

// validUTF8 is strings.ToValidUTF8, but quick where nothing is to be done.
func validUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// printable reports whether s is valid UTF-8 without control, format or space characters.
func printable(s string) bool {
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsGraphic(r) || unicode.IsSpace(r) {
			return false
		}
	}
	return true
}
