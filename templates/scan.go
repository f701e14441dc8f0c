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
	n, _ := tagLen(src[i:])
	end := i + n
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

// tagLen is the length of the tag that s begins with, as HTML has it: a > within a quoted value, or an action, does not end it; a quote anywhere
// else opens nothing. A doctype and what is no tag (</ before anything but a letter) end at the first >. Where s is at its end before the tag is,
// ended is false.
func tagLen(s string) (n int, ended bool) {
	const (
		name = iota
		attribute
		value
		quoted
		bare
		declaration
	)
	at, begun, quote := name, false, byte(0) // begun: the name of an attribute, which a = may follow
	if bogusTag(s) {
		at = declaration
	}
	for i := 1; i < len(s); i++ {
		c := s[i]
		if strings.HasPrefix(s[i:], "{{") {
			i += actionLen(s[i:]) - 1
			if at == value {
				at = bare
			}
			begun = true
			continue
		}
		if c == '>' && at != quoted {
			return i + 1, true
		}
		white := isSpace(rune(c))
		switch at {
		case name:
			if white || c == '/' && i > 1 {
				at, begun = attribute, false
			}
		case attribute:
			switch {
			case c == '/':
				begun = false
			case c == '=' && begun:
				at = value
			case !white:
				begun = true
			}
		case value:
			switch {
			case c == '"' || c == '\'':
				at, quote = quoted, c
			case !white:
				at = bare
			}
		case quoted:
			if c == quote {
				at, begun = attribute, false
			}
		case bare:
			if white {
				at, begun = attribute, false
			}
		}
	}
	return len(s), false
}

func bogusTag(s string) bool {
	if len(s) < 2 || s[1] == '!' {
		return len(s) > 1
	}
	return s[1] == '/' && len(s) > 2 && (s[2]|0x20 < 'a' || s[2]|0x20 > 'z')
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
