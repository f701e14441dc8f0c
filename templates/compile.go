package templates

import (
	"cmp"
	"fmt"
	htmltemplate "html/template"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	texttemplate "text/template"
	"text/template/parse"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/faults"
	"postbit/internal/spelling"
)

// The names by which {{ template }} knows the mail's own file and the layout around it.
const (
	contentName = "content"
	layoutName  = "layout"
)

// Compiled is a template that is ready to be rendered. It is safe for concurrent use.
type Compiled struct {
	template  *Template
	html      part
	text      part     // zero: made from the HTML
	textMaker *routine // nil: the text is made from every rendered HTML
	subject   part
	preheader part // zero: none
	autoPixel bool
	used      map[string]bool
	user      *need
	slots     []*slot
	fields    []string
	parts     []Part // those that are used
	states    sync.Pool
}

// Compile parses the template and checks all of it, the unreachable branches included. Errors name file and line.
func (t *Template) Compile() (*Compiled, error) {
	if t.Imported() {
		return nil, fmt.Errorf("template %s: %w", t.Name, ErrNoBody)
	}
	c := &Compiled{template: t, user: &need{}, used: map[string]bool{}}
	shared := &rewriter{user: c.user, slots: map[*need]*slot{}, used: c.used}
	files := map[string]bool{}
	if err := faults.Join(c.compileText(shared, files), c.compileHTML(shared, files)); err != nil {
		return nil, err
	}
	c.autoPixel = !c.used["pixel"]
	for _, sl := range shared.slots {
		c.slots = append(c.slots, sl)
	}
	slices.SortFunc(c.slots, func(a, b *slot) int { return strings.Compare(a.text, b.text) })
	places := map[string]int{}
	for i, sl := range c.slots {
		places[sl.valueAt], places[sl.text] = i, i
	}
	c.fields = c.user.paths()
	for _, p := range t.Parts {
		if files[p.File] {
			c.parts = append(c.parts, p)
		}
	}
	c.states.New = func() any { return newState(c) }
	if err := c.escape(); err != nil {
		return nil, err
	}
	for _, p := range []*part{&c.subject, &c.preheader, &c.text, &c.html} {
		p.build(places)
	}
	if c.text.reference == nil {
		if r, err := buildText(c.html.tree(), places); err == nil {
			c.textMaker = r
		}
	}
	return c, nil
}

// escape has html/template work out the contexts, which it does with the first mail.
func (c *Compiled) escape() error {
	s := c.states.Get().(*state)
	s.begin(emptyDocument, Links{})
	if _, err := s.execute(c.html); err != nil {
		return parseFault(c.template.label()+".html", err)
	}
	return nil
}

var emptyDocument = bson.Raw{5, 0, 0, 0, 0}

// part is the subject, the preheader, the text or the HTML of a mail.
type part struct {
	reference executor           // Go's template package
	tree      func() *parse.Tree // as the reference executes it: with escapers, once they are known
	program   *routine           // nil: the reference is executed
}

// executor is what html/template and text/template have in common.
type executor interface {
	Execute(w io.Writer, data any) error
}

// build compiles a part whose values are escaped by now. Without a program the reference does it, only slower.
func (p *part) build(places map[string]int) {
	if p.reference == nil {
		return
	}
	if r, err := build(p.tree(), places); err == nil {
		p.program = r
	}
}

// Fields are the dotted fields of the user document that the template reads: what to load of it.
func (c *Compiled) Fields() []string { return slices.Clone(c.fields) }

// Template is what was compiled.
func (c *Compiled) Template() *Template { return c.template }

func (c *Compiled) compileHTML(shared *rewriter, files map[string]bool) error {
	set := newSet(c.template, ".html")
	top := set.top()
	if _, err := set.parse(writable); err != nil {
		return err
	}
	set.insert(top, c.template.Preheader != "")
	trees, err := set.parse(known)
	if err != nil {
		return err
	}
	tree, err := shared.rewrite(trees, top, files)
	if err != nil {
		return err
	}
	t, err := htmltemplate.New(top).Funcs(htmltemplate.FuncMap(bodies)).AddParseTree(top, tree)
	if err != nil {
		return fmt.Errorf("template %s: %w", c.template.Name, err)
	}
	c.html = part{reference: t, tree: func() *parse.Tree { return t.Tree }}
	return nil
}

func (c *Compiled) compileText(shared *rewriter, files map[string]bool) error {
	t := c.template
	var wrong []error
	one := func(what, src string) part {
		set := &fileSet{names: []string{what}, files: map[string]file{what: {label: t.label() + ".html (" + what + ")", src: src}}}
		p, err := compileTextSet(set, what, shared, files)
		wrong = append(wrong, err)
		return p
	}
	c.subject = one("subject", t.Subject)
	if t.Preheader != "" {
		c.preheader = one("preheader", t.Preheader)
	}
	if t.Text != "" {
		set := newSet(t, ".txt")
		p, err := compileTextSet(set, set.top(), shared, files)
		c.text = p
		wrong = append(wrong, err)
	}
	return faults.Join(wrong...)
}

func compileTextSet(set *fileSet, top string, shared *rewriter, files map[string]bool) (part, error) {
	trees, err := set.parse(writable)
	if err != nil {
		return part{}, err
	}
	tree, err := shared.rewrite(trees, top, files)
	if err != nil {
		return part{}, err
	}
	t, err := texttemplate.New(top).Funcs(bodies).AddParseTree(top, tree)
	return part{reference: t, tree: func() *parse.Tree { return tree }}, err
}

// rewrite makes one tree of those that are reached from top, and notes in files where they come from.
func (r *rewriter) rewrite(trees map[string]*parse.Tree, top string, files map[string]bool) (*parse.Tree, error) {
	walk := &rewriter{trees: trees, files: files, user: r.user, slots: r.slots, used: r.used}
	tree := walk.mail(top)
	return tree, faults.Join(walk.faults...)
}

// file is one source: the mail itself, the layout, a partial.
type file struct {
	label string // for messages
	src   string
	line  int // lines of the file before src
}

// fileSet is what one part of a mail is parsed from.
type fileSet struct {
	names []string // in the order in which they are parsed
	files map[string]file
}

// newSet gathers the mail's own file and its parts with that extension.
func newSet(t *Template, ext string) *fileSet {
	s := &fileSet{files: map[string]file{}}
	own := file{t.label() + ext, t.HTML, t.Line}
	if ext == ".txt" {
		own = file{t.label() + ext, t.Text, 0}
	}
	for _, p := range t.Parts {
		if name, ok := strings.CutSuffix(p.File, ext); ok {
			s.add(strings.TrimPrefix(name, "_"), file{label: p.File, src: p.Source})
		}
	}
	s.add(contentName, own)
	return s
}

func (s *fileSet) add(name string, f file) {
	s.names = append(s.names, name)
	s.files[name] = f
}

func (s *fileSet) top() string {
	if _, ok := s.files[layoutName]; ok {
		return layoutName
	}
	return contentName
}

const hidden = `<div style="display:none;max-height:0;max-width:0;overflow:hidden;opacity:0;font-size:1px;line-height:1px;mso-hide:all">`

// insert puts what postbit adds into the sources: conditional comments, the preheader behind <body>, the pixel before
// the last </body>. Without them it is the beginning and the end of the outermost file.
func (s *fileSet) insert(top string, preheader bool) {
	found := map[string]marks{}
	for name, f := range s.files {
		found[name] = scanHTML(f.src)
	}
	order := append([]string{top, contentName}, s.names...)
	begin, end := top, top
	for _, name := range slices.Backward(order) {
		if found[name].afterBody >= 0 {
			begin = name
		}
		if found[name].endBody >= 0 {
			end = name
		}
	}
	for name, f := range s.files {
		m := found[name]
		edits := m.edits
		if name == begin && preheader {
			at := max(m.afterBody, 0)
			edits = append(edits, edit{at, at, hidden + "{{" + fnHide + "}}</div>"})
		}
		if name == end {
			at := m.endBody
			if at < 0 {
				at = len(f.src)
			}
			edits = append(edits, edit{at, at, "{{" + fnPixel + "}}"})
		}
		slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Or(a.from-b.from, a.to-b.to) })
		f.src = apply(f.src, edits)
		s.files[name] = f
	}
}

// parse gives the trees of all files by name. What the mail itself defines goes before the same name of a part.
func (s *fileSet) parse(functions map[string]any) (map[string]*parse.Tree, error) {
	trees := map[string]*parse.Tree{}
	for _, name := range s.names {
		f := s.files[name]
		fresh, err := f.parse(functions)
		if err != nil {
			return nil, err
		}
		for defined, tree := range fresh {
			at := defined
			if defined == f.label {
				at = name
			}
			if old := trees[at]; old != nil && (name != contentName || at == contentName) {
				return nil, fault{f.label, 1, fmt.Sprintf("%q is defined in %s, too", at, old.ParseName)}
			}
			trees[at] = tree
		}
	}
	return trees, nil
}

var (
	known    = allowed(func(string) bool { return true })
	writable = allowed(func(name string) bool { return !strings.HasPrefix(name, "postbit_") })
)

func allowed(which func(string) bool) map[string]any {
	m := map[string]any{}
	for name := range functions {
		if which(name) {
			m[name] = true
		}
	}
	return m
}

func (f file) parse(functions map[string]any) (map[string]*parse.Tree, error) {
	// A comment of as many lines as stand before makes the parser count those of the file.
	lines := ""
	if f.line > 0 {
		lines = "{{/*" + strings.Repeat("\n", f.line) + "*/}}"
	}
	trees, err := parse.Parse(f.label, lines+f.src, "{{", "}}", functions)
	if err != nil {
		return nil, parseFault(f.label, err)
	}
	return trees, nil
}

var (
	parseMessage = regexp.MustCompile(`^(?:html/)?template: ?(.*?):(\d+)(?::\d+)?: (?s:(.*))$`)
	noFunction   = regexp.MustCompile(`^function "(.*)" not defined$`)
)

// parseFault gives an error of Go's template packages the form that all others have.
func parseFault(label string, err error) error {
	m := parseMessage.FindStringSubmatch(err.Error())
	if m == nil {
		return fault{label, 1, err.Error()}
	}
	line, _ := strconv.Atoi(m[2])
	what := m[3]
	if f := noFunction.FindStringSubmatch(what); f != nil {
		what = fmt.Sprintf("%s: unknown function%s", f[1], spelling.Hint(f[1], slices.Sorted(maps.Keys(writable))))
		if why := refused[f[1]]; why != "" {
			what = fmt.Sprintf("%s: not here, %s", f[1], why)
		}
	}
	return fault{m[1], line, what}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
