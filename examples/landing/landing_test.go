// Package landing holds the script that landing pages load to be counted, and its tests.
package landing

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"postbit/internal/track"
)

func snippet(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("snippet.html")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func TestTheSnippetIsShort(t *testing.T) {
	if n := len(snippet(t)); n >= 500 {
		t.Errorf("%d bytes; under 500 were promised", n)
	}
}

func TestTheDocsShowTheSnippet(t *testing.T) {
	page, err := os.ReadFile("../../docs/analytics.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), snippet(t)) {
		t.Error("docs/analytics.md shows another one")
	}
}

type tray struct {
	mu   sync.Mutex
	hits []track.Hit
}

func (y *tray) Append(_ context.Context, h track.Hit) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.hits = append(y.hits, h)
	return nil
}

// What the script asks for, run in Node.js in windows of several kinds, is what the handler counts.
func TestNodeRunsTheSnippet(t *testing.T) {
	if os.Getenv("POSTBIT_TEST_NODE") == "" {
		t.Skip("needs Node.js; POSTBIT_TEST_NODE=1 runs it")
	}
	keys, err := track.ParseKeys("a:" + base64.StdEncoding.EncodeToString(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, window, page string
		want               track.PageView
	}{
		{"a browser", `{screen: {width: 1920}, innerWidth: 1300, innerHeight: 700, location: {href: "https://shop.example.com/a?b=ü&c=1#d"}, document: {title: "A & B = ü", referrer: "https://www.bing.com/search?q=x&y"}}`,
			"https://shop.example.com/a?b=ü&c=1#d", track.PageView{Site: "shop", Title: "A & B = ü", Referrer: "https://www.bing.com/search?q=x&y", ScreenWidth: "1920", BrowserWidth: "1300", BrowserHeight: "700"}},
		{"an old one, without inner sizes", `{screen: {width: 1024}, location: {href: "https://shop.example.com/"}, document: {title: "", referrer: "", documentElement: {clientWidth: 1000, clientHeight: 600}}}`,
			"https://shop.example.com/", track.PageView{Site: "shop", ScreenWidth: "1024", BrowserWidth: "1000", BrowserHeight: "600"}},
		{"one that tells nothing", `{location: {href: "https://shop.example.com/"}, document: {}}`, "https://shop.example.com/", track.PageView{Site: "shop"}},
		{"an endless title", `{location: {href: "https://shop.example.com/"}, document: {title: "t".repeat(1e6)}}`, "https://shop.example.com/", track.PageView{Site: "shop", Title: strings.Repeat("t", 999)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			y := &tray{}
			server := httptest.NewServer(track.NewHandler(track.HandlerConfig{Keys: keys, Spool: y, Sites: track.NewSites(map[string][]string{"shop": {"shop.example.com"}})}))
			defer server.Close()
			script := strings.TrimSuffix(strings.TrimPrefix(snippet(t), "<script>"), "</script>")
			quoted, err := json.Marshal(strings.Replace(script, "https://m.example.com", server.URL, 1))
			if err != nil {
				t.Fatal(err)
			}
			program := `const window = ` + row.window + `; let src; class Image { set src(s) { src = s } };
require("node:vm").runInNewContext(` + string(quoted) + `, {window, document: window.document, Image, encodeURIComponent});
fetch(src).then(async r => { if (r.status !== 200 || (await r.arrayBuffer()).byteLength !== 43) throw new Error(r.status) })`
			out, err := exec.CommandContext(t.Context(), "node", "-e", program).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			y.mu.Lock()
			defer y.mu.Unlock()
			if len(y.hits) != 1 || y.hits[0].View != row.want || y.hits[0].URL != row.page {
				t.Errorf("%+v", y.hits)
			}
		})
	}
}
