package templates

import (
	"fmt"
	"text/template/parse"
)

func (t *translation) pipe(p *parse.PipeNode) (expr, error) {
	val, err := t.commands(p.Cmds)
	if err != nil {
		return nil, err
	}
	for _, d := range p.Decl {
		at, err := t.place(p, d)
		if err != nil {
			return nil, err
		}
		inner := val
		val = func(s *state, f *frame) (any, error) {
			v, err := inner(s, f)
			f.vars[at] = v
			return v, err
		}
	}
	return val, nil
}

// commands is a pipeline: each gives its value to the next as the last argument.
func (t *translation) commands(cmds []*parse.CommandNode) (val expr, err error) {
	for _, cmd := range cmds {
		if val, err = t.command(cmd, val); err != nil {
			return nil, err
		}
	}
	return val, nil
}

func (t *translation) command(cmd *parse.CommandNode, piped expr) (expr, error) {
	id, ok := cmd.Args[0].(*parse.IdentifierNode)
	if !ok {
		return t.operand(cmd.Args[0])
	}
	call := calls[id.Ident]
	if call == nil {
		return nil, errUnknown
	}
	from := 1
	if functions[id.Ident].data || id.Ident == fnEach {
		from = 2 // the data of the mail, which is s here
	}
	var args []expr
	for _, n := range cmd.Args[from:] {
		arg, err := t.operand(n)
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
	}
	if piped != nil {
		args = append(args, piped)
	}
	return func(s *state, f *frame) (any, error) {
		at := len(s.args)
		for _, arg := range args {
			v, err := arg(s, f)
			if err != nil {
				return nil, err
			}
			s.args = append(s.args, v)
		}
		v, err := call(s, s.args[at:len(s.args):len(s.args)])
		clear(s.args[at:])
		s.args = s.args[:at]
		return v, err
	}, nil
}

func (t *translation) operand(n parse.Node) (expr, error) {
	switch n := n.(type) {
	case *parse.PipeNode:
		return t.pipe(n)
	case *parse.DotNode:
		return func(_ *state, f *frame) (any, error) { return f.dot, nil }, nil
	case *parse.VariableNode:
		return t.variable(n)
	case *parse.StringNode:
		return constant(n.Text), nil
	case *parse.BoolNode:
		return constant(n.True), nil
	case *parse.NilNode:
		return constant(nil), nil
	case *parse.NumberNode:
		if n.IsInt {
			return constant(n.Int64), nil
		}
		if n.IsFloat {
			return constant(n.Float64), nil
		}
	}
	return nil, errUnknown
}

func constant(v any) expr { return func(*state, *frame) (any, error) { return v, nil } }

func (t *translation) variable(n *parse.VariableNode) (expr, error) {
	if n.Ident[0] != "$" {
		at, err := t.lookup(n.Ident[0])
		if err != nil || len(n.Ident) > 1 {
			return nil, errUnknown
		}
		return func(_ *state, f *frame) (any, error) { return f.vars[at], nil }, nil
	}
	if len(n.Ident) == 1 {
		return constant(theMail), nil
	}
	name := n.Ident[len(n.Ident)-1]
	if at, ok := t.slots[name]; ok {
		if name[0] == '=' {
			return func(s *state, _ *frame) (any, error) { return s.shown[at], nil }, nil
		}
		return func(s *state, _ *frame) (any, error) { return s.values[at], nil }, nil
	}
	if read := own[name]; read != nil {
		return func(s *state, _ *frame) (any, error) { return read(s), nil }, nil
	}
	return nil, fmt.Errorf("%s: %w", n, errUnknown)
}

// theMail stands for the data of the mail, and for the user document as a whole: true, and of no use but for its fields.
var theMail any = map[string]any{present: true}

// own are the values of a mail that are no fields of the user.
var own = map[string]func(s *state) any{
	slotUser:        func(*state) any { return theMail },
	slotUnsubscribe: func(s *state) any { return s.links.Unsubscribe },
	slotBrowser:     func(s *state) any { return s.links.Browser },
	slotPreheader:   func(s *state) any { return s.preheader },
	slotPixel:       func(s *state) any { return s.pixel },
	slotAutoPixel:   func(s *state) any { return s.autoPixel },
}

// calls are the functions as the program calls them.
var calls map[string]func(s *state, args []any) (any, error)

func init() {
	pure := func(f func(a []any) any) func(*state, []any) (any, error) {
		return func(_ *state, a []any) (any, error) { return f(a), nil }
	}
	calls = map[string]func(*state, []any) (any, error){
		"date":  func(s *state, a []any) (any, error) { return s.date(a[0], a[1:]...), nil },
		"link":  func(s *state, a []any) (any, error) { return s.link(show(a[0])), nil },
		fnEach:  func(s *state, a []any) (any, error) { return s.each(a[0]) },
		fnTruth: pure(func(a []any) any { return truth(a[0]) }),
		fnIfAny: pure(func(a []any) any { return ifAny(a[0]) }),
		fnRaw:   pure(func(a []any) any { return raw(a[0]) }),
		fnShow:  pure(func(a []any) any { return showSafe(a[0]) }),
		fnField: pure(func(a []any) any {
			v := a[0]
			for _, name := range a[1:] {
				v = field(v, name.(string))
			}
			return v
		}),
		"_eval_args_": pure(func(a []any) any { return show(a[0]) }),
		"default":     pure(func(a []any) any { return orElse(a[0], a[1]) }),
		"and":         pure(func(a []any) any { return and(a[0], a[1:]...) }),
		"or":          pure(func(a []any) any { return or(a[0], a[1:]...) }),
		"not":         pure(func(a []any) any { return !truth(a[0]) }),
		"eq":          pure(func(a []any) any { return equalAny(a[0], a[1:]...) }),
		"ne":          pure(func(a []any) any { return !equal(a[0], a[1]) }),
		"lt":          pure(func(a []any) any { return ordered(a[0], a[1], -1, -1) }),
		"le":          pure(func(a []any) any { return ordered(a[0], a[1], -1, 0) }),
		"gt":          pure(func(a []any) any { return ordered(a[0], a[1], 1, 1) }),
		"ge":          pure(func(a []any) any { return ordered(a[0], a[1], 0, 1) }),
		"len":         pure(func(a []any) any { return length(a[0]) }),
		"index":       pure(func(a []any) any { return index(a[0], a[1:]...) }),
		"slice":       pure(func(a []any) any { return slice(a[0], a[1:]...) }),
		"urlquery":    pure(func(a []any) any { return queryEscaped(a[0]) }),
		"print":       func(_ *state, a []any) (any, error) { return printAll(a...) },
		"printf":      func(_ *state, a []any) (any, error) { return printFormat(show(a[0]), a[1:]...) },
	}
}
