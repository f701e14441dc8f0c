package track

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// sealFiles is the goroutine that syncs, closes and renames, so that no request waits for that. It owns the files but for writing.
func (s *Spool) sealFiles() {
	var tick <-chan time.Time
	if s.o.Sync > 0 {
		t := time.NewTicker(s.o.Sync)
		defer t.Stop()
		tick = t.C
	}
	var current *openChunk
	named := ""               // the chunk whose name is known to be on the disk
	var unsealed []*openChunk // sealing failed; tried again with the next one
	for {
		select {
		case e, ok := <-s.files:
			if !ok {
				s.sealAll(unsealed)
				return
			}
			if !e.seal {
				current = e.chunk
				continue
			}
			if e.chunk != nil {
				current = nil
				unsealed = append(unsealed, e.chunk)
			}
			var err error
			unsealed, err = s.sealAll(unsealed)
			if e.answer != nil {
				e.answer <- err
			}
		case <-tick:
			if current == nil {
				continue
			}
			if err := s.sync(current, &named); err != nil {
				s.o.Log.Error("hits could not be synced", "chunk", current.id, "err", err)
			}
		}
	}
}

// sync makes the hits durable, and the first time the file's name, too.
func (s *Spool) sync(c *openChunk, named *string) error {
	if err := c.file.Sync(); err != nil || *named == c.id {
		return err
	}
	*named = c.id
	return syncDir(s.dir)
}

// sealAll returns those that have to be tried again.
func (s *Spool) sealAll(chunks []*openChunk) (again []*openChunk, err error) {
	for _, c := range chunks {
		if e := s.sealOne(c); e != nil {
			s.o.Log.Error("a chunk of hits could not be sealed; it is tried again", "chunk", c.id, "err", e)
			again, err = append(again, c), errors.Join(err, e)
		}
	}
	if len(chunks) > len(again) {
		if s.o.Sync >= 0 {
			err = errors.Join(err, syncDir(s.dir))
		}
		notify(s.sealed)
	}
	return again, err
}

func (s *Spool) sealOne(c *openChunk) error {
	if c.file != nil {
		var err error
		if s.o.Sync >= 0 {
			err = c.file.Sync()
		}
		if err = errors.Join(err, c.file.Close()); err != nil {
			s.o.Log.Error("hits may not be on the disk", "chunk", c.id, "err", err)
		}
		c.file = nil
	}
	path := filepath.Join(s.dir, c.id)
	if c.hits == 0 {
		return os.Remove(path + openSuffix)
	}
	if err := os.Rename(path+openSuffix, path+chunkSuffix); err != nil {
		return err
	}
	s.stats.sealed.Add(1)
	return nil
}

// recover seals what an earlier process left open.
func (s *Spool) recover() error {
	return eachName(s.dir, func(name string) error {
		id, ok := strings.CutSuffix(name, openSuffix)
		if !ok {
			return nil
		}
		path := filepath.Join(s.dir, name)
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		size, hits := intact(data)
		if head, _, ok := cutHead(data); ok && head != id {
			return fmt.Errorf("%s holds the chunk %q; was it renamed by hand?", path, clean(head, 80))
		}
		if size < len(data) {
			s.o.Log.Warn("a chunk of hits has a torn end, which was never answered; it is cut", "chunk", id, "hits", hits, "bytes", len(data)-size)
			if err := os.Truncate(path, int64(size)); err != nil {
				return err
			}
		}
		if hits == 0 {
			return os.Remove(path)
		}
		return os.Rename(path, filepath.Join(s.dir, id+chunkSuffix))
	})
}

func (s *Spool) countStale() (n int) {
	eachName(filepath.Join(s.dir, staleDir), func(string) error { n++; return nil })
	return n
}

// eachName calls f for the names in a folder, a few hundred at a time, since there may be very many.
func eachName(dir string, f func(name string) error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(512)
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
		}
		if len(names) == 0 {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
