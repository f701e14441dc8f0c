package minimongo

import (
	"context"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// An expression of $group: a field path, a constant, or a document of expressions.
type expression struct {
	path     []string
	constant value
	names    []string
	subs     []expression
}

func parseExpression(v value) (expression, error) {
	switch v.Type {
	case tString:
		s := string(str(v))
		if strings.HasPrefix(s, "$$") {
			return expression{}, errorf(codeBadValue, "minimongo has no variable %s", s)
		}
		if s, ok := strings.CutPrefix(s, "$"); ok {
			return expression{path: splitPath(s)}, nil
		}
	case tArray:
		return expression{}, errorf(codeBadValue, "minimongo has no array expressions: %s", shell(v))
	case tDocument:
		var e expression
		for it := elementsOf(v.Data); ; {
			k, sub, ok := it.next()
			if !ok {
				break
			}
			if strings.HasPrefix(string(k), "$") {
				return e, errorf(168, "Unrecognized expression '%s'. minimongo has field paths and constants", k)
			}
			s, err := parseExpression(sub)
			if err != nil {
				return e, err
			}
			e.names, e.subs = append(e.names, string(k)), append(e.subs, s)
		}
		if e.names != nil {
			return e, nil
		}
	}
	return expression{constant: v}, nil
}

// eval gives the value for a document; ok is false if it is missing.
func (e *expression) eval(doc document) (v value, ok bool) {
	switch {
	case e.path != nil:
		return pathValue(value{Type: tDocument, Data: doc}, e.path)
	case e.names != nil:
		at, dst := bsoncore.AppendDocumentStart(nil)
		for i := range e.subs {
			if v, ok := e.subs[i].eval(doc); ok {
				dst = appendElement(dst, []byte(e.names[i]), v)
			}
		}
		dst, _ = bsoncore.AppendDocumentEnd(dst, at)
		return value{Type: tDocument, Data: dst}, true
	}
	return e.constant, true
}

// pathValue follows a path; through an array it gives the array of what its documents hold.
func pathValue(v value, parts []string) (value, bool) {
	if len(parts) == 0 {
		return v, true
	}
	switch v.Type {
	case tDocument:
		sub, ok := field(v.Data, parts[0])
		if !ok {
			return value{}, false
		}
		return pathValue(sub, parts[1:])
	case tArray:
		var found []value
		for _, e := range values(v) {
			if e.Type != tDocument && e.Type != tArray {
				continue
			}
			if sub, ok := pathValue(e, parts); ok {
				found = append(found, sub)
			}
		}
		return value{Type: tArray, Data: bsoncore.BuildArray(nil, found...)}, true
	}
	return value{}, false
}

type accumulator struct {
	name, op string
	arg      expression
}

type group struct {
	id   expression
	accs []accumulator
}

func parseGroup(arg value) (*group, error) {
	if arg.Type != tDocument {
		return nil, errorf(15947, "a group's fields must be specified in an object")
	}
	g := &group{}
	hasID := false
	for it := elementsOf(arg.Data); ; {
		k, v, ok := it.next()
		if !ok {
			break
		}
		name := string(k)
		if name == "_id" {
			hasID = true
			var err error
			if g.id, err = parseExpression(v); err != nil {
				return nil, err
			}
			continue
		}
		if strings.ContainsAny(name, ".$") {
			return nil, errorf(40235, "The field name '%s' cannot contain '.' or '$'", name)
		}
		if !isOperators(v) {
			return nil, errorf(40234, "The field '%s' must be an accumulator object", name)
		}
		first := elementsOf(v.Data)
		op, operand, _ := first.next()
		if _, _, more := first.next(); more {
			return nil, errorf(40238, "The field '%s' must specify one accumulator", name)
		}
		switch string(op) {
		case "$sum", "$min", "$max":
		default:
			return nil, errorf(15952, "unknown group operator '%s'. minimongo has $sum, $min and $max", op)
		}
		e, err := parseExpression(operand)
		if err != nil {
			return nil, err
		}
		g.accs = append(g.accs, accumulator{name: name, op: string(op), arg: e})
	}
	if !hasID {
		return nil, errorf(15955, "a group specification must include an _id")
	}
	return g, nil
}

// run reads its source to the end. Groups come out in the order in which they were met.
func (g *group) run(ctx context.Context, src source) (source, error) {
	type bucket struct {
		id   value
		accs []value
	}
	buckets := map[string]*bucket{}
	var order []*bucket
	var key []byte
	for {
		doc, err := src.next(ctx)
		if err != nil {
			return nil, err
		}
		if doc == nil {
			break
		}
		id, ok := g.id.eval(doc)
		if !ok {
			id = nullValue
		}
		key = appendKey(key[:0], id)
		b := buckets[string(key)]
		if b == nil {
			b = &bucket{id: id, accs: make([]value, len(g.accs))}
			buckets[string(key)] = b
			order = append(order, b)
		}
		for i := range g.accs {
			v, ok := g.accs[i].arg.eval(doc)
			if err := g.accs[i].add(&b.accs[i], v, ok); err != nil {
				return nil, err
			}
		}
	}
	out := make(slice, 0, len(order))
	for _, b := range order {
		at, dst := bsoncore.AppendDocumentStart(nil)
		dst = appendElement(dst, []byte("_id"), b.id)
		for i, acc := range g.accs {
			v := b.accs[i]
			switch {
			case v.Type != 0:
			case acc.op == "$sum":
				v = int32Value(0)
			default:
				v = nullValue
			}
			dst = appendElement(dst, []byte(acc.name), v)
		}
		dst, _ = bsoncore.AppendDocumentEnd(dst, at)
		out = append(out, dst)
	}
	return &out, nil
}

// add takes one value in; the zero value is an empty accumulator.
func (a *accumulator) add(sum *value, v value, ok bool) error {
	switch {
	case !ok || v.Type == tNull || v.Type == tUndefined:
	case a.op == "$sum":
		if !isNumber(v.Type) {
			return nil
		}
		if sum.Type == 0 {
			*sum = v
			return nil
		}
		total, err := add(*sum, v)
		if err == errOverflow {
			total, err = doubleValue(sum.AsFloat64()+v.AsFloat64()), nil
		}
		if err != nil {
			return err
		}
		*sum = total
	case sum.Type == 0, a.op == "$min" && compare(v, *sum) < 0, a.op == "$max" && compare(v, *sum) > 0:
		*sum = v
	}
	return nil
}
