package track

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"postbit/internal/clock"
)

// viewSite is a handler of two sites.
func viewSite(t *testing.T, honour bool) (*tray, http.Handler) {
	t.Helper()
	y := &tray{}
	return y, NewHandler(HandlerConfig{
		Keys: testKeys(t), Spool: y, Clock: clock.At(noon), HonourDoNotTrack: honour,
		Sites: NewSites(map[string][]string{"shop": {"Shop.Example.com", "*.shop.example.com", "münchen.example"}, "any": {"*"}, "lab": {"127.0.0.1", "::1"}}),
	})
}

const shopPage = "https://shop.example.com/a?b=1"

func TestViews(t *testing.T) {
	for _, row := range []struct {
		name    string
		path    string // "": /h.gif
		query   url.Values
		header  map[string]string
		ignored bool // do_not_track: ignore
		page    string
		want    *PageView // nil: not counted
	}{
		{name: "everything is told", query: url.Values{"sid": {"shop"}, "p": {shopPage}, "t": {"A & B"}, "r": {"https://www.bing.com/search?q=x"}, "sx": {"1440"}, "bx": {"1200"}, "by": {"700"}},
			page: shopPage, want: &PageView{Site: "shop", Title: "A & B", Referrer: "https://www.bing.com/search?q=x", ScreenWidth: "1440", BrowserWidth: "1200", BrowserHeight: "700"}},
		{name: "under a path of the public URL", path: "/mail/h.gif", query: url.Values{"sid": {"shop"}, "p": {shopPage}}, page: shopPage, want: &PageView{Site: "shop"}},
		{name: "the page's address from the Referer", query: url.Values{"sid": {"shop"}}, header: map[string]string{"Referer": shopPage}, page: shopPage, want: &PageView{Site: "shop"}},
		{name: "a path alone, on the Referer", query: url.Values{"sid": {"shop"}, "p": {"/c"}}, header: map[string]string{"Referer": shopPage}, page: "https://shop.example.com/c", want: &PageView{Site: "shop"}},
		{name: "a host below", query: url.Values{"sid": {"shop"}, "p": {"https://de.shop.example.com/"}}, page: "https://de.shop.example.com/", want: &PageView{Site: "shop"}},
		{name: "case and port", query: url.Values{"sid": {"shop"}, "p": {"http://SHOP.example.com:8080/"}}, page: "http://SHOP.example.com:8080/", want: &PageView{Site: "shop"}},
		{name: "IDNA", query: url.Values{"sid": {"shop"}, "p": {"https://xn--mnchen-3ya.example/"}}, page: "https://xn--mnchen-3ya.example/", want: &PageView{Site: "shop"}},
		{name: "any host", query: url.Values{"sid": {"any"}, "p": {"https://elsewhere.example/"}}, page: "https://elsewhere.example/", want: &PageView{Site: "any"}},
		{name: "an address of IPv6", query: url.Values{"sid": {"lab"}, "p": {"http://[::1]:3000/"}}, page: "http://[::1]:3000/", want: &PageView{Site: "lab"}},
		{name: "an origin of the site", query: url.Values{"sid": {"shop"}, "p": {shopPage}}, header: map[string]string{"Origin": "https://shop.example.com"}, page: shopPage, want: &PageView{Site: "shop"}},
		{name: "a step within the site is no referrer", query: url.Values{"sid": {"shop"}, "p": {shopPage}, "r": {"https://de.shop.example.com/"}}, page: shopPage, want: &PageView{Site: "shop"}},
		{name: "nor is one on the same host", query: url.Values{"sid": {"any"}, "p": {"https://x.example/a"}, "r": {"https://x.example/b"}}, page: "https://x.example/a", want: &PageView{Site: "any"}},
		{name: "another host is, where a site may be anywhere", query: url.Values{"sid": {"any"}, "p": {"https://x.example/a"}, "r": {"https://y.example/b"}}, page: "https://x.example/a", want: &PageView{Site: "any", Referrer: "https://y.example/b"}},
		{name: "an unknown site", query: url.Values{"sid": {"blog"}, "p": {shopPage}}},
		{name: "no site", query: url.Values{"p": {shopPage}}},
		{name: "a page elsewhere", query: url.Values{"sid": {"shop"}, "p": {"https://elsewhere.example/"}}},
		{name: "a host that only ends like it", query: url.Values{"sid": {"shop"}, "p": {"https://notshop.example.com/"}}},
		{name: "the site's host as a user", query: url.Values{"sid": {"shop"}, "p": {"https://shop.example.com@elsewhere.example/"}}},
		{name: "no page at all", query: url.Values{"sid": {"shop"}}},
		{name: "a path and no Referer", query: url.Values{"sid": {"shop"}, "p": {"/c"}}},
		{name: "a script", query: url.Values{"sid": {"any"}, "p": {"javascript:alert(1)"}}},
		{name: "a page that lies: its Referer says where it is", query: url.Values{"sid": {"shop"}, "p": {shopPage}}, header: map[string]string{"Referer": "https://elsewhere.example/"}},
		{name: "or its Origin", query: url.Values{"sid": {"shop"}, "p": {shopPage}}, header: map[string]string{"Origin": "https://elsewhere.example"}},
		{name: "Do Not Track", query: url.Values{"sid": {"shop"}, "p": {shopPage}}, header: map[string]string{"DNT": "1"}},
		{name: "Global Privacy Control", query: url.Values{"sid": {"shop"}, "p": {shopPage}}, header: map[string]string{"Sec-GPC": "1"}},
		{name: "DNT that says no", query: url.Values{"sid": {"shop"}, "p": {shopPage}}, header: map[string]string{"DNT": "0"}, page: shopPage, want: &PageView{Site: "shop"}},
		{name: "neither matters where the setting says so", ignored: true, query: url.Values{"sid": {"shop"}, "p": {shopPage}}, header: map[string]string{"DNT": "1", "Sec-GPC": "1"}, page: shopPage, want: &PageView{Site: "shop"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			y, h := viewSite(t, !row.ignored)
			if row.path == "" {
				row.path = "/h.gif"
			}
			r := httptest.NewRequest("GET", row.path+"?"+row.query.Encode(), nil)
			for k, v := range row.header {
				r.Header.Set(k, v)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			wantGIF(t, w)
			switch {
			case row.want == nil && len(y.hits) != 0:
				t.Errorf("counted: %+v", y.hits[0])
			case row.want != nil && len(y.hits) != 1:
				t.Error("not counted")
			case row.want != nil:
				if diff := cmp.Diff(*row.want, y.hits[0].View); diff != "" || y.hits[0].URL != row.page || y.hits[0].Kind != View || !y.hits[0].At.Equal(noon) {
					t.Errorf("%+v: %s", y.hits[0], diff)
				}
			}
		})
	}
}

func wantGIF(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	h := w.Header()
	if w.Code != 200 || !bytes.Equal(w.Body.Bytes(), pixelGIF) || h.Get("Content-Type") != "image/gif" || h.Get("Cache-Control") != "no-store" || h.Get("Set-Cookie") != "" || h.Get("Cross-Origin-Resource-Policy") != "cross-origin" {
		t.Errorf("%d %v %q", w.Code, h, w.Body)
	}
}

func TestMethodsOfViews(t *testing.T) {
	y, h := viewSite(t, true)
	for method, code := range map[string]int{"HEAD": 200, "POST": 405, "OPTIONS": 405, "DELETE": 405} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/h.gif?sid=shop&p="+url.QueryEscape(shopPage), nil))
		if w.Code != code || len(y.hits) != 0 {
			t.Errorf("%s: %d, %d hits; want %d and none", method, w.Code, len(y.hits), code)
		}
	}
	y.err = errors.New("no space left on device")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/h.gif?sid=shop&p="+url.QueryEscape(shopPage), nil))
	if w.Code != 503 {
		t.Errorf("a view that can't be written is answered with %d", w.Code)
	}
}

// Without sites in the settings nothing is counted, and nothing breaks.
func TestViewsWithoutSites(t *testing.T) {
	y := &tray{}
	h := NewHandler(HandlerConfig{Keys: testKeys(t), Spool: y, Clock: clock.At(noon)})
	for _, query := range []string{"", "sid=shop", "sid=&p=%zz;&&=;%", "sid=" + strings.Repeat("a", 10_000)} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/h.gif?"+query, nil))
		wantGIF(t, w)
	}
	if len(y.hits) != 0 {
		t.Errorf("%d hits", len(y.hits))
	}
}

// Views and opens share a chunk; whatever a view says comes back cut and as valid UTF-8.
func TestViewsInAChunk(t *testing.T) {
	long := strings.Repeat("é", 5000)
	hits := []Hit{
		{Kind: View, User: nobody, At: noon, Method: "GET", UserAgent: "x", URL: shopPage, View: PageView{Site: "shop", Title: "A", Referrer: "https://r.example/", ScreenWidth: "1", BrowserWidth: "2", BrowserHeight: "3"}},
		{Kind: Open, Run: testRun, User: userID(t, "zoe"), SentAt: noon, At: noon.Add(time.Minute), Method: "GET"},
		{Kind: View, User: nobody, At: noon, URL: long, UserAgent: long, View: PageView{Site: long, Title: long, Referrer: long, ScreenWidth: long, BrowserWidth: "\xff", BrowserHeight: long}},
		{Kind: View, User: nobody, At: noon},
	}
	data := appendHead(nil, "id")
	for i := range hits {
		data = appendRecord(data, &hits[i])
	}
	got, err := DecodeChunk(data)
	if err != nil || len(got) != len(hits) {
		t.Fatalf("%d hits, %v", len(got), err)
	}
	if got[0].View != hits[0].View || got[0].URL != shopPage || got[1].View != (PageView{}) || got[3].View != (PageView{}) {
		t.Errorf("%+v", got)
	}
	v := got[2].View
	lengths := []int{len(v.Site), len(v.Title), len(v.Referrer), len(v.ScreenWidth), len(v.BrowserHeight), len(got[2].URL), len(got[2].UserAgent)}
	if want := []int{64, 512, 2048, 16, 16, 2048, 512}; !slices.Equal(lengths, want) || v.BrowserWidth != "?" {
		t.Errorf("lengths %v, want %v; %q", lengths, want, v.BrowserWidth)
	}
}
