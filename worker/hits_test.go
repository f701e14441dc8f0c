package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/queue"
	"postbit/internal/track"
	"postbit/internal/users"
)

// What loads pixels.
const (
	browserUA  = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0 Safari/537.36"
	proxyUA    = "Mozilla/5.0 (Windows NT 5.1; rv:11.0) Gecko Firefox/11.0 (via ggpht.com GoogleImageProxy)"
	prefetchUA = "Mozilla/5.0"
)

var (
	hitsSentAt = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	winback    = campaign.Run{ID: "winback@2026-12-01T09:00:00Z", Short: campaign.ShortID{1}, Campaign: "winback", Slot: hitsSentAt, StartedAt: hitsSentAt, State: campaign.RunDone}
	old        = campaign.Run{ID: "old@2026-05-01T09:00:00Z", Short: campaign.ShortID{2}, Campaign: "old", Slot: hitsSentAt.AddDate(0, -7, 0), StartedAt: hitsSentAt.AddDate(0, -7, 0), State: campaign.RunDone}
)

// hitsHouse is a database with two runs and some users, and a process that counts.
type hitsHouse struct {
	db     *mongo.Database
	clock  *clock.Clock
	store  *campaign.Store
	users  *users.Store
	writer *analytics.Writer
}

func newHitsHouse(t testing.TB, db *mongo.Database) *hitsHouse {
	t.Helper()
	h := &hitsHouse{db: db, clock: clock.At(hitsSentAt.Add(time.Hour)), store: campaign.NewStore(db)}
	var docs []any
	for i := range 5 {
		docs = append(docs, bson.D{{Key: "_id", Value: int32(i)}, {Key: "email", Value: fmt.Sprintf("u%d@example.com", i)}})
	}
	docs = append(docs, bson.D{{Key: "_id", Value: "broken"}, {Key: "postbit", Value: "no document"}})
	if _, err := db.Collection("users").InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
	for _, r := range []campaign.Run{winback, old} {
		if err := h.store.InsertRun(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if h.users, err = users.New(db.Collection("users"), users.Config{}); err != nil {
		t.Fatal(err)
	}
	h.writer = h.process(t)
	return h
}

// process starts a writer of its own.
func (h *hitsHouse) process(t testing.TB, opts ...analytics.Option) *analytics.Writer {
	t.Helper()
	w := analytics.NewWriter(h.db, h.clock, slog.New(slog.DiscardHandler), opts...)
	if err := w.EnsureIndexes(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return w
}

func (h *hitsHouse) handler(t testing.TB, w *analytics.Writer, change ...func(*HitsConfig)) *HitsHandler {
	t.Helper()
	cfg := HitsConfig{Runs: h.store, Opens: analytics.NewOpens(h.db), Users: h.users, Analytics: w, Values: analytics.NewValues(h.db, h.clock), Retention: 180 * 24 * time.Hour, Clock: h.clock}
	for _, f := range change {
		f(&cfg)
	}
	handler, err := NewHitsHandler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// counted is what stands in the counters of a campaign on the day of the hits.
func (h *hitsHouse) counted(t testing.TB, name string) map[string]int64 {
	t.Helper()
	totals, err := analytics.NewReader(h.db).Totals(t.Context(), name, hitsSentAt, hitsSentAt)
	if err != nil {
		t.Fatal(err)
	}
	return totals
}

type captured struct {
	tasks []queue.HitsTask
	most  int
	full  context.CancelFunc
}

func (c *captured) EnqueueHits(_ context.Context, id string, data []byte) error {
	if c.tasks = append(c.tasks, queue.HitsTask{ID: id, Data: data}); len(c.tasks) == c.most {
		c.full()
	}
	return nil
}

func (c *captured) Done(context.Context, []string) (map[string]bool, error) { return nil, nil }

// chunksOf spools lists of hits, a chunk each, as the web does, and returns what it ships.
func chunksOf(t testing.TB, at time.Time, lists ...[]track.Hit) []queue.HitsTask {
	t.Helper()
	spool, err := track.OpenSpool(t.TempDir(), track.SpoolOptions{Clock: clock.At(at), Sync: track.SyncNever, SealAfter: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, hits := range lists {
		for _, hit := range hits {
			if err := spool.Append(t.Context(), hit); err != nil {
				t.Fatal(err)
			}
		}
		if err := spool.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := &captured{most: len(lists), full: cancel}
	if err := spool.Run(ctx, c, c); err != nil {
		t.Fatal(err)
	}
	if err := spool.Close(); err != nil {
		t.Fatal(err)
	}
	return c.tasks
}

func hit(kind track.Kind, run *campaign.Run, user any, ua string, after time.Duration) track.Hit {
	typ, data, err := bson.MarshalValue(user)
	if err != nil {
		panic(err)
	}
	return track.Hit{Kind: kind, Run: run.Short, User: bson.RawValue{Type: typ, Value: data}, SentAt: hitsSentAt, At: hitsSentAt.Add(after), Method: "GET", UserAgent: ua}
}

func pixel(user any, ua string, after time.Duration) track.Hit {
	return hit(track.Open, &winback, user, ua, after)
}

func TestHits(t *testing.T) {
	const u1, u2, minute = int32(1), int32(2), time.Minute
	unknown := campaign.Run{Short: campaign.ShortID{9}}
	ten := make([]track.Hit, 10)
	for i := range ten {
		ten[i] = pixel(u1, browserUA, 10*minute+time.Duration(i)*time.Second)
	}
	for _, row := range []struct {
		name   string
		chunks [][]track.Hit
		change func(*HitsConfig)
		want   map[string]int64 // of winback
		all    map[string]int64 // nil: the same
		first  time.Duration    // user 1's open_first_at and open_last_at, after the send; 0: none
		last   time.Duration
	}{
		{name: "O1: one user loads the pixel ten times", chunks: [][]track.Hit{ten},
			want: map[string]int64{"hits": 10, "opened": 10, "opened_unique": 1, "opened_kind.human": 10}, first: 10 * minute, last: 10*minute + 9*time.Second},
		{name: "O1: in ten chunks", chunks: [][]track.Hit{ten[:1], ten[1:2], ten[2:7], ten[7:]},
			want: map[string]int64{"hits": 10, "opened": 10, "opened_unique": 1, "opened_kind.human": 10}, first: 10 * minute, last: 10*minute + 9*time.Second},
		{name: "O2: one second after the send, and Apple's privacy proxy", chunks: [][]track.Hit{{pixel(u2, browserUA, time.Second), pixel(u1, prefetchUA, 10*minute)}},
			want: map[string]int64{"hits": 2, "opened": 1, "opened_unique": 1, "opened_kind.machine": 1, "opened_kind.prefetch": 1}, first: 10 * minute, last: 10 * minute},
		{name: "O2b: a scanner first, the person an hour later", chunks: [][]track.Hit{{pixel(u1, browserUA, time.Second)}, {pixel(u1, browserUA, 60*minute)}},
			want: map[string]int64{"hits": 2, "opened": 1, "opened_unique": 1, "opened_kind.machine": 1, "opened_kind.human": 1}, first: 60 * minute, last: 60 * minute},
		{name: "only a scanner", chunks: [][]track.Hit{{pixel(u1, browserUA, time.Second)}},
			want: map[string]int64{"hits": 1, "opened_kind.machine": 1}},
		{name: "O3: an image proxy", chunks: [][]track.Hit{{pixel(u1, proxyUA, 10*minute)}},
			want: map[string]int64{"hits": 1, "opened": 1, "opened_unique": 1, "opened_kind.proxy": 1}, first: 10 * minute, last: 10 * minute},
		{name: "prefetch is no sign of life where the setting says so", chunks: [][]track.Hit{{pixel(u1, prefetchUA, 10*minute)}},
			change: func(c *HitsConfig) { c.SignOfLife = []string{"human", "proxy"} },
			want:   map[string]int64{"hits": 1, "opened_kind.prefetch": 1}},
		{name: "a click always is a sign of life", chunks: [][]track.Hit{{hit(track.Click, &winback, u1, "", 10*minute)}},
			change: func(c *HitsConfig) { c.SignOfLife = []string{} },
			want:   map[string]int64{"clicked": 1, "opened": 1, "opened_unique": 1}, first: 10 * minute, last: 10 * minute},
		{name: "a click and an open are one unique open", chunks: [][]track.Hit{{hit(track.Click, &winback, u1, browserUA, 11*minute), pixel(u1, browserUA, 10*minute)}},
			want: map[string]int64{"hits": 1, "clicked": 1, "opened": 2, "opened_unique": 1, "opened_kind.human": 1}, first: 10 * minute, last: 11 * minute},
		{name: "the mail seen in a browser is a click", chunks: [][]track.Hit{{hit(track.Browser, &winback, u1, browserUA, 10*minute)}},
			want: map[string]int64{"clicked": 1, "opened": 1, "opened_unique": 1}, first: 10 * minute, last: 10 * minute},
		{name: "an unsubscription is no open", chunks: [][]track.Hit{{hit(track.Unsubscribe, &winback, u1, browserUA, 10*minute)}},
			want: map[string]int64{"unsubscribed": 1}},
		{name: "a run nobody remembers counts for all alone, and never as unique", chunks: [][]track.Hit{{hit(track.Open, &unknown, u1, browserUA, 10*minute)}},
			want: map[string]int64{}, all: map[string]int64{"hits": 1, "opened": 1, "opened_kind.human": 1}, first: 10 * minute, last: 10 * minute},
		{name: "a run older than retention is never unique", chunks: [][]track.Hit{{hit(track.Open, &old, u1, browserUA, 10*minute)}},
			want: map[string]int64{}, all: map[string]int64{"hits": 1, "opened": 1, "opened_kind.human": 1}, first: 10 * minute, last: 10 * minute},
		{name: "first opens are kept for ever where there is no retention", chunks: [][]track.Hit{{hit(track.Open, &old, u1, browserUA, 10*minute)}},
			change: func(c *HitsConfig) { c.Retention = 0 },
			want:   map[string]int64{}, all: map[string]int64{"hits": 1, "opened": 1, "opened_unique": 1, "opened_kind.human": 1}, first: 10 * minute, last: 10 * minute},
		{name: "users who are gone, or whose state is no document, hold nothing up",
			chunks: [][]track.Hit{{pixel("gone", browserUA, 10*minute), pixel("broken", browserUA, 10*minute), hit(track.Unsubscribe, &winback, "gone", "", 10*minute),
				hit(track.Unsubscribe, &winback, "broken", "", 10*minute), pixel(u1, browserUA, 12*minute)}},
			want: map[string]int64{"hits": 3, "opened": 3, "opened_unique": 3, "opened_kind.human": 3, "unsubscribed": 2}, first: 12 * minute, last: 12 * minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHitsHouse(t, mongotest.DB(t))
			var change []func(*HitsConfig)
			if row.change != nil {
				change = append(change, row.change)
			}
			handler := h.handler(t, h.writer, change...)
			tasks := chunksOf(t, h.clock.Now(), row.chunks...)
			for _, task := range append(tasks, tasks...) { // all of them come twice
				if err := handler.Handle(t.Context(), task); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(row.want, h.counted(t, "winback")); diff != "" {
				t.Errorf("winback: %s", diff)
			}
			if row.all == nil {
				row.all = row.want
			}
			if diff := cmp.Diff(row.all, h.counted(t, analytics.All)); diff != "" {
				t.Errorf("all: %s", diff)
			}
			wantOpens(t, h.db, u1, row.first, row.last)
		})
	}
}

func wantOpens(t testing.TB, db *mongo.Database, user any, first, last time.Duration) {
	t.Helper()
	var doc struct {
		Postbit struct {
			First time.Time `bson:"open_first_at"`
			Last  time.Time `bson:"open_last_at"`
		}
	}
	if err := db.Collection("users").FindOne(t.Context(), bson.D{{Key: "_id", Value: user}}).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	at := func(d time.Duration) time.Time {
		if d == 0 {
			return time.Time{}
		}
		return hitsSentAt.Add(d)
	}
	if !doc.Postbit.First.Equal(at(first)) || !doc.Postbit.Last.Equal(at(last)) {
		t.Errorf("user %v opened first at %s and last at %s, want %s and %s", user, doc.Postbit.First, doc.Postbit.Last, at(first), at(last))
	}
}

func TestUnsubscription(t *testing.T) {
	h := newHitsHouse(t, mongotest.DB(t))
	handler := h.handler(t, h.writer)
	task := chunksOf(t, h.clock.Now(), []track.Hit{hit(track.Unsubscribe, &winback, int32(1), browserUA, time.Minute)})[0]
	status := func() string {
		var doc struct{ Postbit struct{ Status string } }
		if err := h.db.Collection("users").FindOne(t.Context(), bson.D{{Key: "_id", Value: int32(1)}}).Decode(&doc); err != nil {
			t.Fatal(err)
		}
		return doc.Postbit.Status
	}
	if err := handler.Handle(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	if got := status(); got != users.Unsubscribed {
		t.Fatalf("status %q, want unsubscribed", got)
	}
	// He signs up again; then the chunk is delivered once more.
	if err := h.users.Unsuppress(t.Context(), hit(0, &winback, int32(1), "", 0).User); err != nil {
		t.Fatal(err)
	}
	if err := handler.Handle(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	if got := status(); got != "" {
		t.Errorf("status %q: a second delivery of a counted chunk unsubscribed him again", got)
	}
}

func TestChunksThatAreRefused(t *testing.T) {
	h := newHitsHouse(t, mongotest.DB(t))
	handler := h.handler(t, h.writer)
	good := chunksOf(t, h.clock.Now(), []track.Hit{pixel(int32(1), browserUA, time.Minute)}, []track.Hit{pixel(int32(2), browserUA, time.Minute)})
	stale := chunksOf(t, h.clock.Now().Add(-analytics.DefaultMemory), []track.Hit{pixel(int32(1), browserUA, time.Minute)})[0]
	for _, row := range []struct {
		name string
		task queue.HitsTask
		want error
	}{
		{"older than the memory of what was counted", stale, ErrStaleChunk},
		{"not a chunk", queue.HitsTask{ID: good[0].ID, Data: []byte("x")}, track.ErrChunk},
		{"not a chunk's id", queue.HitsTask{ID: "x", Data: good[0].Data}, track.ErrChunk},
		{"another chunk's id", queue.HitsTask{ID: good[0].ID, Data: good[1].Data}, errOtherChunk},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := handler.Handle(t.Context(), row.task)
			if !errors.Is(err, row.want) || !errors.Is(err, asynq.RevokeTask) {
				t.Errorf("got %v, want %v, not to be tried again", err, row.want)
			}
		})
	}
	if got := h.counted(t, analytics.All); len(got) != 0 {
		t.Errorf("counted %v, want nothing", got)
	}
	if n := handler.Stats().Stale.Load(); n != 1 {
		t.Errorf("%d stale chunks reported, want 1", n)
	}
}

// A longer memory takes older chunks, but none of before it was raised: those may have been counted and forgotten.
func TestALongerMemoryTakesOlderChunks(t *testing.T) {
	h := newHitsHouse(t, mongotest.DB(t))
	raised := h.process(t, analytics.WithMemory(2*analytics.DefaultMemory))
	handler := h.handler(t, raised)
	made := h.clock.Now() // as the memory is raised
	young := chunksOf(t, made, []track.Hit{pixel(int32(1), browserUA, time.Minute)})[0]
	old := chunksOf(t, made.Add(-analytics.DefaultMemory-time.Minute), []track.Hit{pixel(int32(1), browserUA, time.Minute)})[0]
	h.clock.Advance(analytics.DefaultMemory + time.Hour)
	if err := handler.Handle(t.Context(), young); err != nil {
		t.Errorf("a chunk of since then: %v", err)
	}
	if err := handler.Handle(t.Context(), old); !errors.Is(err, ErrStaleChunk) {
		t.Errorf("a chunk of before: %v", err)
	}
}

func TestSignOfLifeIsChecked(t *testing.T) {
	if _, err := NewHitsHandler(HitsConfig{SignOfLife: []string{"humna"}}); err == nil {
		t.Error("humna is taken for a kind of open")
	}
}

func TestRunNamesAreBoundedAndAskedOnce(t *testing.T) {
	asked := map[campaign.ShortID]int{}
	r := newRunNames(runFinder(func(s campaign.ShortID) (*campaign.Run, error) {
		asked[s]++
		if s[0] == 9 {
			return nil, campaign.ErrNotFound
		}
		return &campaign.Run{Campaign: fmt.Sprint("c", s[0])}, nil
	}), 2)
	for _, n := range []byte{1, 2, 1, 2, 3, 2, 1, 9, 9} {
		run, err := r.get(t.Context(), campaign.ShortID{n})
		if err != nil || (run == nil) != (n == 9) || run != nil && run.campaign != fmt.Sprint("c", n) {
			t.Errorf("run %d: %+v, %v", n, run, err)
		}
	}
	if want := map[campaign.ShortID]int{{1}: 2, {2}: 1, {3}: 1, {9}: 2}; !cmp.Equal(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
	if len(r.byID) != 2 || r.recent.Len() != 2 {
		t.Errorf("remembers %d runs, want 2", len(r.byID))
	}
}

type runFinder func(campaign.ShortID) (*campaign.Run, error)

func (f runFinder) RunByShort(_ context.Context, s campaign.ShortID) (*campaign.Run, error) {
	return f(s)
}

// hitTroubles are what can happen to one command.
var hitTroubles = map[string]minimongo.Fault{
	"not applied":            {Before: minimongo.Action{Error: noAnswer}},
	"applied, answer lost":   {After: minimongo.Action{Error: noAnswer}},
	"connection lost before": {Before: minimongo.Action{Drop: true}},
	"connection lost after":  {After: minimongo.Action{Drop: true}},
	"applied late":           {Before: minimongo.Action{Hangup: true}}, // when all has been counted
}

// noAnswer leaves open whether the command was applied, and costs no new connection.
var noAnswer = &minimongo.Error{Code: 50, Message: "operation exceeded time limit"}

// The handler is cut off at every single command in turn, and the chunk is delivered again, to it and to another process.
func TestHitsInTrouble(t *testing.T) {
	hits := [][]track.Hit{
		{pixel(int32(1), browserUA, time.Minute), pixel(int32(1), browserUA, 2*time.Minute), pixel(int32(2), browserUA, time.Second), hit(track.Unsubscribe, &winback, int32(3), "", time.Minute)},
		{pixel(int32(1), proxyUA, 3*time.Minute), pixel(int32(2), browserUA, 3*time.Minute), click(int32(4), "https://shop.example.com/", 4*time.Minute), view("https://shop.example.com/", "")},
	}
	want := map[string]int64{"hits": 5, "opened": 5, "opened_unique": 3, "opened_kind.human": 3, "opened_kind.proxy": 1, "opened_kind.machine": 1, "clicked": 1, "unsubscribed": 1}
	tasks := chunksOf(t, hitsSentAt.Add(time.Hour), hits...)
	for name, fault := range hitTroubles {
		t.Run(name, func(t *testing.T) {
			const most = 50
			var met atomic.Int64
			var wg sync.WaitGroup
			for nth := 1; nth <= most; nth++ {
				srv, db := mongotest.Server(t)
				h := newHitsHouse(t, db)
				a, b := h.handler(t, h.writer), h.handler(t, h.process(t))
				f := fault
				f.Nth, f.Reached = nth, func() { met.Add(1) }
				late := make(chan struct{})
				if f.Before.Hangup {
					f.Before.Wait = late
				}
				remove := srv.Inject(f)
				wg.Go(func() {
					for _, handler := range []*HitsHandler{a, b, a} {
						for _, task := range tasks {
							for handler.Handle(t.Context(), task) != nil && t.Context().Err() == nil {
							}
						}
					}
					remove()
					close(late)
					for _, task := range tasks {
						for a.Handle(t.Context(), task) != nil && t.Context().Err() == nil {
						}
					}
					for _, name := range []string{"winback", analytics.All} {
						if diff := cmp.Diff(want, h.counted(t, name)); diff != "" {
							t.Errorf("trouble at command %d: %s: %s", nth, name, diff)
						}
					}
					wantTop(t, db, analytics.Links, "winback", map[string]int64{"https://shop.example.com/": 1})
					wantTop(t, db, analytics.Pages, "shop", map[string]int64{"https://shop.example.com/": 1})
					wantOpens(t, db, int32(1), time.Minute, 3*time.Minute)
					wantOpens(t, db, int32(2), 3*time.Minute, 3*time.Minute)
				})
			}
			wg.Wait()
			if n := met.Load(); n < 15 || n == most {
				t.Errorf("%d of the first %d commands met trouble; the test has lost its point", n, most)
			}
		})
	}
}

// Many chunks, delivered at least once to several processes at the same time, while commands fail: the counts are those of
// the hits, and each user who opened is unique once.
func TestHitsAreCountedExactlyOnce(t *testing.T) {
	srv, db := mongotest.Server(t)
	h := newHitsHouse(t, db)
	a, b := h.handler(t, h.writer), h.handler(t, h.process(t, analytics.WithPatience(20*time.Millisecond)))
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 0))
		run := campaign.Run{ID: fmt.Sprint("r", seed), Short: campaign.ShortID{100, byte(seed)}, Campaign: fmt.Sprint("c", seed), Slot: hitsSentAt, StartedAt: hitsSentAt, State: campaign.RunDone}
		if err := h.store.InsertRun(t.Context(), &run); err != nil {
			t.Fatal(err)
		}
		lists, want := randomHits(rng, &run)
		tasks := chunksOf(t, h.clock.Now(), lists...)
		var removes []func()
		for range rng.IntN(10) {
			f := hitTroubles[[]string{"not applied", "applied, answer lost"}[rng.IntN(2)]]
			f.Nth = 1 + rng.IntN(30)
			removes = append(removes, srv.Inject(f))
		}
		var wg sync.WaitGroup
		for _, task := range tasks {
			for _, handler := range []*HitsHandler{a, b} {
				wg.Go(func() { _ = handler.Handle(t.Context(), task) })
			}
		}
		wg.Wait()
		for _, remove := range removes {
			remove()
		}
		for _, task := range tasks { // until it is done, as the spool does
			if err := a.Handle(t.Context(), task); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, h.counted(t, run.Campaign)); diff != "" {
			t.Errorf("seed %d: %s", seed, diff)
		}
	}
}

// randomHits are some chunks of loads by some users, and what is to be counted of them.
func randomHits(rng *rand.Rand, run *campaign.Run) (lists [][]track.Hit, want map[string]int64) {
	want = map[string]int64{}
	opened := map[int]bool{}
	lists = make([][]track.Hit, 1+rng.IntN(5))
	for i := range lists {
		for range 1 + rng.IntN(6) {
			user, ua := rng.IntN(5), []string{browserUA, proxyUA, prefetchUA, ""}[rng.IntN(4)]
			hit := hit(track.Open, run, int32(user), ua, time.Duration(3+rng.IntN(3000))*time.Second)
			lists[i] = append(lists[i], hit)
			want["hits"]++
			want["opened_kind."+string(hit.OpenKind())]++
			if hit.OpenKind() == track.Machine {
				continue
			}
			want["opened"]++
			if !opened[user] {
				opened[user] = true
				want["opened_unique"]++
			}
		}
	}
	return lists, want
}
