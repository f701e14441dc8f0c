package templates

import (
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// textOf makes the text part of a mail from its HTML: blocks become lines, links keep their target in angle brackets
// (RFC 3986, appendix C), images their alternative text, and what is not displayed is left out.
func textOf(src string) string {
	w := textWriter{}
	w.out.Grow(len(src) / 2)
	z := html.NewTokenizer(strings.NewReader(src))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return strings.TrimSpace(w.out.String()) + "\n"
		case html.TextToken:
			if w.hidden == 0 {
				w.text(string(z.Text()))
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			w.start(z)
		case html.EndTagToken:
			name, _ := z.TagName()
			w.end(atom.Lookup(name))
		}
	}
}

type textWriter struct {
	out    strings.Builder
	breaks int         // line breaks that are due before the next word
	space  bool        // a space is due
	hidden int         // depth of elements inside a hidden one, itself included
	within []atom.Atom // what those are
	link   string      // target of the link that is open
	linkAt int         // where its text begins
	pre    int
}

var blocks = map[atom.Atom]int{ // line breaks before and after
	atom.P: 2, atom.H1: 2, atom.H2: 2, atom.H3: 2, atom.H4: 2, atom.H5: 2, atom.H6: 2, atom.Ul: 2, atom.Ol: 2, atom.Blockquote: 2,
	atom.Pre: 2, atom.Table: 2, atom.Div: 1, atom.Li: 1, atom.Tr: 1, atom.Section: 1, atom.Article: 1, atom.Header: 1,
	atom.Footer: 1, atom.Center: 1, atom.Address: 1, atom.Dl: 1, atom.Dt: 1, atom.Dd: 1, atom.Form: 1, atom.Main: 1, atom.Body: 1,
}

var void = map[atom.Atom]bool{
	atom.Area: true, atom.Base: true, atom.Br: true, atom.Col: true, atom.Hr: true, atom.Img: true, atom.Input: true,
	atom.Link: true, atom.Meta: true, atom.Source: true, atom.Wbr: true,
}

func (w *textWriter) start(z *html.Tokenizer) {
	name, more := z.TagName()
	tag := atom.Lookup(name)
	var href, alt string
	hide := false
	switch tag {
	case atom.Head, atom.Style, atom.Script, atom.Title, atom.Template:
		hide = true
	}
	for more {
		var key, val []byte
		key, val, more = z.TagAttr()
		switch string(key) {
		case "href":
			href = strings.TrimSpace(string(val))
		case "alt":
			alt = string(val)
		case "style":
			hide = hide || hides(string(val))
		case "hidden":
			hide = true
		}
	}
	if w.hidden > 0 || hide {
		if !void[tag] {
			w.hidden++
			w.within = append(w.within, tag)
		}
		return
	}
	w.lineBreaks(blocks[tag])
	switch tag {
	case atom.Br:
		w.breaks++
	case atom.Hr:
		w.lineBreaks(1)
		w.text("---")
		w.lineBreaks(1)
	case atom.Li:
		w.text("- ")
	case atom.Td, atom.Th:
		w.space = true
	case atom.Img:
		w.text(alt)
	case atom.Pre:
		w.pre++
	case atom.A:
		w.link, w.linkAt = href, -1
	}
}

func (w *textWriter) end(tag atom.Atom) {
	if w.hidden > 0 {
		for i := len(w.within) - 1; i >= 0; i-- {
			if w.within[i] == tag {
				w.within = w.within[:i]
				break
			}
		}
		w.hidden = len(w.within)
		return
	}
	switch tag {
	case atom.A:
		w.endLink()
	case atom.Pre:
		w.pre = max(w.pre-1, 0)
	}
	w.lineBreaks(blocks[tag])
}

func (w *textWriter) endLink() {
	target := w.link
	w.link = ""
	scheme, rest, ok := strings.Cut(target, ":")
	if !ok || rest == "" {
		return
	}
	switch strings.ToLower(scheme) {
	case "http", "https":
	case "mailto", "tel":
		target = rest
	default:
		return
	}
	if w.linkAt < 0 { // a link without text, around an image without alternative
		w.text(target)
		return
	}
	if label := strings.TrimSpace(w.out.String()[w.linkAt:]); label == target || label == rest || "//"+label == rest {
		return
	}
	w.space = true
	w.text("<" + target + ">")
}

func (w *textWriter) lineBreaks(n int) { w.breaks = max(w.breaks, n) }

// text writes words: runs of white space become one space, or the line breaks that are due.
func (w *textWriter) text(s string) {
	if w.pre > 0 {
		w.word(s)
		return
	}
	for len(s) > 0 {
		end := strings.IndexAny(s, " \t\r\n\f")
		if end < 0 {
			w.word(s)
			return
		}
		if end > 0 {
			w.word(s[:end])
		}
		w.space = true
		s = s[end+1:]
	}
}

func (w *textWriter) word(s string) {
	if s == "" {
		return
	}
	switch {
	case w.out.Len() == 0:
	case w.breaks > 0:
		w.out.WriteString("\n\n"[:min(w.breaks, 2)])
	case w.space:
		w.out.WriteByte(' ')
	}
	w.breaks, w.space = 0, false
	if w.link != "" && w.linkAt < 0 {
		w.linkAt = w.out.Len()
	}
	w.out.WriteString(s)
}

// hides reports whether an inline style takes the element out of sight.
func hides(style string) bool {
	for decl := range strings.SplitSeq(style, ";") {
		name, val, _ := strings.Cut(decl, ":")
		if strings.EqualFold(strings.TrimSpace(name), "display") {
			return strings.HasPrefix(strings.ToLower(strings.TrimSpace(val)), "none")
		}
	}
	return false
}
