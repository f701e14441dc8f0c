package track

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/gif"
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

	"postbit/internal/clock"
)

// tray takes hits instead of a spool.
type tray struct {
	mu   sync.Mutex
	hits []Hit
	err  error
}

func (y *tray) Append(_ context.Context, h Hit) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.err == nil {
		y.hits = append(y.hits, h)
	}
	return y.err
}

// site is a handler with all that is around it.
type site struct {
	t    *testing.T
	h    http.Handler
	keys *Keys
	tray *tray
	log  bytes.Buffer
	page func(Token) (string, error)
}

func newSite(t *testing.T) *site {
	s := &site{t: t, keys: testKeys(t), tray: &tray{}}
	s.h = NewHandler(HandlerConfig{
		Keys: s.keys, Spool: s.tray, Clock: clock.At(noon.Add(time.Hour)), Log: slog.New(slog.NewTextHandler(&s.log, nil)),
		Browser: func(_ context.Context, tok Token) (string, error) { return s.page(tok) },
	})
	return s
}

func (s *site) token(kind Kind) string {
	tok := Token{Kind: kind, Run: testRun, User: userID(s.t, "zoe"), SentAt: noon}
	if kind == Click {
		tok.URL = "https://example.com/sale?x=1&y=%C3%A4#top"
	}
	return s.keys.Sign(tok)
}

func (s *site) do(method, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("User-Agent", "Mozilla/5.0 (X11)")
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, r)
	for name := range w.Header() {
		if strings.EqualFold(name, "Set-Cookie") {
			s.t.Errorf("%s %s sets a cookie", method, path)
		}
	}
	if w.Header().Get("X-Content-Type-Options") != "nosniff" {
		s.t.Errorf("%s %s: %v", method, path, w.Header())
	}
	return w
}

// body sets a form.
func body(contentType, b string) func(*http.Request) {
	return func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(b)), int64(len(b))
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
	}
}

func (s *site) hits(n int) {
	s.t.Helper()
	if len(s.tray.hits) != n {
		s.t.Errorf("%d hits, want %d: %+v", len(s.tray.hits), n, s.tray.hits)
	}
}

func TestPixel(t *testing.T) {
	s := newSite(t)
	w := s.do("GET", "/o/"+s.token(Open)+".gif")
	if w.Code != 200 || w.Header().Get("Content-Type") != "image/gif" || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Content-Length") != "43" || w.Body.Len() != 43 {
		t.Errorf("%d %v, %d bytes", w.Code, w.Header(), w.Body.Len())
	}
	img, err := gif.Decode(w.Body)
	if err != nil || img.Bounds().Dx() != 1 || img.Bounds().Dy() != 1 {
		t.Errorf("%v, %v", img, err)
	}
	if _, _, _, a := img.At(0, 0).RGBA(); a != 0 {
		t.Error("it can be seen")
	}
	s.hits(1)
	h := s.tray.hits[0]
	if h.Kind != Open || h.Run != testRun || h.User.StringValue() != "zoe" || !h.SentAt.Equal(noon) || !h.At.Equal(noon.Add(time.Hour)) || h.Method != "GET" || h.UserAgent != "Mozilla/5.0 (X11)" {
		t.Errorf("%+v", h)
	}
}

// O1: each load is a hit.
func TestPixelTenTimes(t *testing.T) {
	s := newSite(t)
	for range 10 {
		s.do("GET", "/o/"+s.token(Open)+".gif")
	}
	s.hits(10)
}

// O2: HEAD looks the same and is no open.
func TestPixelHead(t *testing.T) {
	s := newSite(t)
	get, head := s.do("GET", "/o/"+s.token(Open)+".gif"), s.do("HEAD", "/o/"+s.token(Open)+".gif")
	if head.Code != 200 || head.Body.Len() != 0 || fmt.Sprint(head.Header()) != fmt.Sprint(get.Header()) {
		t.Errorf("%d, %d bytes, %v", head.Code, head.Body.Len(), head.Header())
	}
	s.hits(1)
}

// O5: a bad token gets the same image, is not counted, and nobody hears of it.
func TestPixelWithABadToken(t *testing.T) {
	s := newSite(t)
	good := s.token(Open)
	want := s.do("GET", "/o/"+good+".gif")
	for name, path := range map[string]string{
		"tampered": "/o/" + good[:20] + "x" + good[21:] + ".gif", "truncated": "/o/" + good[:len(good)-3] + ".gif", "10 kB": "/o/" + strings.Repeat("A", 10<<10) + ".gif", "empty": "/o/.gif", "nothing": "/o/",
		"of another kind": "/o/" + s.token(Unsubscribe) + ".gif", "of a link": "/o/" + s.token(Click) + ".gif", "percent": "/o/%00%ff.gif",
	} {
		w := s.do("GET", path)
		if w.Code != 200 || !bytes.Equal(w.Body.Bytes(), want.Body.Bytes()) || fmt.Sprint(w.Header()) != fmt.Sprint(want.Header()) {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
	}
	s.hits(1)
	if s.log.Len() != 0 {
		t.Errorf("logged: %s", s.log.String())
	}
}

// A public URL with a path works whether or not the proxy takes the path off.
func TestAnyPathInFront(t *testing.T) {
	s := newSite(t)
	for _, prefix := range []string{"", "/mail", "/a/b/o/c"} {
		s.tray.hits = nil
		s.do("GET", prefix+"/o/"+s.token(Open)+".gif")
		if w := s.do("GET", prefix+"/c/"+s.token(Click)); w.Code != 302 {
			t.Errorf("%s: %d", prefix, w.Code)
		}
		s.hits(2)
	}
	for _, path := range []string{"/", "/o", "/ou/" + s.token(Unsubscribe), "/o/x/y", "/o/" + s.token(Open) + "/", "*"} {
		if w := s.do("GET", path); w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	s.hits(2)
}

func TestMethods(t *testing.T) {
	s := newSite(t)
	for path, allowed := range map[string]string{
		"/o/" + s.token(Open) + ".gif": "GET, HEAD", "/o/bad.gif": "GET, HEAD", "/c/" + s.token(Click): "GET, HEAD", "/u/" + s.token(Unsubscribe): "GET, HEAD, POST", "/b/" + s.token(Browser): "GET, HEAD",
	} {
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"} {
			if strings.Contains(allowed, method) {
				continue
			}
			if w := s.do(method, path); w.Code != 405 || w.Header().Get("Allow") != allowed {
				t.Errorf("%s %.5s: %d, Allow %q", method, path, w.Code, w.Header().Get("Allow"))
			}
		}
	}
	s.hits(0)
}

func TestSpoolCannotBeWritten(t *testing.T) {
	s := newSite(t)
	s.tray.err = errors.New("no space left on device")
	for _, w := range []*httptest.ResponseRecorder{
		s.do("GET", "/o/"+s.token(Open)+".gif"), s.do("GET", "/c/"+s.token(Click)), s.do("POST", "/u/"+s.token(Unsubscribe), body("application/x-www-form-urlencoded", "List-Unsubscribe=One-Click")),
	} {
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Location") != "" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	}
	// what counts nothing needs no disk
	for _, w := range []*httptest.ResponseRecorder{s.do("GET", "/o/bad.gif"), s.do("HEAD", "/o/"+s.token(Open)+".gif"), s.do("GET", "/u/"+s.token(Unsubscribe))} {
		if w.Code != 200 {
			t.Errorf("%d", w.Code)
		}
	}
}

func TestClick(t *testing.T) {
	s := newSite(t)
	w := s.do("GET", "/c/"+s.token(Click))
	if w.Code != 302 || w.Header().Get("Location") != "https://example.com/sale?x=1&y=%C3%A4#top" || w.Header().Get("Referrer-Policy") != "no-referrer" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	s.hits(1)
	if h := s.tray.hits[0]; h.Kind != Click || h.URL != "https://example.com/sale?x=1&y=%C3%A4#top" {
		t.Errorf("%+v", h)
	}
	if w := s.do("HEAD", "/c/"+s.token(Click)); w.Code != 302 {
		t.Errorf("HEAD: %d", w.Code)
	}
	s.hits(1)
	for _, path := range []string{"/c/", "/c/bad", "/c/" + s.token(Open), "/c/https://evil.example", "/c//evil.example", "/c/" + s.token(Click)[:50] + "?url=https://evil.example"} {
		if w := s.do("GET", path); w.Code != 404 || w.Header().Get("Location") != "" || strings.Contains(w.Body.String(), "evil") {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
	s.hits(1)
}

func multipartForm(fields map[string]string) func(*http.Request) {
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	for k, v := range fields {
		m.WriteField(k, v)
	}
	m.Close()
	return body(m.FormDataContentType(), b.String())
}

// M7
func TestUnsubscribe(t *testing.T) {
	const urlencoded = "application/x-www-form-urlencoded"
	s := newSite(t)
	path := "/u/" + s.token(Unsubscribe)
	for _, method := range []string{"GET", "HEAD", "GET"} {
		w := s.do(method, path+"?List-Unsubscribe=One-Click&confirm=yes")
		if w.Code != 200 || (method == "HEAD") != (w.Body.Len() == 0) || method == "GET" && !strings.Contains(w.Body.String(), `<form method="post">`) {
			t.Errorf("%s: %d %s", method, w.Code, w.Body)
		}
	}
	s.hits(0)
	for name, form := range map[string]func(*http.Request){
		"one click, urlencoded":             body(urlencoded, "List-Unsubscribe=One-Click"),
		"one click, multipart":              multipartForm(map[string]string{"List-Unsubscribe": "One-Click"}),
		"one click, with a charset":         body(urlencoded+"; charset=UTF-8", "List-Unsubscribe=One-Click"),
		"one click, without a content type": body("", "List-Unsubscribe=One-Click"),
		"the page's own form":               body(urlencoded, "confirm=yes"),
	} {
		t.Run(name, func(t *testing.T) {
			s.tray.hits = nil
			w := s.do("POST", path, form)
			if w.Code != 200 || w.Header().Get("Location") != "" || !strings.Contains(w.Body.String(), "You are unsubscribed") {
				t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
			}
			s.hits(1)
			if h := s.tray.hits[0]; h.Kind != Unsubscribe || h.User.StringValue() != "zoe" || h.Method != "POST" {
				t.Errorf("%+v", h)
			}
		})
	}
	s.tray.hits = nil
	for name, form := range map[string]func(*http.Request){
		"nothing": body(urlencoded, ""), "another field": body(urlencoded, "x=One-Click"), "only in the query": func(r *http.Request) { r.URL.RawQuery = "List-Unsubscribe=One-Click" },
		"JSON": body("application/json", `{"List-Unsubscribe":"One-Click"}`), "broken multipart": body("multipart/form-data; boundary=x", "--x\r\nList-Unsubscribe=One-Click"), "multipart without a boundary": body("multipart/form-data", "x"),
		"too large": body(urlencoded, "x="+strings.Repeat("x", maxForm)+"&List-Unsubscribe=One-Click"), "too large in multipart": multipartForm(map[string]string{"x": strings.Repeat("x", 2*maxForm), "List-Unsubscribe": "One-Click"}),
	} {
		if w := s.do("POST", path, form); w.Code != 400 || !strings.Contains(w.Body.String(), "Nothing was changed") {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	for name, token := range map[string]string{"bad": "bad", "none": "", "of the pixel, which any proxy has seen": s.token(Open), "of a link": s.token(Click)} {
		if w := s.do("POST", "/u/"+token, body(urlencoded, "List-Unsubscribe=One-Click")); w.Code != 404 {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
	s.hits(0)
}

func TestPagesAreLockedUp(t *testing.T) {
	s := newSite(t)
	for _, w := range []*httptest.ResponseRecorder{s.do("GET", "/u/"+s.token(Unsubscribe)), s.do("GET", "/u/bad"), s.do("GET", "/"), s.do("GET", "/x/y"), s.do("GET", "/favicon.ico")} {
		csp := w.Header().Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'; style-src 'sha256-") || !strings.Contains(csp, "form-action 'self'; frame-ancestors 'none'; base-uri 'none'") ||
			w.Header().Get("X-Frame-Options") != "DENY" || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Referrer-Policy") != "no-referrer" || !strings.Contains(w.Body.String(), "<style>"+pageStyle+"</style>") {
			t.Errorf("%v", w.Header())
		}
	}
}

func TestBrowserVersion(t *testing.T) {
	s := newSite(t)
	s.page = func(tok Token) (string, error) {
		if tok.Kind != Browser || tok.User.StringValue() != "zoe" {
			t.Errorf("%+v", tok)
		}
		return "<p>Hello Zoë</p>", nil
	}
	w := s.do("GET", "/b/"+s.token(Browser))
	if csp := w.Header().Get("Content-Security-Policy"); w.Code != 200 || w.Body.String() != "<p>Hello Zoë</p>" || !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "script") || !strings.Contains(csp, "form-action 'none'") || !strings.Contains(csp, "sandbox") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	s.page = func(Token) (string, error) { return "", fmt.Errorf("run 7: %w", ErrNoPage) }
	if w := s.do("GET", "/b/"+s.token(Browser)); w.Code != 404 {
		t.Errorf("gone: %d", w.Code)
	}
	s.page = func(Token) (string, error) { return "", errors.New("mongodb://user:hunter2@host is down") }
	if w := s.do("GET", "/b/"+s.token(Browser)); w.Code != 503 || strings.Contains(w.Body.String(), "hunter2") {
		t.Errorf("down: %d %s", w.Code, w.Body)
	}
	s.page = func(Token) (string, error) { t.Error("called with a bad token"); return "", nil }
	for _, token := range []string{"", "bad", s.token(Open)} {
		if w := s.do("GET", "/b/"+token); w.Code != 404 {
			t.Errorf("%q: %d", token, w.Code)
		}
	}
	s.hits(0)
}

// Over a real server and a real spool: what was answered with the image is in a chunk.
func TestAnsweredIsStored(t *testing.T) {
	dir := t.TempDir()
	spool := openSpool(t, dir, SpoolOptions{})
	keys := testKeys(t)
	server := httptest.NewServer(NewHandler(HandlerConfig{Keys: keys, Spool: spool, Clock: clock.At(noon)}))
	defer server.Close()
	client := server.Client()
	urls, err := NewURLs(server.URL, keys)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	const senders, each = 8, 25
	for w := range senders {
		wg.Go(func() {
			for i := range each {
				resp, err := client.Get(urls.Pixel(testRun, userID(t, int64(w*each+i)), noon))
				if err != nil {
					t.Error(err)
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != 200 {
					t.Errorf("%d", resp.StatusCode)
				}
			}
		})
	}
	wg.Wait()
	resp, err := client.PostForm(urls.Unsubscribe(testRun, userID(t, int64(9999)), noon), url.Values{"List-Unsubscribe": {"One-Click"}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("unsubscribe: %d", resp.StatusCode)
	}
	flush(t, spool)
	seen := stored(t, dir)
	for n := range senders * each {
		if seen[n] != 1 {
			t.Errorf("hit %d is there %d times", n, seen[n])
		}
	}
	if seen[9999] != 1 || len(seen) != senders*each+1 {
		t.Errorf("%d hits", len(seen))
	}
	client.CloseIdleConnections()
}
