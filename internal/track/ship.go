package track

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Queue takes chunks to whoever counts them. EnqueueHits returns nil also where the id is waiting already; an archived or finished task of that id has to give
// way.
type Queue interface {
	EnqueueHits(ctx context.Context, id string, data []byte) error
}

// Ledger knows which chunks have been counted for good. Ids it says nothing about aren't done.
type Ledger interface {
	Done(ctx context.Context, ids []string) (map[string]bool, error)
}

// Limits of what Run has under way: chunks, and their bytes in the queue, which is a Redis that has other things to do.
const (
	maxUnderWay      = 1024
	maxBytesUnderWay = 8 << 20
	askAtOnce        = 256
	giveUp           = 3 // chunks that can't be shipped in one look: it isn't the chunk, it is the queue
	pollEvery        = time.Second
)

// shipState is what Run knows; it is used by one goroutine. All of it can be lost: chunks are on disk, and whether they were counted is in the ledger.
type shipState struct {
	chunks   []*underWay // by id, so oldest first
	bytes    int64       // of those that were shipped
	troubled bool        // the last step had an error, which was logged
}

type underWay struct {
	id      string
	size    int64
	ask     bool      // it may have been counted: shipped by us, or left by an earlier process
	shipped time.Time // by the real clock; zero: not by this process
}

// Run ships sealed chunks, ships those again that are missing after Resend, and deletes what is done. It returns nil when ctx ends; there
// may be one Run at a time.
func (s *Spool) Run(ctx context.Context, q Queue, l Ledger) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		s.report(s.step(ctx, q, l, time.Now()))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-s.sealed:
		}
	}
}

// report logs the first error of a row of them.
func (s *Spool) report(err error) {
	switch {
	case err == nil && s.ship.troubled:
		s.o.Log.Info("hits are shipped again")
	case err != nil && !s.ship.troubled && !errors.Is(err, context.Canceled):
		s.o.Log.Warn("hits can't be shipped now; they wait on disk", "dir", s.dir, "err", err)
	}
	s.ship.troubled = err != nil
}

// step does what is to be done now, in the order that makes room first.
func (s *Spool) step(ctx context.Context, q Queue, l Ledger, now time.Time) error {
	if err := s.fill(); err != nil {
		return err
	}
	s.putAside()
	return errors.Join(s.deleteDone(ctx, l), s.shipDue(ctx, q, now))
}

// fill takes the oldest chunks on disk under way, as many as there is room for.
func (s *Spool) fill() error {
	room := maxUnderWay - len(s.ship.chunks)
	if room <= 0 {
		return nil
	}
	known := make(map[string]bool, len(s.ship.chunks))
	for _, c := range s.ship.chunks {
		known[c.id] = true
	}
	var oldest []string // at most 2*room
	waiting := int64(0)
	err := eachName(s.dir, func(name string) error {
		id, ok := strings.CutSuffix(name, chunkSuffix)
		if !ok {
			return nil
		}
		waiting++
		if !known[id] {
			oldest = append(oldest, id)
		}
		if len(oldest) >= 2*room {
			slices.Sort(oldest)
			oldest = oldest[:room]
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.stats.waiting.Store(waiting)
	slices.Sort(oldest)
	for _, id := range oldest[:min(room, len(oldest))] {
		s.ship.chunks = append(s.ship.chunks, &underWay{id: id, ask: !s.ids.ours(id)})
	}
	slices.SortFunc(s.ship.chunks, func(a, b *underWay) int { return strings.Compare(a.id, b.id) })
	return nil
}

// putAside moves chunks that are too old, or no chunks, to stale/.
func (s *Spool) putAside() {
	maxAge := s.o.MaxAge()
	oldest := s.o.Clock.Now().Add(-maxAge)
	s.drop(func(c *underWay) bool {
		begun, err := ChunkTime(c.id)
		if err == nil && !begun.Before(oldest) {
			return false
		}
		path := filepath.Join(s.dir, c.id+chunkSuffix)
		if err := os.Rename(path, filepath.Join(s.dir, staleDir, c.id+chunkSuffix)); err != nil {
			s.o.Log.Error("a stale chunk of hits could not be moved", "chunk", c.id, "err", err)
			return false
		}
		s.stats.stale.Add(1)
		s.o.Log.Error("a chunk of hits is too old to be counted: whether it was can't be known any more; it was moved aside",
			"chunk", c.id, "begun", begun, "max_age", maxAge, "dir", filepath.Join(s.dir, staleDir))
		return true
	})
}

// drop takes chunks that gone says are gone off the list.
func (s *Spool) drop(gone func(*underWay) bool) {
	s.ship.chunks = slices.DeleteFunc(s.ship.chunks, func(c *underWay) bool {
		if !gone(c) {
			return false
		}
		if !c.shipped.IsZero() {
			s.ship.bytes -= c.size
		}
		return true
	})
}

func (s *Spool) deleteDone(ctx context.Context, l Ledger) error {
	var ids []string
	for _, c := range s.ship.chunks {
		if c.ask {
			ids = append(ids, c.id)
		}
	}
	for part := range slices.Chunk(ids, askAtOnce) {
		done, err := l.Done(ctx, part)
		if err != nil {
			return err
		}
		s.drop(func(c *underWay) bool {
			if !c.ask || !done[c.id] {
				return false
			}
			if err := os.Remove(filepath.Join(s.dir, c.id+chunkSuffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
				s.o.Log.Error("a counted chunk of hits could not be deleted", "chunk", c.id, "err", err)
				return false
			}
			s.stats.counted.Add(1)
			return true
		})
	}
	// What an earlier process left, and the ledger doesn't know, has been asked about; from here on it is as our own.
	for _, c := range s.ship.chunks {
		c.ask = c.ask && !c.shipped.IsZero()
	}
	return nil
}

func (s *Spool) shipDue(ctx context.Context, q Queue, now time.Time) error {
	var failed []error
	gone := map[*underWay]bool{}
	defer s.drop(func(c *underWay) bool { return gone[c] })
	for _, c := range s.ship.chunks {
		again := !c.shipped.IsZero()
		if c.ask && !again || again && now.Sub(c.shipped) < s.o.Resend {
			continue // the ledger has to answer first, or it is on its way
		}
		if !again && s.ship.bytes >= maxBytesUnderWay {
			continue
		}
		data, err := os.ReadFile(filepath.Join(s.dir, c.id+chunkSuffix))
		if errors.Is(err, os.ErrNotExist) {
			s.o.Log.Error("a chunk of hits is gone from the disk", "chunk", c.id, "dir", s.dir, "shipped", again)
			gone[c] = true
			continue
		}
		if err == nil {
			err = q.EnqueueHits(ctx, c.id, data)
		}
		if err != nil {
			if failed = append(failed, fmt.Errorf("chunk %s: %w", c.id, err)); len(failed) == giveUp || ctx.Err() != nil {
				break
			}
			continue
		}
		if !again {
			c.size = int64(len(data))
			s.ship.bytes += c.size
		}
		c.shipped, c.ask = now, true
		s.stats.shipped.Add(1)
	}
	return errors.Join(failed...)
}

// counters are those of Stats.
type counters struct {
	appended, failed, writes, sealed, shipped, counted, stale, waiting atomic.Int64
}

// Stats are counts since OpenSpool, and how many sealed chunks lie on disk as of Run's last look.
type Stats struct {
	Appended, Failed                int64 // hits
	Writes                          int64
	Sealed, Shipped, Counted, Stale int64 // chunks; Shipped counts each time
	Waiting                         int64
}

// Stats is for metrics.
func (s *Spool) Stats() Stats {
	c := &s.stats
	return Stats{
		Appended: c.appended.Load(), Failed: c.failed.Load(), Writes: c.writes.Load(), Sealed: c.sealed.Load(),
		Shipped: c.shipped.Load(), Counted: c.counted.Load(), Stale: c.stale.Load(), Waiting: c.waiting.Load(),
	}
}
