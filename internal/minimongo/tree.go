package minimongo

import (
	"strconv"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

func appendHeader(dst []byte, t bsoncore.Type, key []byte) []byte {
	dst = append(dst, byte(t))
	dst = append(dst, key...)
	return append(dst, 0)
}

func appendElement(dst, key []byte, v value) []byte {
	return append(appendHeader(dst, v.Type, key), v.Data...)
}

// appendPosition is appendHeader for an element of an array.
func appendPosition(dst []byte, t bsoncore.Type, i int) []byte {
	dst = append(dst, byte(t))
	dst = strconv.AppendInt(dst, int64(i), 10)
	return append(dst, 0)
}

func arrayKey(i int) []byte { return strconv.AppendInt(nil, int64(i), 10) }

// A tree is a document (or array) that is being changed. Only the parts on the way to a
// change are taken apart; everything else stays as it was in BSON.
type tree struct {
	array  bool
	fields []treeField
}

type treeField struct {
	key []byte // of no meaning in an array
	val value
	sub *tree // in place of val, once taken apart
}

func newTree(doc []byte, array bool) *tree {
	t := &tree{array: array}
	for it := elementsOf(doc); ; {
		k, v, ok := it.next()
		if !ok {
			return t
		}
		t.fields = append(t.fields, treeField{key: k, val: v})
	}
}

func (t *tree) kind() bsoncore.Type {
	if t.array {
		return tArray
	}
	return tDocument
}

func (t *tree) appendTo(dst []byte) []byte {
	at, dst := bsoncore.AppendDocumentStart(dst)
	for i, f := range t.fields {
		key := f.key
		if t.array {
			key = arrayKey(i)
		}
		if f.sub != nil {
			dst = appendHeader(dst, f.sub.kind(), key)
			dst = f.sub.appendTo(dst)
		} else {
			dst = appendElement(dst, key, f.val)
		}
	}
	dst, _ = bsoncore.AppendDocumentEnd(dst, at)
	return dst
}

func (f *treeField) value() value {
	if f.sub != nil {
		return value{Type: f.sub.kind(), Data: f.sub.appendTo(nil)}
	}
	return f.val
}

// find gives the field of a name or position; nil where there is none.
func (t *tree) find(part string) *treeField {
	if t.array {
		if at, ok := arrayIndex(part); ok && at < len(t.fields) {
			return &t.fields[at]
		}
		return nil
	}
	for i := range t.fields {
		if string(t.fields[i].key) == part {
			return &t.fields[i]
		}
	}
	return nil
}

// open takes the field apart; nil if it is neither a document nor an array.
func (f *treeField) open() *tree {
	if f.sub == nil && (f.val.Type == tDocument || f.val.Type == tArray) {
		f.sub = newTree(f.val.Data, f.val.Type == tArray)
	}
	return f.sub
}

// get follows a path without changing anything; nil where it does not lead to a value.
func (t *tree) get(parts []string) *treeField {
	for i, part := range parts {
		f := t.find(part)
		if f == nil || i == len(parts)-1 {
			return f
		}
		if t = f.open(); t == nil {
			return nil
		}
	}
	return nil
}

// maxPadding is how far behind the end of an array MongoDB lets a position be set.
const maxPadding = 1_500_000

// make follows a path, creating documents and array positions on the way. A new field is there with a null.
func (t *tree) make(parts []string) (*treeField, error) {
	var holder *treeField
	for i, part := range parts {
		f := t.find(part)
		if f == nil {
			if t.array {
				at, ok := arrayIndex(part)
				if !ok {
					return nil, notViable(part, parts[i-1], holder)
				}
				if at-len(t.fields) > maxPadding {
					return nil, errorf(codeBadValue, "can't backfill more than %d elements", maxPadding)
				}
				for len(t.fields) <= at {
					t.fields = append(t.fields, treeField{val: nullValue})
				}
				f = &t.fields[at]
			} else {
				t.fields = append(t.fields, treeField{key: []byte(part), val: nullValue})
				f = &t.fields[len(t.fields)-1]
			}
			if i < len(parts)-1 {
				f.sub = &tree{}
			}
		}
		if i == len(parts)-1 {
			return f, nil
		}
		holder = f
		if t = f.open(); t == nil {
			return nil, notViable(parts[i+1], part, f)
		}
	}
	return nil, errorf(codeEmptyField, "An empty update path is not valid.")
}

func notViable(part, in string, f *treeField) error {
	return errorf(codePathNotViable, "Cannot create field '%s' in element {%s: %s}", part, in, shell(f.value()))
}

// remove takes the field away; a position of an array becomes null, as in MongoDB.
func (t *tree) remove(parts []string) {
	for i, part := range parts {
		f := t.find(part)
		if f == nil {
			return
		}
		if i < len(parts)-1 {
			if t = f.open(); t == nil {
				return
			}
			continue
		}
		if t.array {
			*f = treeField{val: nullValue}
			return
		}
		for j := range t.fields {
			if &t.fields[j] == f {
				t.fields = append(t.fields[:j], t.fields[j+1:]...)
				return
			}
		}
	}
}

func (f *treeField) set(v value) { f.val, f.sub = v, nil }
