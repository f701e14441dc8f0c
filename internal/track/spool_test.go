package track

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

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
