package minimongo

import (
	"context"

	bolt "go.etcd.io/bbolt"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// A query is what find, the front of an aggregate and the write commands select documents with.
type query struct {
	filter      *filter
	order       []sortField
	hint        *value
	skip, limit int64
}

// open plans the query and sets up the sources behind each other. The scan is nil if there is no collection.
func (q *query) open(ctx context.Context, tx *bolt.Tx, c *collection) (source, *matching, error) {
	if c == nil {
		return &slice{}, nil, nil
	}
	p, err := c.choose(tx, q.filter, q.order, q.hint)
	if err != nil {
		return nil, nil, err
	}
	m := p.read(tx, q.filter)
	var src source = m
	if len(q.order) > 0 && !p.sorted {
		if src, err = sortAll(ctx, src, q.order); err != nil {
			return nil, nil, err
		}
	}
	if q.skip > 0 || q.limit > 0 {
		src = &window{src: src, skip: q.skip, limit: q.limit}
	}
	return src, m, nil
}

type findCommand struct {
	query
	coll       string
	projection *projection
	batchSize  int64
	single     bool
}

func parseFind(r *request) (*findCommand, error) {
	coll, err := r.collection()
	if err != nil {
		return nil, err
	}
	f := &findCommand{coll: coll, batchSize: firstBatch}
	f.filter = matchAll
	err = r.each(func(key string, v value) (known bool, err error) {
		switch key {
		case "filter":
			f.filter, err = wantFilter(key, v)
		case "sort":
			f.order, err = wantSort(key, v)
		case "projection":
			f.projection, err = wantProjection(key, v)
		case "hint":
			f.hint = &v
		case "skip":
			f.skip, err = wantCount(key, v)
		case "limit":
			f.limit, err = wantCount(key, v)
		case "batchSize":
			f.batchSize, err = wantCount(key, v)
		case "singleBatch":
			f.single, err = wantBool(key, v)
		case "allowDiskUse": // sorts are in memory in any case
		default:
			return false, nil
		}
		return true, err
	})
	return f, err
}

func (s *Server) find(r *request, dst []byte) ([]byte, error) {
	f, err := parseFind(r)
	if err != nil {
		return nil, err
	}
	tx, err := s.store.db.Begin(false)
	if err != nil {
		return nil, err
	}
	c, err := s.store.lookup(tx, r.db, f.coll)
	if err == nil {
		var src source
		if src, _, err = f.open(r.ctx, tx, c); err == nil {
			return s.answer(r, dst, &cursor{namespace: r.db + "." + f.coll, tx: tx, src: src, projection: f.projection}, f.batchSize, f.single)
		}
	}
	tx.Rollback()
	return nil, err
}

// explain runs a find to its end and tells how: which index, and how many keys and documents were read.
func (s *Server) explain(r *request, dst []byte) ([]byte, error) {
	it := elementsOf(r.body)
	_, inner, _ := it.next()
	if inner.Type != tDocument {
		return nil, errorf(codeTypeMismatch, "explain needs a command to explain")
	}
	first := elementsOf(inner.Data)
	if k, _, _ := first.next(); string(k) != "find" {
		return nil, errorf(codeBadValue, "minimongo explains find only, not %s", k)
	}
	err := r.each(func(key string, v value) (bool, error) { return key == "verbosity", nil })
	if err != nil {
		return nil, err
	}
	f, err := parseFind(&request{ctx: r.ctx, name: "find", db: r.db, body: inner.Data})
	if err != nil {
		return nil, err
	}
	err = s.store.view(func(tx *bolt.Tx) error {
		c, err := s.store.lookup(tx, r.db, f.coll)
		if err != nil {
			return err
		}
		src, m, err := f.open(r.ctx, tx, c)
		if err != nil {
			return err
		}
		n := int32(0)
		for {
			doc, err := src.next(r.ctx)
			if err != nil {
				return err
			}
			if doc == nil {
				break
			}
			n++
		}
		dst = appendExplain(dst, r.db+"."+f.coll, m, n, len(f.order) > 0)
		return nil
	})
	return dst, err
}

func appendExplain(dst []byte, namespace string, m *matching, returned int32, ordered bool) []byte {
	stage, name, keys, docs := "EOF", "", 0, 0
	pattern := document(nil)
	if m != nil {
		stage, keys, docs = m.plan.stage(), m.keys, m.keys
		if ordered = ordered && !m.plan.sorted; stage == "COLLSCAN" {
			keys = 0
		} else if name, pattern = idIndexName, idPattern; m.plan.ix != nil {
			name, pattern = m.plan.ix.name, m.plan.ix.pattern
		}
	}
	scan := bsoncore.NewDocumentBuilder().AppendString("stage", stage)
	if name != "" {
		scan.AppendString("indexName", name).AppendDocument("keyPattern", pattern)
	}
	winning := scan.Build()
	if ordered {
		winning = bsoncore.NewDocumentBuilder().AppendString("stage", "SORT").AppendDocument("inputStage", winning).Build()
	}
	dst = bsoncore.AppendDocumentElement(dst, "queryPlanner", bsoncore.NewDocumentBuilder().
		AppendString("namespace", namespace).AppendDocument("winningPlan", winning).Build())
	return bsoncore.AppendDocumentElement(dst, "executionStats", bsoncore.NewDocumentBuilder().
		AppendBoolean("executionSuccess", true).AppendInt32("nReturned", returned).
		AppendInt32("totalKeysExamined", int32(keys)).AppendInt32("totalDocsExamined", int32(docs)).Build())
}
