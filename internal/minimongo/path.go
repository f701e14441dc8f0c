package minimongo

import (
	"strconv"
	"strings"
)

func splitPath(path string) []string { return strings.Split(path, ".") }

// arrayIndex reads a path component as an array position: digits without leading zeros.
func arrayIndex(part string) (int, bool) {
	if part == "" || len(part) > 9 || len(part) > 1 && part[0] == '0' {
		return 0, false
	}
	for i := range len(part) {
		if part[i] < '0' || part[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.Atoi(part)
	return n, err == nil
}

// walkPath calls fn for the values that a query sees under a dotted path and stops when fn returns true.
// Arrays on the way are searched element by element (documents in them only) and by position; with
// leaf, an array at the end is given element by element and then whole. A missing field is given
// as exists == false, except below an array without documents, where nothing is given.
func walkPath(doc []byte, parts []string, leaf bool, fn func(v value, exists bool) bool) bool {
	v, ok := field(doc, parts[0])
	if !ok {
		return fn(value{}, false)
	}
	return walkValue(v, parts[1:], leaf, fn)
}

func walkValue(v value, rest []string, leaf bool, fn func(v value, exists bool) bool) bool {
	if len(rest) == 0 {
		if leaf && v.Type == tArray {
			for it := elementsOf(v.Data); ; {
				_, e, ok := it.next()
				if !ok {
					break
				}
				if fn(e, true) {
					return true
				}
			}
		}
		return fn(v, true)
	}
	switch v.Type {
	case tDocument:
		return walkPath(v.Data, rest, leaf, fn)
	case tArray:
		at, positional := arrayIndex(rest[0])
		it := elementsOf(v.Data)
		for i := 0; ; i++ {
			_, e, ok := it.next()
			if !ok {
				return false
			}
			if positional && i == at {
				// An array at the last position is given whole only.
				if len(rest) == 1 && fn(e, true) {
					return true
				}
				if len(rest) > 1 && (e.Type == tDocument || e.Type == tArray) && walkValue(e, rest[1:], leaf, fn) {
					return true
				}
			}
			if e.Type == tDocument && walkPath(e.Data, rest, leaf, fn) {
				return true
			}
		}
	}
	return fn(value{}, false)
}

// indexValues collects what an index holds for one field of a document: each element of an array,
// null for a missing field, undefined for an empty array. multi says that an array was met.
func indexValues(doc []byte, parts []string) (vals []value, exists, multi bool) {
	return collect(doc, parts, nil)
}

func collect(doc []byte, parts []string, dst []value) (vals []value, exists, multi bool) {
	v, ok := field(doc, parts[0])
	if !ok {
		return append(dst, nullValue), false, false
	}
	return collectValue(v, parts[1:], dst)
}

func collectValue(v value, rest []string, dst []value) (vals []value, exists, multi bool) {
	if v.Type == tArray {
		n := 0
		it := elementsOf(v.Data)
		at, positional := -1, false
		if len(rest) > 0 {
			at, positional = arrayIndex(rest[0])
		}
		for i := 0; ; i++ {
			_, e, ok := it.next()
			if !ok {
				break
			}
			switch {
			case positional && i == at:
				return collectValue(e, rest[1:], dst)
			case len(rest) == 0:
				dst, exists = append(dst, e), true
			case positional:
				continue
			case e.Type == tDocument:
				var has bool
				dst, has, _ = collect(e.Data, rest, dst)
				exists = exists || has
			default:
				dst = append(dst, nullValue)
			}
			n++
		}
		if n == 0 {
			if len(rest) == 0 {
				return append(dst, value{Type: tUndefined}), true, true
			}
			return append(dst, nullValue), false, true
		}
		return dst, exists, true
	}
	if len(rest) == 0 {
		return append(dst, v), true, false
	}
	if v.Type == tDocument {
		return collect(v.Data, rest, dst)
	}
	return append(dst, nullValue), false, false
}
