package templates

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"
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
		r.fault(s, n, "template %q: unknown%s", n.Name, suggest(n.Name, sortedKeys(r.trees)))
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

// pipe rewrites a pipeline. text tells that its value is text already.
func (r *rewriter) pipe(s scope, p *parse.PipeNode) (v abstract, text bool) {
	for i, cmd := range p.Cmds {
		piped := i > 0
		if piped {
			r.use(s, cmd, v)
		}
		v, text = r.command(s, cmd, piped, v)
	}
	for _, d := range p.Decl {
		name := d.Ident[0]
		if p.IsAssign || s.set[name] {
			r.use(s, d, v)
			v.exact = false
		}
		if p.IsAssign {
			d.Ident[0] = s.assign(name, v)
		} else {
			d.Ident[0] = name + s.suffix
			*s.vars = append(*s.vars, variable{name, d.Ident[0], v})
		}
	}
	return v, text
}

// assign adds to what a variable may be. All of that was taken whole, so it does not matter in which order a loop does it.
// It returns the variable's name in the rewritten tree.
func (s scope) assign(name string, v abstract) string {
	for i, old := range slices.Backward(*s.vars) {
		if old.name == name {
			(*s.vars)[i].val = abstract{needs: unique(append(slices.Clone(old.val.needs), v.needs...))}
			return old.as
		}
	}
	return name
}

func (r *rewriter) command(s scope, cmd *parse.CommandNode, piped bool, in abstract) (v abstract, text bool) {
	name, ok := cmd.Args[0].(*parse.IdentifierNode)
	if !ok {
		if len(cmd.Args) > 1 || piped {
			r.fault(s, cmd, "%s is no function and takes no arguments", cmd.Args[0])
			return abstract{}, false
		}
		cmd.Args[0], v = r.operand(s, cmd.Args[0])
		return v, false
	}
	given := len(cmd.Args) - 1
	if piped {
		given++
	}
	f := functions[name.Ident]
	r.used[name.Ident] = true
	switch {
	case given < f.least || f.most >= 0 && given > f.most:
		r.fault(s, cmd, "%s: wrong number of arguments", name.Ident)
		return abstract{}, false
	case f.slot != "":
		cmd.Args[0] = root(name.Pos, f.slot)
		return abstract{}, true
	case name.Ident == "printf":
		if err := formatOf(cmd, given); err != nil {
			r.fault(s, cmd, "%s", err)
		}
	}
	var args []abstract
	for i := 1; i < len(cmd.Args); i++ {
		var a abstract
		if name.Ident == "index" && i == 1 && !piped {
			cmd.Args[i], a = r.indexed(s, cmd)
			if len(cmd.Args) == 2 { // all of it was a path
				*cmd = *command(cmd.Pos, cmd.Args[1])
				return a, false
			}
		} else {
			cmd.Args[i], a = r.operand(s, cmd.Args[i])
		}
		r.use(s, cmd, a)
		args = append(args, a)
	}
	if f.data {
		cmd.Args = slices.Insert(cmd.Args, 1, parse.Node(root(name.Pos)))
	}
	switch name.Ident {
	case "and", "or", "default", "index", "slice": // give back what they got, or a part of it
		v.needs = append(v.needs, in.needs...)
		for _, a := range args {
			v.needs = append(v.needs, a.needs...)
		}
		v.needs = unique(v.needs)
	}
	return v, f.text
}

// indexed rewrites `index X "a" "b" …`: names that follow X directly are fields like any other.
func (r *rewriter) indexed(s scope, cmd *parse.CommandNode) (parse.Node, abstract) {
	node, v := r.operand(s, cmd.Args[1])
	for len(cmd.Args) > 2 {
		name, ok := cmd.Args[2].(*parse.StringNode)
		if !ok || name.Text == "" || strings.ContainsAny(name.Text, ".$\x00") {
			break
		}
		node, v = r.fields(s, cmd.Args[1], node, v, []string{name.Text})
		cmd.Args = slices.Delete(cmd.Args, 2, 3)
	}
	return node, v
}

func formatOf(cmd *parse.CommandNode, given int) error {
	if len(cmd.Args) < 2 {
		return fmt.Errorf("printf: the format must stand there as a string")
	}
	format, ok := cmd.Args[1].(*parse.StringNode)
	if !ok {
		return fmt.Errorf("printf: the format must stand there as a string")
	}
	return checkFormat(format.Text, given-1)
}

// operand rewrites one argument.
func (r *rewriter) operand(s scope, n parse.Node) (parse.Node, abstract) {
	switch n := n.(type) {
	case *parse.DotNode:
		return s.here(n.Pos), s.dot
	case *parse.FieldNode:
		return r.fields(s, n, s.here(n.Pos), s.dot, n.Ident)
	case *parse.VariableNode:
		base, v := r.variable(s, n)
		return r.fields(s, n, base, v, n.Ident[1:])
	case *parse.ChainNode:
		base, v := r.operand(s, n.Node)
		return r.fields(s, n, base, v, n.Field)
	case *parse.PipeNode:
		v, _ := r.pipe(s, n)
		return n, v
	case *parse.IdentifierNode:
		cmd := command(n.Pos, n)
		v, _ := r.command(s, cmd, false, abstract{})
		if len(cmd.Args) == 1 {
			return cmd.Args[0], v
		}
		return &parse.PipeNode{NodeType: parse.NodePipe, Pos: n.Pos, Cmds: []*parse.CommandNode{cmd}}, v
	}
	return n, abstract{}
}

// here is the dot.
func (s scope) here(pos parse.Pos) parse.Node {
	if s.moved {
		return &parse.DotNode{NodeType: parse.NodeDot, Pos: pos}
	}
	return &parse.VariableNode{NodeType: parse.NodeVariable, Pos: pos, Ident: []string{s.self}}
}

func (r *rewriter) variable(s scope, n *parse.VariableNode) (parse.Node, abstract) {
	node := &parse.VariableNode{NodeType: parse.NodeVariable, Pos: n.Pos, Ident: n.Ident[:1:1]}
	if n.Ident[0] == "$" {
		node.Ident = []string{s.self}
		return node, s.dollar
	}
	for _, v := range slices.Backward(*s.vars) {
		if v.name == n.Ident[0] {
			node.Ident = []string{v.as}
			return node, v.val
		}
	}
	return node, abstract{}
}

// fields rewrites base.a.b; at is where it stands in the file.
func (r *rewriter) fields(s scope, at, base parse.Node, v abstract, names []string) (parse.Node, abstract) {
	if len(names) == 0 {
		return base, v
	}
	if v.root {
		if names[0] != "User" {
			r.fault(s, at, ".%s: unknown; fields of the user document are .User.name%s", names[0], suggest(names[0], []string{"User"}))
			return base, abstract{}
		}
		base, v = root(at.Position(), slotUser), abstract{needs: []*need{r.user}, exact: true}
		if names = names[1:]; len(names) == 0 {
			return base, v
		}
	}
	if len(v.needs) == 0 {
		r.fault(s, at, "%s: this is no document, it has no fields", at)
		return base, abstract{}
	}
	out := abstract{exact: v.exact}
	for _, n := range v.needs {
		for _, name := range names {
			n = n.field(name)
		}
		out.needs = append(out.needs, n)
	}
	if v.exact {
		sl := r.slot(out.needs[0])
		sl.values++
		return root(at.Position(), sl.valueAt), out
	}
	args := []parse.Node{parse.NewIdentifier(fnField), base}
	for _, name := range names {
		args = append(args, &parse.StringNode{NodeType: parse.NodeString, Pos: at.Position(), Quoted: strconv.Quote(name), Text: name})
	}
	pos := at.Position()
	return &parse.PipeNode{NodeType: parse.NodePipe, Pos: pos, Cmds: []*parse.CommandNode{command(pos, args...)}}, out
}

// use notes that a value is looked at as it is, not only for some of its fields.
func (r *rewriter) use(s scope, at parse.Node, v abstract) {
	if v.root || slices.Contains(v.needs, r.user) {
		r.fault(s, at, "this takes the whole user document; name the fields, as in .User.name")
		return
	}
	for _, n := range v.needs {
		n.whole = true
	}
}

func (r *rewriter) slot(n *need) *slot {
	sl := r.slots[n]
	if sl == nil {
		key := strings.Join(n.path(), "\x00")
		sl = &slot{need: n, path: n.path(), valueAt: "." + key, text: "=" + key}
		r.slots[n] = sl
	}
	return sl
}

func command(pos parse.Pos, args ...parse.Node) *parse.CommandNode {
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos, Args: args}
}

func unique(needs []*need) []*need {
	var out []*need
	for _, n := range needs {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// assigned are the variables that {{ $x = … }} changes within l.
func assigned(l *parse.ListNode) map[string]bool {
	set := map[string]bool{}
	pipe := func(p *parse.PipeNode) {
		if p != nil && p.IsAssign {
			for _, d := range p.Decl {
				set[d.Ident[0]] = true
			}
		}
	}
	var walk func(l *parse.ListNode)
	branch := func(b *parse.BranchNode) {
		pipe(b.Pipe)
		walk(b.List)
		walk(b.ElseList)
	}
	walk = func(l *parse.ListNode) {
		if l == nil {
			return
		}
		for _, n := range l.Nodes {
			switch n := n.(type) {
			case *parse.ActionNode:
				pipe(n.Pipe)
			case *parse.IfNode:
				branch(&n.BranchNode)
			case *parse.WithNode:
				branch(&n.BranchNode)
			case *parse.RangeNode:
				branch(&n.BranchNode)
			}
		}
	}
	walk(l)
	return set
}
