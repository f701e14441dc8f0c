package templates

import "text/template/parse"

// translation is a tree on its way to a routine. What it writes where the tree has source or values, the HTML or the text of the
// mail, is up to its leaves.
type translation struct {
	routine *routine
	slots   map[string]int // places in state.values and state.shown by name
	vars    []string       // those that are declared
	at      place          // of leaves that follow the HTML; of others always the same
	leaves  leaves
}

type leaves interface {
	source(text string) (program, error)
	action(n *parse.ActionNode) (program, error) // that sets no variable
}

func (t *translation) build(tree *parse.Tree, slots map[string]int, l leaves) (*routine, error) {
	t.routine, t.slots, t.leaves = &routine{}, slots, l
	var err error
	t.routine.body, err = t.list(tree.Root)
	return t.routine, err
}

func (t *translation) declare(name string) int {
	t.vars = append(t.vars, name)
	t.routine.vars = max(t.routine.vars, len(t.vars))
	return len(t.vars) - 1
}

func (t *translation) lookup(name string) (int, error) {
	for i := len(t.vars) - 1; i >= 0; i-- {
		if t.vars[i] == name {
			return i, nil
		}
	}
	return 0, errUnknown
}

func (t *translation) list(l *parse.ListNode) (program, error) {
	var p program
	if l == nil {
		return nil, nil
	}
	for _, n := range l.Nodes {
		steps, err := t.node(n)
		if err != nil {
			return nil, err
		}
		p = append(p, steps...)
	}
	return p, nil
}

func (t *translation) node(n parse.Node) (program, error) {
	switch n := n.(type) {
	case *parse.TextNode:
		return t.leaves.source(string(n.Text))
	case *parse.ActionNode:
		if len(n.Pipe.Decl) > 0 {
			return t.set(n)
		}
		return t.leaves.action(n)
	case *parse.IfNode:
		return t.branch(&n.BranchNode, false)
	case *parse.WithNode:
		return t.branch(&n.BranchNode, true)
	case *parse.RangeNode:
		return t.loop(&n.BranchNode)
	case *parse.BreakNode:
		return program{func(*state, *frame) (flow, error) { return breakLoop, nil }}, nil
	case *parse.ContinueNode:
		return program{func(*state, *frame) (flow, error) { return nextRound, nil }}, nil
	case *parse.CommentNode:
		return nil, nil
	}
	return nil, errUnknown
}

// set gives a variable its value and writes nothing.
func (t *translation) set(n *parse.ActionNode) (program, error) {
	val, err := t.pipe(n.Pipe)
	if err != nil {
		return nil, err
	}
	return program{func(s *state, f *frame) (flow, error) {
		_, err := val(s, f)
		return onward, err
	}}, nil
}

// branch is if or with.
func (t *translation) branch(n *parse.BranchNode, with bool) (program, error) {
	if t.at.mode == inTag {
		return nil, errUnknown
	}
	declared := len(t.vars)
	defer func() { t.vars = t.vars[:declared] }()
	cond, err := t.pipe(n.Pipe)
	if err != nil {
		return nil, err
	}
	then, otherwise, err := t.ways(n)
	if err != nil {
		return nil, err
	}
	return program{branchStep(cond, then, otherwise, with)}, nil
}

// ways compiles both ways through a branch, which must leave off at the same place.
func (t *translation) ways(n *parse.BranchNode) (then, otherwise program, err error) {
	before := t.at
	if then, err = t.list(n.List); err != nil {
		return nil, nil, err
	}
	after := t.at
	t.at = before
	if otherwise, err = t.list(n.ElseList); err != nil {
		return nil, nil, err
	}
	if !t.at.same(after) || t.at.mode == inTag {
		return nil, nil, errUnknown
	}
	return then, otherwise, nil
}

func (t *translation) loop(n *parse.BranchNode) (program, error) {
	if t.at.mode == inTag {
		return nil, errUnknown
	}
	declared := len(t.vars)
	defer func() { t.vars = t.vars[:declared] }()
	l, err := t.loopHead(n)
	if err != nil {
		return nil, err
	}
	before := t.at
	if l.body, l.otherwise, err = t.ways(n); err != nil {
		return nil, err
	}
	if !t.at.same(before) { // another round would begin elsewhere
		return nil, errUnknown
	}
	return program{l.step()}, nil
}

// loopHead is what stands between range and its body.
func (t *translation) loopHead(n *parse.BranchNode) (l *loop, err error) {
	l = &loop{key: -1, elem: -1}
	if l.over, err = t.commands(n.Pipe.Cmds); err != nil {
		return nil, err
	}
	for i, d := range n.Pipe.Decl {
		at, err := t.place(n.Pipe, d)
		if err != nil {
			return nil, err
		}
		if i == len(n.Pipe.Decl)-1 {
			l.elem = at
		} else {
			l.key = at
		}
	}
	return l, nil
}

// place is that of a variable which a pipeline declares or sets.
func (t *translation) place(p *parse.PipeNode, d *parse.VariableNode) (int, error) {
	if p.IsAssign {
		return t.lookup(d.Ident[0])
	}
	return t.declare(d.Ident[0]), nil
}
