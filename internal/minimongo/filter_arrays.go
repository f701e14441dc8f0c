package minimongo

import "fmt"

func parseAll(path string, parts []string, v value, depth int) (expr, error) {
	if v.Type != tArray {
		return nil, errorf(codeBadValue, "$all needs an array")
	}
	var all allOf
	for _, e := range values(v) {
		var sub expr
		var err error
		if first := elementsOf(e.Data); e.Type == tDocument && isOperators(e) {
			k, arg, _ := first.next()
			if string(k) != "$elemMatch" {
				return nil, errorf(codeBadValue, "no $ expressions in $all")
			}
			sub, err = parseElemMatch(path, parts, arg, depth)
		} else {
			sub, err = parseField(path, e, depth)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, sub)
	}
	if all == nil {
		return anyOf{}, nil
	}
	return all, nil
}

func parseElemMatch(path string, parts []string, v value, depth int) (expr, error) {
	if v.Type != tDocument {
		return nil, errorf(codeBadValue, "$elemMatch needs an Object")
	}
	var test func(e value) bool
	if first := elementsOf(v.Data); isOperators(v) && !isLogical(first) {
		// The operators apply to the element itself; it is matched as the only field of a document.
		sub, err := parseOperators("", []string{""}, v.Data, depth+1)
		if err != nil {
			return nil, err
		}
		test = func(e value) bool { return matchElement(sub, e) }
	} else {
		sub, err := parseQuery(v.Data, depth+1)
		if err != nil {
			return nil, err
		}
		test = func(e value) bool { return (e.Type == tDocument || e.Type == tArray) && sub.match(e.Data) }
	}
	return &predicate{path: path, parts: parts, op: "$elemMatch", test: func(v value, exists bool) bool {
		if !exists || v.Type != tArray {
			return false
		}
		for it := elementsOf(v.Data); ; {
			_, e, ok := it.next()
			if !ok {
				return false
			}
			if test(e) {
				return true
			}
		}
	}}, nil
}

func isLogical(it elements) bool {
	k, _, _ := it.next()
	s := string(k)
	return s == "$and" || s == "$or" || s == "$nor"
}

// matchElement applies predicates without a path to one array element.
func matchElement(e expr, v value) bool {
	switch e := e.(type) {
	case allOf:
		for _, sub := range e {
			if !matchElement(sub, v) {
				return false
			}
		}
		return true
	case anyOf:
		for _, sub := range e {
			if matchElement(sub, v) {
				return true
			}
		}
		return false
	case noneOf:
		return !matchElement(anyOf(e), v)
	case *predicate:
		return e.test(v, true)
	}
	panic(fmt.Sprintf("minimongo: no rule for %T", e))
}
