package minimongo

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// On disk: the bucket "catalog" describes each collection under "db\x00name". A collection has a bucket
// of documents under their encoded _id, and for each index a bucket with the encoded fields and the
// encoded _id as key, and the length of the latter (2 bytes) as value.
var catalogBucket = []byte("catalog")

// commitAfter is how long a commit takes in more of the writes that are waiting.
const commitAfter = 20 * time.Millisecond

type store struct {
	db     *bolt.DB
	log    *slog.Logger
	tmp    string // the folder of a store in memory
	queue  chan *job
	done   chan struct{}
	mu     sync.Mutex
	parsed map[string]parsedEntry
}

type parsedEntry struct {
	raw  []byte
	coll *collection
}

// A job is one write command. It runs in the writer's transaction, alone; its effects are there for
// good once run returns nil or an *Error, so it checks everything before it changes anything.
type job struct {
	ctx  context.Context
	run  func(tx *bolt.Tx) error
	done chan error
}

func openStore(dir string, noSync bool, log *slog.Logger) (*store, error) {
	s := &store{log: log, queue: make(chan *job, 256), done: make(chan struct{}), parsed: map[string]parsedEntry{}}
	opts := &bolt.Options{
		Timeout: time.Second, InitialMmapSize: mapSize(), FreelistType: bolt.FreelistMapType,
		NoFreelistSync: true, NoSync: noSync, NoGrowSync: noSync, NoStatistics: true,
	}
	if dir == "" {
		tmp, err := os.MkdirTemp("", "minimongo-")
		if err != nil {
			return nil, fmt.Errorf("minimongo: folder for a store in memory: %w", err)
		}
		s.tmp, dir = tmp, tmp
		opts.NoSync, opts.NoGrowSync = true, true
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("minimongo: data folder: %w", err)
	}
	file := filepath.Join(dir, "minimongo.db")
	db, err := bolt.Open(file, 0o600, opts)
	if errors.Is(err, berrors.ErrTimeout) {
		err = errors.New("another process has it open; stop that one or choose another folder")
	}
	if err == nil {
		err = db.Update(func(tx *bolt.Tx) error {
			_, err := tx.CreateBucketIfNotExists(catalogBucket)
			return err
		})
	}
	if s.tmp != "" {
		// The open file does not need its name, so nothing is left even of a process that is killed. Where the system
		// refuses this, close does it.
		os.RemoveAll(s.tmp)
	}
	if err != nil {
		return nil, fmt.Errorf("minimongo: %s: %w", file, err)
	}
	s.db = db
	go s.write()
	return s, nil
}

// mapSize is the address space to reserve, so that a growing file need not wait for open cursors: bbolt
// maps the file again when it has outgrown its mapping, and that needs all readers to be gone.
func mapSize() int {
	if runtime.GOOS == "windows" || math.MaxInt < 1<<40 {
		return 0 // there the file would take all of it at once, or there is not so much
	}
	size := int64(16 << 30)
	return int(size)
}

// close ends the writer after what is queued. No reader and no further job may come.
func (s *store) close() error {
	close(s.queue)
	<-s.done
	err := s.db.Close()
	if s.tmp != "" {
		err = errors.Join(err, os.RemoveAll(s.tmp))
	}
	return err
}

// update runs one write command and returns when its commit is durable.
func (s *store) update(ctx context.Context, run func(tx *bolt.Tx) error) error {
	j := &job{ctx: ctx, run: run, done: make(chan error, 1)}
	s.queue <- j
	return <-j.done
}

// view runs a read in a snapshot of its own.
func (s *store) view(run func(tx *bolt.Tx) error) error { return s.db.View(run) }

// write is the only goroutine that changes the database: it gives all waiting jobs one commit.
func (s *store) write() {
	defer close(s.done)
	for j := range s.queue {
		group := []*job{j}
		results, err := s.commit(&group)
		for i, j := range group {
			if err != nil {
				j.done <- err
			} else {
				j.done <- results[i]
			}
		}
	}
}

func (s *store) commit(group *[]*job) (results []error, err error) {
	tx, err := s.db.Begin(true)
	if err != nil {
		return nil, fmt.Errorf("minimongo: begin: %w", err)
	}
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("minimongo: a write failed and its whole group was undone", "panic", p)
			err = errors.Join(fmt.Errorf("minimongo: panic in a write: %v", p), tx.Rollback())
		}
	}()
	started := time.Now()
	for i := 0; i < len(*group); i++ {
		j := (*group)[i]
		result := j.ctx.Err()
		if result != nil {
			result = timeLimit(j.ctx)
		} else if result = j.run(tx); result != nil && !errors.As(result, new(*Error)) {
			// The storage itself failed: nobody knows what of this group is in the transaction.
			return nil, errors.Join(fmt.Errorf("minimongo: write: %w", result), tx.Rollback())
		}
		results = append(results, result)
		if i == len(*group)-1 && time.Since(started) < commitAfter {
			select {
			case next, ok := <-s.queue:
				if ok {
					*group = append(*group, next)
				}
			default:
			}
		}
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("minimongo: commit: %w", err)
	}
	return results, nil
}

func catalogKey(db, coll string) []byte { return []byte(db + "\x00" + coll) }

// lookup finds a collection as of the transaction; nil where there is none.
func (s *store) lookup(tx *bolt.Tx, db, name string) (*collection, error) {
	key := catalogKey(db, name)
	raw := tx.Bucket(catalogBucket).Get(key)
	if raw == nil {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.parsed[string(key)]; ok && bytes.Equal(e.raw, raw) {
		return e.coll, nil
	}
	c, err := parseCollection(db, name, raw)
	if err != nil {
		return nil, err
	}
	s.parsed[string(key)] = parsedEntry{raw: bytes.Clone(raw), coll: c}
	return c, nil
}

// ensure finds or makes a collection.
func (s *store) ensure(tx *bolt.Tx, db, name string) (*collection, error) {
	c, err := s.lookup(tx, db, name)
	if c != nil || err != nil {
		return c, err
	}
	if err := checkNamespace(db, name); err != nil {
		return nil, err
	}
	catalog := tx.Bucket(catalogBucket)
	id, err := catalog.NextSequence()
	if err != nil {
		return nil, err
	}
	c = &collection{db: db, name: name, id: id}
	if _, err := tx.CreateBucket(c.documents()); err != nil {
		return nil, err
	}
	if err := s.save(tx, c); err != nil {
		return nil, err
	}
	return s.lookup(tx, db, name)
}

func (s *store) save(tx *bolt.Tx, c *collection) error {
	return tx.Bucket(catalogBucket).Put(catalogKey(c.db, c.name), c.encode())
}

func (s *store) drop(tx *bolt.Tx, c *collection) error {
	for _, ix := range c.indexes {
		if err := tx.DeleteBucket(ix.bucket); err != nil {
			return err
		}
	}
	if err := tx.DeleteBucket(c.documents()); err != nil {
		return err
	}
	key := catalogKey(c.db, c.name)
	s.mu.Lock()
	delete(s.parsed, string(key))
	s.mu.Unlock()
	return tx.Bucket(catalogBucket).Delete(key)
}

// collections lists those of a database, or of all where db is "".
func (s *store) collections(tx *bolt.Tx, db string) ([]*collection, error) {
	var out []*collection
	prefix := []byte(db + "\x00")
	if db == "" {
		prefix = nil
	}
	cur := tx.Bucket(catalogBucket).Cursor()
	for k, _ := cur.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, _ = cur.Next() {
		d, n, _ := bytes.Cut(k, []byte{0})
		c, err := s.lookup(tx, string(d), string(n))
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func bucketName(kind byte, ids ...uint64) []byte {
	b := []byte{kind}
	for _, id := range ids {
		b = binary.BigEndian.AppendUint64(b, id)
	}
	return b
}
