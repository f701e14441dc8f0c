package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"postbit/internal/clock"
	"postbit/internal/config"
	"postbit/internal/embedded"
	"postbit/internal/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shell runs commands in a folder of its own, at a time that stands still.
type shell struct {
	testing.TB
	clk      *clock.Clock
	talk     *logtest.Buffer // of serve
	patience time.Duration   // as program's
	txt      lookupTXT
}

func newShell(t *testing.T) *shell {
	t.Helper()
	for _, pair := range os.Environ() { // settings of the machine are none of ours
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "POSTBIT_") && name != "POSTBIT_WRITE_DOCS" {
			t.Setenv(name, "")
		}
	}
	t.Chdir(t.TempDir())
	return &shell{TB: t, clk: clock.At(time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC))}
}

// result is what a command has printed and answered.
type result struct {
	code     int
	out, err string
}

func (s *shell) run(args ...string) result {
	s.Helper()
	return s.runWith("", args...)
}

func (s *shell) runWith(stdin string, args ...string) result {
	s.Helper()
	var out, err logtest.Buffer // goroutines of a command log, too
	code := program{in: strings.NewReader(stdin), out: &out, err: &err, clk: s.clk, patience: s.patience, txt: s.txt}.run(s.Context(), args...)
	return result{code, out.String(), err.String()}
}

// must runs a command that has to succeed, and gives its data.
func (s *shell) must(args ...string) string {
	s.Helper()
	r := s.run(args...)
	if r.code != 0 {
		s.Fatalf("postbit %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.err)
	}
	return r.out
}

// refuses runs a command that has to end with a code and an error that holds all of the texts.
func (s *shell) refuses(code int, texts []string, args ...string) {
	s.Helper()
	r := s.run(args...)
	if r.code != code {
		s.Errorf("postbit %s: exit code %d, want %d\n%s", strings.Join(args, " "), r.code, code, r.err)
	}
	for _, text := range texts {
		if !strings.Contains(r.err, text) {
			s.Errorf("postbit %s: %q is missing in\n%s", strings.Join(args, " "), text, r.err)
		}
	}
	if r.out != "" {
		s.Errorf("postbit %s: data on standard output though it failed: %s", strings.Join(args, " "), r.out)
	}
}

func (s *shell) write(name, text string) {
	s.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		s.Fatal(err)
	}
}

// insert puts users into the embedded store.
func (s *shell) insert(docs ...any) {
	s.Helper()
	stack, err := embedded.Attach(s.Context(), embedded.Options{Dir: ".postbit", Clock: s.clk, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.Fatal(err)
	}
	defer stack.Close()
	c, err := mongo.Connect(options.Client().ApplyURI(stack.MongoURI))
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = c.Disconnect(context.Background()) }()
	if _, err := c.Database("postbit").Collection("users").InsertMany(s.Context(), docs); err != nil {
		s.Fatal(err)
	}
}

// serve runs `postbit serve` until stop is called, which returns what it printed and its exit code.
func (s *shell) serve(args ...string) (stop func() result) {
	s.Helper()
	stop = s.startServe(args...)
	s.await("serve is up", func() bool { return strings.Contains(s.talk.String(), "postbit serves") })
	return stop
}

// startServe is serve that does not wait until it is up.
func (s *shell) startServe(args ...string) (stop func() result) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	talk := &logtest.Buffer{}
	s.talk = talk
	var r result
	var wg sync.WaitGroup
	wg.Go(func() {
		args := append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)
		r.code = program{in: strings.NewReader(""), out: io.Discard, err: talk, clk: s.clk, patience: s.patience, txt: s.txt}.run(ctx, args...)
	})
	stop = sync.OnceValue(func() result { cancel(); wg.Wait(); r.err = talk.String(); return r })
	s.Cleanup(func() { stop() })
	return stop
}

// public is the address of the public side of a running serve.
func (s *shell) public() string { return s.address("public") }

func (s *shell) address(side string) string {
	s.Helper()
	m := regexp.MustCompile(side + `=(\S+)`).FindStringSubmatch(s.talk.String())
	if m == nil {
		s.Fatalf("serve does not say where it listens:\n%s", s.talk)
	}
	return m[1]
}

// await polls until ok holds; the test's own deadline bounds it.
func (s *shell) await(what string, ok func() bool) {
	s.Helper()
	for !ok() {
		select {
		case <-s.Context().Done():
			s.Fatalf("%s: it never came", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

const winbackHTML = `---
name: winback
bitIndex: 7
subject: "{{ .User.name }}, come back"
from: "Ada <ada@post.example>"
---
<html><body><p>Hello {{ .User.name | default "there" }}, see <a href="{{ link "https://post.example/" }}">this</a>
or <a href="{{ unsubscribe }}">leave</a>.</p></body></html>
`

const winbackYAML = `name: winback
template: winback
audience: { plan: free }
rules:
  window: "09:00-20:00"
  min_gap: 24h
`

func TestHelpOfEveryCommandHasAnExample(t *testing.T) {
	s := newShell(t)
	parser, err := kong.New(&cli{})
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(false) {
		args := append(strings.Fields(leaf.Path()), "--help")
		r := s.run(args...)
		if r.code != 0 || !strings.Contains(r.out, "Example") || !strings.Contains(r.out, "    postbit "+leaf.Path()) {
			t.Errorf("%s: exit code %d, no example in\n%s%s", leaf.Path(), r.code, r.out, r.err)
		}
		for line := range strings.Lines(r.out) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
				t.Errorf("%s: a line of its help has %d columns: %s", leaf.Path(), n, line)
			}
		}
		if strings.Contains(r.out, "\x1b") {
			t.Errorf("%s: colour off a terminal", leaf.Path())
		}
	}
}

func TestWrongUsage(t *testing.T) {
	s := newShell(t)
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"templats"}, "templates"},
		{[]string{"templates", "psh"}, "push"},
		{[]string{"explain"}, "--campaign"},
		{[]string{"report", "all", "--form", "x"}, "--from"},
		{[]string{"serve", "--roles", "cook"}, `"cook" is no role; scheduler, worker, web`},
		{[]string{"serve", "--roles", "worker"}, "live in one process"},
		{[]string{"demo", "--users", "0"}, "not a number from 1"},
		{[]string{"users", "suppress"}, "name one user, or a file"},
		{[]string{"explain", "--campaign", "c", "--user", "u", "--at", "noon"}, `"noon" is no time`},
		{[]string{"report", "all", "--from", "yesterday"}, `"yesterday" is no date`},
		{[]string{"minimongo", "--listen", "here"}, `"here" is no address`},
		{[]string{"templates", "list", "--retention", "90x"}, `--retention: "90x" is no duration`},
	} {
		s.refuses(exitUsage, []string{tc.want}, tc.args...)
	}
}

func TestHalfMadeSettings(t *testing.T) {
	s := newShell(t)
	t.Setenv("POSTBIT_MONGO_URI", "mongodb://app:hunter2@127.0.0.1:1/app")
	s.refuses(exitUsage, []string{
		"POSTBIT_SMTP_URL is not set, but POSTBIT_MONGO_URI is: mails would be marked as sent and reach nobody. Set it, or say outbox:DIR on purpose",
		"POSTBIT_REDIS_URI is not set", "POSTBIT_PUBLIC_URL is not set", "POSTBIT_SECRET is not set",
	}, "serve")
	s.refuses(exitUsage, []string{"POSTBIT_REDIS_URI is not set"}, "campaigns", "run", "winback")
	if _, err := os.Stat(".postbit"); !os.IsNotExist(err) {
		t.Errorf("something was made: %v", err)
	}
	s.write("postbit.yaml", "users:\n  feilds: {}\n")
	s.refuses(exitUsage, []string{"postbit.yaml:2: users.feilds: unknown; fields?"}, "templates", "list")
}

func TestAPasswordIsNeverShown(t *testing.T) {
	s := newShell(t)
	for _, tc := range []struct{ name, value string }{
		{"POSTBIT_MONGO_URI", "mongodb://app:hunter2@127.0.0.1:1/app?serverSelectionTimeoutMS=50"},
		{"POSTBIT_MONGO_URI", "mongodb://app:hunter2@127.0.0.1:1/app?w=hunter2&nonsense"},
		{"POSTBIT_REDIS_URI", "redis://:hunter2@h:port"},
		{"POSTBIT_SMTP_URL", "smtp://u:hunter2@h:port"},
		{"POSTBIT_SECRET", "k:hunter2"},
	} {
		for name, value := range map[string]string{"POSTBIT_MONGO_URI": "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50", "POSTBIT_REDIS_URI": "redis://127.0.0.1:1",
			"POSTBIT_SMTP_URL": "smtp://127.0.0.1:1", "POSTBIT_PUBLIC_URL": "http://h", "POSTBIT_SECRET": "k:" + strings.Repeat("QUFB", 16)} {
			t.Setenv(name, value)
		}
		t.Setenv(tc.name, tc.value)
		for _, args := range [][]string{{"serve"}, {"send", "a", "b"}, {"templates", "list", "--json"}} {
			r := s.run(args...)
			if strings.Contains(r.out+r.err, "hunter2") {
				t.Errorf("%s=%s postbit %s: exit code %d\n%s%s", tc.name, tc.value, strings.Join(args, " "), r.code, r.out, r.err)
			}
		}
	}
}

func TestATypoInACampaignFile(t *testing.T) {
	s := newShell(t)
	s.write("templates/winback.html", winbackHTML)
	s.must("templates", "push", "templates")
	s.write("campaigns/good.yaml", strings.Replace(winbackYAML, "name: winback", "name: good", 1))
	s.write("campaigns/winback.yaml", strings.Replace(winbackYAML, "min_gap", "inactive_afer", 1))
	s.refuses(exitUsage, []string{"winback.yaml:6: rules.inactive_afer: unknown; inactive_after?"}, "campaigns", "apply", "campaigns")
	if got := s.must("campaigns", "list", "--json"); strings.TrimSpace(got) != "[]" {
		t.Errorf("something was applied: %s", got)
	}
}

func TestATakenBitIndex(t *testing.T) {
	s := newShell(t)
	s.write("owned.json", `{"welcome": 7}`)
	s.must("templates", "import", "owned.json")
	before := s.must("templates", "list", "--json")
	s.write("templates/other.html", strings.NewReplacer("winback", "other", "bitIndex: 7", "bitIndex: 8").Replace(winbackHTML))
	s.write("templates/winback.html", winbackHTML)
	s.refuses(exitUsage, []string{"winback: bitIndex 7 belongs to welcome"}, "templates", "push", "templates")
	if after := s.must("templates", "list", "--json"); after != before {
		t.Errorf("something of the push was applied: %s", after)
	}
	if got := s.must("templates", "list", "--map"); strings.TrimSpace(got) != `{"welcome":7}` {
		t.Errorf("the map: %s", got)
	}
}

func TestUsersOfTheWrongShape(t *testing.T) {
	s := newShell(t)
	s.insert(map[string]any{"_id": 1, "email": "a@x.example", "postbit": "ours"})
	s.write("templates/winback.html", winbackHTML)
	s.must("templates", "push", "templates")
	s.write("campaigns/winback.yaml", winbackYAML)
	s.refuses(exitUsage, []string{"nothing was applied", "postbit", "users.state_field"}, "campaigns", "apply", "campaigns")
	if got := s.must("campaigns", "list", "--json"); strings.TrimSpace(got) != "[]" {
		t.Errorf("something was applied: %s", got)
	}
}

func TestAKeptSecretThatIsNone(t *testing.T) {
	s := newShell(t)
	s.write(".postbit/secret", "")
	s.refuses(exitUsage, []string{filepath.Join(".postbit", "secret") + ": not a usable secret"}, "serve")
}

func TestNoPixelForAnIDThatNoTokenHolds(t *testing.T) {
	s := newShell(t)
	s.insert(map[string]any{"_id": strings.Repeat("x", 2000), "email": "long@x.example"})
	s.write("templates/winback.html", winbackHTML)
	s.must("templates", "push", "templates")
	s.write("campaigns/winback.yaml", winbackYAML)
	s.must("campaigns", "apply", "campaigns")
	s.refuses(exitFailed, []string{"over 1,024 bytes"}, "pixel", "--campaign", "winback", "--user", "long@x.example")
}

func TestTwoServesDoNotShareAFolder(t *testing.T) {
	s := newShell(t)
	stop := s.serve()
	s.patience = time.Nanosecond
	s.refuses(exitFailed, []string{"`postbit serve` (pid ", ".postbit", "--data-dir"}, "serve")
	if r := stop(); r.code != 0 {
		t.Errorf("the end of serve: exit code %d\n%s", r.code, r.err)
	}
}

func TestServeWaitsForAShortCommand(t *testing.T) {
	s := newShell(t)
	s.patience = time.Hour
	short, err := embedded.Start(t.Context(), embedded.Options{Dir: ".postbit", Clock: s.clk, Log: slog.New(slog.DiscardHandler), Command: "postbit templates push"})
	if err != nil {
		t.Fatal(err)
	}
	stop := s.startServe()
	s.await("it waits", func() bool { return strings.Contains(s.talk.String(), "`postbit templates push` (pid ") })
	if err := short.Close(); err != nil {
		t.Fatal(err)
	}
	s.await("it is up", func() bool { return strings.Contains(s.talk.String(), "postbit serves") })
	if r := stop(); r.code != 0 {
		t.Errorf("the end of serve: exit code %d\n%s", r.code, r.err)
	}
}

func TestDemo(t *testing.T) {
	s := newShell(t)
	s.clk = clock.New()                       // it moves on by itself
	t.Setenv("POSTBIT_MONGO_URI", "nonsense") // whatever the settings say
	var got demoJSON
	if err := json.Unmarshal([]byte(s.must("demo", "--users", "500", "--exit", "--json")), &got); err != nil {
		t.Fatal(err)
	}
	c := got.Counts
	sum := c.Sent + c.Failed + c.Unconfirmed
	for _, n := range c.Skipped {
		sum += n
	}
	if got.State != "done" || c.Audience != 500 || c.Checked != 500 || sum != 500 || c.Deferred != 0 || c.Unconfirmed != 0 {
		t.Errorf("the counts do not add up: %+v", got)
	}
	for _, rule := range []string{"address", "suppressed", "unreadable", "already_sent", "inactive", "min_gap"} {
		if c.Skipped[rule] == 0 {
			t.Errorf("%s has decided nobody", rule)
		}
	}
	if got.Waited == 0 || c.Sent == 0 || c.Failed == 0 || c.UnknownZone == 0 {
		t.Errorf("a kind of user is missing: %+v", got)
	}
	o := got.Opens
	if o.Hits != o.Human+o.Proxy+o.Prefetch+o.Machine || o.Human == 0 || o.Proxy == 0 || o.Prefetch == 0 || o.Machine == 0 || o.Unique == 0 {
		t.Errorf("opens: %+v", o)
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "postbit-demo-*")); err == nil && len(left) > 0 {
		t.Logf("other demos run, or a folder was left behind: %v", left)
	}
}

func TestTablesAlignWhatATerminalShows(t *testing.T) {
	tab := table{header: []string{"NAME", "N"}}
	tab.add("陽翔", "5")
	tab.add("Zoë\x1b[31m\r\n", "1,200")
	var b strings.Builder
	if err := tab.print(&b); err != nil {
		t.Fatal(err)
	}
	want := "NAME            N\n陽翔            5\nZoë\uFFFD[31m\uFFFD\uFFFD  1,200\n"
	if b.String() != want {
		t.Errorf("got\n%q\nwant\n%q", b.String(), want)
	}
}

// A flag of a command that is also a setting's would be read as the setting's, without a word.
func TestNoCommandHasAFlagOfASetting(t *testing.T) {
	parser, err := kong.New(&cli{})
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]bool{}
	for i := range config.Settings {
		settings[config.Settings[i].FlagName()] = true
	}
	for _, leaf := range parser.Model.Leaves(false) {
		if ownParts(leaf.Path()) {
			continue // those have no settings
		}
		for _, f := range leaf.Flags {
			if settings[f.Name] {
				t.Errorf("%s --%s", leaf.Path(), f.Name)
			}
		}
	}
}

// Nothing is sent by a rehearsal, so it has no line that says how many were.
func TestRehearsalShowsWhoWouldGetIt(t *testing.T) {
	s := newShell(t)
	s.write("templates/winback.html", winbackHTML)
	s.write("campaigns/winback.yaml", winbackYAML)
	for i, email := range []string{"ada@x.example", "nobody", "zoe@x.example"} {
		s.insert(map[string]any{"_id": i, "email": email, "plan": "free", "timezone": []string{"UTC", "UTC", "Asia/Tokyo"}[i]})
	}
	s.must("templates", "push", "templates")
	s.must("campaigns", "apply", "campaigns")
	got := strings.Join(strings.Fields(s.must("campaigns", "rehearse", "winback", "--at", "2031-12-01T12:00:00Z")), " ")
	if want := "USERS OF AUDIENCE audience 3 100.0% checked 3 100.0% skipped address 1 33.3% deferred 1 33.3% would be sent 1 33.3% " +
		"deferred users have their turn from 2031-12-02T00:00:00Z to 2031-12-02T00:00:00Z"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
