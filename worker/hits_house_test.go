package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/clock"
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
