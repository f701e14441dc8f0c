package templates

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"
)

// A rewriter walks the parse trees of a mail as they would be executed, notes which fields of the user document they read,
// and rewrites them so that nothing in them can fail or reach further than that: a field with a known path becomes a
// look-up in the data of the mail, one of an element of a list a call of fnField, a printed value text. A partial is
// copied for every kind of dot it is called with, which is also why it may not call itself.
type rewriter struct {
	trees  map[string]*parse.Tree // as parsed, by the name that {{ template }} knows
	out    map[string]*parse.Tree // as rewritten
	user   *need
	slots  map[*need]*slot
	used   map[string]bool // functions
	active []string        // the templates that the walk is in
	faults []error
}

// slot is one field of the user document with a known path, as the data of a mail holds it.
type slot struct {
	need          *need
	path          []string
	values        int  // how often it is wanted as a value
	shown         bool // it is printed
	valueAt, text string
}

// maxTrees bounds the copies of partials.
const maxTrees = 500

// abstract is what the rewriter knows of a value: the fields of the user document that it may come from.
type abstract struct {
	root  bool    // the data of the mail: has .User and nothing else
	needs []*need // what it may be, or be an element of
	exact bool    // it is needs[0], found by its path alone
}

func (a abstract) id() string {
	if a.root {
		return ""
	}
	id := "@" + strconv.FormatBool(a.exact)
	for _, n := range a.needs {
		id += n.String()
	}
	return id
}

// scope is where in a template the walk is.
type scope struct {
	tree   *parse.Tree
	framed bool // called with a dot of its own: $ is {frameRoot, frameDot}
	dollar abstract
	dot    abstract
	moved  bool // by with or range: . is not $ any more
	vars   *[]variable
	set    map[string]bool // variables that are assigned to somewhere in this template
}

type variable struct {
	name string
	val  abstract
}

// in is the scope of a block: what is declared in it ends with it.
func (s scope) in() (inner scope, end func()) {
	n := len(*s.vars)
	return s, func() { *s.vars = (*s.vars)[:n] }
}

// root is the expression for the data of the mail, and a value of it if name is given.
func (s scope) root(pos parse.Pos, name ...string) *parse.VariableNode {
	ident := []string{"$"}
	if s.framed {
		ident = append(ident, frameRoot)
	}
	return &parse.VariableNode{NodeType: parse.NodeVariable, Pos: pos, Ident: append(ident, name...)}
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

// template rewrites the tree of that name for a dot, and returns the name of the copy.
func (r *rewriter) template(name string, dot abstract) string {
	out := name
	if !dot.root {
		out += dot.id()
	}
	if r.out[out] != nil {
		return out
	}
	tree := r.trees[name].Copy()
	r.out[out] = tree
	r.active = append(r.active, name)
	s := scope{tree: tree, framed: !dot.root, dollar: dot, dot: dot, vars: &[]variable{}, set: assigned(tree.Root)}
	r.list(s, tree.Root)
	r.active = r.active[:len(r.active)-1]
	return out
}

func (r *rewriter) list(s scope, l *parse.ListNode) {
	if l == nil {
		return
	}
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
			r.call(s, n)
		}
	}
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
		if n, ok := last.Args[0].(*parse.VariableNode); ok && n.Ident[len(n.Ident)-1] == sl.valueAt {
			sl.values--
		}
		last.Args[0] = s.root(n.Pos, sl.text)
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
	r.list(s, n.List)
	r.list(s, n.ElseList)
}

func (r *rewriter) with(s scope, n *parse.BranchNode) {
	s, end := s.in()
	defer end()
	v, _ := r.pipe(s, n.Pipe)
	inner := s
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
	n.Pipe.Cmds = append(n.Pipe.Cmds, command(n.Pos, parse.NewIdentifier(fnEach), s.root(n.Pos)))
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

// call is {{ template "name" pipeline }}.
func (r *rewriter) call(s scope, n *parse.TemplateNode) {
	switch {
	case r.trees[n.Name] == nil:
		r.fault(s, n, "template %q: unknown%s", n.Name, suggest(n.Name, sortedKeys(r.trees)))
		return
	case slices.Contains(r.active, n.Name):
		r.fault(s, n, "template %q calls itself, which might never end", n.Name)
		return
	case len(r.out) > maxTrees:
		r.fault(s, n, "more than %d copies of partials; call them with fewer kinds of fields", maxTrees)
		return
	}
	var dot abstract
	var arg parse.Node = &parse.NilNode{NodeType: parse.NodeNil, Pos: n.Pos}
	if n.Pipe != nil {
		dot, _ = r.pipe(s, n.Pipe)
		arg = n.Pipe
	}
	n.Name = r.template(n.Name, dot)
	cmd := command(n.Pos, parse.NewIdentifier(fnFrame), s.root(n.Pos), arg)
	if dot.root {
		cmd = command(n.Pos, s.root(n.Pos))
	}
	n.Pipe = &parse.PipeNode{NodeType: parse.NodePipe, Pos: n.Pos, Line: n.Line, Cmds: []*parse.CommandNode{cmd}}
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
			s.assign(name, v)
		} else {
			*s.vars = append(*s.vars, variable{name, v})
		}
	}
	return v, text
}

// assign adds to what a variable may be. All of that was taken whole, so it does not matter in which order a loop does it.
func (s scope) assign(name string, v abstract) {
	for i, old := range slices.Backward(*s.vars) {
		if old.name == name {
			(*s.vars)[i].val = abstract{needs: unique(append(slices.Clone(old.val.needs), v.needs...))}
			return
		}
	}
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
		cmd.Args[0] = s.root(name.Pos, f.slot)
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
		cmd.Args = slices.Insert(cmd.Args, 1, parse.Node(s.root(name.Pos)))
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
		return r.dot(s, n.Pos), s.dot
	case *parse.FieldNode:
		return r.fields(s, n, r.dot(s, n.Pos), s.dot, n.Ident)
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

func (r *rewriter) dot(s scope, pos parse.Pos) parse.Node {
	if s.framed && !s.moved {
		return &parse.FieldNode{NodeType: parse.NodeField, Pos: pos, Ident: []string{frameDot}}
	}
	return &parse.DotNode{NodeType: parse.NodeDot, Pos: pos}
}

func (r *rewriter) variable(s scope, n *parse.VariableNode) (parse.Node, abstract) {
	node := &parse.VariableNode{NodeType: parse.NodeVariable, Pos: n.Pos, Ident: n.Ident[:1:1]}
	if n.Ident[0] == "$" {
		if s.framed {
			node.Ident = append(node.Ident, frameDot)
		}
		return node, s.dollar
	}
	for _, v := range slices.Backward(*s.vars) {
		if v.name == n.Ident[0] {
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
		base, v = s.root(at.Position(), slotUser), abstract{needs: []*need{r.user}, exact: true}
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
		return s.root(at.Position(), sl.valueAt), out
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
