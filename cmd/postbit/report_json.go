package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode"
)

// printReportJSON is printJSON for texts from outside: JSON escapes the control characters of ASCII only up to 0x1f, and a
// terminal obeys others as well.
func (a *app) printReportJSON(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := a.out.Write(append(escapeControls(bytes.TrimRight(b.Bytes(), "\n")), '\n'))
	return err
}

// escapeControls writes control and formatting characters (of C1, DEL, those that turn the direction of text) as \u escapes. They
// can stand in strings only, so that the JSON means the same.
func escapeControls(data []byte) []byte {
	special := func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf) }
	if bytes.IndexFunc(data, special) < 0 {
		return data
	}
	var b bytes.Buffer
	for _, r := range string(data) {
		switch {
		case !special(r):
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}
