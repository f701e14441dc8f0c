package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/queue"
	"postbit/internal/track"
	"postbit/internal/users"
)

// HitRuns finds the run that a token names; campaign.ErrNotFound where there is none.
type HitRuns interface {
	RunByShort(ctx context.Context, short campaign.ShortID) (*campaign.Run, error)
}

// HitOpens tells which hits are first opens, and the same whenever it is asked again.
type HitOpens interface {
	First(ctx context.Context, keys []analytics.OpenKey) ([]bool, error)
}

// HitUsers notes in users' documents what they did. Both may be done again.
type HitUsers interface {
	Opened(ctx context.Context, opens []users.Open) (passedOver int, err error)
	Suppress(ctx context.Context, id bson.RawValue, status string, at time.Time) error
}

// HitCounters counts a chunk once, by its id.
type HitCounters interface {
	Apply(ctx context.Context, id string, incs []analytics.Increment) error
	Done(ctx context.Context, ids []string) (map[string]bool, error)
	Memory() time.Duration
}

// HitsConfig is what the handler of hits works with.
type HitsConfig struct {
	Runs      HitRuns
	Opens     HitOpens
	Users     HitUsers
	Analytics HitCounters
	Values    HitValues // nil: pages, referrers, terms and links are not counted
	// SignOfLife are the kinds of opens that are a person's own: they move the user's open times, and count as opened.
	// nil: human, proxy, prefetch. A click always is one.
	SignOfLife []string
	Retention  time.Duration // a hit of an older run is never a first open, since those may be gone; 0: they are kept for ever
	Clock      *clock.Clock
	Log        *slog.Logger
}

// HitsHandler counts chunks of hits. All that it does to MongoDB gives the same in the end however often a chunk comes,
// from how many places at once, and wherever it is cut off on the way.
type HitsHandler struct {
	cfg   HitsConfig
	life  map[track.OpenKind]bool
	runs  *runNames
	stats HitsStats
}

// HitsStats are counts since the start of the process.
type HitsStats struct {
	Chunks, Hits atomic.Int64 // counted, those of other processes' second deliveries not among them
	Stale        atomic.Int64 // chunks refused because they are older than the memory of what was counted
	PassedOver   atomic.Int64 // users who are gone, or whose document has no room for what is to be noted
	UnknownRuns  atomic.Int64 // hits that count for all alone, since nobody remembers their run
}

// Errors of chunks that no second try mends. Handle wraps them so that the queue does not try again.
var (
	ErrStaleChunk = errors.New("the chunk is older than the memory of what was counted")
	errOtherChunk = errors.New("the task bears another id than its chunk")
)

// NewHitsHandler returns a handler of hits; it says so where a kind in SignOfLife is none.
func NewHitsHandler(cfg HitsConfig) (*HitsHandler, error) {
	if cfg.SignOfLife == nil {
		cfg.SignOfLife = []string{string(track.Human), string(track.Proxy), string(track.Prefetch)}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	h := &HitsHandler{cfg: cfg, life: map[track.OpenKind]bool{}, runs: newRunNames(cfg.Runs, 1024)}
	for _, name := range cfg.SignOfLife {
		switch kind := track.OpenKind(name); kind {
		case track.Human, track.Proxy, track.Prefetch, track.Machine:
			h.life[kind] = true
		default:
			return nil, fmt.Errorf("opens.sign_of_life: %q is no kind of open; human, proxy, prefetch, machine", name)
		}
	}
	return h, nil
}

// Stats are what this process has done so far.
func (h *HitsHandler) Stats() *HitsStats { return &h.stats }

// Handle counts one chunk: first opens, then what users' documents note, then, under the chunk's id and so only once, the
// counters. The chunk may be delivered again; one that is counted is left alone at once.
func (h *HitsHandler) Handle(ctx context.Context, t queue.HitsTask) error {
	done, err := h.cfg.Analytics.Done(ctx, []string{t.ID})
	if err != nil {
		return fmt.Errorf("worker: hits %s: %w", t.ID, err)
	}
	if done[t.ID] {
		return nil
	}
	now := h.cfg.Clock.Now()
	if err := h.fresh(t.ID, now); err != nil {
		return err
	}
	hits, err := track.DecodeChunk(t.Data)
	if err == nil && len(hits) > 0 && !strings.HasPrefix(hits[0].ID, t.ID+"/") {
		err = errOtherChunk
	}
	if err != nil {
		return fmt.Errorf("worker: hits %s: %w (%w)", t.ID, err, asynq.RevokeTask)
	}
	c := &chunk{h: h, id: t.ID, now: now, hits: hits, counts: map[countKey]int64{}}
	for _, step := range []func(context.Context) error{c.findRuns, c.findFirst, c.noteOpens, c.noteUnsubscribed, c.findValues} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("worker: hits %s: %w", t.ID, err)
		}
	}
	if err := h.cfg.Analytics.Apply(ctx, t.ID, c.increments()); err != nil {
		return fmt.Errorf("worker: hits %s: %w", t.ID, err)
	}
	h.stats.Chunks.Add(1)
	h.stats.Hits.Add(int64(len(hits)))
	return nil
}

// fresh refuses a chunk of which nobody can say any more whether it was counted.
func (h *HitsHandler) fresh(id string, now time.Time) error {
	begun, err := track.ChunkTime(id)
	if err != nil {
		return fmt.Errorf("worker: hits: %w (%w)", err, asynq.RevokeTask)
	}
	if now.Sub(begun) < h.cfg.Analytics.Memory() {
		return nil
	}
	h.stats.Stale.Add(1)
	return fmt.Errorf("worker: hits %s of %s: %w (%s): it was counted, or is lost (%w)", id, begun.Format(time.RFC3339), ErrStaleChunk, h.cfg.Analytics.Memory(), asynq.RevokeTask)
}

// chunk is one chunk on its way through Handle.
type chunk struct {
	h      *HitsHandler
	id     string
	now    time.Time
	hits   []track.Hit
	runs   []*runName // by hit; nil: unknown
	first  []bool     // by hit: a person's first open in its run
	counts map[countKey]int64
	ranges analytics.RangeTally
	values []analytics.Increment
}

type countKey struct {
	campaign, metric string
	minute           time.Time
}

func (c *chunk) findRuns(ctx context.Context) error {
	c.runs = make([]*runName, len(c.hits))
	found := map[campaign.ShortID]*runName{}
	for i := range c.hits {
		if c.hits[i].Kind == track.View {
			continue
		}
		short := campaign.ShortID(c.hits[i].Run)
		run, ok := found[short]
		if !ok {
			var err error
			if run, err = c.h.runs.get(ctx, short); err != nil {
				return err
			}
			found[short] = run
		}
		c.runs[i] = run
	}
	return nil
}

// person says whether the hit is a sign of life of the user.
func (c *chunk) person(hit *track.Hit) bool {
	switch hit.Kind {
	case track.Open:
		return c.h.life[hit.OpenKind()]
	case track.Click, track.Browser:
		return true
	}
	return false
}

// findFirst asks for every open and click of a run that is young enough to have its first opens kept.
func (c *chunk) findFirst(ctx context.Context) error {
	c.first = make([]bool, len(c.hits))
	var (
		keys []analytics.OpenKey
		of   []int // the hit of each key
	)
	for i := range c.hits {
		hit, run := &c.hits[i], c.runs[i]
		if hit.Kind == track.Unsubscribe || hit.Kind == track.View || run == nil || c.h.cfg.Retention > 0 && c.now.Sub(run.slot) > c.h.cfg.Retention {
			continue
		}
		kind := analytics.Machine
		if c.person(hit) {
			kind = analytics.Person
		}
		keys = append(keys, analytics.OpenKey{Run: run.id, Month: analytics.Month(run.slot), User: hit.User, Kind: kind, Hit: hit.ID, At: hit.At})
		of = append(of, i)
	}
	if len(keys) == 0 {
		return nil
	}
	first, err := c.h.cfg.Opens.First(ctx, keys)
	if err != nil {
		return err
	}
	for k, i := range of {
		c.first[i] = first[k] && keys[k].Kind == analytics.Person
	}
	return nil
}

// noteOpens moves the open times of users who showed a sign of life.
func (c *chunk) noteOpens(ctx context.Context) error {
	at := map[string]int{}
	var opens []users.Open
	for i := range c.hits {
		hit := &c.hits[i]
		if !c.person(hit) {
			continue
		}
		key := string(hit.User.Type) + string(hit.User.Value)
		n, seen := at[key]
		if !seen {
			at[key] = len(opens)
			opens = append(opens, users.Open{User: hit.User, First: hit.At, Last: hit.At})
			continue
		}
		if o := &opens[n]; hit.At.Before(o.First) {
			o.First = hit.At
		} else if hit.At.After(o.Last) {
			o.Last = hit.At
		}
	}
	if len(opens) == 0 {
		return nil
	}
	passedOver, err := c.h.cfg.Users.Opened(ctx, opens)
	if err != nil {
		return err
	}
	if passedOver > 0 {
		c.h.stats.PassedOver.Add(int64(passedOver))
		c.h.cfg.Log.Warn("opens could not be noted for users who are gone or whose documents have no room for it", "chunk", c.id, "users", passedOver)
	}
	return nil
}

func (c *chunk) noteUnsubscribed(ctx context.Context) error {
	for i := range c.hits {
		hit := &c.hits[i]
		if hit.Kind != track.Unsubscribe {
			continue
		}
		err := c.h.cfg.Users.Suppress(ctx, hit.User, users.Unsubscribed, hit.At)
		if err == nil {
			continue
		}
		if !ofOneUser(err) {
			return err
		}
		c.h.stats.PassedOver.Add(1)
		c.h.cfg.Log.Error("an unsubscription could not be noted in the user's document", "chunk", c.id, "user", users.FormatID(hit.User), "err", err)
	}
	return nil
}

// ofOneUser tells an error of one document, which must not hold up the others, from one of the database.
func ofOneUser(err error) bool {
	var we mongo.WriteException
	return errors.Is(err, users.ErrNotFound) || errors.Is(err, users.ErrStateShape) || errors.As(err, &we) && len(we.WriteErrors) > 0
}

// increments are what the chunk counts, by the minutes in which its hits were answered.
func (c *chunk) increments() []analytics.Increment {
	for i := range c.hits {
		hit := &c.hits[i]
		switch hit.Kind {
		case track.Open:
			c.count(i, analytics.Hits)
			c.count(i, analytics.OpenedKind+string(hit.OpenKind()))
		case track.Click, track.Browser:
			c.count(i, analytics.Clicked)
		case track.Unsubscribe:
			c.count(i, analytics.Unsubscribed)
		case track.View:
			continue
		}
		if c.person(hit) {
			c.count(i, analytics.Opened)
		}
		if c.first[i] {
			c.count(i, analytics.OpenedUnique)
		}
		if c.runs[i] == nil {
			c.h.stats.UnknownRuns.Add(1)
		}
	}
	var incs []analytics.Increment
	for key, n := range c.counts {
		incs = append(incs, analytics.Day(key.campaign, key.metric, key.minute, n)...)
	}
	c.countRanges()
	return append(append(incs, c.ranges.Increments()...), c.values...)
}

// count counts a hit for its campaign and for all; of a run that nobody remembers, for all alone: the token was signed by
// us, so it was a mail of ours.
func (c *chunk) count(i int, metric string) {
	key := countKey{metric: metric, minute: c.hits[i].At.Truncate(time.Minute)}
	if run := c.runs[i]; run != nil {
		key.campaign = run.campaign
	}
	c.counts[key]++
}
