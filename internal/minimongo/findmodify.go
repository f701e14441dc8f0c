package minimongo

import (
	bolt "go.etcd.io/bbolt"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

type findAndModify struct {
	query
	coll                     string
	projection               *projection
	update                   *update
	remove, upsert, newValue bool
}

func parseFindAndModify(r *request) (*findAndModify, error) {
	coll, err := r.collection()
	if err != nil {
		return nil, err
	}
	f := &findAndModify{coll: coll}
	f.filter = matchAll
	err = r.each(func(key string, v value) (known bool, err error) {
		switch key {
		case "query":
			f.filter, err = wantFilter(key, v)
		case "sort":
			f.order, err = wantSort(key, v)
		case "fields":
			f.projection, err = wantProjection(key, v)
		case "update":
			f.update, err = parseUpdate(v)
		case "remove":
			f.remove, err = wantBool(key, v)
		case "upsert":
			f.upsert, err = wantBool(key, v)
		case "new":
			f.newValue, err = wantBool(key, v)
		case "hint":
			f.hint = &v
		case "bypassDocumentValidation":
		default:
			return false, nil
		}
		return true, err
	})
	switch {
	case err != nil:
	case f.remove == (f.update != nil):
		err = errorf(codeFailedToParse, "Either an update or remove=true must be specified, and not both")
	case f.remove && f.upsert:
		err = errorf(codeFailedToParse, "Cannot specify both upsert=true and remove=true")
	case f.remove && f.newValue:
		err = errorf(codeFailedToParse, "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document")
	}
	return f, err
}

func (s *Server) findAndModify(r *request, dst []byte) ([]byte, error) {
	f, err := parseFindAndModify(r)
	if err != nil {
		return nil, err
	}
	var answer []byte
	err = s.store.update(r.ctx, func(tx *bolt.Tx) (err error) {
		answer, err = s.runFindAndModify(r, tx, f)
		return err
	})
	return append(dst, answer...), err
}

func (s *Server) runFindAndModify(r *request, tx *bolt.Tx, f *findAndModify) ([]byte, error) {
	c, err := s.store.lookup(tx, r.db, f.coll)
	if err != nil {
		return nil, err
	}
	found, err := f.targets(r.ctx, tx, c, false)
	if err != nil {
		return nil, err
	}
	var shown document // nil: null
	last := bsoncore.NewDocumentBuilder()
	switch {
	case len(found) == 0 && f.upsert:
		doc, err := s.upsert(tx, r.db, f.coll, f.filter, f.update)
		if err != nil {
			return nil, during("findAndModify", err)
		}
		if f.newValue {
			shown = doc
		}
		id, _ := field(doc, "_id")
		last.AppendInt32("n", 1).AppendBoolean("updatedExisting", false).AppendValue("upserted", id)
	case len(found) == 0:
		last.AppendInt32("n", 0)
		if !f.remove {
			last.AppendBoolean("updatedExisting", false)
		}
	case f.remove:
		shown = found[0].doc
		if err := s.store.remove(tx, c, found[0].key, found[0].doc); err != nil {
			return nil, err
		}
		last.AppendInt32("n", 1)
	default:
		shown = found[0].doc
		changed, err := s.modify(tx, c, f.update, found[0])
		if err != nil {
			return nil, during("findAndModify", err)
		}
		if f.newValue && changed != nil {
			shown = changed
		}
		last.AppendInt32("n", 1).AppendBoolean("updatedExisting", true)
	}
	out := bsoncore.AppendDocumentElement(nil, "lastErrorObject", last.Build())
	if shown == nil {
		return bsoncore.AppendNullElement(out, "value"), nil
	}
	if f.projection != nil {
		shown = f.projection.appendTo(nil, shown)
	}
	return bsoncore.AppendDocumentElement(out, "value", shown), nil
}
