package e2e

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/logtest"
	"postbit/internal/track"
)

const (
	firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"
	google  = "Mozilla/5.0 (Windows NT 5.1; rv:11.0) Gecko Firefox/11.0 (via ggpht.com GoogleImageProxy)"
)

// reading is a house whose campaign has been sent, and its public side.
type reading struct {
	*house
	run *campaign.Run
	web *httptest.Server
	log *logtest.Buffer
}

func newReading(t *testing.T, users int) *reading {
	t.Helper()
	h := newHouse(t)
	h.seed(users)
	h.campaign("winback", 7)
	r := &reading{house: h, run: h.fire("winback"), log: &logtest.Buffer{}}
	h.hire()
	h.finish(campaign.RunDone, r.run)
	log := slog.New(slog.NewTextHandler(r.log, nil))
	spool := must(track.OpenSpool(t.TempDir(), track.SpoolOptions{Clock: h.clk, Sync: track.SyncNever, SealAfter: 20 * time.Millisecond, Log: log}))(t)
	stop := h.background(func(ctx context.Context) { _ = spool.Run(ctx, h.queue, h.writer) })
	r.web = httptest.NewServer(track.NewHandler(track.HandlerConfig{Keys: h.keys, Spool: spool, Clock: h.clk, Log: log}))
	t.Cleanup(func() { r.web.Close(); stop(); h.check(spool.Close()) })
	return r
}

func id(i int) bson.RawValue {
	t, data, _ := bson.MarshalValue(int32(i))
	return bson.RawValue{Type: t, Value: data}
}

func (r *reading) pixel(user int) string { return r.urls.Pixel(r.run.Short, id(user), start) }

// ask requests one of our URLs, whose host is that of the settings.
func (r *reading) ask(method, addr, agent, kind string, body io.Reader) (int, string, http.Header) {
	r.t.Helper()
	u := must(url.Parse(addr))(r.t)
	req := must(http.NewRequestWithContext(r.ctx, method, r.web.URL+u.RequestURI(), body))(r.t)
	req.Header.Set("User-Agent", agent)
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	res := must(http.DefaultTransport.RoundTrip(req))(r.t) // follows nothing
	defer func() { _ = res.Body.Close() }()
	text := must(io.ReadAll(res.Body))(r.t)
	return res.StatusCode, string(text), res.Header
}

func (r *reading) get(addr, agent string) string {
	r.t.Helper()
	code, body, _ := r.ask(http.MethodGet, addr, agent, "", nil)
	if code != http.StatusOK {
		r.t.Errorf("GET: %d", code)
	}
	return body
}

// counted waits until so many hits are, with all that a set of increments holds beside them, and returns what stands in the days
// beside what the sending left.
func (r *reading) counted(hits int64) map[string]int64 {
	r.t.Helper()
	r.until("the hits are counted", func() bool { return must(r.totals("winback"))(r.t)["hits"] >= hits })
	r.until("their sets are done", func() bool {
		return must(r.db.Collection("applied").CountDocuments(r.ctx, bson.D{{Key: "done_at", Value: bson.D{{Key: "$exists", Value: false}}}}))(r.t) == 0
	})
	out := map[string]int64{}
	for k, v := range must(r.totals("winback"))(r.t) {
		if strings.HasPrefix(k, "open") || k == "hits" || k == "unsubscribed" {
			out[k] = v
		}
	}
	return out
}

// O1
func TestOneUserOpensTenTimes(t *testing.T) {
	t.Parallel()
	r := newReading(t, 3)
	r.clk.Advance(10 * time.Minute)
	for range 10 {
		if body := r.get(r.pixel(1), firefox); len(body) != 43 {
			t.Fatalf("%d bytes", len(body))
		}
	}
	want := map[string]int64{"hits": 10, "opened": 10, "opened_unique": 1, "opened_kind.human": 10}
	if d := cmp.Diff(want, r.counted(10)); d != "" {
		t.Error(d)
	}
	if at := r.user(1).Postbit.OpenAt; !at.Equal(r.clk.Now()) {
		t.Errorf("opened at %s", at)
	}
}

// O2, O2b, O3: who fetches, and when.
func TestKindsOfOpens(t *testing.T) {
	t.Parallel()
	r := newReading(t, 4)
	r.clk.Advance(time.Second)
	r.get(r.pixel(1), firefox) // a scanner, by the time
	r.clk.Advance(10 * time.Minute)
	r.get(r.pixel(2), "Mozilla/5.0") // Apple's proxy
	r.get(r.pixel(3), google)
	if code, _, _ := r.ask(http.MethodHead, r.pixel(0), firefox, "", nil); code != http.StatusOK {
		t.Errorf("HEAD: %d", code)
	}
	r.clk.Advance(time.Hour)
	r.get(r.pixel(1), firefox) // the person, an hour later
	want := map[string]int64{"hits": 4, "opened": 3, "opened_unique": 3, "opened_kind.machine": 1, "opened_kind.prefetch": 1,
		"opened_kind.proxy": 1, "opened_kind.human": 1}
	if d := cmp.Diff(want, r.counted(4)); d != "" {
		t.Error(d)
	}
	if at := r.user(1).Postbit.OpenAt; !at.Equal(r.clk.Now()) {
		t.Errorf("the scanner counts as his open: %s", at)
	}
	if at := r.user(3).Postbit.OpenAt; at.IsZero() {
		t.Error("an open through a proxy is an open of that user")
	}
	if at := r.user(0).Postbit.OpenAt; !at.IsZero() {
		t.Error("HEAD is no open")
	}
}

// O4
func TestFirstHitsOfTheDayAtOnce(t *testing.T) {
	t.Parallel()
	r := newReading(t, 64)
	r.clk.Advance(20 * time.Hour) // the next day
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() { r.get(r.pixel(i), firefox) })
	}
	all.Wait()
	if got := r.counted(64); got["hits"] != 64 || got["opened_unique"] != 64 {
		t.Errorf("%v", got)
	}
}

// O5
func TestBadTokens(t *testing.T) {
	t.Parallel()
	r := newReading(t, 2)
	r.clk.Advance(time.Hour)
	good := r.pixel(1)
	token := strings.TrimSuffix(good[strings.LastIndexByte(good, '/')+1:], ".gif")
	other := []byte(token)
	other[len(other)/2] ^= 1
	for name, bad := range map[string]string{
		"tampered": string(other), "truncated": token[:len(token)-3], "10 kB": strings.Repeat("A", 10_000), "empty": "", "longer": token + "AAAA",
		"another kind": strings.TrimPrefix(r.urls.Unsubscribe(r.run.Short, id(1), start), "https://m.example.com/u/"),
	} {
		code, body, header := r.ask(http.MethodGet, "/o/"+bad+".gif", firefox, "", nil)
		if code != http.StatusOK || len(body) != 43 || header.Get("Content-Type") != "image/gif" {
			t.Errorf("%s: %d, %d bytes", name, code, len(body))
		}
	}
	r.get(good, firefox)
	if got := r.counted(1); got["hits"] != 1 {
		t.Errorf("%v", got)
	}
	if text := r.log.String(); strings.Contains(text, "ERROR") || strings.Contains(text, "WARN") {
		t.Errorf("logged: %s", text)
	}
}

// O6: a task that runs twice, the second time after 1,000 other hits on the same counters, is counted once.
func TestAHitsTaskTwice(t *testing.T) {
	t.Parallel()
	r := newReading(t, 3)
	r.clk.Advance(time.Hour)
	kept := &keeper{house: r.house}
	spool := must(track.OpenSpool(t.TempDir(), track.SpoolOptions{Clock: r.clk, Sync: track.SyncNever, SealAfter: 10 * time.Millisecond}))(t)
	stop := r.background(func(ctx context.Context) { _ = spool.Run(ctx, kept, r.writer) })
	h := track.NewHandler(track.HandlerConfig{Keys: r.keys, Spool: spool, Clock: r.clk})
	fetch := func() {
		u := must(url.Parse(r.pixel(2)))(t)
		req := httptest.NewRequest(http.MethodGet, u.RequestURI(), nil)
		req.Header.Set("User-Agent", firefox)
		h.ServeHTTP(httptest.NewRecorder(), req)
	}
	fetch()
	r.counted(1)
	for range 1000 {
		fetch()
	}
	r.counted(1001)
	first, data := kept.first()
	for range 2 { // its queue entry is long gone, so each is a task of its own
		r.check(r.queue.EnqueueHits(r.ctx, first, data))
		r.until("the task has run", func() bool {
			d := must(r.queue.Depths())(t)["hits"]
			return d.Waiting+d.Active == 0
		})
	}
	want := map[string]int64{"hits": 1001, "opened": 1001, "opened_unique": 1, "opened_kind.human": 1001}
	if d := cmp.Diff(want, r.counted(1001)); d != "" {
		t.Error(d)
	}
	stop()
	r.check(spool.Close())
}

// keeper keeps the first chunk that goes by.
type keeper struct {
	*house
	mu   sync.Mutex
	id   string
	data []byte
}

func (k *keeper) EnqueueHits(ctx context.Context, id string, data []byte) error {
	k.mu.Lock()
	if k.id == "" {
		k.id, k.data = id, bytes.Clone(data)
	}
	k.mu.Unlock()
	return k.queue.EnqueueHits(ctx, id, data)
}

func (k *keeper) first() (string, []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.id, k.data
}

// M7: RFC 8058. GET and HEAD, which scanners send, change nothing.
func TestOneClickUnsubscribe(t *testing.T) {
	t.Parallel()
	r := newReading(t, 4)
	link := func(user int) string { return r.urls.Unsubscribe(r.run.Short, id(user), start) }
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		if code, _, _ := r.ask(method, link(0), firefox, "", nil); code != http.StatusOK {
			t.Errorf("%s: %d", method, code)
		}
	}
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	r.check(parts.WriteField("List-Unsubscribe", "One-Click"))
	r.check(parts.Close())
	for user, body := range map[int]struct{ kind, text string }{
		1: {"application/x-www-form-urlencoded", "List-Unsubscribe=One-Click"},
		2: {parts.FormDataContentType(), form.String()},
	} {
		code, _, header := r.ask(http.MethodPost, link(user), "", body.kind, strings.NewReader(body.text))
		if code != http.StatusOK || header.Get("Location") != "" || header.Get("Set-Cookie") != "" {
			t.Errorf("POST %s: %d %v", body.kind, code, header)
		}
	}
	r.until("both are suppressed", func() bool {
		return r.user(1).Postbit.Status == "unsubscribed" && r.user(2).Postbit.Status == "unsubscribed"
	})
	for _, user := range []int{0, 3} {
		if s := r.user(user).Postbit.Status; s != "" {
			t.Errorf("user %d is %s", user, s)
		}
	}
	// A token of one user is no other's, and one that opens does not unsubscribe.
	pixel := strings.TrimSuffix(strings.TrimPrefix(r.pixel(3), "https://m.example.com/o/"), ".gif")
	r.ask(http.MethodPost, "/u/"+pixel, "", "application/x-www-form-urlencoded", strings.NewReader("List-Unsubscribe=One-Click"))
	r.clk.Advance(time.Hour)
	r.get(r.pixel(1), firefox)
	r.counted(1)
	if s := r.user(3).Postbit.Status; s != "" {
		t.Errorf("by the token of a pixel: %s", s)
	}
}
