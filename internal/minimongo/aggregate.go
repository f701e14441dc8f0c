package minimongo

import (
	"context"
	"strings"

	bolt "go.etcd.io/bbolt"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// A stage puts itself behind a source.
type stage func(ctx context.Context, src source) (source, error)

// pipeline is a compiled aggregate: leading $match and $sort stages are left to the query, which can use
// an index for them.
type pipeline struct {
	query
	coll      string
	batchSize int64
	stages    []stage
}

func parseAggregate(r *request) (*pipeline, error) {
	coll, err := r.collection()
	if err != nil {
		return nil, err
	}
	p := &pipeline{coll: coll, batchSize: firstBatch}
	p.filter = matchAll
	var stages []document
	err = r.each(func(key string, v value) (known bool, err error) {
		switch key {
		case "pipeline":
			stages, err = r.list(key, v)
		case "cursor":
			if v.Type != tDocument {
				return true, errorf(codeTypeMismatch, "cursor field must be missing or an object")
			}
			if size, ok := field(v.Data, "batchSize"); ok {
				p.batchSize, err = wantCount("cursor.batchSize", size)
			}
		case "hint":
			p.hint = &v
		case "allowDiskUse":
		default:
			return false, nil
		}
		return true, err
	})
	if err == nil {
		err = p.compile(stages)
	}
	return p, err
}

func (p *pipeline) compile(stages []document) error {
	var matches []value
	front := true
	for _, doc := range stages {
		it := elementsOf(doc)
		k, arg, ok := it.next()
		if _, _, more := it.next(); !ok || more {
			return errorf(40323, "A pipeline stage specification object must contain exactly one field.")
		}
		name := string(k)
		switch {
		case front && name == "$match" && arg.Type == tDocument && p.order == nil:
			matches = append(matches, arg)
			continue
		case front && name == "$sort" && arg.Type == tDocument && p.order == nil:
			order, err := parseSort(arg.Data)
			if err != nil {
				return err
			}
			p.order = order
			continue
		}
		front = false
		st, err := parseStage(name, arg)
		if err != nil {
			return err
		}
		p.stages = append(p.stages, st)
	}
	if matches == nil {
		return nil
	}
	f, err := parseFilter(matches[0].Data)
	if len(matches) > 1 {
		f, err = parseFilter(bsoncore.BuildDocument(nil, bsoncore.BuildArrayElement(nil, "$and", matches...)))
	}
	p.filter = f
	return err
}

func parseStage(name string, arg value) (stage, error) {
	switch name {
	case "$match":
		if arg.Type != tDocument {
			return nil, errorf(15959, "the match filter must be an expression in an object")
		}
		f, err := parseFilter(arg.Data)
		return func(_ context.Context, src source) (source, error) { return &filtered{src, f}, nil }, err
	case "$sort":
		if arg.Type != tDocument {
			return nil, errorf(15973, "the $sort key specification must be an object")
		}
		order, err := parseSort(arg.Data)
		return func(ctx context.Context, src source) (source, error) { return sortAll(ctx, src, order) }, err
	case "$skip":
		n, ok := integer(arg)
		if !ok || n < 0 {
			return nil, errorf(5107200, "invalid argument to $skip stage: %s", shell(arg))
		}
		return func(_ context.Context, src source) (source, error) { return &window{src: src, skip: n}, nil }, nil
	case "$limit":
		n, ok := integer(arg)
		if !ok || n <= 0 {
			return nil, errorf(15958, "the limit must be positive, not %s", shell(arg))
		}
		return func(_ context.Context, src source) (source, error) { return &window{src: src, limit: n}, nil }, nil
	case "$count":
		if arg.Type != tString || len(str(arg)) == 0 || strings.ContainsAny(string(str(arg)), ".$\x00") {
			return nil, errorf(40156, "the count field must be a non-empty string without '.' and '$'")
		}
		return countStage(string(str(arg))), nil
	case "$group":
		g, err := parseGroup(arg)
		if err != nil {
			return nil, err
		}
		return g.run, nil
	}
	return nil, errorf(codeUnknownStage, "Unrecognized pipeline stage name: '%s'. minimongo has $match, $group, $sort, $skip, $limit and $count", name)
}

type filtered struct {
	src    source
	filter *filter
}

func (f *filtered) next(ctx context.Context) (document, error) {
	for {
		doc, err := f.src.next(ctx)
		if doc == nil || f.filter.match(doc) {
			return doc, err
		}
	}
}

func countStage(name string) stage {
	return func(ctx context.Context, src source) (source, error) {
		n := int64(0)
		for {
			doc, err := src.next(ctx)
			if err != nil {
				return nil, err
			}
			if doc == nil {
				break
			}
			n++
		}
		if n == 0 {
			return &slice{}, nil
		}
		return &slice{bsoncore.BuildDocument(nil, bsoncore.AppendValueElement(nil, name, smallest(n)))}, nil
	}
}

// smallest is an int32 where that is enough.
func smallest(n int64) value {
	if n == int64(int32(n)) {
		return int32Value(int32(n))
	}
	return int64Value(n)
}

func (s *Server) aggregate(r *request, dst []byte) ([]byte, error) {
	p, err := parseAggregate(r)
	if err != nil {
		return nil, err
	}
	if _, ok := field(r.body, "cursor"); !ok {
		return nil, errorf(codeFailedToParse, "The 'cursor' option is required, except for aggregate with the explain argument")
	}
	tx, err := s.store.db.Begin(false)
	if err != nil {
		return nil, err
	}
	src, err := s.openPipeline(r, tx, p)
	if err != nil {
		tx.Rollback()
		return nil, err
	}
	return s.answer(r, dst, &cursor{namespace: r.db + "." + p.coll, tx: tx, src: src}, p.batchSize, false)
}

func (s *Server) openPipeline(r *request, tx *bolt.Tx, p *pipeline) (source, error) {
	c, err := s.store.lookup(tx, r.db, p.coll)
	if err != nil {
		return nil, err
	}
	src, _, err := p.open(r.ctx, tx, c)
	for _, st := range p.stages {
		if err == nil {
			src, err = st(r.ctx, src)
		}
	}
	return src, err
}

// count is the command behind EstimatedDocumentCount.
func (s *Server) count(r *request, dst []byte) ([]byte, error) {
	coll, err := r.collection()
	if err != nil {
		return nil, err
	}
	q := &query{}
	q.filter = matchAll
	err = r.each(func(key string, v value) (known bool, err error) {
		switch key {
		case "query":
			q.filter, err = wantFilter(key, v)
		case "limit":
			q.limit, err = wantCount(key, v)
		case "skip":
			q.skip, err = wantCount(key, v)
		case "hint":
			q.hint = &v
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return nil, err
	}
	n := int64(0)
	err = s.store.view(func(tx *bolt.Tx) error {
		c, err := s.store.lookup(tx, r.db, coll)
		if err != nil {
			return err
		}
		src, _, err := q.open(r.ctx, tx, c)
		for err == nil {
			var doc document
			if doc, err = src.next(r.ctx); doc == nil {
				break
			}
			n++
		}
		return err
	})
	return bsoncore.AppendValueElement(dst, "n", smallest(n)), err
}
