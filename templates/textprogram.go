package templates

import (
	"slices"
	"strconv"
	"strings"
	"text/template/parse"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// textTranslation turns the tree of the HTML into steps that write the text of the mail: tags are understood once, when the
// template is compiled. It follows the HTML through branches and loops as long as each of them leaves off where it began;
// a template with, say, half a tag in a branch is errUnknown, and its text is made from every rendered mail by textOf.
type textTranslation struct {
	translation
	tags []*parse.ActionNode // actions within the tag that is being read; its text has placeholders for them
}

// place is where in the HTML the walk is.
type place struct {
	mode   mode
	raw    string      // of inRaw: the element, as "/style"
	tag    string      // of inTag: what was read of it
	hidden []atom.Atom // elements that are open within a hidden one
	links  []*target   // that are open
}

type mode uint8

const (
	inText mode = iota
	inTag
	inComment
	inRaw
)

// target of a link: text and values in turn.
type target struct{ pieces []piece }

type piece struct {
	text  string
	val   expr
	chain []escaper // of the value, as a URL; the text needs none for HTML
}

func (t *target) eval(s *state, f *frame) (string, error) {
	if len(t.pieces) == 1 && t.pieces[0].val == nil {
		return t.pieces[0].text, nil
	}
	var b strings.Builder
	for _, p := range t.pieces {
		if p.val == nil {
			b.WriteString(p.text)
			continue
		}
		v, err := p.val(s, f)
		if err != nil {
			return "", err
		}
		b.WriteString(escapedURL(show(v), p.chain))
	}
	return strings.TrimSpace(b.String()), nil
}

func (p place) same(q place) bool {
	return p.mode == q.mode && p.raw == q.raw && p.tag == q.tag && slices.Equal(p.hidden, q.hidden) && slices.Equal(p.links, q.links)
}

// buildText compiles the tree of the HTML into a routine that writes to state.text.
func buildText(tree *parse.Tree, slots map[string]int) (*routine, error) {
	t := &textTranslation{}
	return t.build(tree, slots, t)
}

func (t *textTranslation) action(n *parse.ActionNode) (program, error) {
	if text, ok := rawText(n); ok {
		return t.source(text)
	}
	if t.at.mode == inTag {
		t.at.tag += placeholder(len(t.tags))
		t.tags = append(t.tags, n)
		return nil, nil
	}
	if t.at.mode != inText || len(t.at.hidden) > 0 {
		return nil, nil
	}
	if key, ok := slotName(n.Pipe.Cmds[:1]); ok && (key == slotPixel || key == slotAutoPixel) {
		return nil, nil
	}
	cmds, _, err := splitEscapers(n.Pipe.Cmds)
	if err != nil {
		return nil, err
	}
	val, err := t.commands(cmds)
	if err != nil {
		return nil, err
	}
	return program{func(s *state, f *frame) (flow, error) {
		v, err := val(s, f)
		if err == nil {
			s.text.text(show(v))
		}
		return onward, err
	}}, nil
}

// rawText is what fnRaw writes: a piece of a comment.
func rawText(n *parse.ActionNode) (string, bool) {
	cmd := n.Pipe.Cmds[0]
	id, ok := cmd.Args[0].(*parse.IdentifierNode)
	if !ok || id.Ident != fnRaw || len(cmd.Args) != 2 {
		return "", false
	}
	text, ok := cmd.Args[1].(*parse.StringNode)
	if !ok {
		return "", false
	}
	return text.Text, true
}

func placeholder(i int) string { return "\uE000" + strconv.Itoa(i) + "\uE001" }

// source follows a piece of HTML.
func (t *textTranslation) source(src string) (p program, err error) {
	for src != "" {
		var steps program
		switch t.at.mode {
		case inText:
			src, steps, err = t.inText(src)
		case inTag:
			src, steps, err = t.inTag(src)
		case inComment:
			_, rest, ended := strings.Cut(src, "-->")
			if src = rest; ended {
				t.at.mode = inText
			}
		case inRaw:
			src = t.inRaw(src)
		}
		if err != nil {
			return nil, err
		}
		p = append(p, steps...)
	}
	return p, nil
}

func (t *textTranslation) inText(src string) (rest string, p program, err error) {
	end := len(src)
	for i := 0; i < len(src); i++ {
		if src[i] == '<' && (i+1 == len(src) || src[i+1] == '/' || src[i+1] == '!' || 'a' <= src[i+1]|0x20 && src[i+1]|0x20 <= 'z') {
			end = i
			break
		}
	}
	text, rest := src[:end], src[end:]
	switch {
	case strings.HasPrefix(rest, "<!--"):
		t.at.mode, rest = inComment, rest[4:]
	case rest == "<":
		return "", nil, errUnknown // a tag whose name is a value
	case rest != "":
		t.at.mode, t.at.tag, t.tags = inTag, "", nil
	}
	if len(t.at.hidden) > 0 || text == "" {
		return rest, nil, nil
	}
	return rest, program{wordsStep(html.UnescapeString(text))}, nil
}

// wordsStep writes a text that is known already.
func wordsStep(text string) step {
	words := strings.FieldsFunc(text, isSpace)
	if len(words) == 0 {
		return func(s *state, _ *frame) (flow, error) { s.text.space = true; return onward, nil }
	}
	before, after := isSpace(rune(text[0])), isSpace(rune(text[len(text)-1]))
	joined := strings.Join(words, " ")
	return func(s *state, _ *frame) (flow, error) {
		s.text.space = s.text.space || before
		s.text.word(joined)
		s.text.space = after
		return onward, nil
	}
}

func isSpace(r rune) bool { return r == ' ' || r == '\t' || r == '\n' || r == '\r' || r == '\f' }

// inTag reads on to the end of a tag, whose values may hold a > in quotes.
func (t *textTranslation) inTag(src string) (rest string, p program, err error) {
	whole := t.at.tag + src
	end, ended := tagLen(whole)
	if !ended {
		t.at.tag = whole
		return "", nil, nil
	}
	t.at.mode, t.at.tag = inText, ""
	p, err = t.tag(whole[:end])
	return whole[end:], p, err
}

// inRaw reads on to the end tag of an element whose content is no HTML.
func (t *textTranslation) inRaw(src string) (rest string) {
	for i := range len(src) {
		if src[i] == '<' && tagName(src[i:min(len(src), i+12)]) == t.at.raw {
			t.at.mode, t.at.raw = inText, ""
			return src[i:]
		}
	}
	return ""
}

// tag is a whole tag, with placeholders for values.
func (t *textTranslation) tag(src string) (program, error) {
	z := html.NewTokenizer(strings.NewReader(src))
	kind := z.Next()
	switch kind {
	case html.StartTagToken, html.SelfClosingTagToken:
		return t.startTag(readTag(z))
	case html.EndTagToken:
		name, _ := z.TagName()
		return t.endTag(atom.Lookup(name)), nil
	}
	return nil, nil // a doctype
}

func (t *textTranslation) startTag(tag startTag) (program, error) {
	switch tag.tag {
	case atom.Style, atom.Script, atom.Title, atom.Textarea:
		t.at.mode, t.at.raw = inRaw, "/"+tag.tag.String()
	}
	if len(t.at.hidden) > 0 || tag.hidden {
		t.at.hidden = tag.hide(t.at.hidden)
		return nil, nil
	}
	var p program
	switch tag.tag {
	case atom.A:
		href, err := t.target(tag.href)
		if err != nil {
			return nil, err
		}
		t.at.links = append(t.at.links[:len(t.at.links):len(t.at.links)], href)
		p = append(p, func(s *state, _ *frame) (flow, error) { s.text.openLink(); return onward, nil })
	case atom.Img:
		alt, err := t.target(tag.alt)
		if err != nil {
			return nil, err
		}
		p = append(p, func(s *state, f *frame) (flow, error) {
			text, err := alt.eval(s, f)
			s.text.open(atom.Img, text)
			return onward, err
		})
	default:
		if !silent(tag.tag) {
			p = append(p, func(s *state, _ *frame) (flow, error) { s.text.open(tag.tag, ""); return onward, nil })
		}
	}
	return p, nil
}

func (t *textTranslation) endTag(tag atom.Atom) program {
	if len(t.at.hidden) > 0 {
		t.at.hidden = unhide(t.at.hidden, tag)
		return nil
	}
	var p program
	if n := len(t.at.links); tag == atom.A && n > 0 {
		href := t.at.links[n-1]
		t.at.links = t.at.links[: n-1 : n-1]
		p = append(p, func(s *state, f *frame) (flow, error) {
			to, err := href.eval(s, f)
			s.text.closeLink(to)
			return onward, err
		})
	}
	if lines := blocks[tag]; lines > 0 {
		p = append(p, func(s *state, _ *frame) (flow, error) { s.text.lineBreaks(lines); return onward, nil })
	}
	return p
}

// target puts the values back in place of their placeholders.
func (t *textTranslation) target(val string) (*target, error) {
	out := &target{}
	for val != "" {
		text, rest, found := strings.Cut(val, "\uE000")
		if text != "" {
			out.pieces = append(out.pieces, piece{text: text})
		}
		if !found {
			break
		}
		number, rest, _ := strings.Cut(rest, "\uE001")
		i, err := strconv.Atoi(number)
		if err != nil || i >= len(t.tags) {
			return nil, errUnknown
		}
		cmds, chain, err := splitEscapers(t.tags[i].Pipe.Cmds)
		if err != nil {
			return nil, err
		}
		v, err := t.commands(cmds)
		if err != nil {
			return nil, err
		}
		out.pieces, val = append(out.pieces, piece{val: v, chain: chain}), rest
	}
	return out, nil
}
