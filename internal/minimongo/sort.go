package minimongo

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

type sortField struct {
	path       string
	parts      []string
	descending bool
}

func parseSort(doc document) ([]sortField, error) {
	var out []sortField
	for it := elementsOf(doc); ; {
		k, v, ok := it.next()
		if !ok {
			return out, nil
		}
		path := string(k)
		if v.Type == tDocument {
			return nil, errorf(codeBadValue, "minimongo sorts by 1 and -1 only, not by %s", shell(v))
		}
		if !isNumber(v.Type) {
			return nil, errorf(15974, "Illegal key in $sort specification: %s: %s", path, shell(v))
		}
		n, ok := integer(v)
		if !ok || n != 1 && n != -1 {
			return nil, errorf(15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)")
		}
		if path == "" || strings.HasPrefix(path, "$") || slices.Contains(splitPath(path), "") {
			return nil, errorf(codeBadValue, "FieldPath is empty or starts with '$': %q", path)
		}
		out = append(out, sortField{path: path, parts: splitPath(path), descending: n < 0})
	}
}

// sortKey is the least element of an array going up, the greatest going down; a missing field is null.
func sortKey(dst []byte, doc []byte, fields []sortField) []byte {
	for _, f := range fields {
		vals, _, _ := indexValues(doc, f.parts)
		v := vals[0]
		for _, w := range vals[1:] {
			if c := compare(w, v); c < 0 && !f.descending || c > 0 && f.descending {
				v = w
			}
		}
		at := len(dst)
		dst = appendKey(dst, v)
		if f.descending {
			invert(dst[at:])
		}
	}
	return dst
}

// sortAll reads a source to its end and gives its documents in order.
func sortAll(ctx context.Context, src source, fields []sortField) (source, error) {
	type item struct {
		key []byte
		doc document
	}
	var items []item
	for {
		doc, err := src.next(ctx)
		if err != nil {
			return nil, err
		}
		if doc == nil {
			break
		}
		items = append(items, item{key: sortKey(nil, doc, fields), doc: doc})
	}
	slices.SortStableFunc(items, func(a, b item) int { return bytes.Compare(a.key, b.key) })
	docs := make(slice, len(items))
	for i, it := range items {
		docs[i] = it.doc
	}
	return &docs, nil
}

// slice is a source of documents at hand.
type slice []document

func (s *slice) next(_ context.Context) (document, error) {
	if len(*s) == 0 {
		return nil, nil
	}
	doc := (*s)[0]
	*s = (*s)[1:]
	return doc, nil
}

// A projection is a tree of field names; a leaf is included or excluded whole.
type projection struct {
	include bool // of the fields named; _id is apart
	id      bool // keep _id
	root    *projected
}

type projected struct {
	name     string
	children []*projected // few, so that to walk them is faster than to hash a name
	leaf     bool
}

func parseProjection(doc document) (*projection, error) {
	if len(doc) <= 5 {
		return nil, nil
	}
	p := &projection{root: &projected{}, id: true}
	kinds, idSeen, err := p.add(nil, doc)
	if err != nil {
		return nil, err
	}
	p.include = kinds == 1 || kinds == 0 && idSeen && p.id
	if p.include && p.id || !p.include && !p.id {
		p.root.child("_id").leaf = true
	}
	return p, nil
}

// add reads the fields of doc below prefix; kinds is 1 for inclusion, 2 for exclusion, 0 if there is only _id.
func (p *projection) add(prefix []string, doc document) (kinds int, idSeen bool, err error) {
	for it := elementsOf(doc); ; {
		k, v, ok := it.next()
		if !ok {
			return kinds, idSeen, nil
		}
		path := strings.Join(append(slices.Clip(prefix), string(k)), ".")
		parts := splitPath(path)
		if strings.Contains(path, "$") || slices.Contains(parts, "") {
			return 0, false, errorf(31324, "minimongo projects plain paths only: %s", path)
		}
		kind := 2
		switch {
		case v.Type == tDocument && len(v.Data) > 5 && !isOperators(v):
			sub, _, err := p.add(parts, v.Data)
			if err != nil {
				return 0, false, err
			}
			if kind = sub; kind == 0 {
				continue
			}
		case isNumber(v.Type) || v.Type == tBool:
			if truthy(v) {
				kind = 1
			}
			if path == "_id" {
				idSeen, p.id = true, kind == 1
				continue
			}
			if err := p.root.insert(parts, path); err != nil {
				return 0, false, err
			}
		default:
			return 0, false, errorf(codeBadValue, "minimongo projects with 0, 1, true and false only: %s: %s", path, shell(v))
		}
		if kinds != 0 && kind != kinds {
			if kind == 1 {
				return 0, false, errorf(31253, "Cannot do inclusion on field %s in exclusion projection", path)
			}
			return 0, false, errorf(31254, "Cannot do exclusion on field %s in inclusion projection", path)
		}
		kinds = kind
	}
}

// at is the child of that name, or nil.
func (n *projected) at(name []byte) *projected {
	for _, c := range n.children {
		if string(name) == c.name {
			return c
		}
	}
	return nil
}

func (n *projected) child(name string) *projected {
	c := n.at([]byte(name))
	if c == nil {
		c = &projected{name: name}
		n.children = append(n.children, c)
	}
	return c
}

func (n *projected) insert(parts []string, path string) error {
	for _, part := range parts {
		if n.leaf {
			return errorf(31249, "Path collision at %s", path)
		}
		n = n.child(part)
	}
	if n.leaf || n.children != nil {
		return errorf(31249, "Path collision at %s", path)
	}
	n.leaf = true
	return nil
}

// appendTo appends what the projection shows of a document.
func (p *projection) appendTo(dst []byte, doc document) []byte {
	return p.appendDocument(dst, doc, p.root)
}

func (p *projection) appendDocument(dst []byte, doc []byte, n *projected) []byte {
	at, dst := bsoncore.AppendDocumentStart(dst)
	for it := elementsOf(doc); ; {
		k, v, ok := it.next()
		if !ok {
			break
		}
		sub := n.at(k)
		switch {
		case sub == nil && p.include, sub != nil && sub.leaf && !p.include:
		case sub == nil, sub.leaf:
			dst = appendElement(dst, k, v)
		case v.Type == tDocument:
			dst = appendHeader(dst, tDocument, k)
			dst = p.appendDocument(dst, v.Data, sub)
		case v.Type == tArray:
			dst = appendHeader(dst, tArray, k)
			dst = p.appendArray(dst, v.Data, sub)
		case !p.include:
			dst = appendElement(dst, k, v)
		}
	}
	dst, _ = bsoncore.AppendDocumentEnd(dst, at)
	return dst
}

// appendArray projects the documents (and arrays) of an array; an inclusion drops its plain values.
func (p *projection) appendArray(dst []byte, arr []byte, n *projected) []byte {
	at, dst := bsoncore.AppendDocumentStart(dst)
	count := 0
	for it := elementsOf(arr); ; {
		_, v, ok := it.next()
		if !ok {
			break
		}
		key := arrayKey(count)
		switch {
		case v.Type == tDocument:
			dst = appendHeader(dst, tDocument, key)
			dst = p.appendDocument(dst, v.Data, n)
		case v.Type == tArray:
			dst = appendHeader(dst, tArray, key)
			dst = p.appendArray(dst, v.Data, n)
		case !p.include:
			dst = appendElement(dst, key, v)
		default:
			continue
		}
		count++
	}
	dst, _ = bsoncore.AppendDocumentEnd(dst, at)
	return dst
}
