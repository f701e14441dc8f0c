package templates

import (
	htmltemplate "html/template"
	"strings"
)

// html/template decides which escaper a value needs where it stands. The frequent ones are done here, byte for byte as it
// does them (fuzzed against it); a mail that needs any other is executed by html/template itself, see program.go.
type escaper uint8

const (
	escapeHTML escaper = iota // text, and attributes in quotes
	filterURL                 // no javascript: and the like
	normalizeURL
	escapeURL // within a query
)

var escapers = map[string]escaper{
	"_html_template_htmlescaper":   escapeHTML,
	"_html_template_rcdataescaper": escapeHTML,
	"_html_template_attrescaper":   escapeHTML,
	"_html_template_urlfilter":     filterURL,
	"_html_template_urlnormalizer": normalizeURL,
	"_html_template_urlescaper":    escapeURL,
}

// appendEscaped appends s as text of HTML, or as the value of a quoted attribute.
func appendEscaped(b []byte, s string) []byte {
	from := 0
	for i := 0; i < len(s); i++ {
		var to string
		switch s[i] {
		case 0:
			to = "\uFFFD"
		case '"':
			to = "&#34;"
		case '&':
			to = "&amp;"
		case '\'':
			to = "&#39;"
		case '+':
			to = "&#43;"
		case '<':
			to = "&lt;"
		case '>':
			to = "&gt;"
		default:
			continue
		}
		b = append(b, s[from:i]...)
		b = append(b, to...)
		from = i + 1
	}
	return append(b, s[from:]...)
}

// filtered is s if it is a relative URL or one of the web or of mail.
func filtered(s string) string {
	scheme, _, ok := strings.Cut(s, ":")
	if ok && !strings.Contains(scheme, "/") && !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") &&
		!strings.EqualFold(scheme, "mailto") {
		return "#ZgotmplZ"
	}
	return s
}

const (
	urlPlain = 1 << iota // stands for itself everywhere
	urlMark              // means something in a URL: kept by normalizeURL
)

var urlBytes = func() (class [256]uint8) {
	for c := '0'; c <= 'z'; c++ {
		if c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c {
			class[c] = urlPlain
		}
	}
	for _, c := range "-._~" {
		class[c] = urlPlain
	}
	for _, c := range "!#$&*+,/:;=?@[]" {
		class[c] = urlMark
	}
	return class
}()

// percentEncoded is s with what can't stand in a URL encoded; norm keeps what means something in one, and what is encoded.
func percentEncoded(s string, norm bool) string {
	const digits = "0123456789abcdef"
	var out []byte
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if class := urlBytes[c]; class == urlPlain || norm && class == urlMark {
			continue
		}
		if norm && c == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			continue
		}
		out = append(append(out, s[from:i]...), '%', digits[c>>4], digits[c&15])
		from = i + 1
	}
	if from == 0 {
		return s
	}
	return string(append(out, s[from:]...))
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

// writeEscaped writes v by way of the escapers. What postbit made itself comes through where HTML is expected.
func (s *state) writeEscaped(v any, chain []escaper) error {
	if h, ok := v.(htmltemplate.HTML); ok && len(chain) == 1 {
		_, err := s.out.WriteString(string(h))
		return err
	}
	return s.writeText(show(v), chain)
}

func (s *state) writeText(text string, chain []escaper) error {
	text = escapedURL(text, chain)
	if len(chain) == 0 || chain[len(chain)-1] != escapeHTML {
		_, err := s.out.WriteString(text)
		return err
	}
	s.out.b = appendEscaped(s.out.b, text)
	return s.out.check()
}

// escapedURL applies the escapers of URLs among chain.
func escapedURL(text string, chain []escaper) string {
	for _, e := range chain {
		switch e {
		case filterURL:
			text = filtered(text)
		case normalizeURL:
			text = percentEncoded(text, true)
		case escapeURL:
			text = percentEncoded(text, false)
		}
	}
	return text
}
