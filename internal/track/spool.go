package track

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"postbit/internal/clock"
)

// SpoolOptions are the settings of a spool; the zero value of each field means its default, but for Sync.
type SpoolOptions struct {
	Clock *clock.Clock // default: the system's
	// Sync is how much of what was answered a crash of the machine may take: 0 syncs before every answer, SyncNever leaves it to the operating
	// system, anything else is how often it is synced. A crash of the process alone loses nothing in any case.
	Sync time.Duration
	// SealAfter is how long a chunk takes hits (1s), ChunkBytes how large it grows before it is sealed early (256 KiB).
	SealAfter  time.Duration
	ChunkBytes int
	// Resend is after how long a shipped chunk that isn't done is shipped again (1m).
	Resend time.Duration
	// MaxAge says how old a chunk may be as of now and still be shipped (7 days). It must be below the time for which the ledger remembers what is done: after
	// that, nobody could tell whether the chunk was counted. Older ones are moved to stale/ and reported.
	MaxAge func() time.Duration
	Log    *slog.Logger // default: silent
}

const (
	// SyncNever is for SpoolOptions.Sync.
	SyncNever time.Duration = -1
	// DefaultSync is what the settings use unless told otherwise.
	DefaultSync = 200 * time.Millisecond
)

func (o *SpoolOptions) setDefaults() {
	if o.Clock == nil {
		o.Clock = clock.New()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	setDefault(&o.SealAfter, time.Second)
	setDefault(&o.ChunkBytes, 256<<10)
	setDefault(&o.Resend, time.Minute)
	if o.MaxAge == nil {
		o.MaxAge = func() time.Duration { return 7 * 24 * time.Hour }
	}
}

func setDefault[T int | time.Duration](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}

// ParseSync reads the setting: "always", "never", or a duration like 200ms.
func ParseSync(s string) (time.Duration, error) {
	switch s {
	case "always":
		return 0, nil
	case "never":
		return SyncNever, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("how often hits are synced: %q is not always, never or a duration like 200ms", s)
	}
	return d, nil
}

var (
	// ErrSpoolClosed is returned by Append after Close.
	ErrSpoolClosed = errors.New("the hit spool is closed")
	// ErrSpoolInUse is returned by OpenSpool where another process has the folder.
	ErrSpoolInUse = errors.New("the hit spool is in use by another process")
	// ErrHit is returned by Append for a hit that can't be stored; nothing is written.
	ErrHit = errors.New("not a hit")
)

// Spool keeps hits on disk from the moment they are answered until they are counted. Files of its folder: ID.open takes hits, ID.chunk
// is sealed and waits to be shipped and done, stale/ holds what is too old to be shipped, lock keeps other processes out.
type Spool struct {
	dir  string
	o    SpoolOptions
	lock *os.File
	ids  idSource

	create func(path string) (chunkFile, error)

	mu      sync.Mutex
	pending *group
	closed  bool

	wake    chan struct{}   // there is something pending
	flush   chan chan error // seal now
	closing chan struct{}   // closed by Close
	files   chan fileEvent  // from the writer to the sealer
	sealed  chan struct{}   // there is a new chunk to ship
	done    chan struct{}   // both goroutines have ended
	ship    shipState       // of Run
	stats   counters        // see Stats
}

// group is what one write will hold.
type group struct {
	buf  []byte
	hits int
	done chan struct{} // closed when err is set
	err  error
}

func newGroup(buf []byte) *group { return &group{buf: buf[:0], done: make(chan struct{})} }

// OpenSpool takes over the folder: what an earlier process left open is cut behind its last whole hit and sealed. The spool owns two goroutines
// until Close.
func OpenSpool(dir string, o SpoolOptions) (*Spool, error) {
	o.setDefaults()
	if err := os.MkdirAll(filepath.Join(dir, staleDir), 0o700); err != nil {
		return nil, fmt.Errorf("hit spool: %w", err)
	}
	lock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("hit spool %s: %w", dir, err)
	}
	s := &Spool{
		dir: dir, o: o, lock: lock, ids: newIDSource(), create: createFile, pending: newGroup(nil),
		wake: make(chan struct{}, 1), flush: make(chan chan error), closing: make(chan struct{}),
		files: make(chan fileEvent, 16), sealed: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if err := s.recover(); err != nil {
		lock.Close()
		return nil, fmt.Errorf("hit spool %s: %w", dir, err)
	}
	if n := s.countStale(); n > 0 {
		o.Log.Warn("there are chunks of hits that were too old to be counted", "chunks", n, "dir", filepath.Join(dir, staleDir))
	}
	go s.run()
	return s, nil
}

// run is the owner of writer and sealer.
func (s *Spool) run() {
	defer close(s.done)
	var sealer sync.WaitGroup
	sealer.Go(s.sealFiles)
	w := writer{s: s}
	w.run()
	close(s.files)
	sealer.Wait()
}

// Append returns when the hit is written (and synced, where Sync is 0); many callers share one write. After an error the hit may be counted
// or not. A ctx that ends gives up waiting.
func (s *Spool) Append(ctx context.Context, h Hit) error {
	if h.Kind == View {
		h.Run, h.User = [8]byte{}, nobody
	}
	if h.Kind == 0 || len(h.User.Value) > maxUser || h.User.Validate() != nil {
		return fmt.Errorf("%w: kind %d, a user id of %d bytes", ErrHit, h.Kind, len(h.User.Value))
	}
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return ErrSpoolClosed
		}
		g := s.pending
		full := len(g.buf) >= s.o.ChunkBytes // the disk is slower than the web: wait for the next group, so that memory stays bounded
		if !full {
			g.buf = appendRecord(g.buf, &h)
			g.hits++
		}
		s.mu.Unlock()
		notify(s.wake)
		select {
		case <-g.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !full {
			return g.err
		}
	}
}

// Flush seals what has been written so far, so that it is shipped at once, and returns when that is done.
func (s *Spool) Flush(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case s.flush <- answer:
	case <-s.done:
		return ErrSpoolClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-answer:
		return err
	case <-s.done:
		select {
		case err := <-answer:
			return err
		default:
			return ErrSpoolClosed
		}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close writes and seals what is pending and gives the folder back. What hasn't been counted stays there for the next start.
func (s *Spool) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		close(s.closing)
	}
	<-s.done
	if !first {
		return nil
	}
	return s.lock.Close()
}

// takePending gives the writer what has gathered; buf is used for the next group.
func (s *Spool) takePending(buf []byte) *group {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.pending
	if g.hits == 0 {
		return nil
	}
	s.pending = newGroup(buf)
	return g
}

// notify wakes whoever waits on c, or will next.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
