package worker

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/track"
)

// hitTroubles are what can happen to one command.
var hitTroubles = map[string]minimongo.Fault{
	"not applied":            {Before: minimongo.Action{Error: noAnswer}},
	"applied, answer lost":   {After: minimongo.Action{Error: noAnswer}},
	"connection lost before": {Before: minimongo.Action{Drop: true}},
	"connection lost after":  {After: minimongo.Action{Drop: true}},
	"applied late":           {Before: minimongo.Action{Hangup: true}}, // when all has been counted
}

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
