package track

import (
	"os"
	"path/filepath"
	"time"
)

const (
	openSuffix  = ".open"
	chunkSuffix = ".chunk"
	staleDir    = "stale"
)

// chunkFile is an *os.File, or one that breaks in a test.
type chunkFile interface {
	Write(p []byte) (int, error)
	Sync() error
	Truncate(size int64) error
	Close() error
}

func createFile(path string) (chunkFile, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
}

// openChunk is the file that takes hits.
type openChunk struct {
	id   string
	file chunkFile
	size int64 // of what was written whole
	hits int
}

// fileEvent tells the sealer that a chunk was begun, or is complete.
type fileEvent struct {
	chunk  *openChunk
	seal   bool
	answer chan error // of Flush, or nil
}

// writer is the one goroutine that writes hits.
type writer struct {
	s     *Spool
	chunk *openChunk // nil: none is open
	spare []byte
	timer *time.Timer // runs out when chunk has to be sealed
}

func (w *writer) run() {
	w.timer = time.NewTimer(time.Hour)
	w.timer.Stop()
	defer w.timer.Stop()
	for {
		select {
		case <-w.s.wake:
			w.commit()
		case <-w.timer.C:
			w.seal(nil)
		case answer := <-w.s.flush:
			w.commit()
			w.seal(answer)
		case <-w.s.closing:
			w.commit()
			w.seal(nil)
			return
		}
	}
}

// commit writes all that waits in one write, and tells those who wait for it.
func (w *writer) commit() {
	g := w.s.takePending(w.spare)
	if g == nil {
		return
	}
	g.err = w.write(g)
	w.spare = g.buf
	close(g.done)
	if g.err != nil {
		w.s.stats.failed.Add(int64(g.hits))
		w.s.o.Log.Error("hits could not be written; their requests were answered with 503", "hits", g.hits, "dir", w.s.dir, "err", g.err)
		return
	}
	w.s.stats.appended.Add(int64(g.hits))
	w.s.stats.writes.Add(1)
	if w.chunk.size >= int64(w.s.o.ChunkBytes) {
		w.seal(nil)
	}
}

func (w *writer) write(g *group) error {
	if err := w.begin(); err != nil {
		return err
	}
	_, err := w.chunk.file.Write(g.buf)
	if err == nil && w.s.o.Sync == 0 {
		err = w.chunk.file.Sync()
	}
	if err != nil {
		// What stands behind size was never answered. A torn hit in the middle would hide what follows it, so nothing may follow.
		w.chunk.file.Truncate(w.chunk.size)
		w.seal(nil)
		return err
	}
	w.chunk.size += int64(len(g.buf))
	w.chunk.hits += g.hits
	return nil
}

// begin opens a chunk where there is none.
func (w *writer) begin() error {
	if w.chunk != nil {
		return nil
	}
	id := w.s.ids.next(w.s.o.Clock.Now())
	path := filepath.Join(w.s.dir, id+openSuffix)
	f, err := w.s.create(path)
	if err != nil {
		return err
	}
	head := appendHead(nil, id)
	_, err = f.Write(head)
	if err == nil && w.s.o.Sync == 0 {
		err = syncDir(w.s.dir)
	}
	if err != nil {
		f.Close()
		os.Remove(path)
		return err
	}
	w.chunk = &openChunk{id: id, file: f, size: int64(len(head))}
	w.timer.Reset(w.s.o.SealAfter)
	w.s.files <- fileEvent{chunk: w.chunk}
	return nil
}

// seal hands the chunk to the sealer; there may be none, and then answer is told once all before it is sealed.
func (w *writer) seal(answer chan error) {
	w.timer.Stop()
	if w.chunk != nil || answer != nil {
		w.s.files <- fileEvent{chunk: w.chunk, seal: true, answer: answer}
	}
	w.chunk = nil
}
