package e2e

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.uber.org/goleak"

	"postbit/internal/analytics"
	"postbit/internal/bitfield"
	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/limits"
	"postbit/internal/mail"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/queue"
	"postbit/internal/queue/redistest"
	"postbit/internal/track"
	"postbit/internal/users"
	"postbit/scheduler"
	"postbit/templates"
	"postbit/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 12, 1, 8, 59, 0, 0, time.UTC)

// house is a database, a Redis, an SMTP server, and one scheduler whose steps the test takes; workers come and go.
type house struct {
	t     testing.TB
	ctx   context.Context
	db    *mongo.Database
	uri   string // of the database, where it is a minimongo
	redis redis.UniversalClient
	clk   *clock.Clock
	post  *office
	log   *slog.Logger

	coll      *mongo.Collection
	users     *users.Store
	templates *templates.Registry
	runs      *campaign.Store
	batches   *campaign.Batches
	queue     *queue.Client
	writer    *analytics.Writer
	urls      *track.URLs
	keys      *track.Keys
	sched     *scheduler.Scheduler
	steps     int            // of goOn
	settler   *worker.Worker // of the scheduler's process: settles, and takes no task
}

func newHouse(t testing.TB) *house {
	if os.Getenv(mongotest.EnvURI) != "" {
		return houseOn(t, mongotest.DB(t))
	}
	srv, db := mongotest.Server(t)
	h := houseOn(t, db)
	h.uri = srv.URI()
	return h
}

func houseOn(t testing.TB, db *mongo.Database) *house {
	t.Helper()
	h := &house{t: t, ctx: t.Context(), db: db, redis: redistest.Client(t), clk: clock.At(start), post: openOffice(t), log: slog.New(slog.DiscardHandler)}
	if os.Getenv("POSTBIT_TEST_LOG") != "" {
		h.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	h.post.clk = h.clk
	h.coll = db.Collection("users")
	h.users = must(users.New(h.coll, users.Config{}))(t)
	h.templates = must(templates.Open(db))(t)
	h.runs, h.batches = campaign.NewStore(db), campaign.NewBatches(db, h.clk)
	h.queue = queue.NewClient(h.redis)
	h.keys = must(track.ParseKeys("a:" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))))(t)
	h.urls = must(track.NewURLs("https://m.example.com", h.keys))(t)
	h.writer = analytics.NewWriter(db, h.clk, h.log)
	h.check(errors.Join(h.templates.EnsureIndexes(h.ctx), h.runs.EnsureIndexes(h.ctx), h.writer.EnsureIndexes(h.ctx)))
	h.background(func(ctx context.Context) { _ = h.writer.Run(ctx) })
	h.settler = h.newWorker(h.batches, h.runs, h.users, h.transport())
	h.sched = h.newScheduler()
	return h
}

func (h *house) newScheduler() *scheduler.Scheduler {
	return scheduler.New(scheduler.Config{DB: h.db, Runs: h.runs, Batches: h.batches, Templates: registry{h.templates}, Clock: h.clk, Queue: h.queue,
		Settle: h.settler.Settle, Limits: limits.New(h.db.Collection(limits.Collection), h.clk), Counters: h.writer, Log: h.log})
}

// registry is the templates as the scheduler asks for them.
type registry struct{ *templates.Registry }

func (r registry) TemplateInfo(ctx context.Context, name string) (campaign.TemplateInfo, error) {
	t, err := r.Get(ctx, name)
	if errors.Is(err, templates.ErrNotFound) {
		return campaign.TemplateInfo{}, nil
	}
	if err != nil {
		return campaign.TemplateInfo{}, err
	}
	return campaign.TemplateInfo{Exists: true, Retired: t.Retired(), Repeat: t.Repeat, Snapshot: templates.Snapshot(t)}, nil
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (h *house) check(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// background runs f until the test ends, or stop is called.
func (h *house) background(f func(ctx context.Context)) (stop func()) {
	ask, ended := h.task(f)
	return func() { ask(); ended() }
}

// task is background with a stop in two steps: ask tells f to end, ended waits until it has.
func (h *house) task(f func(ctx context.Context)) (ask, ended func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f(ctx) })
	h.t.Cleanup(func() { cancel(); wg.Wait() })
	return cancel, wg.Wait
}

func (h *house) transport() mail.Transport {
	tr := must(mail.Open("smtp://"+h.post.addr, mail.Options{}))(h.t)
	h.t.Cleanup(func() { _ = tr.Close() })
	return tr
}

func (h *house) newWorker(b *campaign.Batches, r *campaign.Store, u *users.Store, tr mail.Transport, change ...func(*worker.Config)) *worker.Worker {
	cfg := worker.Config{Batches: b, Runs: r, Users: u, Limiter: limits.New(h.db.Collection(limits.Collection), h.clk), Transport: tr, URLs: h.urls,
		Analytics: h.writer, Clock: h.clk, Log: h.log, From: "Postbit <news@example.com>", Connections: 2,
		Replan: func(ctx context.Context, run string) error { return h.queue.EnqueuePlan(ctx, queue.PlanTask{Run: run}) }}
	for _, f := range change {
		f(&cfg)
	}
	return worker.New(cfg)
}

// hire starts a worker process: planner, dispatcher and counter of hits on asynq servers of its own. stop is its SIGTERM, and returns when
// it has ended.
func (h *house) hire(change ...func(*worker.Config)) (stop func()) {
	h.t.Helper()
	return h.background(h.process(change...))
}

// process is what a worker process runs until its context ends.
func (h *house) process(change ...func(*worker.Config)) func(context.Context) {
	h.t.Helper()
	w := h.newWorker(h.batches, h.runs, h.users, h.transport(), change...)
	planner := worker.NewPlanner(worker.PlannerConfig{Runs: h.runs, Batches: h.batches, Users: h.coll, Queue: h.queue, Clock: h.clk, Log: h.log})
	hits := must(worker.NewHitsHandler(worker.HitsConfig{Runs: h.runs, Opens: analytics.NewOpens(h.db), Users: h.users, Analytics: h.writer,
		Retention: 180 * 24 * time.Hour, Clock: h.clk, Log: h.log}))(h.t)
	srv := queue.NewServer(queue.ServerConfig{Redis: h.redis, Batches: 8, Grace: 20 * time.Second, Log: h.log},
		queue.Handlers{Plan: planner.HandlePlan, Batch: w.HandleBatch, Hits: hits.Handle})
	return func(ctx context.Context) {
		var parts sync.WaitGroup
		parts.Go(func() { _ = w.Run(ctx) })
		parts.Go(func() {
			if err := srv.Run(ctx); err != nil {
				h.t.Error(err)
			}
		})
		parts.Wait()
	}
}

// campaign pushes a template and applies a campaign of the same name, started by hand; more lines are its file's.
func (h *house) campaign(name string, bit int, more ...string) {
	h.t.Helper()
	dir := h.t.TempDir()
	for _, sub := range []string{"t", "c"} {
		h.check(os.MkdirAll(filepath.Join(dir, sub), 0o755))
	}
	h.check(os.WriteFile(filepath.Join(dir, "t", name+".html"), fmt.Appendf(nil, `---
name: %s
bitIndex: %d
subject: "%s for {{ .User.name }}"
---
<html><body><p>Hello {{ .User.name }}</p><a href="{{ unsubscribe }}">leave</a></body></html>
`, name, bit, name), 0o644))
	text := "name: " + name + "\ntemplate: " + name + "\n"
	audience := "audience: {}\n"
	for _, line := range more {
		if len(line) > 9 && line[:9] == "audience:" {
			audience = ""
		}
		text += line + "\n"
	}
	h.check(os.WriteFile(filepath.Join(dir, "c", name+".yaml"), []byte(text+audience), 0o644))
	push := must(h.templates.PlanPush(h.ctx, filepath.Join(dir, "t"), templates.PushOptions{BitsInUse: h.users.BitsInUse}))(h.t)
	h.check(h.templates.Apply(h.ctx, push))
	plan := must(h.runs.PlanApply(h.ctx, filepath.Join(dir, "c"), campaign.ApplyOptions{Now: h.clk.Now(), Start: true, Templates: registry{h.templates}}))(h.t)
	h.check(h.runs.Apply(h.ctx, plan))
}

// fire starts a run by hand.
func (h *house) fire(name string) *campaign.Run {
	h.t.Helper()
	return must(h.sched.StartManual(h.ctx, name, ""))(h.t)
}

// seed makes users 0 to n-1; change alters the document of one.
func (h *house) seed(n int, change ...func(i int, doc bson.M)) {
	h.t.Helper()
	docs := make([]any, n)
	for i := range docs {
		doc := bson.M{"_id": int32(i), "email": address(i), "name": fmt.Sprintf("User %d", i), "timezone": "Europe/Berlin"}
		for _, f := range change {
			f(i, doc)
		}
		docs[i] = doc
	}
	_, err := h.coll.InsertMany(h.ctx, docs)
	h.check(err)
}

// stores reports whether the database takes a document at all. The refusal of one is the server's answer; anything else fails the test.
func (h *house) stores(doc bson.M) bool {
	h.t.Helper()
	_, err := h.db.Collection("probe").InsertOne(h.ctx, doc)
	var refused mongo.ServerError
	if err != nil && !errors.As(err, &refused) {
		h.t.Fatal(err)
	}
	if err != nil {
		h.t.Logf("the server takes no such document: %v", err)
	}
	return err == nil
}

// tick takes every step of the scheduler once.
func (h *house) tick() {
	h.t.Helper()
	for _, step := range []func(context.Context) error{h.sched.Fire, h.sched.Feed, h.sched.Reconcile} {
		h.check(step(h.ctx))
	}
}

// closed is whether a channel is, for until.
func closed(c <-chan struct{}) func() bool {
	return func() bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
}

// until ticks until ok holds; the test's own deadline bounds it. It looks again and again, since what it waits for comes of the
// scheduler's steps, which it takes itself, and stands in the database, which may be another server's.
func (h *house) until(what string, ok func() bool) {
	h.t.Helper()
	deadline := time.Now().Add(90 * time.Second) // of a test that fails
	for !ok() {
		if time.Now().After(deadline) {
			for _, r := range must(h.runs.Unfinished(h.ctx))(h.t) {
				p, _ := h.batches.Progress(h.ctx, &r)
				h.t.Logf("%s: %s, paused %q: %+v", r.ID, r.State, r.Paused, p)
			}
			h.t.Fatalf("%s: it never came", what)
		}
		h.tick()
		time.Sleep(10 * time.Millisecond) // between two looks
	}
}

func (h *house) run(r *campaign.Run) *campaign.Run {
	h.t.Helper()
	return must(h.runs.Run(h.ctx, r.ID))(h.t)
}

// finish waits for the end of runs.
func (h *house) finish(want campaign.RunState, runs ...*campaign.Run) {
	h.t.Helper()
	for _, r := range runs {
		h.until(r.ID+" ends", func() bool { return h.run(r).State.Finished() })
		if got := h.run(r).State; got != want {
			h.t.Errorf("%s is %s, want %s", r.ID, got, want)
		}
	}
}

// quiet reports whether nothing of a run is under way or could be: nobody owns a batch, and none is due.
func (h *house) quiet(r *campaign.Run) bool {
	h.t.Helper()
	now := h.run(r)
	owned := must(h.db.Collection(campaign.BatchCollection(r.Slot)).CountDocuments(h.ctx, bson.D{{Key: "run", Value: r.ID}, {Key: "owner", Value: bson.D{{Key: "$exists", Value: true}}}}))(h.t)
	if owned > 0 || !now.PlanDone {
		return false
	}
	if now.Paused != "" {
		return true
	}
	return len(must(h.batches.Due(h.ctx, now, h.clk.Now(), 1))(h.t)) == 0
}

// goOn moves the clock to the next time at which a run has something to do, once nothing is under way.
func (h *house) goOn(r *campaign.Run) {
	h.t.Helper()
	if h.steps++; h.steps > 2000 {
		h.t.Fatalf("%s does not end: %+v", r.ID, must(h.batches.Progress(h.ctx, r))(h.t))
	}
	h.tick()
	h.until("a quiet moment", func() bool { return h.run(r).State.Finished() || h.quiet(r) })
	next := must(h.batches.NextDue(h.ctx, r))(h.t)
	if d := next.Sub(h.clk.Now()); d > 0 {
		h.clk.Advance(d)
	}
}

// goToTheEnd lets time pass until a run has ended.
func (h *house) goToTheEnd(r *campaign.Run) {
	h.t.Helper()
	for !h.run(r).State.Finished() {
		h.goOn(r)
	}
}

// outcomes maps "sent", "failed/bounced", "skipped/address" … to users.
func (h *house) outcomes(r *campaign.Run) map[string][]int {
	h.t.Helper()
	m := map[string][]int{}
	h.check(h.batches.Outcomes(h.ctx, r, func(u campaign.UserOutcome) error {
		key := u.Outcome.String()
		if x := u.Outcome.Class() + u.Outcome.Rule(); x != "" {
			key += "/" + x
		}
		m[key] = append(m[key], int(u.User.AsInt64()))
		return nil
	}))
	return m
}

// audit checks what must hold of every run that has ended, whatever happened to it: counts that add up, at most one copy each, one for
// everybody who counts as sent, none for anybody else but the unconfirmed, the same in the log, the counts and the analytics.
func (h *house) audit(r *campaign.Run, n int) campaign.Counts {
	h.t.Helper()
	c := h.run(r).Counts
	sum := c.Sent + c.Failed + c.Unconfirmed
	for _, k := range c.Skipped {
		sum += k
	}
	if c.Audience != int64(n) || c.Checked != int64(n) || sum != int64(n) || c.Deferred != 0 {
		h.t.Errorf("%s: the counts do not add up for %d users: %+v", r.ID, n, c)
	}
	spec := r.Spec.Name
	log := map[string]int64{}
	h.check(h.batches.Outcomes(h.ctx, r, func(u campaign.UserOutcome) error {
		i := int(u.User.AsInt64())
		log[u.Outcome.String()]++
		switch copies := h.post.copies(i, spec); {
		case copies > 1:
			h.t.Errorf("%s: user %d has %d copies", r.ID, i, copies)
		case u.Outcome == campaign.Sent && copies != 1:
			h.t.Errorf("%s: user %d counts as sent and has no copy", r.ID, i)
		case u.Outcome != campaign.Sent && u.Outcome != campaign.Unconfirmed && copies != 0:
			h.t.Errorf("%s: user %d counts as %s and has a copy", r.ID, i, u.Outcome)
		}
		return nil
	}))
	day := must(analytics.NewReader(h.db).Totals(h.ctx, spec, start.AddDate(0, 0, -1), h.clk.Now().AddDate(0, 0, 1)))(h.t)
	for name, want := range map[string]int64{"sent": c.Sent, "failed": c.Failed, "unconfirmed": c.Unconfirmed} {
		if log[name] != want || day[name] != want {
			h.t.Errorf("%s: %s: counts %d, log %d, analytics %d", r.ID, name, want, log[name], day[name])
		}
	}
	return c
}

// user is a user's document, with postbit's part of it.
func (h *house) user(i int) (doc struct {
	Bits    bson.Binary `bson:"tpls_sent_at_least_once"`
	Postbit struct {
		Status string    `bson:"status"`
		OpenAt time.Time `bson:"open_first_at"`
	} `bson:"postbit"`
}) {
	h.t.Helper()
	h.check(h.coll.FindOne(h.ctx, bson.D{{Key: "_id", Value: int32(i)}}).Decode(&doc))
	return doc
}

func (h *house) bit(i, bit int) bool { return bitfield.Has(h.user(i).Bits.Data, bit) }
