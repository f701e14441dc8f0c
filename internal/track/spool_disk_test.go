package track

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// brokenFile writes a part, or blocks, as told.
type brokenFile struct {
	chunkFile
	room    *int          // bytes it still takes
	reached func()        // called before it blocks
	block   chan struct{} // closed when it may go on
}

var errFull = errors.New("no space left on device")

func (f *brokenFile) Write(p []byte) (int, error) {
	if f.block != nil {
		f.reached()
		<-f.block
	}
	if f.room == nil || len(p) <= *f.room {
		if f.room != nil {
			*f.room -= len(p)
		}
		return f.chunkFile.Write(p)
	}
	n, _ := f.chunkFile.Write(p[:*f.room])
	*f.room = 0
	return n, errFull
}

// A full disk answers 503 for what doesn't fit, keeps what was acknowledged, and goes on when there is room.
func TestFullDisk(t *testing.T) {
	for room := 0; room < 400; room += 1 + room/100*6 {
		dir := t.TempDir()
		s := openSpool(t, dir, SpoolOptions{})
		left := room
		s.create = func(path string) (chunkFile, error) {
			f, err := createFile(path)
			return &brokenFile{chunkFile: f, room: &left}, err
		}
		stands := map[int]bool{}
		for n := range 6 {
			if n == 4 {
				left = 1 << 20
			}
			err := s.Append(t.Context(), testHit(t, n))
			if err != nil && !errors.Is(err, errFull) {
				t.Fatal(err)
			}
			stands[n] = err == nil
		}
		s.Close()
		openSpool(t, dir, SpoolOptions{}).Close()
		seen := stored(t, dir)
		for n, want := range stands {
			if (seen[n] == 1) != want || seen[n] > 1 {
				t.Errorf("room for %d bytes: hit %d was acknowledged: %v, it is there %d times", room, n, want, seen[n])
			}
		}
		if !stands[4] || !stands[5] {
			t.Errorf("room for %d bytes: it did not go on", room)
		}
	}
}

func TestFolderGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	s := openSpool(t, dir, SpoolOptions{})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(t.Context(), testHit(t, 1)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	appendHit(t, s, 2)
	flush(t, s)
	if seen := stored(t, dir); len(seen) != 1 || seen[2] != 1 {
		t.Errorf("%v", seen)
	}
}

// A disk that hangs holds requests up; it doesn't fill the memory.
func TestSlowDisk(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, SpoolOptions{ChunkBytes: 1000})
	block, hangs := make(chan struct{}), make(chan struct{})
	reached := sync.OnceFunc(func() { close(hangs) })
	s.create = func(path string) (chunkFile, error) {
		f, err := createFile(path)
		return &brokenFile{chunkFile: f, reached: reached, block: block}, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.Append(ctx, testHit(t, 0)) })
	<-hangs
	for n := 1; n < 200; n++ {
		wg.Go(func() { s.Append(ctx, testHit(t, n)) })
	}
	// The writer hangs with one hit; the next group fills up to its limit, and the others wait in front of it.
	for full := false; !full; {
		s.mu.Lock()
		size := len(s.pending.buf)
		s.mu.Unlock()
		if size > 1200 {
			t.Fatalf("%d bytes wait", size)
		}
		full = size >= 1000
	}
	cancel()
	wg.Wait()
	close(block)
	if err := s.Append(t.Context(), testHit(t, 1000)); err != nil {
		t.Error(err)
	}
	flush(t, s)
	if seen := stored(t, dir); seen[1000] != 1 {
		t.Error("what came later is missing")
	}
}

func TestSyncedBeforeTheAnswer(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenSpool(dir, SpoolOptions{SealAfter: time.Hour}) // Sync: 0
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	syncs := 0
	s.create = func(path string) (chunkFile, error) {
		f, err := createFile(path)
		return &countingFile{f, &syncs}, err
	}
	for n := range 3 {
		appendHit(t, s, n)
		if syncs != n+1 {
			t.Errorf("%d syncs after %d hits", syncs, n+1)
		}
	}
}

type countingFile struct {
	chunkFile
	syncs *int
}

func (f *countingFile) Sync() error { *f.syncs++; return f.chunkFile.Sync() }

func TestParseSync(t *testing.T) {
	for s, want := range map[string]time.Duration{"always": 0, "never": SyncNever, "200ms": DefaultSync, "2s": 2 * time.Second} {
		if got, err := ParseSync(s); err != nil || got != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "0s", "-1s", "sometimes", "5"} {
		if _, err := ParseSync(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}
