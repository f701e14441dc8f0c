package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/demo"
	"postbit/internal/minimongo"
	"postbit/internal/report"
	"postbit/internal/track"
)

// page is docs/json.md: every block of JSON under a heading `postbit …` is what that command prints. POSTBIT_WRITE_DOCS=1
// brings the blocks up to date.
type page struct {
	name   string
	text   string
	write  bool
	tested map[string]bool
}

func openPage(t *testing.T, name string) *page {
	t.Helper()
	name, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return &page{name: name, text: string(text), write: os.Getenv("POSTBIT_WRITE_DOCS") != "", tested: map[string]bool{}}
}

// block finds the first block of JSON behind a heading.
func (p *page) block(heading string) (from, to int, ok bool) {
	at := strings.Index(p.text, "\n## `"+heading+"`\n")
	if at < 0 {
		return 0, 0, false
	}
	rest := p.text[at+4:]
	end := strings.Index(rest, "\n## ")
	if end < 0 {
		end = len(rest)
	}
	const fence = "```json\n"
	begin := strings.Index(rest[:end], fence)
	if begin < 0 {
		return 0, 0, false
	}
	from = at + 4 + begin + len(fence)
	length := strings.Index(p.text[from:], "```")
	return from, from + length, length >= 0
}

// changing is what differs from run to run, and what stands for it in the docs.
var changing = []struct {
	re *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`manual-[0-9a-f]{8}`), "manual-5f3a9c21"},
	{regexp.MustCompile(`/o/[A-Za-z0-9_-]+\.gif`), "/o/AQJrMQHW….gif"},
	{regexp.MustCompile(`[0-9a-f]{16}\.[0-9a-f]{24}@`), "d664d837401cc1dc.f521a9bdcd6eb14fb16059f6@"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:27017"},
	{regexp.MustCompile(`go1\.\d+(\.\d+)?`), "go1.26.8"},
	{regexp.MustCompile(`"version": "[^"]*"`), `"version": "v1.0.0"`},
	{regexp.MustCompile(`"revision": "[^"]*"`), `"revision": "0123456789abcdef0123456789abcdef01234567"`},
	{regexp.MustCompile(`"platform": "[^"]*"`), `"platform": "linux/amd64"`},
}

func (p *page) check(t *testing.T, heading, out string) {
	t.Helper()
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, []byte(out), "", "  "); err != nil {
		t.Fatalf("postbit %s: not JSON: %v\n%s", heading, err, out)
	}
	got := strings.TrimRight(pretty.String(), "\n") + "\n"
	for _, c := range changing {
		got = c.re.ReplaceAllString(got, c.by)
	}
	from, to, ok := p.block(heading)
	if !ok {
		t.Errorf("%s has no block of JSON under ## `%s`", p.name, heading)
		return
	}
	p.tested[heading] = true
	if p.write {
		p.text = p.text[:from] + got + p.text[to:]
		return
	}
	if diff := cmp.Diff(p.text[from:to], got); diff != "" {
		t.Errorf("`%s` prints another shape than the docs say (run with POSTBIT_WRITE_DOCS=1 to take it over):\n%s", heading, diff)
	}
}

// close makes sure that no block was left out.
func (p *page) close(t *testing.T) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?m)^## `(postbit [^`]+)`$").FindAllStringSubmatch(p.text, -1) {
		if _, _, ok := p.block(m[1]); ok && !p.tested[m[1]] {
			t.Errorf("nobody looks at the block under ## `%s`", m[1])
		}
	}
	if p.write {
		if err := os.WriteFile(p.name, []byte(p.text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// external sets everything up as in production: a store, a queue and a mail server of their own.
func (s *shell) external(t *testing.T) *mongo.Collection {
	t.Helper()
	return s.externalWith(t, func(demo.Letter) {})
}

// externalWith gives every mail to deliver.
func (s *shell) externalWith(t *testing.T, deliver func(demo.Letter)) *mongo.Collection {
	t.Helper()
	m, err := minimongo.Open(minimongo.Config{Now: s.clk.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if _, err := m.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	inbox, err := demo.OpenInbox(t.Context(), slog.New(slog.DiscardHandler), deliver)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inbox.Close() })
	for name, value := range map[string]string{
		"MONGO_URI": m.URI(), "MONGO_DB": "app", "REDIS_URI": "redis://" + miniredis.RunT(t).Addr(), "SMTP_URL": inbox.URL(),
		"PUBLIC_URL": "https://mail.example.com", "SECRET": "k1:" + strings.Repeat("QUFB", 16), "DATA_DIR": "data",
		"USERS_SUPPRESSED_WHEN": "{state: [banned]}",
	} {
		t.Setenv("POSTBIT_"+name, value)
	}
	c, err := mongo.Connect(options.Client().ApplyURI(m.URI()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Disconnect(t.Context()) })
	return c.Database("app").Collection("users")
}

// people are one of each kind.
func people(now time.Time) []any {
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	day := 24 * time.Hour
	user := func(id int, name string, more ...bson.E) bson.D {
		d := bson.D{{Key: "_id", Value: id}, {Key: "name", Value: name}, {Key: "plan", Value: "free"}, {Key: "email", Value: strings.ToLower(name) + "@post.example"}, {Key: "timezone", Value: "Europe/Berlin"}}
		return append(d, more...)
	}
	with := func(d bson.D, key string, v any) bson.D {
		for i := range d {
			if d[i].Key == key {
				d[i].Value = v
				return d
			}
		}
		return append(d, bson.E{Key: key, Value: v})
	}
	mailed := func(first, last, open time.Duration) bson.D {
		d := bson.D{{Key: "first_at", Value: ago(first)}, {Key: "last_at", Value: ago(last)}}
		if open > 0 {
			d = append(d, bson.E{Key: "open_first_at", Value: ago(first)}, bson.E{Key: "open_last_at", Value: ago(open)})
		}
		return d
	}
	blob := bson.Binary{Data: []byte{0x01}} // bit 7
	return []any{
		user(1, "Ada"),
		with(user(2, "Bob"), "email", "bob+gone@post.example"),
		with(user(3, "Cem"), "email", "nobody"),
		with(user(4, "Dora"), "postbit", bson.D{{Key: "status", Value: "unsubscribed"}, {Key: "status_at", Value: ago(day)}}),
		with(user(5, "Egon"), "state", "banned"),
		with(user(6, "Fay"), "tpls_sent_at_least_once", "winback"),
		with(with(user(7, "Gil"), "tpls_sent_at_least_once", blob), "postbit", mailed(30*day, 20*day, 0)),
		with(user(8, "Hana"), "postbit", mailed(400*day, 100*day, 200*day)),
		with(user(9, "Ivo"), "postbit", mailed(30*day, 5*time.Hour, 2*day)),
		with(user(10, "Jun"), "timezone", "Pacific/Auckland"),
		with(user(11, "Kim"), "timezone", "Mars/Base"),
	}
}

func TestTheShapesOfJSON(t *testing.T) {
	p := openPage(t, "../../docs/json.md")
	s := newShell(t)
	users := s.external(t)
	if _, err := users.InsertMany(t.Context(), people(s.clk.Now())); err != nil {
		t.Fatal(err)
	}
	check := func(args ...string) string {
		t.Helper()
		r := s.run(append(args, "--json")...)
		if r.code != exitDone && r.code != exitNo {
			t.Fatalf("postbit %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.err)
		}
		p.check(t, "postbit "+strings.Join(args, " "), r.out)
		return r.out
	}
	s.write("owned.json", `{"welcome": 0}`)
	s.write("templates/winback.html", winbackHTML)
	s.write("campaigns/winback.yaml", strings.Replace(winbackYAML, "rules:", "schedule: { cron: \"0 9 * * MON\", timezone: Europe/Berlin }\nrules:\n  inactive_after: 90d", 1))

	check("version")
	check("templates", "import", "owned.json")
	s.refuses(exitUsage, []string{"winback: bit 7 is set on 1 user but no template owns it: import it, or --adopt"}, "templates", "push", "templates")
	check("templates", "push", "templates", "--adopt")
	check("templates", "list")
	check("templates", "show", "winback")
	check("templates", "lint", "templates")
	check("templates", "preview", "winback", "--user", "1")
	check("templates", "retire", "welcome")
	check("campaigns", "apply", "campaigns")
	check("campaigns", "list")
	check("campaigns", "rehearse", "winback")
	check("explain", "--campaign", "winback", "--user", "7")

	stop := s.serve()
	check("campaigns", "run", "winback")
	s.await("everybody but Jun is done", func() bool {
		var shown campaignShown
		s.decode(s.must("campaigns", "show", "winback", "--json"), &shown)
		return shown.Progress != nil && shown.Progress.Unvisited == 0 && shown.Progress.Planned && shown.Counts.Deferred == 1
	})
	if r := stop(); r.code != 0 { // from here on nothing happens between a command and its answer
		t.Errorf("serve: exit code %d\n%s", r.code, r.err)
	}
	check("campaigns", "show", "winback", "--failed", "--unconfirmed")
	check("campaigns", "pause", "winback", "--reason", "a wrong price")
	check("campaigns", "resume", "winback")
	check("campaigns", "pause", "winback", "--schedule")
	check("campaigns", "cancel", "winback")
	check("send", "winback", "10", "--key", "jun-1")
	s.refuses(exitUsage, []string{"a key is 1 to 128"}, "send", "winback", "10", "--key", "a b")
	s.refuses(exitUsage, []string{"a key is 1 to 64"}, "campaigns", "run", "winback", "--key", "a b")
	s.refuses(exitFailed, []string{"template winback, user 10"}, "send", "winback", "1", "--key", "jun-1")
	check("pixel", "--campaign", "winback", "--user", "1")
	check("bits", "show", "7")
	check("users", "show", "7")
	check("users", "suppress", "7", "--reason", "complained")
	check("users", "unsuppress", "7")
	stop = s.serve()
	s.await("the run is cancelled", func() bool {
		var shown campaignShown
		s.decode(s.must("campaigns", "show", "winback", "--json"), &shown)
		return shown.State == "cancelled"
	})
	s.loadPixel(t)
	s.await("the hit is counted", func() bool {
		var r report.Report
		s.decode(s.must("report", "winback", "--json"), &r)
		return r.Opens.Hits == 1
	})
	check("report", "winback")
	check("report", "winback", "--list", "links")
	check("doctor")
	if r := stop(); r.code != 0 {
		t.Errorf("serve: exit code %d\n%s", r.code, r.err)
	}
	s.write("sends.csv", "user,template,sent_at,opened_at\n7,winback,2026-10-01T09:00:00Z,2026-10-02T09:00:00Z\nADA@post.example,welcome,2026-09-01,\n6,welcome,,\n99,winback,2026-09-01,\n5,autumn,2026-09-01,\n")
	check("bits", "backfill", "--from", "sends.csv", "--skip-unknown", "--apply")
	check("bits", "check", "--from", "sends.csv", "--skip-unknown")
	check("bits", "convert")
	s.write("gone.csv", "email,reason,date\nada@post.example,complained,2026-11-01\nnobody@post.example,bounced,\n")
	check("users", "suppress", "--from", "gone.csv")
	check("users", "unsuppress", "--from", "gone.csv")
	s.write("returned.mbox", strings.Join([]string{"",
		deliveryReport("kim@post.example", "5.1.1", "smtp; 550 5.1.1 no such user", "List-Unsubscribe: <https://mail.example.com/u/"+s.unsubscribeToken(t, 11)+">\n"),
		feedbackReport("Subject: no token\n"), outOfOffice("ada@post.example")}, "\nFrom MAILER-DAEMON Tue Dec  1 09:00:06 2026\n")[1:])
	check("bounces", "returned.mbox")
	p.close(t)
}

// campaignShown is what a reader of `campaigns show --json` takes from it.
type campaignShown struct {
	State    string
	Counts   struct{ Deferred int }
	Progress *struct {
		Unvisited int
		Planned   bool
	}
}

func (s *shell) decode(text string, v any) {
	s.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		s.Fatalf("%v in %s", err, text)
	}
}

// unsubscribeToken is the one in a mail to a user, of the run that `pixel` names.
func (s *shell) unsubscribeToken(t *testing.T, user int32) string {
	t.Helper()
	var p pixelJSON
	s.decode(s.must("pixel", "--campaign", "winback", "--user", "1", "--json"), &p)
	keys, err := track.ParseKeys(os.Getenv("POSTBIT_SECRET"))
	if err != nil {
		t.Fatal(err)
	}
	token, err := keys.Verify(strings.TrimSuffix(p.URL[strings.LastIndexByte(p.URL, '/')+1:], ".gif"))
	if err != nil {
		t.Fatal(err)
	}
	token.Kind, token.User = track.Unsubscribe, bson.RawValue{Type: bson.TypeInt32, Value: binary.LittleEndian.AppendUint32(nil, uint32(user))}
	return keys.Sign(token)
}

// loadPixel loads one from the running serve, whose address is in its log.
func (s *shell) loadPixel(t *testing.T) {
	t.Helper()
	var p pixelJSON
	s.decode(s.must("pixel", "--campaign", "winback", "--user", "1", "--json"), &p)
	url := strings.Replace(p.URL, "https://mail.example.com", "http://"+s.public(), 1)
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
		t.Fatal(fmt.Errorf("status %s, %w", resp.Status, err))
	}
	http.DefaultClient.CloseIdleConnections()
}
