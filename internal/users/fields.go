package users

import (
	"bytes"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// slot is a place in a user document that the rules read.
type slot int

const (
	slotNone slot = iota
	slotID
	slotEmail
	slotZone
	slotBits
	slotState
	slotFirstAt
	slotLastAt
	slotOpenFirstAt
	slotOpenLastAt
	slotCount
)

// field is a node of the tree of all configured paths, so that a document is read in one pass.
type field struct {
	name     []byte
	slots    []slot
	when     []int // positions in Store.when
	written  bool  // the bits or the state lie in it
	children []*field
}

// suppressedWhen is one line of Config.SuppressedWhen.
type suppressedWhen struct {
	path   string
	values []bson.RawValue
	orNone bool // null and missing suppress too
}

func (s *Store) compile() error {
	s.fields = &field{}
	s.fields.add("_id", slotID)
	s.fields.add(s.cfg.Email, slotEmail)
	s.fields.add(s.cfg.Timezone, slotZone)
	s.fields.add(s.cfg.Bits, slotBits)
	s.fields.add(s.cfg.State, slotState)
	s.fields.add(s.cfg.FirstAt, slotFirstAt)
	s.fields.add(s.cfg.LastAt, slotLastAt)
	s.fields.add(s.cfg.OpenFirstAt, slotOpenFirstAt)
	s.fields.add(s.cfg.OpenLastAt, slotOpenLastAt)
	for path, values := range s.cfg.SuppressedWhen {
		w := suppressedWhen{path: path}
		for _, v := range values {
			if v == nil {
				w.orNone = true
				continue
			}
			typ, data, err := bson.MarshalValue(v)
			if err != nil {
				return fmt.Errorf("users: suppressed_when.%s: %w", path, err)
			}
			w.values = append(w.values, bson.RawValue{Type: typ, Value: data})
		}
		if len(values) == 0 {
			return fmt.Errorf("users: suppressed_when.%s lists no values", path)
		}
		f := s.fields.at(path, false)
		f.when = append(f.when, len(s.when))
		s.when = append(s.when, w)
	}
	if len(s.when) > 64 {
		return fmt.Errorf("users: suppressed_when has %d fields; 64 is the limit", len(s.when))
	}
	return nil
}

func (f *field) add(path string, as slot) {
	if path == "" {
		return
	}
	node := f.at(path, as == slotBits || as == slotState)
	node.slots = append(node.slots, as)
}

// at is the node of the path, made where it is missing.
func (f *field) at(path string, written bool) *field {
	node := f
	for part := range strings.SplitSeq(path, ".") {
		node.written = node.written || written
		next := node.child([]byte(part))
		if next == nil {
			next = &field{name: []byte(part)}
			node.children = append(node.children, next)
		}
		node = next
	}
	return node
}

func (f *field) child(name []byte) *field {
	for _, c := range f.children {
		if len(c.name) == len(name) && c.name[0] == name[0] && bytes.Equal(c.name, name) { // most differ in the first two
			return c
		}
	}
	return nil
}

// found is what one pass over a document has found.
type found struct {
	values     [slotCount]bson.RawValue
	seen       uint64 // of Store.when
	suppressed bool
	unreadable bool
}

// walk looks for the children of f in a document or array. Where a key stands twice, the first counts. It reports whether
// the document could be read to its end.
func (s *Store) walk(doc []byte, f *field, out *found) bool {
	length, rest, ok := bsoncore.ReadLength(doc)
	if !ok || int(length) > len(doc) || length < 5 {
		return false
	}
	rest = rest[:length-4]
	for len(rest) > 1 {
		typ := bson.Type(rest[0])
		end := bytes.IndexByte(rest[1:], 0)
		if end < 0 {
			return false
		}
		name := rest[1 : 1+end]
		value, next, ok := bsoncore.ReadValue(rest[end+2:], bsoncore.Type(typ))
		if !ok {
			return false
		}
		rest = next
		if c := f.child(name); c != nil && !s.take(c, bson.RawValue{Type: typ, Value: value.Data}, out) {
			return false
		}
	}
	return len(rest) == 1 && rest[0] == 0
}

// take keeps the value that stands at the node and looks further into it.
func (s *Store) take(f *field, v bson.RawValue, out *found) bool {
	for _, at := range f.slots {
		if out.values[at].Type == 0 {
			out.values[at] = v
		}
	}
	for _, i := range f.when {
		out.seen |= 1 << i
		out.suppressed = out.suppressed || s.when[i].matches(v)
	}
	if len(f.children) == 0 {
		return true
	}
	switch v.Type {
	case bson.TypeEmbeddedDocument:
		return s.walk(v.Value, f, out)
	case bson.TypeArray:
		out.unreadable = out.unreadable || f.written
		return s.walkArray(v.Value, f, out)
	}
	// An update could not make a field in this.
	out.unreadable = out.unreadable || f.written
	return true
}

// walkArray takes positions as they stand, and looks for other names in every element that is a document.
func (s *Store) walkArray(doc []byte, f *field, out *found) bool {
	if !s.walk(doc, f, out) {
		return false
	}
	complete := true
	return eachElement(doc, func(_ []byte, e bson.RawValue) {
		if e.Type == bson.TypeEmbeddedDocument {
			complete = s.walk(e.Value, f, out) && complete
		}
	}) && complete
}

// matches compares as a query would: numbers by value, and an array by any of its elements.
func (w *suppressedWhen) matches(v bson.RawValue) bool {
	if v.Type == bson.TypeNull || v.Type == bson.TypeUndefined {
		return w.orNone
	}
	if w.lists(v) {
		return true
	}
	match := false
	if v.Type == bson.TypeArray {
		eachElement(v.Value, func(_ []byte, e bson.RawValue) {
			match = match || w.lists(e) || w.orNone && e.Type == bson.TypeNull
		})
	}
	return match
}

func (w *suppressedWhen) lists(v bson.RawValue) bool {
	for _, want := range w.values {
		if equal(v, want) {
			return true
		}
	}
	return false
}
