package minimongo

import (
	"bytes"
	"context"

	bolt "go.etcd.io/bbolt"
)

// A source gives documents one after the other; nil at the end. They lie in the memory of the transaction.
type source interface {
	next(ctx context.Context) (document, error)
}

// A scan reads the documents of a plan.
type scan struct {
	plan   *plan
	docs   *bolt.Bucket
	cur    *bolt.Cursor
	at     int // current span, counted in reading order
	inside bool
	ahead  entryAt             // reading forwards: what was found behind the last span
	seen   map[string]struct{} // ids that a multikey index has given already
	keys   int
}

type entryAt struct{ k, v []byte }

func newScan(tx *bolt.Tx, p *plan) *scan {
	s := &scan{plan: p, docs: tx.Bucket(p.coll.documents())}
	if p.ix == nil {
		s.cur = s.docs.Cursor()
	} else {
		s.cur = tx.Bucket(p.ix.bucket).Cursor()
		if p.ix.multikey {
			s.seen = map[string]struct{}{}
		}
	}
	return s
}

func (s *scan) nextKey() (k, v []byte) {
	spans := s.plan.spans
	for s.at < len(spans) {
		if s.plan.reverse {
			sp := spans[len(spans)-1-s.at]
			if !s.inside {
				k, v = s.seekBefore(sp.hi)
			} else {
				k, v = s.cur.Prev()
			}
			if k != nil && bytes.Compare(k, sp.lo) >= 0 {
				s.inside = true
				s.keys++
				return k, v
			}
		} else {
			sp := spans[s.at]
			if !s.inside {
				k, v = s.seek(sp)
			} else {
				k, v = s.cur.Next()
			}
			if k != nil && (sp.hi == nil || bytes.Compare(k, sp.hi) < 0) {
				s.inside = true
				s.keys++
				return k, v
			}
			s.ahead = entryAt{k, v}
		}
		s.at++
		s.inside = false
	}
	return nil, nil
}

// seek goes to the front of a span. Spans are in order, so where they lie close to each other, as the ids of a batch do, the
// entry behind the last one is in this one or behind it, and nothing has to be looked for.
func (s *scan) seek(sp span) (k, v []byte) {
	if len(sp.lo) == 0 {
		return s.cur.First()
	}
	if s.ahead.k != nil && bytes.Compare(s.ahead.k, sp.lo) >= 0 {
		return s.ahead.k, s.ahead.v
	}
	return s.cur.Seek(sp.lo)
}

func (s *scan) seekBefore(hi []byte) (k, v []byte) {
	if hi != nil {
		if k, _ := s.cur.Seek(hi); k != nil {
			return s.cur.Prev()
		}
	}
	return s.cur.Last()
}

// nextWithID gives the next document and its encoded _id.
func (s *scan) nextWithID() (id []byte, doc document) {
	for {
		k, v := s.nextKey()
		if k == nil {
			return nil, nil
		}
		if s.plan.ix == nil {
			return k, v
		}
		id := splitEntry(k, v)
		if s.seen != nil {
			if _, dup := s.seen[string(id)]; dup {
				continue
			}
			s.seen[string(id)] = struct{}{}
		}
		return id, s.docs.Get(id)
	}
}

// checkEvery is how many keys are read between two looks at the time limit of a command.
const checkEvery = 256

// matching gives the documents of a scan that a filter accepts.
type matching struct {
	*scan
	filter *filter
}

func (m *matching) next(ctx context.Context) (document, error) {
	_, doc, err := m.nextMatch(ctx)
	return doc, err
}

func (m *matching) nextMatch(ctx context.Context) (id []byte, doc document, err error) {
	for n := 0; ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return nil, nil, timeLimit(ctx)
		}
		id, doc := m.nextWithID()
		if doc == nil || m.filter.match(doc) {
			return id, doc, nil
		}
	}
}

func timeLimit(ctx context.Context) error {
	if context.Cause(ctx) == errClosing {
		return errorf(codeShutdown, "the server is closing")
	}
	return errorf(codeMaxTimeExpired, "operation exceeded time limit")
}

// window drops the first skip documents and ends after limit more; limit 0 is none.
type window struct {
	src         source
	skip, limit int64
}

func (w *window) next(ctx context.Context) (document, error) {
	for ; w.skip > 0; w.skip-- {
		if doc, err := w.src.next(ctx); doc == nil {
			return nil, err
		}
	}
	if w.limit < 0 {
		return nil, nil
	}
	doc, err := w.src.next(ctx)
	if w.limit > 0 {
		if w.limit--; w.limit == 0 {
			w.limit = -1
		}
	}
	return doc, err
}
