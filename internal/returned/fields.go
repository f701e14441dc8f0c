package returned

import (
	"bytes"
	"strings"
)

// eachField calls f for every field of a block of header fields, with its name in lower case and its value unfolded and trimmed, and
// returns what stands behind the empty line that ends the block. Returned headers are copies made by all kinds of programs: a line
// that is no field is passed over with what continues it, and a value is cut at maxField. (net/mail gives up at such a line.)
func eachField(data []byte, f func(name, value string)) (rest []byte) {
	var name string
	var value []byte
	fields := 0
	flush := func() {
		if name != "" && fields < maxFields {
			fields++
			f(name, string(bytes.TrimSpace(value)))
		}
		name, value = "", value[:0]
	}
	for len(data) > 0 {
		var line []byte
		line, data = cutLine(data)
		switch {
		case len(line) == 0:
			flush()
			return data
		case line[0] == ' ' || line[0] == '\t':
			if name != "" {
				value = appendClipped(append(value, ' '), bytes.TrimSpace(line))
			}
		default:
			flush()
			if n, v, ok := bytes.Cut(line, []byte(":")); ok && isFieldName(bytes.TrimRight(n, " \t")) {
				name, value = strings.ToLower(string(bytes.TrimRight(n, " \t"))), appendClipped(value, bytes.TrimSpace(v))
			}
		}
	}
	flush()
	return nil
}

func appendClipped(value, more []byte) []byte {
	return append(value, more[:max(0, min(len(more), maxField-len(value)))]...)
}

// cutLine cuts a line off, without its CRLF or LF.
func cutLine(data []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(data, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r")), rest
}

// isFieldName: printable ASCII without space and colon (RFC 5322 section 3.6.8).
func isFieldName(n []byte) bool {
	if len(n) == 0 || len(n) > 100 {
		return false
	}
	for _, c := range n {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// isWord compares the first word of a value, before any comment or parameter.
func isWord(value, word string) bool { return strings.EqualFold(firstWord(value), word) }

func firstWord(value string) string {
	value = strings.TrimSpace(value)
	if i := strings.IndexAny(value, " \t;("); i >= 0 {
		value = value[:i]
	}
	return value
}
