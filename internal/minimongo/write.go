package minimongo

import (
	"bytes"
	"context"
	"errors"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// A statement is one insert, update or delete of a command. run does it in the writer's transaction; an
// *Error from it has changed nothing.
type statement func(ctx context.Context, tx *bolt.Tx, out *results) error

// results are what a write command answers with.
type results struct {
	n, modified int32
	upserted    []byte // elements of the array
	upserts     int
	errors      []byte
	failed      int
	at          int // the statement that is running
}

func (res *results) fail(err *Error) {
	e := bsoncore.AppendInt32Element(nil, "index", int32(res.at))
	res.errors = appendDocument(res.errors, res.failed, err.appendFields(e, "errmsg"))
	res.failed++
}

func (res *results) addUpserted(id value) {
	e := bsoncore.AppendInt32Element(nil, "index", int32(res.at))
	res.upserted = appendDocument(res.upserted, res.upserts, appendElement(e, []byte("_id"), id))
	res.upserts++
}

func appendDocument(dst []byte, i int, elements []byte) []byte {
	dst = appendHeader(dst, tDocument, arrayKey(i))
	return bsoncore.BuildDocument(dst, elements)
}

// bulkAtOnce is how many statements of a bulk go into one commit, so that a long one lets others in between,
// and because the time for one commit grows faster than its size.
const bulkAtOnce = 1000

// bulk runs the statements of a command. An ordered bulk ends with its first error, an unordered one goes on.
func (s *Server) bulk(r *request, ordered bool, statements []statement) (*results, error) {
	res := &results{}
	for from := 0; from < len(statements) && (res.failed == 0 || !ordered); from += bulkAtOnce {
		chunk := statements[from:min(from+bulkAtOnce, len(statements))]
		err := s.store.update(r.ctx, func(tx *bolt.Tx) error {
			for i, run := range chunk {
				res.at = from + i
				if err := run(r.ctx, tx, res); err != nil {
					e := asError(err)
					if e.Code == codeInternalError {
						return err
					}
					if res.fail(e); ordered {
						break
					}
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return res, nil
}

func (res *results) appendTo(dst []byte) []byte {
	dst = bsoncore.AppendInt32Element(dst, "n", res.n)
	if res.upserts > 0 {
		dst = bsoncore.BuildArrayElement(dst, "upserted")
		dst = replaceArray(dst, res.upserted)
	}
	if res.failed > 0 {
		dst = bsoncore.BuildArrayElement(dst, "writeErrors")
		dst = replaceArray(dst, res.errors)
	}
	return dst
}

// replaceArray fills the empty array at the end of dst.
func replaceArray(dst, elements []byte) []byte {
	return bsoncore.BuildDocument(dst[:len(dst)-5], elements)
}

// statements parses the entries of a write command with parse. What is wrong with one is its own error.
func (r *request) statements(key string, parse func(document) (statement, error)) (list []statement, ordered bool, err error) {
	ordered, given := true, false
	err = r.each(func(k string, v value) (known bool, err error) {
		switch k {
		case key:
			var docs []document
			if docs, err = r.list(key, v); err != nil {
				return true, err
			}
			for _, doc := range docs {
				st, err := parse(doc)
				if err != nil {
					st = func(context.Context, *bolt.Tx, *results) error { return err }
				}
				list = append(list, st)
			}
			given = true
		case "ordered":
			ordered, err = wantBool(k, v)
		case "bypassDocumentValidation":
		default:
			return false, nil
		}
		return true, err
	})
	if err == nil && !given {
		err = errorf(40414, "BSON field '%s.%s' is missing but a required field", r.name, key)
	}
	if err == nil && (len(list) == 0 || len(list) > 100_000) {
		err = errorf(16, "Write batch sizes must be between 1 and 100000. Got %d operations.", len(list))
	}
	return list, ordered, err
}

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

// A target is a document that a write has selected. Its key is a copy; the document lies in the transaction's
// memory, which later writes of the transaction leave alone.
type target struct {
	key []byte
	doc document
}

// targets selects all documents (or the first) before any is changed, so that a change cannot move one into the way of the scan.
func (q *query) targets(ctx context.Context, tx *bolt.Tx, c *collection, multi bool) ([]target, error) {
	if c == nil {
		return nil, nil
	}
	p, err := c.choose(tx, q.filter, q.order, q.hint)
	if err != nil {
		return nil, err
	}
	if len(q.order) > 0 && !p.sorted {
		return q.firstSorted(ctx, tx, p)
	}
	var out []target
	m := &matching{scan: newScan(tx, p), filter: q.filter}
	for {
		id, doc, err := m.nextMatch(ctx)
		if err != nil || doc == nil {
			return out, err
		}
		out = append(out, target{key: bytes.Clone(id), doc: doc})
		if !multi {
			return out, nil
		}
	}
}

func (q *query) firstSorted(ctx context.Context, tx *bolt.Tx, p *plan) ([]target, error) {
	src, err := sortAll(ctx, &matching{scan: newScan(tx, p), filter: q.filter}, q.order)
	if err != nil {
		return nil, err
	}
	doc, err := src.next(ctx)
	if doc == nil {
		return nil, err
	}
	id, _ := field(doc, "_id")
	return []target{{key: appendKey(nil, id), doc: doc}}, nil
}

type updateStatement struct {
	query
	update        *update
	multi, upsert bool
}

func (s *Server) update(r *request, dst []byte) ([]byte, error) {
	coll, err := r.collection()
	if err != nil {
		return nil, err
	}
	list, ordered, err := r.statements("updates", func(doc document) (statement, error) {
		u, err := parseUpdateStatement(doc)
		return func(ctx context.Context, tx *bolt.Tx, res *results) error {
			return s.runUpdate(ctx, tx, r.db, coll, u, res)
		}, err
	})
	if err != nil {
		return nil, err
	}
	res, err := s.bulk(r, ordered, list)
	if err != nil {
		return nil, err
	}
	return bsoncore.AppendInt32Element(res.appendTo(dst), "nModified", res.modified), nil
}

func parseUpdateStatement(doc document) (*updateStatement, error) {
	u := &updateStatement{}
	for it := elementsOf(doc); ; {
		k, v, ok := it.next()
		if !ok {
			break
		}
		var err error
		switch key := string(k); key {
		case "q":
			var q document
			if q, err = wantDocument(key, v); err == nil {
				u.filter, err = parseFilter(q)
			}
		case "u":
			u.update, err = parseUpdate(v)
		case "multi":
			u.multi, err = wantBool(key, v)
		case "upsert":
			u.upsert, err = wantBool(key, v)
		case "hint":
			u.hint = &v
		default:
			err = errorf(codeUnknownField, "BSON field 'update.updates.%s' is an unknown field (or one that minimongo does not have).", key)
		}
		if err != nil {
			return nil, err
		}
	}
	if u.filter == nil || u.update == nil {
		return nil, errorf(40414, "BSON field 'update.updates' needs q and u")
	}
	if u.multi && u.update.replacement != nil {
		return nil, errorf(codeFailedToParse, "multi update is not supported for replacement-style update")
	}
	return u, nil
}

func (s *Server) runUpdate(ctx context.Context, tx *bolt.Tx, db, coll string, u *updateStatement, res *results) error {
	c, err := s.store.lookup(tx, db, coll)
	if err != nil {
		return err
	}
	found, err := u.targets(ctx, tx, c, u.multi)
	if err != nil {
		return err
	}
	for _, t := range found {
		changed, err := s.modify(tx, c, u.update, t)
		if err != nil {
			return during("update", err)
		}
		res.n++
		if changed != nil {
			res.modified++
		}
	}
	if len(found) > 0 || !u.upsert {
		return nil
	}
	doc, err := s.upsert(tx, db, coll, u.filter, u.update)
	if err != nil {
		return during("update", err)
	}
	id, _ := field(doc, "_id")
	res.n++
	res.addUpserted(id)
	return nil
}

// during says as MongoDB does that the update failed on a document, not in itself.
func during(command string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	wrapped := *e
	wrapped.Message = "Plan executor error during " + command + " :: caused by :: " + e.Message
	return &wrapped
}

// modify updates one document; nil if the update leaves it as it is.
func (s *Server) modify(tx *bolt.Tx, c *collection, u *update, t target) (document, error) {
	doc, err := u.apply(t.doc, false)
	if err != nil || bytes.Equal(doc, t.doc) {
		return nil, err
	}
	return doc, s.store.replace(tx, c, t.key, t.doc, doc)
}

// upsert inserts what the filter's equalities and the update make.
func (s *Server) upsert(tx *bolt.Tx, db, coll string, f *filter, u *update) (document, error) {
	seed, err := f.seed(u.replacement != nil)
	if err != nil {
		return nil, err
	}
	doc, err := u.apply(seed, true)
	if err != nil {
		return nil, err
	}
	if doc, err = prepareInsert(doc); err != nil {
		return nil, err
	}
	c, err := s.store.ensure(tx, db, coll)
	if err != nil {
		return nil, err
	}
	return doc, s.store.insert(tx, c, doc)
}

// seed is the document that a filter's equalities describe; of a replacement only the _id counts.
func (f *filter) seed(idOnly bool) (document, error) {
	t := &tree{}
	var seen []*predicate
	for _, p := range f.conjuncts {
		if idOnly && p.path != "_id" {
			continue
		}
		if p.op == "$in" && len(p.args) == 1 {
			// MongoDB may turn this into an equality before it looks.
			return nil, errorf(codeBadValue, "minimongo takes no $in of one value in an upsert, say {%s: value} instead", p.path)
		}
		if p.op != "$eq" {
			continue
		}
		for _, q := range seen {
			if n := min(len(p.parts), len(q.parts)); slices.Equal(p.parts[:n], q.parts[:n]) {
				return nil, errorf(54, "cannot infer query fields to set, both paths '%s' and '%s' are matched", p.path, q.path)
			}
		}
		seen = append(seen, p)
		slot, err := t.make(p.parts)
		if err != nil {
			return nil, err
		}
		slot.set(p.args[0])
	}
	return t.appendTo(nil), nil
}

func (s *Server) delete(r *request, dst []byte) ([]byte, error) {
	coll, err := r.collection()
	if err != nil {
		return nil, err
	}
	list, ordered, err := r.statements("deletes", func(doc document) (statement, error) {
		q, multi, err := parseDelete(doc)
		return func(ctx context.Context, tx *bolt.Tx, res *results) error {
			c, err := s.store.lookup(tx, r.db, coll)
			if err != nil {
				return err
			}
			found, err := q.targets(ctx, tx, c, multi)
			if err != nil {
				return err
			}
			for _, t := range found {
				if err := s.store.remove(tx, c, t.key, t.doc); err != nil {
					return err
				}
				res.n++
			}
			return nil
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

func parseDelete(doc document) (q *query, multi bool, err error) {
	q = &query{}
	limited := false
	for it := elementsOf(doc); ; {
		k, v, ok := it.next()
		if !ok {
			break
		}
		switch key := string(k); key {
		case "q":
			var d document
			if d, err = wantDocument(key, v); err == nil {
				q.filter, err = parseFilter(d)
			}
		case "limit":
			n, ok := integer(v)
			if !ok || n != 0 && n != 1 {
				err = errorf(codeFailedToParse, "The limit field in delete objects must be 0 or 1. Got %s", shell(v))
			}
			multi, limited = n == 0, true
		case "hint":
			q.hint = &v
		default:
			err = errorf(codeUnknownField, "BSON field 'delete.deletes.%s' is an unknown field (or one that minimongo does not have).", key)
		}
		if err != nil {
			return nil, false, err
		}
	}
	if q.filter == nil || !limited {
		return nil, false, errorf(40414, "BSON field 'delete.deletes' needs q and limit")
	}
	return q, multi, nil
}
