package minimongo

import (
	"bytes"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

func (s *Server) createIndexes(r *request, dst []byte) ([]byte, error) {
	coll, err := r.collection()
	if err != nil {
		return nil, err
	}
	var wanted []*index
	err = r.each(func(key string, v value) (bool, error) {
		switch key {
		case "indexes":
			specs, err := r.list(key, v)
			if err != nil {
				return true, err
			}
			for _, spec := range specs {
				ix, err := parseIndex(spec)
				if err != nil {
					return true, err
				}
				if ix.name == "" {
					return true, errorf(codeFailedToParse, "The 'name' field is a required property of an index specification")
				}
				wanted = append(wanted, ix)
			}
			return true, nil
		case "commitQuorum":
			return true, nil
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	if len(wanted) == 0 {
		return nil, errorf(codeBadValue, "Must specify at least one index to create")
	}
	var before, after int
	created := false
	err = s.store.update(r.ctx, func(tx *bolt.Tx) error {
		c, err := s.store.lookup(tx, r.db, coll)
		if err != nil {
			return err
		}
		if created = c == nil; created {
			if c, err = s.store.ensure(tx, r.db, coll); err != nil {
				return err
			}
		}
		before = len(c.indexes) + 1
		after, err = s.store.addIndexes(tx, c, wanted)
		return err
	})
	if err != nil {
		return nil, err
	}
	dst = bsoncore.AppendInt32Element(dst, "numIndexesBefore", int32(before))
	dst = bsoncore.AppendInt32Element(dst, "numIndexesAfter", int32(after))
	return bsoncore.AppendBooleanElement(dst, "createdCollectionAutomatically", created), nil
}

// addIndexes builds all of the indexes or, if one of them fails, none.
func (s *store) addIndexes(tx *bolt.Tx, c *collection, wanted []*index) (count int, err error) {
	next := *c
	next.indexes = slices.Clone(c.indexes)
	var made []*index
	for _, ix := range wanted {
		exists, err := next.compareIndex(ix)
		if err != nil {
			return 0, undo(err, tx, made)
		}
		if exists {
			continue
		}
		next.lastIndex++
		ix.id = next.lastIndex
		ix.bucket = bucketName('i', c.id, ix.id)
		next.indexes = append(next.indexes, ix)
		made = append(made, ix)
		if err := ix.build(tx, c); err != nil {
			return 0, undo(err, tx, made)
		}
	}
	if len(next.indexes) > 63 {
		return 0, undo(errorf(codeCannotCreateIndex, "add index fails, too many indexes for %s", c.namespace()), tx, made)
	}
	return len(next.indexes) + 1, s.save(tx, &next)
}

// undo takes half-made indexes away again, since the transaction is shared with others.
func undo(err error, tx *bolt.Tx, made []*index) error {
	for _, ix := range made {
		if e := tx.DeleteBucket(ix.bucket); e != nil {
			return fmt.Errorf("%w; and then: %v", err, e)
		}
	}
	return err
}

// compareIndex: the same index again is no error. As of MongoDB 5, keys, unique and sparse make an index: another one of
// these is another index, but not under the same name.
func (c *collection) compareIndex(ix *index) (exists bool, err error) {
	if bytes.Equal(ix.pattern, idPattern) {
		return true, nil
	}
	if ix.name == idIndexName {
		return false, errorf(codeBadValue, "The index name '_id_' is reserved for the _id index")
	}
	for _, have := range c.indexes {
		same := have.unique == ix.unique && have.sparse == ix.sparse &&
			slices.EqualFunc(have.fields, ix.fields, func(a, b indexField) bool { return a.path == b.path && a.descending == b.descending })
		switch {
		case have.name == ix.name && !same:
			return false, errorf(codeIndexKeySpecsDiffer, "An existing index has the same name as the requested index. When index names are not specified, they are auto generated "+
				"and can cause conflicts. Please refer to our documentation. Requested index: %s, existing index: %s", shellDoc(ix.describe()), shellDoc(have.describe()))
		case same && have.ttl != ix.ttl:
			with := "the same name but different options"
			if have.name != ix.name {
				with = "a different name and options"
			}
			return false, errorf(codeIndexOptionsDiffer, "An equivalent index already exists with %s. Requested index: %s, existing index: %s",
				with, shellDoc(ix.describe()), shellDoc(have.describe()))
		case same && have.name != ix.name:
			return false, errorf(codeIndexOptionsDiffer, "Index already exists with a different name: %s", have.name)
		case same:
			return true, nil
		}
	}
	return false, nil
}

// build fills a new index from the documents that are there, in the order of its keys: bbolt keeps all that a
// transaction writes between two old keys in one node, where writing in any other order takes quadratic time.
func (ix *index) build(tx *bolt.Tx, c *collection) error {
	b, err := tx.CreateBucket(ix.bucket)
	if err != nil {
		return err
	}
	type built struct {
		entry
		id []byte
	}
	var all []built
	cur := tx.Bucket(c.documents()).Cursor()
	for id, doc := cur.First(); id != nil; id, doc = cur.Next() {
		list, multi, err := ix.entries(doc)
		if err != nil {
			return err
		}
		ix.multikey = ix.multikey || multi
		for _, e := range list {
			if len(e.key)+len(id) > bolt.MaxKeySize {
				return errorf(codeKeyTooLong, "minimongo: key of index %s is longer than %d bytes", ix.name, bolt.MaxKeySize)
			}
			if !ix.unique {
				e.vals = nil
			}
			all = append(all, built{entry: e, id: id})
		}
	}
	slices.SortFunc(all, func(a, b built) int {
		if c := bytes.Compare(a.key, b.key); c != 0 {
			return c
		}
		return bytes.Compare(a.id, b.id)
	})
	for i, e := range all {
		if ix.unique && i > 0 && bytes.Equal(all[i-1].key, e.key) {
			return duplicate(c, ix.name, ix.pattern, e.vals)
		}
		if err := b.Put(e.full(e.id), lengthOf(e.id)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) dropIndexes(r *request, dst []byte) ([]byte, error) {
	coll, err := r.collection()
	if err != nil {
		return nil, err
	}
	var which value
	err = r.each(func(key string, v value) (bool, error) {
		which = v
		return key == "index", nil
	})
	if err != nil {
		return nil, err
	}
	var names []string
	switch which.Type {
	case tString:
		names = []string{string(str(which))}
	case tArray:
		for _, v := range values(which) {
			name, err := wantString("index", v)
			if err != nil {
				return nil, err
			}
			names = append(names, name)
		}
	case tDocument:
	default:
		return nil, errorf(codeTypeMismatch, "dropIndexes needs the name or the pattern of an index")
	}
	was := 0
	err = s.store.update(r.ctx, func(tx *bolt.Tx) error {
		c, err := s.store.lookup(tx, r.db, coll)
		if err != nil {
			return err
		}
		if c == nil {
			return errorf(codeNamespaceNotFound, "ns not found %s.%s", r.db, coll)
		}
		was = len(c.indexes) + 1
		return s.store.removeIndexes(tx, c, names, which)
	})
	if err != nil {
		return nil, err
	}
	return bsoncore.AppendInt32Element(dst, "nIndexesWas", int32(was)), nil
}

func (s *store) removeIndexes(tx *bolt.Tx, c *collection, names []string, pattern value) error {
	next := *c
	next.indexes = nil
	var gone []*index
	for _, ix := range c.indexes {
		hit := len(names) == 1 && names[0] == "*" || slices.Contains(names, ix.name) ||
			pattern.Type == tDocument && bytes.Equal(appendKey(nil, pattern), appendKey(nil, value{Type: tDocument, Data: ix.pattern}))
		if hit {
			gone = append(gone, ix)
		} else {
			next.indexes = append(next.indexes, ix)
		}
	}
	for _, name := range names {
		if name == idIndexName {
			return errorf(codeInvalidOptions, "cannot drop _id index")
		}
		if name != "*" && !slices.ContainsFunc(gone, func(ix *index) bool { return ix.name == name }) {
			return errorf(codeIndexNotFound, "index not found with name [%s]", name)
		}
	}
	if pattern.Type == tDocument && gone == nil {
		return errorf(codeIndexNotFound, "can't find index with key: %s", shell(pattern))
	}
	for _, ix := range gone {
		if err := tx.DeleteBucket(ix.bucket); err != nil {
			return err
		}
	}
	return s.save(tx, &next)
}

func (s *Server) listIndexes(r *request, dst []byte) ([]byte, error) {
	coll, err := r.collection()
	if err == nil {
		err = r.each(func(key string, v value) (bool, error) { return key == "cursor", nil })
	}
	if err != nil {
		return nil, err
	}
	var docs []document
	err = s.store.view(func(tx *bolt.Tx) error {
		c, err := s.store.lookup(tx, r.db, coll)
		if err != nil {
			return err
		}
		if c == nil {
			return errorf(codeNamespaceNotFound, "ns does not exist: %s.%s", r.db, coll)
		}
		primary := &index{name: idIndexName, pattern: idPattern, ttl: -1}
		docs = append(docs, primary.describe())
		for _, ix := range c.indexes {
			docs = append(docs, ix.describe())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.replyList(r, dst, r.db+"."+coll, docs)
}
