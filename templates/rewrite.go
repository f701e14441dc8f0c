package templates

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"

	"postbit/internal/spelling"
)

// A rewriter walks the parse trees of a mail as they would be executed, notes which fields of the user document they read,
// and makes one tree of them in which nothing can fail or reach further than that: a field with a known path becomes a
// look-up in the data of the mail, one of an element of a list a call of fnField, a printed value text. A call of a partial
// becomes a copy of it, which is also why it may not call itself.
type rewriter struct {
	trees  map[string]*parse.Tree // as parsed, by the name that {{ template }} knows
	user   *need
	slots  map[*need]*slot
	used   map[string]bool // functions
	files  map[string]bool // those whose trees were reached
	active []string        // the templates that the walk is in
	copies int             // of partials
	size   int             // bytes of text in them
	faults []error
}

// slot is one field of the user document with a known path, as the data of a mail holds it.
type slot struct {
	need          *need
	path          []string
	values        int  // how often it is wanted as a value
	shown         bool // it is printed
	bare          bool // it is printed where nothing has asked before whether it is there
	valueAt, text string
}

// Bounds of what the partials of one mail come to.
const (
	maxCopies = 500
	maxCopied = 4 << 20
)

// abstract is what the rewriter knows of a value: the fields of the user document that it may come from.
type abstract struct {
	root  bool    // the data of the mail: has .User and nothing else
	needs []*need // what it may be, or be an element of
	exact bool    // it is needs[0], found by its path alone
}

// scope is where in a template the walk is.
type scope struct {
	tree   *parse.Tree
	self   string   // the variable that holds what the template was called with, which is its $
	dollar abstract // and what that is
	dot    abstract
	moved  bool    // by with or range: . is not $ any more
	sure   []*need // those that an if or with around has found to be there
	suffix string
	vars   *[]variable
	set    map[string]bool // variables that are assigned to somewhere in this template
}

type variable struct {
	name, as string // as: what it is called in the rewritten tree, where the variables of partials stand beside each other
	val      abstract
}

// in is the scope of a block: what is declared in it ends with it.
func (s scope) in() (inner scope, end func()) {
	n := len(*s.vars)
	return s, func() { *s.vars = (*s.vars)[:n] }
}

// found is the scope within an if or a with on v.
func (s scope) found(v abstract) scope {
	if v.exact {
		s.sure = append(s.sure[:len(s.sure):len(s.sure)], v.needs[0])
	}
	return s
}

// root is the expression for the data of the mail, or of a value in it.
func root(pos parse.Pos, name ...string) *parse.VariableNode {
	return &parse.VariableNode{NodeType: parse.NodeVariable, Pos: pos, Ident: append([]string{"$"}, name...)}
}

func (r *rewriter) fault(s scope, n parse.Node, format string, args ...any) {
	where, _ := s.tree.ErrorContext(n)
	file, line := s.tree.ParseName, 0
	if rest, ok := strings.CutPrefix(where, file+":"); ok {
		digits, _, _ := strings.Cut(rest, ":")
		line, _ = strconv.Atoi(digits)
	}
	r.faults = append(r.faults, fault{file, line, fmt.Sprintf(format, args...)})
}

// mail rewrites the tree of that name, and what it calls, into one.
func (r *rewriter) mail(name string) *parse.Tree {
	tree := r.trees[name].Copy()
	r.files[tree.ParseName] = true
	r.active = []string{name}
	dot := abstract{root: true}
	r.list(scope{tree: tree, self: "$", dollar: dot, dot: dot, vars: &[]variable{}, set: assigned(tree.Root)}, tree.Root)
	return tree
}

func (r *rewriter) list(s scope, l *parse.ListNode) {
	if l == nil {
		return
	}
	var out []parse.Node
	for _, n := range l.Nodes {
		switch n := n.(type) {
		case *parse.ActionNode:
			r.action(s, n)
		case *parse.IfNode:
			r.ifBranch(s, &n.BranchNode)
		case *parse.WithNode:
			r.with(s, &n.BranchNode)
		case *parse.RangeNode:
			r.rangeOver(s, &n.BranchNode)
		case *parse.TemplateNode:
			out = append(out, r.call(s, n)...)
			continue
		case *parse.TextNode:
			r.size += len(n.Text)
		}
		out = append(out, n)
	}
	l.Nodes = out
}

// action is {{ pipeline }}: a declaration, or something to print.
func (r *rewriter) action(s scope, n *parse.ActionNode) {
	v, text := r.pipe(s, n.Pipe)
	if len(n.Pipe.Decl) > 0 {
		return
	}
	r.use(s, n, v)
	last := n.Pipe.Cmds[len(n.Pipe.Cmds)-1]
	if len(n.Pipe.Cmds) == 1 && v.exact && len(last.Args) == 1 {
		sl := r.slot(v.needs[0])
		sl.shown = true
		sl.bare = sl.bare || !slices.Contains(s.sure, sl.need)
		if n, ok := last.Args[0].(*parse.VariableNode); ok && n.Ident[len(n.Ident)-1] == sl.valueAt {
			sl.values--
		}
		last.Args[0] = root(n.Pos, sl.text)
		return
	}
	if !text {
		n.Pipe.Cmds = append(n.Pipe.Cmds, command(n.Pos, parse.NewIdentifier(fnShow)))
	}
}

func (r *rewriter) ifBranch(s scope, n *parse.BranchNode) {
	s, end := s.in()
	defer end()
	v, _ := r.pipe(s, n.Pipe)
	r.use(s, n.Pipe, v)
	n.Pipe.Cmds = append(n.Pipe.Cmds, command(n.Pos, parse.NewIdentifier(fnTruth)))
	r.list(s.found(v), n.List)
	r.list(s, n.ElseList)
}

func (r *rewriter) with(s scope, n *parse.BranchNode) {
	s, end := s.in()
	defer end()
	v, _ := r.pipe(s, n.Pipe)
	n.Pipe.Cmds = append(n.Pipe.Cmds, command(n.Pos, parse.NewIdentifier(fnIfAny)))
	inner := s.found(v)
	inner.dot, inner.moved = v, true
	r.list(inner, n.List)
	useIfUntouched(v)
	r.list(s, n.ElseList)
}

func (r *rewriter) rangeOver(s scope, n *parse.BranchNode) {
	s, end := s.in()
	defer end()
	v, _ := r.pipe(s, n.Pipe)
	if v.root || slices.Contains(v.needs, r.user) {
		r.fault(s, n.Pipe, "range over the whole user document: name the field")
		return
	}
	v.exact = false
	n.Pipe.Cmds = append(n.Pipe.Cmds, command(n.Pos, parse.NewIdentifier(fnEach), root(n.Pos)))
	if d := n.Pipe.Decl; len(d) > 0 && !n.Pipe.IsAssign {
		vars := *s.vars
		vars[len(vars)-1].val = v // the element; of two variables the first is its number or name
		if len(d) == 2 {
			vars[len(vars)-2].val = abstract{}
		}
	}
	inner := s
	inner.dot, inner.moved = v, true
	r.list(inner, n.List)
	useIfUntouched(v)
	r.list(s, n.ElseList)
}

// useIfUntouched takes a field whole if the block that it opens looks at none of its own fields.
func useIfUntouched(v abstract) {
	for _, n := range v.needs {
		if len(n.fields) == 0 && n.parent != nil {
			n.whole = true
		}
	}
}

// call is {{ template "name" pipeline }}: it gives way to what the template holds.
func (r *rewriter) call(s scope, n *parse.TemplateNode) []parse.Node {
	switch {
	case r.trees[n.Name] == nil:
		r.fault(s, n, "template %q: unknown%s", n.Name, spelling.Hint(n.Name, sortedKeys(r.trees)))
		return nil
	case slices.Contains(r.active, n.Name):
		r.fault(s, n, "template %q calls itself, which might never end", n.Name)
		return nil
	case r.copies >= maxCopies || r.size > maxCopied:
		r.fault(s, n, "the partials of this mail come to more than %d or %d bytes", maxCopies, maxCopied)
		return nil
	}
	r.copies++
	called := scope{tree: r.trees[n.Name].Copy(), suffix: "_" + strconv.Itoa(r.copies), vars: &[]variable{}, sure: s.sure}
	called.set = assigned(called.tree.Root)
	called.self = "$self" + called.suffix
	pipe := n.Pipe
	var v abstract
	if pipe != nil {
		v, _ = r.pipe(s, pipe)
	} else {
		nothing := &parse.NilNode{NodeType: parse.NodeNil, Pos: n.Pos}
		pipe = &parse.PipeNode{NodeType: parse.NodePipe, Pos: n.Pos, Line: n.Line}
		pipe.Cmds = []*parse.CommandNode{command(n.Pos, parse.NewIdentifier(fnIfAny), nothing)}
	}
	called.dollar, called.dot = v, v
	pipe.Decl = []*parse.VariableNode{{NodeType: parse.NodeVariable, Pos: n.Pos, Ident: []string{called.self}}}
	r.files[called.tree.ParseName] = true
	r.active = append(r.active, n.Name)
	r.list(called, called.tree.Root)
	r.active = r.active[:len(r.active)-1]
	set := &parse.ActionNode{NodeType: parse.NodeAction, Pos: n.Pos, Line: n.Line, Pipe: pipe}
	return append([]parse.Node{set}, called.tree.Root.Nodes...)
}
