package minimongo

import (
	"bytes"
	"context"

	bolt "go.etcd.io/bbolt"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// A statement is one insert, update or delete of a command, run in the writer's transaction. An *Error from it has
// changed nothing, but that of a multi-document update, which ends it in the middle, as in MongoDB.
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
	m := p.read(tx, q.filter)
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
	src, err := sortAll(ctx, p.read(tx, q.filter), q.order)
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
			q.filter, err = wantFilter(key, v)
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
