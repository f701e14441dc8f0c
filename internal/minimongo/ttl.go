package minimongo

import (
	"context"
	"encoding/binary"
	"time"

	bolt "go.etcd.io/bbolt"
)

// sweepLoop deletes what TTL indexes say is over, and closes forgotten cursors.
func (s *Server) sweepLoop() {
	defer s.wg.Done()
	t := time.NewTicker(s.cfg.SweepEvery)
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
			s.cursors.expire(time.Now().Add(-cursorIdles))
			if _, err := s.Sweep(s.ctx); err != nil && s.ctx.Err() == nil {
				s.log.Error("minimongo: sweep of TTL indexes", "err", err)
			}
		}
	}
}

// sweepAtOnce is how many documents one sweep transaction deletes at most, so that it holds up nobody for long.
const sweepAtOnce = 1000

// Sweep deletes the documents whose time in a TTL index is over by the server's clock, and says how many
// these were. The server does this by itself every Config.SweepEvery.
func (s *Server) Sweep(ctx context.Context) (deleted int, err error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return 0, errClosing
	}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	type ttlIndex struct{ db, coll, name string }
	var all []ttlIndex
	err = s.store.view(func(tx *bolt.Tx) error {
		colls, err := s.store.collections(tx, "")
		for _, c := range colls {
			for _, ix := range c.indexes {
				if ix.ttl >= 0 {
					all = append(all, ttlIndex{c.db, c.name, ix.name})
				}
			}
		}
		return err
	})
	for _, t := range all {
		for n := sweepAtOnce; err == nil && n == sweepAtOnce; deleted += n {
			n = 0
			err = s.store.update(ctx, func(tx *bolt.Tx) error {
				c, err := s.store.lookup(tx, t.db, t.coll)
				if err != nil || c == nil {
					return err
				}
				n, err = s.sweepIndex(ctx, tx, c, t.name)
				return err
			})
		}
	}
	return deleted, err
}

func (s *Server) sweepIndex(ctx context.Context, tx *bolt.Tx, c *collection, name string) (deleted int, err error) {
	for _, ix := range c.indexes {
		if ix.name != name || ix.ttl < 0 {
			continue
		}
		// Only dates expire. Of an array the earliest counts, which is where the scan meets it first.
		before := s.cfg.Now().UnixMilli() - ix.ttl*1000
		limit := appendKey(nil, value{Type: tDate, Data: binary.LittleEndian.AppendUint64(nil, uint64(before))})
		spans := []span{{lo: limit[:1], hi: limit}}
		if ix.fields[0].descending {
			spans = invertSpans(spans)
		}
		m := &matching{scan: newScan(tx, &plan{coll: c, ix: ix, spans: spans}), filter: matchAll}
		var over []target
		for len(over) < sweepAtOnce {
			id, doc, err := m.nextMatch(ctx)
			if err != nil {
				return 0, err
			}
			if doc == nil {
				break
			}
			over = append(over, target{key: append([]byte(nil), id...), doc: doc})
		}
		for _, t := range over {
			if err := s.store.remove(tx, c, t.key, t.doc); err != nil {
				return 0, err
			}
		}
		return len(over), nil
	}
	return 0, nil
}

var matchAll, _ = parseFilter(emptyDocument)
