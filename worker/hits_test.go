package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/queue"
	"postbit/internal/track"
	"postbit/internal/users"
)

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
