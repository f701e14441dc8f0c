package templates

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"

	"postbit/internal/spelling"
)

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
			r.fault(s, at, ".%s: unknown; fields of the user document are .User.name%s", names[0], spelling.Hint(names[0], []string{"User"}))
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
