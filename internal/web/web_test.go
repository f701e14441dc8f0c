package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"postbit/internal/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// operations notes what it was asked to do and answers with err where that is set.
type operations struct {
	asked string
	err   error
}

func (o *operations) note(format string, args ...any) (any, error) {
	o.asked = fmt.Sprintf(format, args...)
	return map[string]string{"asked": o.asked}, o.err
}

func (o *operations) Templates(context.Context) (any, error) { return o.note("templates") }
func (o *operations) Campaigns(context.Context) (any, error) { return o.note("campaigns") }
func (o *operations) Campaign(_ context.Context, name string) (any, error) {
	return o.note("campaign %s", name)
}
func (o *operations) RunCampaign(_ context.Context, name, key string) (any, error) {
	return o.note("run %s %s", name, key)
}
func (o *operations) Steer(_ context.Context, name, action string, schedule bool, reason string) (any, error) {
	return o.note("%s %s %v %s", action, name, schedule, reason)
}
func (o *operations) Send(_ context.Context, r web.SendRequest) (any, error) {
	return o.note("send %s %s %s", r.Template, r.User, r.Key)
}
func (o *operations) Explain(_ context.Context, campaign, user string, at time.Time) (any, error) {
	return o.note("explain %s %s %s", campaign, user, at.UTC().Format(time.RFC3339))
}
func (o *operations) Report(_ context.Context, campaign, from, to string) (any, error) {
	return o.note("report %s %s %s", campaign, from, to)
}
func (o *operations) ReportList(_ context.Context, campaign, list, from, to string, n int, after string) (any, error) {
	return o.note("%d %s of %s %s %s after %s", n, list, campaign, from, to, after)
}
func (o *operations) Pixel(_ context.Context, campaign, user string) (any, error) {
	return o.note("pixel %s %s", campaign, user)
}

// request is made from this machine to localhost unless change says otherwise.
func request(h http.Handler, method, target, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.RemoteAddr, r.Host = "127.0.0.1:5000", "localhost:8081"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func header(k, v string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(k, v) }
}

func TestAPI(t *testing.T) {
	for _, c := range []struct{ name, method, target, body, asked string }{
		{"templates", "GET", "/api/templates", "", "templates"},
		{"campaigns", "GET", "/api/campaigns", "", "campaigns"},
		{"one campaign", "GET", "/api/campaigns/winback", "", "campaign winback"},
		{"run by hand", "POST", "/api/campaigns/winback/run", "", "run winback "},
		{"run by hand, once", "POST", "/api/campaigns/winback/run", `{"key":"2026-12-01"}`, "run winback 2026-12-01"},
		{"pause the run", "POST", "/api/campaigns/winback/pause", `{"reason":"typo"}`, "pause winback false typo"},
		{"pause the schedule", "POST", "/api/campaigns/winback/pause", `{"schedule":true}`, "pause winback true "},
		{"resume", "POST", "/api/campaigns/winback/resume", "", "resume winback false "},
		{"cancel", "POST", "/api/campaigns/winback/cancel", "{}", "cancel winback false "},
		{"send", "POST", "/api/send", `{"template":"welcome","user":"int:7","key":"k1"}`, "send welcome int:7 k1"},
		{"pixel", "POST", "/api/pixels", `{"campaign":"c","user":"u"}`, "pixel c u"},
		{"explain", "GET", "/api/explain?campaign=c&user=a%40b.c&at=2026-12-01T10:00:00%2B01:00", "", "explain c a@b.c 2026-12-01T09:00:00Z"},
		{"report", "GET", "/api/report/winback?from=2026-12-01&to=2026-12-02", "", "report winback 2026-12-01 2026-12-02"},
		{"a top list", "GET", "/api/report/winback/links?from=2026-12-01&n=50&after=17:winback:0123", "", "50 links of winback 2026-12-01  after 17:winback:0123"},
		{"a top list of the usual length", "GET", "/api/report/shop/pages", "", "10 pages of shop   after "},
	} {
		t.Run(c.name, func(t *testing.T) {
			ops := &operations{}
			w := request(web.New(web.Config{Operations: ops}), c.method, c.target, c.body)
			if w.Code != 200 || ops.asked != c.asked {
				t.Errorf("status %d, asked %q, want %q; %s", w.Code, ops.asked, c.asked, w.Body)
			}
			if got := w.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type %q", got)
			}
		})
	}
}

func TestABadRequestAsksForNothing(t *testing.T) {
	for _, c := range []struct {
		name, method, target, body string
		status                     int
		change                     func(*http.Request)
	}{
		{"unknown path", "GET", "/api/nothing", "", 404, nil},
		{"unknown key", "POST", "/api/send", `{"template":"a","user":"b","to":"c"}`, 400, nil},
		{"user is missing", "POST", "/api/send", `{"template":"a"}`, 400, nil},
		{"no JSON", "POST", "/api/send", `template=a`, 400, nil},
		{"two values", "POST", "/api/send", `{"template":"a","user":"b"}{}`, 400, nil},
		{"a form", "POST", "/api/send", `{"template":"a","user":"b"}`, 400, header("Content-Type", "application/x-www-form-urlencoded")},
		{"a body without end", "POST", "/api/send", `{"template":"` + strings.Repeat("a", 100<<10) + `"}`, 413, nil},
		{"a time that is none", "GET", "/api/explain?campaign=c&user=u&at=tomorrow", "", 400, nil},
		{"a list without end", "GET", "/api/report/winback/links?n=1000000", "", 400, nil},
		{"a list of nothing", "GET", "/api/report/winback/links?n=0", "", 400, nil},
		{"a length that is none", "GET", "/api/report/winback/links?n=ten", "", 400, nil},
		{"a page of another origin", "POST", "/api/campaigns/c/run", "", 403, header("Sec-Fetch-Site", "cross-site")},
	} {
		t.Run(c.name, func(t *testing.T) {
			ops := &operations{}
			change := []func(*http.Request){}
			if c.change != nil {
				change = append(change, c.change)
			}
			w := request(web.New(web.Config{Operations: ops}), c.method, c.target, c.body, change...)
			if w.Code != c.status || ops.asked != "" {
				t.Errorf("status %d, want %d; asked %q; %s", w.Code, c.status, ops.asked, w.Body)
			}
		})
	}
}

func TestEveryRefusalIsAnErrorInJSON(t *testing.T) {
	for _, c := range []struct {
		name, method, target string
		status               int
		allow                string
		change               func(*http.Request)
	}{
		{"no such path", "GET", "/api/nothing", 404, "", nil},
		{"a method that only others have", "DELETE", "/api/nothing", 404, "", nil},
		{"what is only read", "POST", "/api/campaigns", 405, "GET, HEAD", nil},
		{"what is only done", "GET", "/api/campaigns/winback/run", 405, "POST", nil},
		{"a method that nothing has", "PURGE", "/api/report/winback/links", 405, "GET, HEAD", nil},
		{"metrics", "POST", "/metrics", 405, "GET, HEAD", nil},
		{"health", "POST", "/healthz", 405, "GET, HEAD", nil},
		{"readiness", "DELETE", "/readyz", 405, "GET, HEAD", nil},
		{"a page of another origin", "POST", "/api/campaigns/c/run", 403, "", header("Sec-Fetch-Site", "cross-site")},
		{"a page of another origin, an older browser", "POST", "/api/campaigns/c/run", 403, "", header("Origin", "https://evil.example")},
	} {
		t.Run(c.name, func(t *testing.T) {
			ops := &operations{}
			change := []func(*http.Request){}
			if c.change != nil {
				change = append(change, c.change)
			}
			w := request(web.New(web.Config{Operations: ops}), c.method, c.target, "", change...)
			if w.Code != c.status || w.Header().Get("Allow") != c.allow || ops.asked != "" {
				t.Errorf("status %d, Allow %q; asked %q", w.Code, w.Header().Get("Allow"), ops.asked)
			}
			var said map[string]string
			if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || len(said) != 1 || said["error"] == "" {
				t.Errorf("%q is no error of the API (%v)", w.Body, err)
			}
			if got := w.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type %q", got)
			}
		})
	}
}

func TestAProcessWithoutTheRoleWebHasNoAPI(t *testing.T) {
	h := web.New(web.Config{})
	if w := request(h, "GET", "/api/campaigns", ""); w.Code != 404 || !strings.Contains(w.Body.String(), `"error":"not found: the API is served by processes with the role web"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		if w := request(h, "GET", path, ""); w.Code != 200 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

func TestAMethodIsRefusedOnlyToWhoMayAsk(t *testing.T) {
	h := web.New(web.Config{Operations: &operations{}, Token: "s3cret"})
	if w := request(h, "DELETE", "/api/campaigns", ""); w.Code != 401 {
		t.Errorf("%d: what there is, is told to those with the token alone", w.Code)
	}
}

func TestABadBodyIsToldOfInTheWordsOfJSON(t *testing.T) {
	for _, c := range []struct{ name, target, body, want string }{
		{"a number for a text", "/api/send", `{"template":"a","user":7}`, "body: user: must be a string, not a number"},
		{"a text for a switch", "/api/campaigns/c/pause", `{"schedule":"yes"}`, "body: schedule: must be true or false, not a string"},
		{"a key that is not known", "/api/pixels", `{"campaign":"c","usr":"u"}`, `body: unknown key \"usr\"; there are campaign, user`},
		{"no JSON", "/api/send", `template=a`, "body: not JSON"},
		{"a list", "/api/send", `[]`, "body: must be an object, not an array"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := request(web.New(web.Config{Operations: &operations{}}), "POST", c.target, c.body)
			if w.Code != 400 || !strings.Contains(w.Body.String(), c.want) {
				t.Errorf("status %d: %s, want %q", w.Code, w.Body, c.want)
			}
		})
	}
}

func TestErrorsOfOperations(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		status int
		shown  bool
	}{
		{"invalid", fmt.Errorf("user: several: %w", web.ErrInvalid), 400, true},
		{"not found", fmt.Errorf("campaign x: %w", web.ErrNotFound), 404, true},
		{"conflict", fmt.Errorf("key k: %w", web.ErrConflict), 409, true},
		{"anything else stays in the log", errors.New("mongodb://user:pass@host: refused"), 500, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := request(web.New(web.Config{Operations: &operations{err: c.err}}), "GET", "/api/campaigns", "")
			if w.Code != c.status || strings.Contains(w.Body.String(), c.err.Error()) != c.shown {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}

func TestWhoMayAsk(t *testing.T) {
	remote := func(r *http.Request) { r.RemoteAddr = "10.0.0.9:999" }
	host := func(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }
	for _, c := range []struct {
		name, token string
		change      []func(*http.Request)
		status      int
	}{
		{"this machine, no token", "", nil, 200},
		{"this machine over IPv6", "", []func(*http.Request){func(r *http.Request) { r.RemoteAddr = "[::1]:1" }, host("[::1]:8081")}, 200},
		{"another machine, no token", "", []func(*http.Request){remote}, 403},
		{"a name that was pointed at this machine", "", []func(*http.Request){host("evil.example:8081")}, 403},
		{"token missing", "s3cret", nil, 401},
		{"token wrong", "s3cret", []func(*http.Request){header("Authorization", "Bearer s3creT")}, 401},
		{"token in front of another word", "s3cret", []func(*http.Request){header("Authorization", "s3cret")}, 401},
		{"token, the scheme in lower case", "s3cret", []func(*http.Request){header("Authorization", "bearer s3cret")}, 200},
		{"token as basic auth", "s3cret", []func(*http.Request){header("Authorization", "Basic s3cret")}, 401},
		{"token right, from anywhere", "s3cret", []func(*http.Request){remote, host("admin.example"), header("Authorization", "Bearer s3cret")}, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := web.New(web.Config{Operations: &operations{}, Token: c.token})
			for _, target := range []string{"/api/campaigns", "/metrics"} {
				if w := request(h, "GET", target, "", c.change...); w.Code != c.status {
					t.Errorf("%s: %d, want %d", target, w.Code, c.status)
				}
			}
			if w := request(h, "GET", "/healthz", "", c.change...); w.Code != 200 {
				t.Errorf("/healthz: %d; health is for load balancers, which have no token", w.Code)
			}
		})
	}
}

func TestReady(t *testing.T) {
	fine := func(context.Context) error { return nil }
	down := func(context.Context) error { return errors.New("dial tcp 10.0.0.1:27017: refused") }
	for _, c := range []struct {
		name   string
		checks map[string]func(context.Context) error
		status int
		body   string
	}{
		{"all answer", map[string]func(context.Context) error{"mongo": fine, "redis": fine}, 200, `{"mongo":"ok","redis":"ok"}`},
		{"one is down", map[string]func(context.Context) error{"mongo": down, "redis": fine}, 503, `{"mongo":"unreachable","redis":"ok"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := request(web.New(web.Config{Operations: &operations{}, Ready: c.checks}), "GET", "/readyz", "")
			if w.Code != c.status || strings.TrimSpace(w.Body.String()) != c.body {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}

func TestServeFinishesRequestsUnderWay(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	entered := make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-ctx.Done()
		_, _ = io.WriteString(w, "finished")
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := web.Serve(ctx, ln, h, 10*time.Second, slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() { <-entered; cancel() })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	wg.Wait()
	if string(b) != "finished" {
		t.Errorf("got %q", b)
	}
}
