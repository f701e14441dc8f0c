package minimongo

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

const (
	firstBatch  = 101
	maxBatch    = 16 << 20 // bytes of documents in one answer
	cursorIdles = 10 * time.Minute
)

// A cursor reads from the snapshot that its query began with.
type cursor struct {
	id        int64
	namespace string
	mu        sync.Mutex // one getMore at a time
	tx        *bolt.Tx
	src       source
	peeked    document
	used      time.Time
	closed    bool

	projection *projection // nil: documents are shown whole
}

func (c *cursor) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		c.tx.Rollback()
	}
}

// batch appends an array of up to n documents; more says whether there is another behind them.
func (c *cursor) batch(ctx context.Context, dst []byte, name string, n int64) (out []byte, more bool, err error) {
	at, dst := bsoncore.AppendArrayElementStart(dst, name)
	start := len(dst)
	for i := int64(0); ; i++ {
		if c.peeked == nil {
			if c.peeked, err = c.src.next(ctx); err != nil {
				return nil, false, err
			}
		}
		before := len(dst)
		if more = c.peeked != nil && i < n; more {
			dst = c.appendShown(dst, int(i))
			more = i == 0 || len(dst)-start <= maxBatch
		}
		if !more {
			dst, _ = bsoncore.AppendArrayEnd(dst[:before], at)
			return dst, c.peeked != nil, nil
		}
		c.peeked = nil
	}
}

// appendShown appends what the query shows of the document at hand, as the element at a position of an array.
func (c *cursor) appendShown(dst []byte, i int) []byte {
	dst = appendPosition(dst, tDocument, i)
	if c.projection == nil {
		return append(dst, c.peeked...)
	}
	return c.projection.appendTo(dst, c.peeked)
}

type cursors struct {
	mu   sync.Mutex
	open map[int64]*cursor
}

func (cs *cursors) add(c *cursor) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c.id == 0 || cs.open[c.id] != nil {
		c.id = rand.Int64N(math.MaxInt64)
	}
	cs.open[c.id] = c
}

func (cs *cursors) get(id int64) *cursor {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.open[id]
}

func (cs *cursors) kill(id int64) bool {
	cs.mu.Lock()
	c := cs.open[id]
	delete(cs.open, id)
	cs.mu.Unlock()
	if c != nil {
		c.close()
	}
	return c != nil
}

// expire closes the cursors that nobody has used since a point in time.
func (cs *cursors) expire(before time.Time) {
	cs.mu.Lock()
	var old []int64
	for id, c := range cs.open {
		if c.mu.TryLock() {
			if c.used.Before(before) {
				old = append(old, id)
			}
			c.mu.Unlock()
		}
	}
	cs.mu.Unlock()
	for _, id := range old {
		cs.kill(id)
	}
}

// answer writes {cursor: {…}} with the first batch and keeps the cursor if there is more to come.
func (s *Server) answer(r *request, dst []byte, c *cursor, batchSize int64, single bool) ([]byte, error) {
	at, dst := bsoncore.AppendDocumentElementStart(dst, "cursor")
	dst, more, err := c.batch(r.ctx, dst, "firstBatch", batchSize)
	if err != nil || !more || single {
		c.close()
		if err != nil {
			return nil, err
		}
	} else {
		c.used = time.Now()
		s.cursors.add(c)
	}
	dst = bsoncore.AppendInt64Element(dst, "id", c.id)
	dst = bsoncore.AppendStringElement(dst, "ns", c.namespace)
	dst, _ = bsoncore.AppendDocumentEnd(dst, at)
	return dst, nil
}

// reply answers with documents at hand, in one batch.
func (s *Server) replyList(r *request, dst []byte, namespace string, docs []document) ([]byte, error) {
	at, dst := bsoncore.AppendDocumentElementStart(dst, "cursor")
	list := slice(docs)
	dst, _, err := (&cursor{src: &list}).batch(r.ctx, dst, "firstBatch", math.MaxInt64)
	dst = bsoncore.AppendInt64Element(dst, "id", 0)
	dst = bsoncore.AppendStringElement(dst, "ns", namespace)
	dst, _ = bsoncore.AppendDocumentEnd(dst, at)
	return dst, err
}

func (s *Server) getMore(r *request, dst []byte) ([]byte, error) {
	id := int64(0)
	coll, size := "", int64(math.MaxInt64)
	it := elementsOf(r.body)
	if _, v, _ := it.next(); v.Type == tInt64 {
		id = i64(v)
	}
	err := r.each(func(key string, v value) (known bool, err error) {
		switch key {
		case "collection":
			coll, err = wantString(key, v)
		case "batchSize":
			if size, err = wantCount(key, v); size == 0 {
				size = math.MaxInt64
			}
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return nil, err
	}
	c := s.cursors.get(id)
	if c == nil {
		return nil, errorf(codeCursorNotFound, "cursor id %d not found", id)
	}
	if c.namespace != r.db+"."+coll {
		return nil, errorf(13, "Requested getMore on namespace '%s.%s', but cursor belongs to a different namespace %s", r.db, coll, c.namespace)
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errorf(codeCursorNotFound, "cursor id %d not found", id)
	}
	at, dst := bsoncore.AppendDocumentElementStart(dst, "cursor")
	dst, more, err := c.batch(r.ctx, dst, "nextBatch", size)
	c.used = time.Now()
	c.mu.Unlock()
	if err != nil || !more {
		s.cursors.kill(id)
		id = 0
	}
	if err != nil {
		return nil, err
	}
	dst = bsoncore.AppendInt64Element(dst, "id", id)
	dst = bsoncore.AppendStringElement(dst, "ns", c.namespace)
	dst, _ = bsoncore.AppendDocumentEnd(dst, at)
	return dst, nil
}

func (s *Server) killCursors(r *request, dst []byte) ([]byte, error) {
	var killed, missing []value
	err := r.each(func(key string, v value) (bool, error) {
		if key != "cursors" || v.Type != tArray {
			return false, nil
		}
		for _, e := range values(v) {
			if id, ok := integer(e); ok && s.cursors.kill(id) {
				killed = append(killed, e)
			} else {
				missing = append(missing, e)
			}
		}
		return true, nil
	})
	for _, part := range []struct {
		name string
		ids  []value
	}{{"cursorsKilled", killed}, {"cursorsNotFound", missing}, {"cursorsAlive", nil}, {"cursorsUnknown", nil}} {
		dst = bsoncore.BuildArrayElement(dst, part.name, part.ids...)
	}
	return dst, err
}
