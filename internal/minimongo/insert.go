package minimongo

import (
	"context"

	bolt "go.etcd.io/bbolt"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

func (s *Server) insert(r *request, dst []byte) ([]byte, error) {
	coll, err := r.collection()
	if err != nil {
		return nil, err
	}
	list, ordered, err := r.statements("documents", func(doc document) (statement, error) {
		doc, err := prepareInsert(doc)
		return func(_ context.Context, tx *bolt.Tx, res *results) error {
			c, err := s.store.ensure(tx, r.db, coll)
			if err == nil {
				err = s.store.insert(tx, c, doc)
			}
			if err == nil {
				res.n++
			}
			return err
		}, err
	})
	if err != nil {
		return nil, err
	}
	res, err := s.bulk(r, ordered, list)
	if err != nil {
		return nil, err
	}
	return res.appendTo(dst), nil
}

// prepareInsert gives a document an _id if it has none, and puts it first.
func prepareInsert(doc document) (document, error) {
	id, ok := field(doc, "_id")
	if !ok {
		oid := bson.NewObjectID()
		id = value{Type: tObjectID, Data: oid[:]}
	} else if err := checkID(id); err != nil {
		return nil, err
	}
	it := elementsOf(doc)
	if k, _, _ := it.next(); !ok || string(k) != "_id" {
		doc = withID(id, true, doc)
	}
	return doc, checkSize(doc)
}

func checkID(id value) error {
	switch id.Type {
	case tArray, tRegex, tUndefined:
		return errorf(codeInvalidID, "The '_id' value cannot be of type %s", typeName(id.Type))
	case tDocument:
		if isModifiers(id.Data) {
			return errorf(codeDollarField, "_id fields may not contain '$'-prefixed fields: %s", shell(id))
		}
	}
	if len(id.Data) > bolt.MaxKeySize/4 {
		return errorf(codeKeyTooLong, "minimongo takes an _id of at most %d bytes", bolt.MaxKeySize/4)
	}
	return nil
}

const idIndexName = "_id_"

var idPattern = document(bsoncore.BuildDocument(nil, bsoncore.AppendInt32Element(nil, "_id", 1)))

// insert adds a document with a checked _id.
func (s *store) insert(tx *bolt.Tx, c *collection, doc document) error {
	id, _ := field(doc, "_id")
	key := appendKey(nil, id)
	docs := tx.Bucket(c.documents())
	if docs.Get(key) != nil {
		return duplicate(c, idIndexName, idPattern, []value{id})
	}
	changes, err := c.changes(tx, key, nil, doc)
	if err != nil {
		return err
	}
	if err := docs.Put(key, doc); err != nil {
		return err
	}
	return s.apply(tx, c, key, changes)
}

func (s *store) replace(tx *bolt.Tx, c *collection, key []byte, old, new document) error {
	changes, err := c.changes(tx, key, old, new)
	if err != nil {
		return err
	}
	if err := tx.Bucket(c.documents()).Put(key, new); err != nil {
		return err
	}
	return s.apply(tx, c, key, changes)
}

func (s *store) remove(tx *bolt.Tx, c *collection, key []byte, old document) error {
	changes, err := c.changes(tx, key, old, nil)
	if err != nil {
		return err
	}
	if err := s.apply(tx, c, key, changes); err != nil {
		return err
	}
	return tx.Bucket(c.documents()).Delete(key)
}
