package track

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"postbit/internal/clock"
)

func openSpool(t testing.TB, dir string, o SpoolOptions) *Spool {
	t.Helper()
	if o.Sync == 0 {
		o.Sync = SyncNever // the disk isn't on trial
	}
	if o.SealAfter == 0 {
		o.SealAfter = time.Hour // by Flush only
	}
	if o.Clock == nil {
		o.Clock = clock.At(noon)
	}
	s, err := OpenSpool(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func appendHit(t testing.TB, s *Spool, n int) {
	t.Helper()
	if err := s.Append(t.Context(), testHit(t, n)); err != nil {
		t.Fatal(err)
	}
}

func flush(t testing.TB, s *Spool) {
	t.Helper()
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// files returns the names in a folder that end so, sorted.
func files(t testing.TB, dir, suffix string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(paths)
	return paths
}

// stored returns how often each user of testHit stands in sealed chunks.
func stored(t testing.TB, dir string) map[int]int {
	t.Helper()
	seen, ids := map[int]int{}, map[string]bool{}
	for _, path := range files(t, dir, chunkSuffix) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		hits, err := DecodeChunk(data)
		if err != nil {
			t.Fatal(err)
		}
		for i, h := range hits {
			seen[int(h.User.Int64())]++
			if want := fmt.Sprintf("%s/%d", strings.TrimSuffix(filepath.Base(path), chunkSuffix), i); h.ID != want || ids[h.ID] {
				t.Fatalf("id %q, want %q", h.ID, want)
			}
			ids[h.ID] = true
		}
	}
	return seen
}

func TestHitComesBack(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, SpoolOptions{})
	want := Hit{
		Kind: Click, Run: testRun, User: userID(t, "zoë"), SentAt: noon, At: noon.Add(1500 * time.Millisecond),
		Method: "GET", UserAgent: "Mozilla/5.0 (ä)", URL: "https://example.com/?x=1",
	}
	if err := s.Append(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	flush(t, s)
	data, err := os.ReadFile(files(t, dir, chunkSuffix)[0])
	if err != nil {
		t.Fatal(err)
	}
	hits, err := DecodeChunk(data)
	if err != nil || len(hits) != 1 {
		t.Fatalf("%v, %v", hits, err)
	}
	got := hits[0]
	if !got.User.Equal(want.User) {
		t.Errorf("user %v", got.User)
	}
	want.ID, want.User = got.ID, got.User
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if begun, err := ChunkTime(strings.TrimSuffix(filepath.Base(files(t, dir, chunkSuffix)[0]), chunkSuffix)); err != nil || !begun.Equal(noon) {
		t.Errorf("%v, %v", begun, err)
	}
}

func TestHostileHits(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, SpoolOptions{})
	agents := []string{"", strings.Repeat("x", 10000), strings.Repeat("ä", 10000), strings.Repeat("\xff", 10000), strings.Repeat("\x80", 10000), "a\xffb", "\x00\r\n", strings.Repeat("x", 511) + "ä"}
	for _, ua := range agents {
		h := testHit(t, 1)
		h.UserAgent, h.Method, h.URL = ua, ua, ua
		if err := s.Append(t.Context(), h); err != nil {
			t.Errorf("%.20q: %v", ua, err)
		}
	}
	for name, change := range map[string]func(*Hit){
		"no kind": func(h *Hit) { h.Kind = 0 }, "no user": func(h *Hit) { h.User.Value = nil }, "a user's id that is none": func(h *Hit) { h.User.Value = []byte{1} }, "too long": func(h *Hit) { h.User = userID(t, strings.Repeat("x", 2000)) },
	} {
		h := testHit(t, 1)
		change(&h)
		if err := s.Append(t.Context(), h); !errors.Is(err, ErrHit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	flush(t, s)
	data, err := os.ReadFile(files(t, dir, chunkSuffix)[0])
	if err != nil {
		t.Fatal(err)
	}
	hits, err := DecodeChunk(data)
	if err != nil || len(hits) != len(agents) {
		t.Fatalf("%d hits, %v", len(hits), err)
	}
	for i, h := range hits {
		if len(h.UserAgent) > maxUserAgent || !utf8.ValidString(h.UserAgent) || !utf8.ValidString(h.URL) || len(h.Method) > maxMethod {
			t.Errorf("%.20q became %q", agents[i], h.UserAgent)
		}
	}
	if got := hits[len(hits)-1].UserAgent; got != strings.Repeat("x", 511) {
		t.Errorf("cut to %d bytes", len(got))
	}
}

func TestManyHitsInOneWrite(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, SpoolOptions{ChunkBytes: 4096})
	const senders, each = 32, 50
	var wg sync.WaitGroup
	for w := range senders {
		wg.Go(func() {
			for i := range each {
				if err := s.Append(t.Context(), testHit(t, w*each+i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	flush(t, s)
	seen := stored(t, dir)
	for n := range senders * each {
		if seen[n] != 1 {
			t.Errorf("hit %d is there %d times", n, seen[n])
		}
	}
	if st := s.Stats(); st.Appended != senders*each || st.Writes >= st.Appended || st.Sealed < 10 {
		t.Errorf("%+v", st)
	}
	for _, f := range files(t, dir, chunkSuffix) {
		if info, err := os.Stat(f); err != nil || info.Size() > 2*4096+200 {
			t.Errorf("%v, %v", info.Size(), err)
		}
	}
}

func TestSealedByTime(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, SpoolOptions{SealAfter: time.Millisecond})
	appendHit(t, s, 1)
	<-s.sealed
	if seen := stored(t, dir); seen[1] != 1 {
		t.Errorf("%v", seen)
	}
}

func TestCloseSealsAndEnds(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, SpoolOptions{})
	appendHit(t, s, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if seen := stored(t, dir); seen[1] != 1 || len(files(t, dir, openSuffix)) != 0 {
		t.Errorf("%v, open: %v", seen, files(t, dir, openSuffix))
	}
	if err := s.Append(t.Context(), testHit(t, 2)); !errors.Is(err, ErrSpoolClosed) {
		t.Errorf("Append: %v", err)
	}
	if err := s.Flush(t.Context()); !errors.Is(err, ErrSpoolClosed) {
		t.Errorf("Flush: %v", err)
	}
}

func TestOneProcessAtATime(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, SpoolOptions{})
	if _, err := OpenSpool(dir, SpoolOptions{}); !errors.Is(err, ErrSpoolInUse) {
		t.Errorf("%v", err)
	}
	s.Close()
	openSpool(t, dir, SpoolOptions{})
}

func TestIDsNeverGoBack(t *testing.T) {
	c := clock.At(noon)
	ids := newIDSource()
	last := ""
	for i, step := range []time.Duration{0, 0, time.Second, -time.Hour, 0, time.Millisecond, -24 * time.Hour, 48 * time.Hour} {
		c.Advance(step)
		id := ids.next(c.Now())
		if id <= last || !ids.ours(id) {
			t.Errorf("%d: %s after %s", i, id, last)
		}
		if _, err := ChunkTime(id); err != nil {
			t.Error(err)
		}
		last = id
	}
	for _, id := range []string{"", "x", "a-b-c", "zzzzzzzzzzzz-00000000-000000", strings.Repeat("0", 28), "000000000000-00000000-0000001"} {
		if _, err := ChunkTime(id); !errors.Is(err, ErrChunk) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// A kill tears the last write at any byte: what was whole is kept, the rest was never answered.
func TestTornAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, SpoolOptions{})
	ends := []int{} // of the whole hits
	for n := range 3 {
		appendHit(t, s, n)
		info, err := os.Stat(files(t, dir, openSuffix)[0])
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, int(info.Size()))
	}
	name := filepath.Base(files(t, dir, openSuffix)[0])
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, torn []byte, whole int) {
		t.Helper()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), torn, 0o600); err != nil {
			t.Fatal(err)
		}
		again := openSpool(t, dir, SpoolOptions{})
		appendHit(t, again, 100)
		again.Close()
		seen := stored(t, dir)
		for n := range 3 {
			if want := map[bool]int{true: 1}[n < whole]; seen[n] != want {
				t.Errorf("%s: hit %d is there %d times, want %d", what, n, seen[n], want)
			}
		}
		if seen[100] != 1 || len(files(t, dir, openSuffix)) != 0 {
			t.Errorf("%s: %v, open: %v", what, seen, files(t, dir, openSuffix))
		}
	}
	whole := func(size int) int {
		n := 0
		for n < len(ends) && ends[n] <= size {
			n++
		}
		return n
	}
	for size := range len(data) + 1 {
		if ends[0] < size && size < ends[1] && size%8 != 0 { // one hit is like the other
			continue
		}
		check(fmt.Sprintf("cut at %d", size), data[:size], whole(size))
	}
	for size := ends[1]; size < len(data); size += 2 { // a crash of the machine may leave zeros, or another file's bytes
		torn := append([]byte(nil), data...)
		for i := size; i < len(torn); i++ {
			torn[i] = 0
		}
		if !bytes.Equal(torn, data) {
			check(fmt.Sprintf("zeros from %d", size), torn, 2)
		}
		torn = append([]byte(nil), data...)
		torn[size] ^= 0x20
		check(fmt.Sprintf("flipped at %d", size), torn, 2)
	}
}

// Whatever happens between, what Append has acknowledged is in exactly one chunk after a start on the files as they are now.
func TestAcknowledgedIsStored(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		s := openSpool(t, dir, SpoolOptions{ChunkBytes: rapid.SampledFrom([]int{1, 200, 5000}).Draw(rt, "chunk")})
		defer func() { s.Close() }()
		acknowledged := 0
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"append", "append", "many", "flush", "reopen", "killed"}).Draw(rt, "step") {
			case "append":
				appendHit(t, s, acknowledged)
				acknowledged++
			case "many":
				var wg sync.WaitGroup
				for i := range 10 {
					wg.Go(func() { appendHit(t, s, acknowledged+i) })
				}
				wg.Wait()
				acknowledged += 10
			case "flush":
				flush(t, s)
			case "reopen":
				s.Close()
				s = openSpool(t, dir, SpoolOptions{})
			case "killed":
				left := t.TempDir()
				copyFiles(t, dir, left)
				again := openSpool(t, left, SpoolOptions{})
				if seen := stored(t, left); len(seen) != acknowledged {
					rt.Fatalf("%d of %d are there: %v", len(seen), acknowledged, seen)
				}
				again.Close()
			}
		}
		s.Close()
		for n, times := range stored(t, dir) {
			if times != 1 || n >= acknowledged {
				rt.Fatalf("hit %d is there %d times", n, times)
			}
		}
		if seen := stored(t, dir); len(seen) != acknowledged {
			rt.Fatalf("%d of %d", len(seen), acknowledged)
		}
	})
}

// copyFiles takes what is there now, as a kill would leave it. The sealer may rename a file in the meantime; then it is looked at again.
func copyFiles(t testing.TB, from, to string) {
	t.Helper()
	for _, suffix := range []string{openSuffix, chunkSuffix} {
		for _, path := range files(t, from, suffix) {
			data, err := os.ReadFile(path)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			id := strings.TrimSuffix(filepath.Base(path), suffix)
			os.Remove(filepath.Join(to, id+openSuffix))
			if err := os.WriteFile(filepath.Join(to, filepath.Base(path)), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

const childVar = "POSTBIT_TEST_SPOOL_CHILD"

// TestSpoolChild is the process that TestKill kills: it appends, and says what was acknowledged.
func TestSpoolChild(t *testing.T) {
	dir := os.Getenv(childVar)
	if dir == "" {
		t.Skip("started by TestKill")
	}
	s := openSpool(t, dir, SpoolOptions{SealAfter: 3 * time.Millisecond, ChunkBytes: 2000, Clock: clock.New()})
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 1 << 20 {
				n := os.Getpid()<<24 | w<<20 | i
				if s.Append(t.Context(), testHit(t, n)) != nil {
					return
				}
				mu.Lock()
				fmt.Println("ack", n)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestKill(t *testing.T) {
	dir := t.TempDir()
	acknowledged := map[int]bool{}
	for _, after := range []int{1, 50, 333, 1000} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSpoolChild$")
		cmd.Env = append(os.Environ(), childVar+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); {
			var id int
			if k, _ := fmt.Sscanf(lines.Text(), "ack %d", &id); k != 1 {
				continue
			}
			acknowledged[id] = true
			if n++; n == after {
				cmd.Process.Kill()
			}
		}
		cmd.Wait()
	}
	openSpool(t, dir, SpoolOptions{}).Close()
	seen := stored(t, dir)
	for id := range acknowledged {
		if seen[id] != 1 {
			t.Errorf("hit %d was acknowledged and is there %d times", id, seen[id])
		}
	}
	for id, times := range seen {
		if times != 1 {
			t.Errorf("hit %d is there %d times", id, times)
		}
	}
	if len(acknowledged) < 1384 {
		t.Errorf("only %d hits", len(acknowledged))
	}
}

// brokenFile writes a part, or blocks, as told.
type brokenFile struct {
	chunkFile
	room  *int          // bytes it still takes
	block chan struct{} // closed when it may go on
}

var errFull = errors.New("no space left on device")

func (f *brokenFile) Write(p []byte) (int, error) {
	if f.block != nil {
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
	block := make(chan struct{})
	s.create = func(path string) (chunkFile, error) {
		f, err := createFile(path)
		return &brokenFile{chunkFile: f, block: block}, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for n := range 200 {
		wg.Go(func() { s.Append(ctx, testHit(t, n)) })
	}
	// The writer hangs with one group; the next one fills up to its limit, and the others wait in front of it.
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

func FuzzDecodeChunk(f *testing.F) {
	h := testHit(f, 1)
	good := appendRecord(appendRecord(appendHead(nil, "id"), &h), &h)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte(chunkMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		hits, err := DecodeChunk(b)
		if err != nil && !errors.Is(err, ErrChunk) {
			t.Error(err)
		}
		size, n := intact(b)
		if size > len(b) || err == nil && n != len(hits) {
			t.Errorf("%d hits in %d bytes, decoded %d", n, size, len(hits))
		}
	})
}

// The payload behind a good checksum may still be anything.
func FuzzDecodeHit(f *testing.F) {
	h := testHit(f, 1)
	f.Add(appendRecord(nil, &h)[8:])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHit(b)
		if err == nil && h.User.Validate() != nil {
			t.Errorf("%+v", h)
		}
	})
}
