package track

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"postbit/internal/clock"
)

// post is a queue and a ledger.
type post struct {
	mu      sync.Mutex
	got     []string       // ids in the order in which they came
	hits    map[string]int // by id
	done    map[string]bool
	asked   []string
	largest int // question
	down    error
	refuse  string // an id
	tried   int
	blind   error // of the ledger
	note    chan struct{}
}

func newPost() *post {
	return &post{hits: map[string]int{}, done: map[string]bool{}, note: make(chan struct{}, 1)}
}

func (p *post) EnqueueHits(_ context.Context, id string, data []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tried++
	if p.down != nil {
		return p.down
	}
	if p.refuse == id {
		return errors.New("not this one")
	}
	hits, err := DecodeChunk(data)
	if err != nil {
		return err
	}
	for _, h := range hits {
		if !strings.HasPrefix(h.ID, id+"/") {
			return fmt.Errorf("%s came under %s", h.ID, id)
		}
	}
	p.got = append(p.got, id)
	p.hits[id] = len(hits)
	notify(p.note)
	return nil
}

func (p *post) Done(_ context.Context, ids []string) (map[string]bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.blind != nil {
		return nil, p.blind
	}
	p.asked = append(p.asked, ids...)
	p.largest = max(p.largest, len(ids))
	answer := map[string]bool{}
	for _, id := range ids {
		if p.done[id] {
			answer[id] = true
		}
	}
	return answer, nil
}

func (p *post) finish(ids ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		p.done[id] = true
	}
}

func (p *post) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.got
	p.got = nil
	return got
}

// shipping is a spool with a post and a clock of its own.
type shipping struct {
	*Spool
	t    *testing.T
	dir  string
	post *post
	now  time.Time
}

func newShipping(t *testing.T, o SpoolOptions) *shipping {
	dir := t.TempDir()
	return &shipping{openSpool(t, dir, o), t, dir, newPost(), time.Now()}
}

func (s *shipping) tick(d time.Duration) error {
	s.now = s.now.Add(d)
	return s.step(s.t.Context(), s.post, s.post, s.now)
}

func (s *shipping) chunk(n int) string {
	s.t.Helper()
	before := s.waiting()
	appendHit(s.t, s.Spool, n)
	flush(s.t, s.Spool)
	for _, id := range s.waiting() {
		if !slices.Contains(before, id) {
			return id
		}
	}
	s.t.Fatal("no chunk")
	return ""
}

func (s *shipping) waiting() []string {
	var ids []string
	for _, path := range files(s.t, s.dir, chunkSuffix) {
		ids = append(ids, strings.TrimSuffix(filepath.Base(path), chunkSuffix))
	}
	return ids
}

func (s *shipping) want(what string, got []string, want ...string) {
	s.t.Helper()
	if !slices.Equal(got, want) {
		s.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestShippedOnceThenAgainAfterAMinute(t *testing.T) {
	s := newShipping(t, SpoolOptions{})
	a, b := s.chunk(1), s.chunk(2)
	s.tick(0)
	s.want("shipped", s.post.take(), a, b)
	s.tick(time.Second)
	s.tick(58 * time.Second)
	s.want("shipped within the minute", s.post.take())
	s.post.finish(a)
	s.tick(time.Second)
	s.want("shipped after a minute", s.post.take(), b)
	s.want("on disk", s.waiting(), b)
	s.tick(59 * time.Second)
	s.want("shipped a minute after that", s.post.take())
	s.tick(time.Second)
	s.want("shipped a minute after that", s.post.take(), b)
	s.post.finish(b)
	s.tick(time.Second)
	s.want("on disk", s.waiting())
	if st := s.Stats(); st.Shipped != 4 || st.Counted != 2 || st.Appended != 2 {
		t.Errorf("%+v", st)
	}
	if len(s.ship.chunks) != 0 || s.ship.bytes != 0 {
		t.Errorf("still under way: %d chunks, %d bytes", len(s.ship.chunks), s.ship.bytes)
	}
}

func TestNothingIsDeletedUnlessDone(t *testing.T) {
	s := newShipping(t, SpoolOptions{})
	a := s.chunk(1)
	s.tick(0)
	s.post.blind = errors.New("no database")
	for range 100 {
		if err := s.tick(time.Hour); err == nil {
			t.Fatal("the ledger's error is lost")
		}
	}
	s.want("on disk", s.waiting(), a)
	s.post.blind = nil
	s.tick(0)
	s.want("on disk, asked", s.waiting(), a)
	s.post.finish(a)
	s.tick(0)
	s.want("on disk, done", s.waiting())
}

func TestQueueIsDown(t *testing.T) {
	s := newShipping(t, SpoolOptions{})
	a := s.chunk(1)
	s.post.down = errors.New("no redis")
	if err := s.tick(0); err == nil {
		t.Error("the queue's error is lost")
	}
	b := s.chunk(2)
	s.tick(time.Second)
	s.post.down = nil
	s.tick(time.Second)
	s.want("shipped", s.post.take(), a, b)
}

// A chunk that the queue won't have doesn't stand in the way of the others; a queue that is down isn't asked a thousand times.
func TestOneChunkIsRefused(t *testing.T) {
	s := newShipping(t, SpoolOptions{})
	a, b, c := s.chunk(1), s.chunk(2), s.chunk(3)
	s.post.refuse = a
	if err := s.tick(0); err == nil {
		t.Error("the error is lost")
	}
	s.want("shipped", s.post.take(), b, c)
	for n := range 10 {
		s.chunk(10 + n)
	}
	s.post.down, s.post.tried = errors.New("no redis"), 0
	s.tick(time.Second)
	if s.post.tried != giveUp {
		t.Errorf("tried %d times", s.post.tried)
	}
}

// What an earlier process left may have been counted already: the ledger is asked first.
func TestLeftByAnEarlierProcess(t *testing.T) {
	s := newShipping(t, SpoolOptions{})
	a, b := s.chunk(1), s.chunk(2)
	s.Close()
	s.Spool = openSpool(t, s.dir, SpoolOptions{})
	s.post.finish(a)
	s.post.blind = errors.New("no database")
	s.tick(0)
	s.want("shipped before the ledger has answered", s.post.take())
	s.post.blind = nil
	s.tick(0)
	s.want("shipped", s.post.take(), b)
	s.want("on disk", s.waiting(), b)
}

func TestStale(t *testing.T) {
	c := clock.At(noon)
	s := newShipping(t, SpoolOptions{Clock: c, MaxAge: func() time.Duration { return 7 * 24 * time.Hour }})
	a := s.chunk(1)
	c.Advance(7 * 24 * time.Hour)
	s.tick(0)
	s.want("shipped at seven days", s.post.take(), a)
	c.Advance(time.Millisecond)
	b := s.chunk(2)
	s.post.finish(a) // too late: whoever says so may remember another one
	s.tick(time.Hour)
	s.want("shipped", s.post.take(), b)
	s.want("on disk", s.waiting(), b)
	if stale := files(t, filepath.Join(s.dir, staleDir), chunkSuffix); len(stale) != 1 || !strings.Contains(stale[0], a) {
		t.Errorf("stale: %q", stale)
	}
	if st := s.Stats(); st.Stale != 1 || st.Counted != 0 {
		t.Errorf("%+v", st)
	}
}

func TestStrangeFiles(t *testing.T) {
	s := newShipping(t, SpoolOptions{})
	a, b := s.chunk(1), s.chunk(2)
	for _, name := range []string{"README", "x.chunk", ".hidden"} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.tick(0)
	s.want("shipped", s.post.take(), a, b)
	if stale := files(t, filepath.Join(s.dir, staleDir), chunkSuffix); len(stale) != 1 || filepath.Base(stale[0]) != "x.chunk" {
		t.Errorf("moved aside: %q", stale)
	}
	if err := os.Remove(filepath.Join(s.dir, a+chunkSuffix)); err != nil { // by hand
		t.Fatal(err)
	}
	s.tick(time.Minute)
	s.want("shipped again", s.post.take(), b)
	if len(s.ship.chunks) != 1 {
		t.Errorf("%d under way", len(s.ship.chunks))
	}
}

// Workers that are away for long leave thousands of chunks: what is under way and in memory stays bounded, and the oldest go first.
func TestThousandsWait(t *testing.T) {
	s := newShipping(t, SpoolOptions{})
	h := testHit(t, 1)
	const n = 2100
	ids := newIDSource()
	for range n {
		id := ids.next(noon)
		if err := os.WriteFile(filepath.Join(s.dir, id+chunkSuffix), appendRecord(appendHead(nil, id), &h), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := s.waiting()
	s.tick(0)
	got := s.post.take()
	if !slices.Equal(got, all[:maxUnderWay]) {
		t.Errorf("%d shipped, not the oldest %d", len(got), maxUnderWay)
	}
	if st := s.Stats(); st.Waiting != n {
		t.Errorf("%d wait", st.Waiting)
	}
	for len(got) > 0 {
		s.post.finish(got...)
		s.tick(time.Second)
		if len(s.ship.chunks) > maxUnderWay {
			t.Fatalf("%d under way", len(s.ship.chunks))
		}
		got = s.post.take()
		if len(got) == 0 && len(s.waiting()) > 0 { // done ones made room for the next look
			s.tick(time.Second)
			got = s.post.take()
		}
	}
	if left := s.waiting(); len(left) != 0 || s.Stats().Counted != n || s.post.largest > askAtOnce {
		t.Errorf("%d left, %+v, asked %d at once", len(left), s.Stats(), s.post.largest)
	}
}

func TestBytesUnderWayAreBounded(t *testing.T) {
	s := newShipping(t, SpoolOptions{})
	h := testHit(t, 1)
	ids := newIDSource()
	for range 12 {
		id := ids.next(noon)
		b := appendHead(nil, id)
		for len(b) < 1<<20 {
			b = appendRecord(b, &h)
		}
		if err := os.WriteFile(filepath.Join(s.dir, id+chunkSuffix), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := s.waiting()
	s.tick(0)
	s.want("shipped", s.post.take(), all[:8]...)
	s.post.finish(all[0], all[1], all[5])
	s.tick(time.Second)
	s.want("shipped when there is room", s.post.take(), all[8:11]...)
}

func TestRun(t *testing.T) {
	s := newShipping(t, SpoolOptions{SealAfter: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx, s.post, s.post); err != nil {
			t.Error(err)
		}
	})
	total := 0
	for n := range 5 {
		appendHit(t, s.Spool, n)
		for total <= n {
			<-s.post.note
			total = 0
			s.post.mu.Lock()
			for _, hits := range s.post.hits {
				total += hits
			}
			s.post.mu.Unlock()
		}
	}
	cancel()
	wg.Wait()
}
