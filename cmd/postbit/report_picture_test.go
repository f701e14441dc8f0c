package main

import (
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/examples"
	"postbit/internal/demo"
	"postbit/internal/picture"
	"postbit/internal/report"
)

// TestThePictureOfAReport makes docs/report.svg: a real run of the real program, with a store, a queue, a mail server and
// HTTP, whose clock moves on by the hour while people read their mail. The picture in the docs has to be what comes out
// (POSTBIT_WRITE_DOCS=1 writes it anew).
func TestThePictureOfAReport(t *testing.T) {
	file, err := filepath.Abs(filepath.Join("..", "..", "docs", "report.svg"))
	if err != nil {
		t.Fatal(err)
	}
	s := newShell(t)
	t.Setenv("LC_ALL", "C.UTF-8")
	t.Setenv("TERM", "xterm")
	t.Setenv("COLUMNS", "84")
	world := &readers{s: s, client: &http.Client{Transport: &http.Transport{}}}
	defer world.client.CloseIdleConnections()
	users := s.externalWith(t, world.deliver)
	t.Setenv("POSTBIT_USERS_SUPPRESSED_WHEN", "{state: [deleted, banned]}")
	if err := os.CopyFS("examples", examples.FS); err != nil {
		t.Fatal(err)
	}
	s.must("templates", "push", filepath.Join("examples", "templates"))
	s.write("campaigns/winback.yaml", `
name: winback
template: winback
audience: { created_at: { $lt: { $ago: 30d } } }
schedule: { cron: "30 9 * * *" }
rules: { inactive_after: 90d, min_gap: 24h }
expires_after: 6h
`)
	s.must("campaigns", "apply", "campaigns", "--start")
	if _, err := users.InsertMany(t.Context(), slices.Collect(documents(1500, s.clk.Now()))); err != nil {
		t.Fatal(err)
	}
	stop := s.serve()
	world.public = "http://" + s.address("public")
	s.clk.Advance(30 * time.Minute)
	state := ""
	for hour := 0; hour < 14*24 && (state != "done" || world.waiting() > 0); hour++ {
		if state != "done" {
			s.await("all of the batches that are due are through", func() bool {
				var shown struct {
					State    string
					Progress *struct {
						Unvisited int
						Planned   bool
						NextDue   time.Time `json:"next_due"`
					}
				}
				s.decode(s.must("campaigns", "show", "winback", "--json"), &shown)
				state = shown.State
				p := shown.Progress
				return state == "done" || p != nil && p.Planned && p.Unvisited == 0 && p.NextDue.After(s.clk.Now())
			})
		}
		if hour == 0 {
			s.must("campaigns", "pause", "winback", "--schedule") // one run is enough
		}
		world.read(t)
		s.clk.Advance(time.Hour)
	}
	s.await("every hit is counted", func() bool {
		var r report.Report
		s.decode(s.must("report", "winback", "--from", "2026-12-01", "--to", "2026-12-14", "--json"), &r)
		return r.Opens.Hits == world.opens && r.Clicked == world.clicks
	})
	if r := stop(); r.code != 0 {
		t.Errorf("serve: exit code %d\n%s", r.code, r.err)
	}
	args := []string{"report", "winback", "--from", "2026-12-01", "--to", "2026-12-07"}
	text := s.must(args...)
	drawn := picture.Terminal("postbit "+strings.Join(args, " "), text)
	if os.Getenv("POSTBIT_WRITE_DOCS") != "" {
		if err := os.WriteFile(file, []byte(drawn), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	there, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(there), drawn); diff != "" {
		t.Errorf("docs/report.svg is no longer what the run comes to (POSTBIT_WRITE_DOCS=1 takes it over):\n%s\n%s", text, diff)
	}
}

// documents are the users of the demo. winback has bit 1, and the other templates of the examples 0, 2, 3 and 4.
func documents(n int, now time.Time) func(yield func(any) bool) {
	return func(yield func(any) bool) {
		for doc := range demo.People(n, demo.World{Now: now, Bit: 1, Old: []int{0, 2, 3, 4}}) {
			if !yield(bson.D(doc)) {
				return
			}
		}
	}
}

// readers read what is delivered. Who does what and when follows from the address, so that every run comes to the same.
type readers struct {
	s      *shell
	client *http.Client
	public string

	mu            sync.Mutex
	due           []reading
	opens, clicks int64
}

type reading struct {
	at    time.Time
	agent string
	pixel string
	link  string // that is followed as well, or ""
}

// Programs that people read their mail with, and how many of 16 use each.
var programs = []struct {
	agent string
	share int
}{
	{"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148", 5},
	{"Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Mobile Safari/537.36", 4},
	{"Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Thunderbird/140.1.0", 3},
	{"Microsoft Office/16.0 (Windows NT 10.0; Microsoft Outlook 16.0.18827; Pro)", 3},
	{"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko)", 1},
}

func (w *readers) deliver(l demo.Letter) {
	if l.Pixel == "" {
		return
	}
	hash := xxhash.Sum64String(l.To)
	chance := func(of uint64) uint64 { n := hash % of; hash /= of; return n }
	now := w.s.clk.Now()
	r := reading{at: now, pixel: l.Pixel}
	for i, n := 0, int(chance(16)); n >= 0; i++ {
		r.agent = programs[i].agent
		n -= programs[i].share
	}
	_, domain, _ := strings.Cut(l.To, "@")
	read := chance(100) < 45
	switch domain {
	case "scanning.example": // a machine looks at once
		if err := w.get(context.Background(), l.Pixel, "Mozilla/5.0 (X11; Linux x86_64) Chrome/138.0.0.0"); err != nil {
			w.s.Error(err)
		}
		w.mu.Lock()
		w.opens++
		w.mu.Unlock()
	case "privacy.example": // fetched ahead
		r.agent, read = "Mozilla/5.0", true
	case "proxied.example":
		r.agent = "Mozilla/5.0 (Windows NT 5.1; rv:11.0) Gecko Firefox/11.0 (via ggpht.com GoogleImageProxy)"
	}
	if !read {
		return
	}
	// Half of them soon, the others later and later.
	hours := chance(4)
	for chance(100) < 55 && hours < 100 {
		hours += 1 + chance(7)
		hash = xxhash.Sum64String(fmt.Sprint(l.To, hours))
	}
	r.at = now.Add(time.Duration(hours) * time.Hour)
	if i := chance(9); int(i) < len(l.Links) {
		r.link = l.Links[i]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due = append(w.due, r)
}

func (w *readers) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.due)
}

// read lets those read whose time has come.
func (w *readers) read(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.s.clk.Now()
	w.due = slices.DeleteFunc(w.due, func(r reading) bool {
		if r.at.After(now) {
			return false
		}
		if err := w.get(t.Context(), r.pixel, r.agent); err != nil {
			t.Error(err)
		}
		w.opens++
		if r.link != "" {
			if err := w.get(t.Context(), r.link, r.agent); err != nil {
				t.Error(err)
			}
			w.clicks++
		}
		return true
	})
}

func (w *readers) get(ctx context.Context, url, agent string) error {
	url = strings.Replace(html.UnescapeString(url), "https://mail.example.com", w.public, 1)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", agent)
	res, err := w.client.Transport.RoundTrip(req) // follows no link out of this machine
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusFound {
		return fmt.Errorf("%s: %s", url, res.Status)
	}
	return nil
}
