package templates

import (
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// The text part of a mail without a .txt is made from its HTML: blocks become lines, links keep their target in angle
// brackets (RFC 3986, appendix C), images their alternative text, and what is not displayed is left out. textOf does it
// with a rendered mail; textprogram.go does most of it when the template is compiled, which costs a tenth of the time.

// textOf is the text of a piece of HTML.
func textOf(src string) string {
	var w textWriter
	var hidden []atom.Atom
	var links []string
	z := html.NewTokenizer(strings.NewReader(src))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return w.String()
		case html.TextToken:
			if len(hidden) == 0 {
				w.text(string(z.Text()))
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			t := readTag(z)
			if len(hidden) > 0 || t.hidden {
				hidden = t.hide(hidden)
				continue
			}
			w.open(t.tag, t.alt)
			if t.tag == atom.A {
				links = append(links, t.href)
				w.openLink()
			}
		case html.EndTagToken:
			name, _ := z.TagName()
			tag := atom.Lookup(name)
			if len(hidden) > 0 {
				hidden = unhide(hidden, tag)
				continue
			}
			if tag == atom.A && len(links) > 0 {
				w.closeLink(links[len(links)-1])
				links = links[:len(links)-1]
			}
			w.close(tag)
		}
	}
}

// startTag is what matters of one.
type startTag struct {
	tag       atom.Atom
	href, alt string
	hidden    bool // neither it nor what is in it is displayed
}

func readTag(z *html.Tokenizer) startTag {
	name, more := z.TagName()
	t := startTag{tag: atom.Lookup(name)}
	switch t.tag {
	case atom.Head, atom.Style, atom.Script, atom.Title, atom.Template, atom.Textarea:
		t.hidden = true
	}
	for more {
		var key, val []byte
		key, val, more = z.TagAttr()
		switch string(key) {
		case "href":
			t.href = strings.TrimSpace(string(val))
		case "alt":
			t.alt = string(val)
		case "style":
			t.hidden = t.hidden || hides(string(val))
		case "hidden":
			t.hidden = true
		}
	}
	return t
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

var void = map[atom.Atom]bool{
	atom.Area: true, atom.Base: true, atom.Br: true, atom.Col: true, atom.Hr: true, atom.Img: true, atom.Input: true,
	atom.Link: true, atom.Meta: true, atom.Source: true, atom.Wbr: true,
}

// hide puts t on the stack of elements that are open within a hidden one.
func (t startTag) hide(open []atom.Atom) []atom.Atom {
	if void[t.tag] {
		return open
	}
	return append(open[:len(open):len(open)], t.tag)
}

// unhide takes the last tag from the stack, and what was left open in it. An end tag without a beginning ends nothing.
func unhide(open []atom.Atom, tag atom.Atom) []atom.Atom {
	for i := len(open) - 1; i >= 0; i-- {
		if open[i] == tag {
			return open[:i:i]
		}
	}
	return open
}

// blocks are the line breaks before and after an element.
var blocks = map[atom.Atom]int{
	atom.P: 2, atom.H1: 2, atom.H2: 2, atom.H3: 2, atom.H4: 2, atom.H5: 2, atom.H6: 2, atom.Ul: 2, atom.Ol: 2, atom.Blockquote: 2,
	atom.Pre: 2, atom.Table: 2, atom.Div: 1, atom.Li: 1, atom.Tr: 1, atom.Section: 1, atom.Article: 1, atom.Header: 1,
	atom.Footer: 1, atom.Center: 1, atom.Address: 1, atom.Dl: 1, atom.Dt: 1, atom.Dd: 1, atom.Form: 1, atom.Main: 1, atom.Body: 1,
}

// textWriter lays words out.
type textWriter struct {
	out    []byte
	breaks int  // line breaks that are due before the next word
	space  bool // a space is due
	inLink bool
	linkAt int // where the text of the open link begins; -1: there is none yet
}

func (w *textWriter) String() string { return strings.TrimSpace(string(w.out)) + "\n" }

func (w *textWriter) reset() { *w = textWriter{out: w.out[:0]} }

// open is the begin tag of an element that is displayed.
func (w *textWriter) open(tag atom.Atom, alt string) {
	w.lineBreaks(blocks[tag])
	switch tag {
	case atom.Br:
		w.breaks++
	case atom.Hr:
		w.lineBreaks(1)
		w.word("---")
		w.lineBreaks(1)
	case atom.Li:
		w.word("-")
		w.space = true
	case atom.Td, atom.Th:
		w.space = true
	case atom.Img:
		w.text(alt)
	}
}

func (w *textWriter) close(tag atom.Atom) { w.lineBreaks(blocks[tag]) }

// silent reports whether neither tag of an element writes anything.
func silent(tag atom.Atom) bool {
	switch tag {
	case atom.Br, atom.Hr, atom.Td, atom.Th, atom.Img:
		return false
	}
	return blocks[tag] == 0
}

func (w *textWriter) openLink() { w.inLink, w.linkAt = true, -1 }

func (w *textWriter) closeLink(target string) {
	w.inLink = false
	scheme, rest, ok := strings.Cut(target, ":")
	switch {
	case !ok || rest == "":
		return
	case strings.EqualFold(scheme, "mailto") || strings.EqualFold(scheme, "tel"):
		target = rest
	case !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https"):
		return
	}
	if w.linkAt < 0 { // nothing to be read in it: an image without alternative text
		w.word(target)
		return
	}
	if label := strings.TrimSpace(string(w.out[w.linkAt:])); label == target || "//"+label == rest {
		return
	}
	w.space = true
	w.word("<" + target + ">")
}

func (w *textWriter) lineBreaks(n int) { w.breaks = max(w.breaks, n) }

// text writes words: runs of white space become one space, or the line breaks that are due.
func (w *textWriter) text(s string) {
	for len(s) > 0 {
		end := strings.IndexAny(s, " \t\r\n\f")
		if end < 0 {
			w.word(s)
			return
		}
		w.word(s[:end])
		w.space = true
		s = s[end+1:]
	}
}

func (w *textWriter) word(s string) {
	if s == "" {
		return
	}
	switch {
	case len(w.out) == 0:
	case w.breaks > 0:
		w.out = append(w.out, "\n\n"[:min(w.breaks, 2)]...)
	case w.space:
		w.out = append(w.out, ' ')
	}
	w.breaks, w.space = 0, false
	if w.inLink && w.linkAt < 0 {
		w.linkAt = len(w.out)
	}
	w.out = append(w.out, s...)
}
