package minimongo

import (
	"bytes"
	"context"
	"errors"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

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
			u.filter, err = wantFilter(key, v)
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
