package templates

import (
	"regexp"
	"strings"
)

// html/template drops comments, and with them those that Outlook reads as conditions (<!--[if mso]> … <![endif]-->), and it
// knows nothing of pixels. So the source is scanned before it is parsed: it is HTML with {{ actions }} anywhere.

// edit puts text in place of source[from:to].
type edit struct {
	from, to int
	text     string
}

// marks are the places that the scan finds.
type marks struct {
	edits     []edit // conditional comments that must come through
	afterBody int    // behind the first <body …>, or -1
	endBody   int    // before the last </body>, or -1
	document  bool   // there is <html>, <body> or a doctype: the file stands for itself
}

var (
	conditionOpen  = regexp.MustCompile(`^<!--\[if[^\]<>{}]*\]>(?:\s*<!--+>)?`)
	conditionClose = regexp.MustCompile(`^<!(?:--<!)?\[endif\]-->`)
)

func scanHTML(src string) marks {
	m := marks{afterBody: -1, endBody: -1}
	for i := 0; i < len(src); {
		open := strings.IndexAny(src[i:], "<{")
		if open < 0 {
			break
		}
		i += open
		rest := src[i:]
		switch {
		case strings.HasPrefix(rest, "{{"):
			i += actionLen(rest)
		case strings.HasPrefix(rest, "<!"):
			i = m.declaration(src, i)
		case rest[0] == '<':
			i = m.tag(src, i)
		default:
			i++
		}
	}
	return m
}

// declaration is at <!: a comment, a condition, a doctype. It returns where to go on.
func (m *marks) declaration(src string, i int) int {
	rest := src[i:]
	condition := conditionOpen.FindString(rest)
	if condition == "" {
		condition = conditionClose.FindString(rest)
	}
	switch {
	case condition != "":
		m.edits = append(m.edits, edit{i, i + len(condition), "{{" + fnRaw + " `" + condition + "`}}"})
		return i + len(condition)
	case strings.HasPrefix(rest, "<!--"):
		if end := strings.Index(rest[4:], "-->"); end >= 0 {
			return i + 4 + end + 3
		}
		return len(src)
	case len(rest) > 9 && strings.EqualFold(rest[:9], "<!doctype"):
		m.document = true
	}
	return i + 2
}

// tag is at <. It returns where to go on: behind the tag, or behind the end of what is no HTML inside.
func (m *marks) tag(src string, i int) int {
	end := i + tagLen(src[i:])
	name := tagName(src[i:end])
	switch name {
	case "html":
		m.document = true
	case "body":
		m.document = true
		if m.afterBody < 0 {
			m.afterBody = end
		}
	case "/body":
		m.endBody = i
	case "script", "style", "title", "textarea":
		for at := end; at < len(src); at++ {
			if strings.HasPrefix(src[at:], "{{") {
				at += actionLen(src[at:]) - 1
			} else if strings.HasPrefix(src[at:], "</") && tagName(src[at:min(len(src), at+12)]) == "/"+name {
				return at
			}
		}
		return len(src)
	}
	return end
}

// tagName is the name of the tag that s begins with, in lower case, with the / of an end tag.
func tagName(s string) string {
	end := 1
	for end < len(s) && (s[end] == '/' && end == 1 || 'a' <= s[end]|0x20 && s[end]|0x20 <= 'z' || '0' <= s[end] && s[end] <= '9') {
		end++
	}
	return strings.ToLower(s[1:end])
}

// tagLen is the length of the tag that s begins with: quoted values and actions may hold a >. A quote within the tag's name is a part of
// the name, which ends at white space, a slash or > (HTML, tag name state).
func tagLen(s string) int {
	quote, name := byte(0), true
	for i := 1; i < len(s); {
		switch c := s[i]; {
		case strings.HasPrefix(s[i:], "{{"):
			i += actionLen(s[i:])
			continue
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '>':
			return i + 1
		case name:
			name = c != '/' && !isSpace(rune(c)) || i == 1
		case c == '"' || c == '\'':
			quote = c
		}
		i++
	}
	return len(s)
}

// actionLen is the length of the {{ action }} that s begins with: its strings may hold }}.
func actionLen(s string) int {
	if strings.HasPrefix(strings.TrimLeft(strings.TrimPrefix(s[2:], "-"), " \t\r\n"), "/*") {
		if end := strings.Index(s, "*/"); end >= 0 {
			if close := strings.Index(s[end:], "}}"); close >= 0 {
				return end + close + 2
			}
		}
		return len(s)
	}
	quote := byte(0)
	for i := 2; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == '\\' && quote != '`' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '`' || c == '\'':
			quote = c
		case strings.HasPrefix(s[i:], "}}"):
			return i + 2
		}
	}
	return len(s)
}

// apply makes the edits, which are in the order of their places.
func apply(src string, edits []edit) string {
	var b strings.Builder
	at := 0
	for _, e := range edits {
		b.WriteString(src[at:e.from])
		b.WriteString(e.text)
		at = e.to
	}
	b.WriteString(src[at:])
	return b.String()
}
