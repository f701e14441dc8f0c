package worker

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/track"
)

func click(user any, url string, after time.Duration) track.Hit {
	h := hit(track.Click, &winback, user, browserUA, after)
	h.URL = url
	return h
}

func view(page, referrer string) track.Hit {
	return track.Hit{Kind: track.View, At: hitsSentAt.Add(time.Hour), Method: "GET", UserAgent: browserUA, URL: page,
		View: track.PageView{Site: "shop", Title: " The\tshop ", Referrer: referrer, ScreenWidth: "1920", BrowserWidth: "1300", BrowserHeight: "NaN"}}
}

func wantTop(t testing.TB, db *mongo.Database, kind analytics.ValueKind, sid string, want map[string]int64) {
	t.Helper()
	page, err := analytics.NewReader(db).TopValues(t.Context(), kind, sid, hitsSentAt, hitsSentAt, 100, analytics.PageKey{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, v := range page.Values {
		got[v.Value] = v.N
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s of %s: %s", kind, sid, diff)
	}
}

func wantRanges(t testing.TB, db *mongo.Database, sid string, want map[string]map[string]int64) {
	t.Helper()
	got, err := analytics.NewReader(db).Ranges(t.Context(), sid, hitsSentAt, hitsSentAt)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ranges of %s: %s", sid, diff)
	}
}

// count handles the hits as one chunk, twice.
func (h *hitsHouse) count(t testing.TB, hits ...track.Hit) {
	t.Helper()
	handler := h.handler(t, h.writer)
	for _, task := range chunksOf(t, h.clock.Now(), hits) {
		for range 2 {
			if err := handler.Handle(t.Context(), task); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestOpensFeedRanges(t *testing.T) {
	const u1, u2, u3, u4, minute = int32(1), int32(2), int32(3), int32(4), time.Minute
	unknown := campaign.Run{Short: campaign.ShortID{9}}
	h := newHitsHouse(t, mongotest.DB(t))
	h.clock.Advance(30 * 24 * time.Hour) // the hits below lie before it
	h.count(t,
		pixel(u1, browserUA, time.Second), // a scanner: of its kind, and no client
		pixel(u1, browserUA, 10*minute), pixel(u1, proxyUA, 7*time.Hour),
		pixel(u2, "Foo/1.0", 2*time.Hour),
		pixel(u3, prefetchUA, 8*24*time.Hour),
		click(u4, "https://shop.example.com/", 25*time.Hour), // a first sign of life, by a browser and no mail client
		hit(track.Open, &unknown, u1, browserUA, 10*minute),
		hit(track.Unsubscribe, &winback, u1, browserUA, 10*minute),
	)
	want := map[string]map[string]int64{
		"kind":   {"machine": 1, "human": 2, "proxy": 1, "prefetch": 1},
		"client": {"Chrome": 1, "Gmail": 1, "unknown": 1, "Apple Mail": 1},
		"device": {"desktop": 1, "unknown": 3},
		"os":     {"Windows": 1, "unknown": 3},
		"delay":  {"5m": 1, "1h": 1, "1d": 1, "7d": 1},
	}
	wantRanges(t, h.db, "winback", want)
	all := map[string]map[string]int64{}
	for field, buckets := range want {
		all[field] = maps.Clone(buckets)
	}
	all["kind"]["human"]++
	all["client"]["Chrome"]++
	all["device"]["desktop"]++
	all["os"]["Windows"]++
	wantRanges(t, h.db, analytics.All, all)
}

// Only as Apple's privacy proxy does a bare agent tell the mail program.
func TestABareAgent(t *testing.T) {
	page := view("https://shop.example.com/", "")
	page.UserAgent = prefetchUA
	for _, row := range []struct {
		name, sid, client string
		hit               track.Hit
	}{
		{"a mail's pixel, later", "winback", analytics.AppleMail, pixel(int32(1), prefetchUA, time.Hour)},
		{"a mail's pixel, at once: a scanner", "winback", analytics.Unknown, pixel(int32(1), prefetchUA, time.Second)},
		{"a page", "shop", analytics.Unknown, page},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHitsHouse(t, mongotest.DB(t))
			handler := h.handler(t, h.writer, func(c *HitsConfig) { c.SignOfLife = []string{"prefetch", "machine"} })
			if err := handler.Handle(t.Context(), chunksOf(t, h.clock.Now(), []track.Hit{row.hit})[0]); err != nil {
				t.Fatal(err)
			}
			got, err := analytics.NewReader(h.db).Ranges(t.Context(), row.sid, hitsSentAt, hitsSentAt)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]int64{row.client: 1}, got[analytics.ClientField]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLinksCountUnderTheCampaign(t *testing.T) {
	h := newHitsHouse(t, mongotest.DB(t))
	unknown := click(int32(1), "https://shop.example.com/", time.Minute)
	unknown.Run = campaign.ShortID{9}
	h.count(t,
		click(int32(1), "https://shop.example.com/sale?utm_source=mail&id=7#top", time.Minute), click(int32(2), "https://SHOP.example.com/sale?id=7", time.Minute),
		click(int32(2), "https://shop.example.com/", time.Minute), unknown,
	)
	wantTop(t, h.db, analytics.Links, "winback", map[string]int64{"https://shop.example.com/sale?id=7": 2, "https://shop.example.com/": 1})
	wantTop(t, h.db, analytics.Links, analytics.All, map[string]int64{})
	if got := h.counted(t, "winback"); got["clicked"] != 3 {
		t.Errorf("clicked %d, want 3", got["clicked"])
	}
}

func TestViewsCountUnderTheSite(t *testing.T) {
	h := newHitsHouse(t, mongotest.DB(t))
	before := h.counted(t, analytics.All)
	h.count(t,
		view("https://shop.example.com/?utm_campaign=winback", "https://www.bing.com/search?q=red+shoes"), view("https://shop.example.com/", "https://www.google.com/"),
		view("https://shop.example.com/a", ""),
	)
	wantTop(t, h.db, analytics.Pages, "shop", map[string]int64{"https://shop.example.com/": 2, "https://shop.example.com/a": 1})
	wantTop(t, h.db, analytics.Referrers, "shop", map[string]int64{"https://www.bing.com/search?q=red+shoes": 1, "https://www.google.com/": 1})
	wantTop(t, h.db, analytics.Terms, "shop", map[string]int64{"red shoes": 1})
	wantRanges(t, h.db, "shop", map[string]map[string]int64{
		"sx": {"1600": 3}, "bx": {"1280": 3}, "by": {"unknown": 3},
		"kind": {"human": 3}, "client": {"Chrome": 3}, "device": {"desktop": 3}, "os": {"Windows": 3},
	})
	wantRanges(t, h.db, analytics.All, map[string]map[string]int64{})
	if diff := cmp.Diff(before, h.counted(t, analytics.All)); diff != "" {
		t.Errorf("days count views: %s", diff)
	}
	page, err := analytics.NewReader(h.db).TopValues(t.Context(), analytics.Pages, "shop", hitsSentAt, hitsSentAt, 1, analytics.PageKey{})
	if err != nil || len(page.Values) != 1 || page.Values[0].Title != "The shop" || !cmp.Equal(page.Values[0].Days, map[int]int64{1: 2}) {
		t.Errorf("%+v, %v", page, err)
	}
}
