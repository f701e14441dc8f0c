package worker

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/analytics"
	"postbit/internal/bitfield"
	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/limits"
	"postbit/internal/mail"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/queue"
	"postbit/internal/track"
	"postbit/internal/users"
	"postbit/templates"
)

const testBit = 7

var testStart = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)

// house is everything a worker needs, on a database of its own.
type house struct {
	t       testing.TB
	ctx     context.Context
	db      *mongo.Database
	clk     *clock.Clock
	batches *campaign.Batches
	runs    *campaign.Store
	users   *users.Store
	coll    *mongo.Collection
	smtp    *fakeSMTP
	counts  *analytics.Writer
	urls    *track.URLs
	limiter *limits.Limiter
	log     *slog.Logger
}

func newHouse(t testing.TB) *house { return houseOn(t, mongotest.DB(t)) }

func houseOn(t testing.TB, db *mongo.Database) *house {
	t.Helper()
	clk := clock.At(testStart)
	h := &house{t: t, ctx: t.Context(), db: db, clk: clk, batches: campaign.NewBatches(db, clk), runs: campaign.NewStore(db),
		coll: db.Collection("users"), smtp: newFakeSMTP(), limiter: limits.New(db.Collection(limits.Collection), clk)}
	h.log = slog.New(slog.DiscardHandler)
	if testing.Verbose() && os.Getenv("POSTBIT_TEST_LOG") != "" {
		h.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	var err error
	h.users, err = users.New(h.coll, users.Config{})
	h.check(err)
	keys, err := track.ParseKeys("a:" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef")))
	h.check(err)
	h.urls, err = track.NewURLs("https://m.example.com", keys)
	h.check(err)
	h.check(h.batches.EnsureIndexes(h.ctx, testStart))
	h.check(h.runs.EnsureIndexes(h.ctx))
	h.counts = analytics.NewWriter(db, clk, h.log)
	h.check(h.counts.EnsureIndexes(h.ctx))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.counts.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("analytics writer: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return h
}

func (h *house) check(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// worker starts a worker that is stopped with the test.
func (h *house) worker(change ...func(*Config)) *Worker {
	w := h.idleWorker(change...)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	h.t.Cleanup(func() { cancel(); running.Wait() })
	return w
}

func (h *house) idleWorker(change ...func(*Config)) *Worker {
	cfg := Config{Batches: h.batches, Runs: h.runs, Users: h.users, Limiter: h.limiter, Transport: h.smtp, URLs: h.urls,
		Analytics: h.counts, Clock: h.clk, Log: h.log, From: "Postbit <news@example.com>"}
	for _, f := range change {
		f(&cfg)
	}
	w := New(cfg)
	w.retryPause = time.Millisecond
	return w
}

func template(bit int) *templates.Template {
	return &templates.Template{Name: fmt.Sprintf("winback%d", bit), BitIndex: bit, Subject: "Hello {{ .User.name }}", Track: true, Revision: 1,
		HTML: `<html><body><p>Come back, {{ .User.name }}</p><a href="{{ unsubscribe }}">no more</a></body></html>`}
}

// run makes a run of n users in batches of 500 at most.
func (h *house) run(name string, n int, change ...func(*campaign.Run)) *campaign.Run {
	h.t.Helper()
	short := campaign.ShortID{}
	copy(short[:], name)
	r := &campaign.Run{ID: name + "@2026-12-01T09:00:00Z", Short: short, Campaign: name, Slot: h.clk.Now(), StartedAt: h.clk.Now(),
		State: campaign.RunSending, Template: templates.Snapshot(template(testBit)),
		Spec: campaign.Spec{Name: name, Template: "winback", Audience: `{}`, ExpiresAfter: 24 * time.Hour}}
	for _, f := range change {
		f(r)
	}
	h.check(h.runs.InsertRun(h.ctx, r))
	for at, batch := 0, 1; at < n; at, batch = at+500, batch+1 {
		var ids []bson.RawValue
		for i := at; i < min(at+500, n); i++ {
			ids = append(ids, userID(i))
		}
		h.check(h.batches.Insert(h.ctx, r, batch, ids))
	}
	return r
}

func userID(i int) bson.RawValue {
	_, data, _ := bson.MarshalValue(int32(i))
	return bson.RawValue{Type: bson.TypeInt32, Value: data}
}

func address(i int) string { return fmt.Sprintf("u%d@d%d.example", i, i%7) }

func addressee(to string) int {
	i, _ := strconv.Atoi(strings.TrimPrefix(to[:strings.IndexByte(to, '@')], "u"))
	return i
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

// handle runs the passes of all batches that are due now.
func (h *house) handle(w *Worker, r *campaign.Run) {
	h.t.Helper()
	for range 50 {
		now := h.now(r)
		due, err := h.batches.Due(h.ctx, now, h.clk.Now(), 100)
		h.check(err)
		if len(due) == 0 || now.Paused != "" {
			return
		}
		for _, d := range due {
			h.check(w.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: d.N, Pass: d.Pass}))
		}
	}
}

func (h *house) now(r *campaign.Run) *campaign.Run {
	h.t.Helper()
	got, err := h.runs.Run(h.ctx, r.ID)
	h.check(err)
	return got
}

func (h *house) progress(r *campaign.Run) campaign.Progress {
	h.t.Helper()
	p, err := h.batches.Progress(h.ctx, r)
	h.check(err)
	return p
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
		m[key] = append(m[key], int(u.User.Int32()))
		return nil
	}))
	return m
}

// user is a user document; bit tells whether the template's bit is set in it.
func (h *house) user(i int) (doc bson.M, bit bool) {
	h.t.Helper()
	err := h.coll.FindOne(h.ctx, bson.D{{Key: "_id", Value: int32(i)}}).Decode(&doc)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, false
	}
	h.check(err)
	if b, ok := doc["tpls_sent_at_least_once"].(bson.Binary); ok {
		bit = bitfield.Has(b.Data, testBit)
	}
	return doc, bit
}

// invariants checks what must hold of a run that is finished, whatever happened to it.
func (h *house) invariants(r *campaign.Run, n int) {
	h.t.Helper()
	p := h.progress(r)
	c := p.Counts
	sum := c.Sent + c.Failed + c.Unconfirmed
	for _, k := range c.Skipped {
		sum += k
	}
	if p.Open != 0 || p.Unsettled != 0 || c.Audience != int64(n) || c.Checked != int64(n) || sum != int64(n) || c.Deferred != 0 {
		h.t.Errorf("the counts don't add up for %d users: %+v", n, p)
	}
	seen := map[string]int64{}
	h.check(h.batches.Outcomes(h.ctx, r, func(u campaign.UserOutcome) error {
		i := int(u.User.Int32())
		copies := h.smtp.copies(i)
		_, bit := h.user(i)
		seen[u.Outcome.String()]++
		switch {
		case copies > 1:
			h.t.Errorf("user %d has %d copies", i, copies)
		case u.Outcome == campaign.Sent && (copies != 1 || !bit):
			h.t.Errorf("user %d is sent, with %d copies, bit %t", i, copies, bit)
		case u.Outcome != campaign.Sent && u.Outcome != campaign.Unconfirmed && copies != 0:
			h.t.Errorf("user %d is %s and has a copy", i, u.Outcome)
		case u.Outcome.Failed() && bit:
			h.t.Errorf("user %d failed and his bit is set", i)
		}
		return nil
	}))
	if seen["sent"] != c.Sent || seen["failed"] != c.Failed || seen["unconfirmed"] != c.Unconfirmed {
		h.t.Errorf("log %v, counts %+v", seen, c)
	}
	h.analytics(r, "sent", c.Sent)
	h.analytics(r, "failed", c.Failed)
	h.analytics(r, "unconfirmed", c.Unconfirmed)
}

// analytics checks a day's counter.
func (h *house) analytics(r *campaign.Run, metric string, want int64) {
	h.t.Helper()
	var got int64
	cur, err := h.db.Collection(analytics.DaysCollection(testStart)).Find(h.ctx, bson.D{{Key: "metadata.metric", Value: r.Campaign + "." + metric}})
	h.check(err)
	var docs []struct {
		Daily int64 `bson:"daily"`
	}
	h.check(cur.All(h.ctx, &docs))
	for _, d := range docs {
		got += d.Daily
	}
	if got != want {
		h.t.Errorf("analytics %s.%s = %d, want %d", r.Campaign, metric, got, want)
	}
}

// fakeSMTP is a transport whose server answers as the test wants.
type fakeSMTP struct {
	mu       sync.Mutex
	got      map[int]int // copies by user
	tried    map[int]int
	messages map[int][]byte
	senders  map[string]int // mails by envelope sender

	answer  func(user, nth int) mail.Reply // nil: accepted
	connect func() error                   // nil: there is a server
	begin   func(user int)                 // called before a mail is begun, without a lock
	open    atomic.Int64
	total   atomic.Int64 // mails begun
	keep    bool         // keep the messages
}

func newFakeSMTP() *fakeSMTP {
	return &fakeSMTP{got: map[int]int{}, tried: map[int]int{}, messages: map[int][]byte{}, senders: map[string]int{}}
}

func (f *fakeSMTP) copies(user int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.got[user]
}

func (f *fakeSMTP) recipients() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	var is []int
	for i, n := range f.got {
		if n > 0 {
			is = append(is, i)
		}
	}
	slices.Sort(is)
	return is
}

func (f *fakeSMTP) Connect(ctx context.Context) (mail.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if f.connect != nil {
		if err := f.connect(); err != nil {
			return nil, err
		}
	}
	f.open.Add(1)
	return &fakeConn{f: f}, nil
}

func (f *fakeSMTP) Close() error { return nil }

type fakeConn struct {
	f        *fakeSMTP
	dead     bool
	released bool
}

func (c *fakeConn) SupportsUTF8() bool { return true }
func (c *fakeConn) Usable() bool       { return !c.dead }
func (c *fakeConn) Release() {
	if !c.released {
		c.released = true
		c.f.open.Add(-1)
	}
}

func (c *fakeConn) Send(ctx context.Context, from, to string, utf8 bool, msg []byte) mail.Reply {
	f, user := c.f, addressee(to)
	if ctx.Err() != nil || c.dead || c.released {
		panic("a mail over a connection that can't be used")
	}
	if f.begin != nil {
		f.begin(user)
	}
	f.total.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tried[user]++
	f.senders[from]++
	r := mail.Reply{Class: mail.Accepted, Code: 250}
	if f.answer != nil {
		if a := f.answer(user, f.tried[user]); a.Class != 0 {
			r = a
		}
	}
	switch r.Class {
	case mail.Accepted:
		f.got[user]++
	case mail.Unconfirmed:
		c.dead = true
		if r.Code == -1 { // the server had accepted it
			f.got[user]++
		}
	case mail.Cut:
		c.dead = true
	}
	if f.keep {
		f.messages[user] = slices.Clone(msg)
	}
	return r
}
