package minimongo

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

type collection struct {
	db, name  string
	id        uint64
	lastIndex uint64
	indexes   []*index // without the one on _id, which is the collection itself
}

type index struct {
	name     string
	pattern  document
	fields   []indexField
	unique   bool
	sparse   bool
	ttl      int64 // seconds; -1: none
	multikey bool  // holds or held an array
	id       uint64
	bucket   []byte
}

type indexField struct {
	path       string
	parts      []string
	descending bool
}

func (c *collection) namespace() string { return c.db + "." + c.name }
func (c *collection) documents() []byte { return bucketName('d', c.id) }

func checkNamespace(db, name string) error {
	if db == "" || len(db) > 63 || strings.ContainsAny(db, "/\\. \"$\x00") {
		return errorf(codeInvalidNamespace, "Invalid database name: %q", db)
	}
	if name == "" || len(name) > 200 || strings.ContainsAny(name, "$\x00") || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "system.") {
		return errorf(codeInvalidNamespace, "Invalid collection name: %q", name)
	}
	return nil
}

func (c *collection) encode() []byte {
	at, dst := bsoncore.AppendDocumentStart(nil)
	dst = bsoncore.AppendInt64Element(dst, "id", int64(c.id))
	dst = bsoncore.AppendInt64Element(dst, "last", int64(c.lastIndex))
	list, dst := bsoncore.AppendArrayElementStart(dst, "indexes")
	for i, ix := range c.indexes {
		var sub int32
		sub, dst = bsoncore.AppendDocumentElementStart(dst, fmt.Sprint(i))
		dst = bsoncore.AppendInt64Element(dst, "id", int64(ix.id))
		dst = bsoncore.AppendBooleanElement(dst, "multikey", ix.multikey)
		dst = bsoncore.AppendDocumentElement(dst, "spec", ix.describe())
		dst, _ = bsoncore.AppendDocumentEnd(dst, sub)
	}
	dst, _ = bsoncore.AppendArrayEnd(dst, list)
	dst, _ = bsoncore.AppendDocumentEnd(dst, at)
	return dst
}

// describe is the index as listIndexes shows it.
func (ix *index) describe() document {
	at, dst := bsoncore.AppendDocumentStart(nil)
	dst = bsoncore.AppendInt32Element(dst, "v", 2)
	dst = bsoncore.AppendDocumentElement(dst, "key", ix.pattern)
	dst = bsoncore.AppendStringElement(dst, "name", ix.name)
	if ix.unique {
		dst = bsoncore.AppendBooleanElement(dst, "unique", true)
	}
	if ix.sparse {
		dst = bsoncore.AppendBooleanElement(dst, "sparse", true)
	}
	if ix.ttl >= 0 {
		dst = bsoncore.AppendInt32Element(dst, "expireAfterSeconds", int32(ix.ttl))
	}
	dst, _ = bsoncore.AppendDocumentEnd(dst, at)
	return dst
}

func parseCollection(db, name string, raw []byte) (*collection, error) {
	raw = bytes.Clone(raw)
	if err := validate(raw, 0); err != nil {
		return nil, fmt.Errorf("minimongo: catalog entry of %s.%s: %w", db, name, err)
	}
	d := document(raw)
	c := &collection{db: db, name: name, id: uint64(d.Lookup("id").Int64()), lastIndex: uint64(d.Lookup("last").Int64())}
	for _, e := range values(d.Lookup("indexes")) {
		ix, err := parseIndex(e.Document().Lookup("spec").Document())
		if err != nil {
			return nil, fmt.Errorf("minimongo: catalog entry of %s.%s: %w", db, name, err)
		}
		ix.multikey = e.Document().Lookup("multikey").Boolean()
		ix.id = uint64(e.Document().Lookup("id").Int64())
		ix.bucket = bucketName('i', c.id, ix.id)
		c.indexes = append(c.indexes, ix)
	}
	return c, nil
}

// parseIndex reads an index specification as createIndexes gets it.
func parseIndex(spec document) (*index, error) {
	ix := &index{ttl: -1}
	for it := elementsOf(spec); ; {
		k, v, ok := it.next()
		if !ok {
			break
		}
		switch string(k) {
		case "v", "ns", "background":
		case "key":
			if v.Type != tDocument {
				return nil, errorf(codeTypeMismatch, "The field 'key' must be an object, but got %s", typeName(v.Type))
			}
			ix.pattern = v.Data
		case "name":
			if v.Type != tString {
				return nil, errorf(codeTypeMismatch, "The field 'name' must be a string, but got %s", typeName(v.Type))
			}
			ix.name = string(str(v))
		case "unique":
			ix.unique = truthy(v)
		case "sparse":
			ix.sparse = truthy(v)
		case "expireAfterSeconds":
			n, ok := integer(v)
			if !ok || n < 0 || n > 1<<31-1 {
				return nil, errorf(codeCannotCreateIndex, "TTL index 'expireAfterSeconds' option must be within an acceptable range, but got %s", shell(v))
			}
			ix.ttl = n
		default:
			return nil, errorf(codeCannotCreateIndex, "minimongo has no index option %q", k)
		}
	}
	return ix, ix.parsePattern()
}

func (ix *index) parsePattern() error {
	for it := elementsOf(ix.pattern); ; {
		k, v, ok := it.next()
		if !ok {
			break
		}
		n, numeric := integer(v)
		path := string(k)
		if v.Type == tString {
			return errorf(codeCannotCreateIndex, "minimongo has no index type %s", shell(v))
		}
		if !numeric || n == 0 {
			return errorf(codeCannotCreateIndex, "Values in v:2 index key pattern must be numbers > 0 or < 0, but got %s", shell(v))
		}
		if path == "" || strings.Contains(path, "$") || slices.Contains(splitPath(path), "") {
			return errorf(codeCannotCreateIndex, "Index keys cannot contain an empty field or a $: %q", path)
		}
		if slices.ContainsFunc(splitPath(path), func(part string) bool { _, at := arrayIndex(part); return at }) {
			return errorf(codeCannotCreateIndex, "minimongo has no index on array positions: %s", path)
		}
		ix.fields = append(ix.fields, indexField{path: path, parts: splitPath(path), descending: n < 0})
	}
	if ix.fields == nil {
		return errorf(codeCannotCreateIndex, "Index keys cannot be empty.")
	}
	if ix.ttl >= 0 && len(ix.fields) > 1 {
		return errorf(codeCannotCreateIndex, "TTL indexes are single-field indexes, compound indexes do not support TTL. Index spec: %s", shellDoc(ix.pattern))
	}
	return nil
}

// An entry is one key of a document in an index, without the _id behind it.
type entry struct {
	key  []byte
	vals []value
}

// entries are the keys of a document: one, or one per array element; none in a sparse index
// where no field is there. Sorted, each once.
func (ix *index) entries(doc []byte) (out []entry, multi bool, err error) {
	out = []entry{{}}
	any := false
	for _, f := range ix.fields {
		vals, exists, m := indexValues(doc, f.parts)
		any = any || exists
		if m && multi {
			return nil, false, errorf(codeParallelArrays, "cannot index parallel arrays in %s", shellDoc(ix.pattern))
		}
		multi = multi || m
		next := make([]entry, 0, len(out)*len(vals))
		for _, e := range out {
			for _, v := range vals {
				key := append(make([]byte, 0, len(e.key)+24), e.key...)
				key = appendKey(key, v)
				if f.descending {
					invert(key[len(e.key):])
				}
				next = append(next, entry{key: key, vals: append(slices.Clip(e.vals), v)})
			}
		}
		out = next
	}
	if ix.sparse && !any {
		return nil, multi, nil
	}
	if len(out) > 1 {
		slices.SortFunc(out, func(a, b entry) int { return bytes.Compare(a.key, b.key) })
		out = slices.CompactFunc(out, func(a, b entry) bool { return bytes.Equal(a.key, b.key) })
	}
	return out, multi, nil
}

func (e entry) full(id []byte) []byte { return append(slices.Clip(e.key), id...) }

// splitEntry takes the encoded _id off an index key.
func splitEntry(k, v []byte) (id []byte) {
	return k[len(k)-int(binary.BigEndian.Uint16(v)):]
}

// lengthOf is the value of an index key: how many of its last bytes are the encoded _id.
func lengthOf(id []byte) []byte { return binary.BigEndian.AppendUint16(nil, uint16(len(id))) }

// A change is what one index has to do for one document.
type change struct {
	ix          *index
	multi       bool
	remove, add []entry
}

// changes works out and checks, before anything is written, what the indexes have to do when the document
// under id goes from old to new; either may be nil.
func (c *collection) changes(tx *bolt.Tx, id, old, new []byte) ([]change, error) {
	var out []change
	for _, ix := range c.indexes {
		if old != nil && new != nil && ix.untouched(old, new) {
			continue
		}
		var before, after []entry
		var multi bool
		var err error
		if old != nil {
			if before, _, err = ix.entries(old); err != nil {
				return nil, err
			}
		}
		if new != nil {
			if after, multi, err = ix.entries(new); err != nil {
				return nil, err
			}
		}
		ch := change{ix: ix, multi: multi, remove: without(before, after), add: without(after, before)}
		for _, e := range ch.add {
			if len(e.key)+len(id) > bolt.MaxKeySize {
				return nil, errorf(codeKeyTooLong, "minimongo: key of index %s is longer than %d bytes", ix.name, bolt.MaxKeySize)
			}
			if ix.unique {
				if err := ix.unused(tx, c, e, id); err != nil {
					return nil, err
				}
			}
		}
		if ch.remove != nil || ch.add != nil || multi && !ix.multikey {
			out = append(out, ch)
		}
	}
	return out, nil
}

// without takes two sorted lists.
func without(list, drop []entry) (out []entry) {
	for _, e := range list {
		for len(drop) > 0 && bytes.Compare(drop[0].key, e.key) < 0 {
			drop = drop[1:]
		}
		if len(drop) == 0 || !bytes.Equal(drop[0].key, e.key) {
			out = append(out, e)
		}
	}
	return out
}

// untouched: none of the top-level fields that the index begins at is different.
func (ix *index) untouched(old, new []byte) bool {
	for _, f := range ix.fields {
		a, oka := field(old, f.parts[0])
		b, okb := field(new, f.parts[0])
		if oka != okb || a.Type != b.Type || !bytes.Equal(a.Data, b.Data) {
			return false
		}
	}
	return true
}

// unused fails where another document than id has the entry.
func (ix *index) unused(tx *bolt.Tx, c *collection, e entry, id []byte) error {
	cur := tx.Bucket(ix.bucket).Cursor()
	for k, v := cur.Seek(e.key); k != nil && bytes.HasPrefix(k, e.key); k, v = cur.Next() {
		if !bytes.Equal(splitEntry(k, v), id) {
			return duplicate(c, ix.name, ix.pattern, e.vals)
		}
	}
	return nil
}

func duplicate(c *collection, name string, pattern document, vals []value) error {
	at, kv := bsoncore.AppendDocumentStart(nil)
	it := elementsOf(pattern)
	for _, v := range vals {
		k, _, _ := it.next()
		kv = bsoncore.AppendValueElement(kv, string(k), v)
	}
	kv, _ = bsoncore.AppendDocumentEnd(kv, at)
	err := errorf(codeDuplicateKey, "E11000 duplicate key error collection: %s index: %s dup key: %s", c.namespace(), name, shellDoc(kv))
	err.KeyPattern, err.KeyValue = pattern, kv
	return err
}

// apply carries changes out. A document with an array in an index turns it multikey, which is remembered.
func (s *store) apply(tx *bolt.Tx, c *collection, id []byte, changes []change) error {
	length := lengthOf(id)
	for _, ch := range changes {
		b := tx.Bucket(ch.ix.bucket)
		for _, e := range ch.remove {
			if err := b.Delete(e.full(id)); err != nil {
				return err
			}
		}
		for _, e := range ch.add {
			if err := b.Put(e.full(id), length); err != nil {
				return err
			}
		}
		if ch.multi && !ch.ix.multikey {
			if err := s.markMultikey(tx, c, ch.ix); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *store) markMultikey(tx *bolt.Tx, c *collection, ix *index) error {
	latest, err := s.lookup(tx, c.db, c.name)
	if err != nil {
		return err
	}
	marked := *latest // what lookup returns is shared and never changed
	marked.indexes = slices.Clone(latest.indexes)
	for i, x := range marked.indexes {
		if x.id == ix.id && !x.multikey {
			m := *x
			m.multikey = true
			marked.indexes[i] = &m
			return s.save(tx, &marked)
		}
	}
	return nil
}
