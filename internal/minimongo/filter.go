package minimongo

import (
	"strings"
)

// A filter is a compiled query document. It keeps the predicates that must all hold
// beside the tree, for the choice of an index.
type filter struct {
	root      expr
	conjuncts []*predicate
}

type expr interface{ match(doc []byte) bool }

type (
	allOf  []expr
	anyOf  []expr
	noneOf []expr
)

func (a allOf) match(doc []byte) bool {
	for _, e := range a {
		if !e.match(doc) {
			return false
		}
	}
	return true
}

func (a anyOf) match(doc []byte) bool {
	for _, e := range a {
		if e.match(doc) {
			return true
		}
	}
	return false
}

func (a noneOf) match(doc []byte) bool { return !anyOf(a).match(doc) }

// A predicate tests the values under one path. op and args are what the planner reads.
type predicate struct {
	path  string
	parts []string
	leaf  bool
	op    string
	args  []value
	test  func(v value, exists bool) bool
}

func (p *predicate) match(doc []byte) bool { return walkPath(doc, p.parts, p.leaf, p.test) }

func (f *filter) match(doc []byte) bool { return f.root.match(doc) }

// without is what is left to test where a predicate is known to hold.
func (f *filter) without(known *predicate) *filter {
	all, _ := f.root.(allOf)
	rest := make(allOf, 0, len(all))
	for _, e := range all {
		if e != expr(known) {
			rest = append(rest, e)
		}
	}
	return &filter{root: rest, conjuncts: f.conjuncts}
}

func parseFilter(doc document) (*filter, error) {
	root, err := parseQuery(doc, 0)
	if err != nil {
		return nil, err
	}
	f := &filter{root: root}
	f.gather(root)
	return f, nil
}

func (f *filter) gather(e expr) {
	switch e := e.(type) {
	case allOf:
		for _, sub := range e {
			f.gather(sub)
		}
	case *predicate:
		f.conjuncts = append(f.conjuncts, e)
	}
}

func parseQuery(doc document, depth int) (expr, error) {
	if depth > maxDepth/2 {
		return nil, errorf(codeBadValue, "the query is nested too deep")
	}
	var all allOf
	for it := elementsOf(doc); ; {
		k, v, ok := it.next()
		if !ok {
			break
		}
		name := string(k)
		var e expr
		var err error
		if strings.HasPrefix(name, "$") {
			e, err = parseLogical(name, v, depth)
		} else {
			e, err = parseField(name, v, depth)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

func parseLogical(name string, v value, depth int) (expr, error) {
	switch name {
	case "$and", "$or", "$nor":
	default:
		return nil, errorf(codeBadValue, "unknown top level operator: %s. minimongo knows $and, $or and $nor there", name)
	}
	if v.Type != tArray || len(v.Data) <= 5 {
		return nil, errorf(codeBadValue, "%s must be a nonempty array", name)
	}
	var subs []expr
	for _, e := range values(v) {
		if e.Type != tDocument {
			return nil, errorf(codeBadValue, "%s argument's entries must be objects", name)
		}
		sub, err := parseQuery(e.Data, depth+1)
		if err != nil {
			return nil, err
		}
		subs = append(subs, sub)
	}
	switch name {
	case "$and":
		return allOf(subs), nil
	case "$or":
		if len(subs) == 1 {
			return subs[0], nil
		}
		return anyOf(subs), nil
	}
	return noneOf(subs), nil
}

// isOperators tells {$gt: 1} from a document to compare with.
func isOperators(v value) bool {
	if v.Type != tDocument {
		return false
	}
	it := elementsOf(v.Data)
	k, _, ok := it.next()
	return ok && len(k) > 0 && k[0] == '$' && string(k) != "$ref" && string(k) != "$id" && string(k) != "$db"
}

func parseField(path string, v value, depth int) (expr, error) {
	parts := splitPath(path)
	if isOperators(v) {
		return parseOperators(path, parts, v.Data, depth)
	}
	if v.Type == tRegex {
		return regexPredicate(path, parts, v)
	}
	return equality(path, parts, v)
}

func equality(path string, parts []string, v value) (expr, error) {
	if v.Type == tUndefined {
		return nil, errorf(codeBadValue, "cannot compare to undefined")
	}
	return &predicate{path: path, parts: parts, leaf: true, op: "$eq", args: []value{v}, test: equalTo(v)}, nil
}

func parseOperators(path string, parts []string, ops document, depth int) (expr, error) {
	var all allOf
	options, hasOptions := field(ops, "$options")
	for it := elementsOf(ops); ; {
		k, v, ok := it.next()
		if !ok {
			break
		}
		op := string(k)
		if op == "$options" {
			if _, ok := field(ops, "$regex"); !ok {
				return nil, errorf(codeBadValue, "$options needs a $regex")
			}
			continue
		}
		if op == "$regex" && hasOptions {
			re, err := regexValue(v, options)
			if err != nil {
				return nil, err
			}
			v = re
		}
		e, err := parseOperator(path, parts, op, v, depth)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return all, nil
}

func parseOperator(path string, parts []string, op string, v value, depth int) (expr, error) {
	p := &predicate{path: path, parts: parts, leaf: true, op: op, args: []value{v}}
	switch op {
	case "$eq":
		return equality(path, parts, v)
	case "$ne":
		if v.Type == tRegex {
			return nil, errorf(codeBadValue, "Can't have regex as arg to $ne.")
		}
		e, err := equality(path, parts, v)
		return noneOf{e}, err
	case "$gt", "$gte", "$lt", "$lte":
		if v.Type == tRegex {
			return nil, errorf(codeBadValue, "Can't have RegEx as arg to predicate over field '%s'.", path)
		}
		if v.Type == tUndefined {
			return nil, errorf(codeBadValue, "cannot compare to undefined")
		}
		p.test = comparison(op, v)
	case "$in", "$nin":
		return parseIn(p, v)
	case "$not":
		return parseNot(path, parts, v, depth)
	case "$exists":
		p.leaf = false
		want := truthy(v)
		e := &predicate{path: path, parts: parts, op: op, test: func(_ value, exists bool) bool { return exists }}
		if want {
			return e, nil
		}
		return noneOf{e}, nil
	case "$type":
		return parseType(p, v)
	case "$regex":
		if v.Type == tString {
			re, err := regexValue(v, stringValue(""))
			if err != nil {
				return nil, err
			}
			v = re
		}
		if v.Type != tRegex {
			return nil, errorf(codeBadValue, "$regex has to be a string")
		}
		return regexPredicate(path, parts, v)
	case "$size":
		n, ok := integer(v)
		if !ok {
			return nil, errorf(codeBadValue, "Failed to parse $size. Expected an integer: $size: %s", shell(v))
		}
		if n < 0 {
			return nil, errorf(codeBadValue, "Failed to parse $size. Expected a non-negative number in: $size: %s", shell(v))
		}
		p.leaf = false
		p.test = func(v value, exists bool) bool {
			return exists && v.Type == tArray && int64(len(values(v))) == n
		}
	case "$all":
		return parseAll(path, parts, v, depth)
	case "$elemMatch":
		return parseElemMatch(path, parts, v, depth)
	case "$bitsAllClear", "$bitsAllSet":
		return parseBits(p, v)
	default:
		return nil, errorf(codeBadValue, "unknown operator: %s (minimongo has $eq $ne $gt $gte $lt $lte $in $nin $not $exists $type "+
			"$regex $size $all $elemMatch $bitsAllClear $bitsAllSet)", op)
	}
	return p, nil
}

func parseNot(path string, parts []string, v value, depth int) (expr, error) {
	if v.Type == tRegex {
		e, err := regexPredicate(path, parts, v)
		return noneOf{e}, err
	}
	if v.Type != tDocument {
		return nil, errorf(codeBadValue, "$not needs a regex or a document")
	}
	if len(v.Data) <= 5 {
		return nil, errorf(codeBadValue, "$not cannot be empty")
	}
	if !isOperators(v) {
		it := elementsOf(v.Data)
		k, _, _ := it.next()
		return nil, errorf(codeBadValue, "unknown operator: %s", k)
	}
	e, err := parseOperators(path, parts, v.Data, depth+1)
	return noneOf{e}, err
}

func parseIn(p *predicate, v value) (expr, error) {
	if v.Type != tArray {
		return nil, errorf(codeBadValue, "%s needs an array", p.op)
	}
	list := values(v)
	plain := make([]value, 0, len(list))
	var tests anyOf
	null := false
	for _, e := range list {
		switch {
		case e.Type == tRegex:
			re, err := regexPredicate(p.path, p.parts, e)
			if err != nil {
				return nil, err
			}
			tests = append(tests, re)
		case isOperators(e):
			return nil, errorf(codeBadValue, "cannot nest $ under %s", p.op)
		default:
			null = null || e.Type == tNull
			plain = append(plain, e)
		}
	}
	in := &predicate{path: p.path, parts: p.parts, leaf: true, op: "$in", args: plain}
	var set map[string]struct{} // made when it is needed: often an index gives just those of the list
	in.test = func(v value, exists bool) bool {
		if !exists || v.Type == tUndefined {
			return null
		}
		if set == nil {
			set = keySet(plain)
		}
		var scratch [64]byte
		_, ok := set[string(appendKey(scratch[:0], v))]
		return ok
	}
	var e expr = in
	if tests != nil {
		e = append(tests, in)
	}
	if p.op == "$nin" {
		return noneOf{e}, nil
	}
	return e, nil
}

func keySet(vals []value) map[string]struct{} {
	set := make(map[string]struct{}, len(vals))
	var buf []byte
	for _, v := range vals {
		buf = appendKey(buf[:0], v)
		set[string(buf)] = struct{}{}
	}
	return set
}
