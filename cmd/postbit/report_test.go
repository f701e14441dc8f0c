package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/rivo/uniseg"

	"postbit/internal/minimongo/mongotest"
	"postbit/internal/report"
	"postbit/internal/report/reporttest"
)

// goldenReport compares with a file of testdata/report, which POSTBIT_WRITE_DOCS=1 writes anew.
func goldenReport(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "report", name)
	if os.Getenv("POSTBIT_WRITE_DOCS") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (POSTBIT_WRITE_DOCS=1 takes it over):\n%s", name, diff)
	}
}

// seeded are reports of reporttest.Seed, by name and range.
func seeded(t *testing.T) func(name, from, to string) *report.Report {
	t.Helper()
	s := reporttest.Seed(t, mongotest.DB(t))
	return func(name, from, to string) *report.Report {
		t.Helper()
		days, err := report.ParseRange(from, to, reporttest.Now)
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Gather(t.Context(), report.Query{Name: name, Range: days, Now: reporttest.Now})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

func drawn(t *testing.T, r *report.Report, s screen) string {
	t.Helper()
	var b strings.Builder
	if err := printReport(&b, r, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var reportRows = []struct {
	file, name, from, to string
	screen               screen
}{
	{"days.txt", "winback", "2026-11-30", "2026-12-04", screen{width: 80, unicode: true}},
	{"ascii.txt", "winback", "2026-11-30", "2026-12-04", screen{width: 60}},
	{"narrow.txt", "winback", "2026-11-30", "2026-12-04", screen{width: 40, unicode: true}},
	{"color.txt", "winback", "2026-11-01", "2026-11-30", screen{width: 120, unicode: true, color: true}},
	{"months.txt", "winback", "2026-08-15", "2026-12-04", screen{width: 100, unicode: true}},
	{"idle.txt", "idle", "2026-11-30", "2026-12-04", screen{width: 80, unicode: true}},
	{"site.txt", "shop", "2026-12-01", "2026-12-04", screen{width: 80, unicode: true}},
	{"site-ascii.txt", "shop", "2026-12-01", "2026-12-04", screen{width: 80}},
	{"all.txt", "all", "2026-08-01", "2026-12-04", screen{width: 80, unicode: true}},
}

func TestReportsOnAScreen(t *testing.T) {
	gather := seeded(t)
	for _, row := range reportRows {
		t.Run(row.file, func(t *testing.T) {
			got := drawn(t, gather(row.name, row.from, row.to), row.screen)
			goldenReport(t, row.file, got)
			if row.screen.color {
				return
			}
			for line := range strings.Lines(got) {
				if w := uniseg.StringWidth(strings.TrimSuffix(line, "\n")); w > row.screen.width {
					t.Errorf("%d columns on a screen of %d: %q", w, row.screen.width, line)
				}
				if !row.screen.unicode && strings.ContainsFunc(line, func(r rune) bool { return r > '~' }) {
					t.Errorf("more than ASCII: %q", line)
				}
			}
		})
	}
}

func TestTheHeadSaysHowManyRunsThereAre(t *testing.T) {
	runs := make([]report.Run, report.MaxRuns)
	for i := range runs {
		runs[i] = report.Run{ID: "daily@2026-12-04T17:00:00Z", State: "done"}
	}
	for _, row := range []struct {
		name  string
		shown int
		all   int64
		want  string // the line behind the runs
	}{
		{"as many as are named", 3, 3, ""},
		{"one more", 4, 4, "and 1 earlier run of these days"},
		{"more than the report holds", report.MaxRuns, 1234, "and 1,231 earlier runs of these days"},
	} {
		t.Run(row.name, func(t *testing.T) {
			lines := strings.Split(drawn(t, &report.Report{Campaign: "daily", Runs: runs[:row.shown], RunsAll: row.all}, screen{width: 80}), "\n")
			if got := lines[1+shownRuns]; got != row.want {
				t.Errorf("%q, want %q", got, row.want)
			}
		})
	}
}

func TestNoControlCharacterReachesTheTerminal(t *testing.T) {
	gather := seeded(t)
	shop := gather("shop", "2026-12-01", "2026-12-04")
	shop.ByMonth.Pages = append(shop.ByMonth.Pages, report.Value{Value: reporttest.Hostile, Title: "\x1b]0;title\x07", N: 1})
	shop.ByMonth.Clients = []report.Bucket{{Name: "a\x1b[31m\u0085b\u2028", N: 1}}
	winback := gather("winback", "2026-11-30", "2026-12-04") // its run is paused for a hostile reason
	var data bytes.Buffer
	a := &app{out: &data}
	for name, write := range map[string]func(io.Writer) error{
		"screen":        func(w io.Writer) error { return printReport(w, shop, screen{width: 120, unicode: true}) },
		"screen, ASCII": func(w io.Writer) error { return printReport(w, shop, screen{width: 120}) },
		"pause":         func(w io.Writer) error { return printReport(w, winback, screen{width: 120, unicode: true}) },
		"list": func(w io.Writer) error {
			return printList(w, &report.List{Campaign: "shop", List: "pages", Months: []string{"2026-12"}, Values: shop.ByMonth.Pages}, screen{width: 120, unicode: true})
		},
		"list as CSV": func(w io.Writer) error {
			return writeListCSV(w, &report.List{Campaign: "shop", List: "pages", Months: []string{"2026-12"}, Values: shop.ByMonth.Pages})
		},
		"JSON": func(w io.Writer) error {
			data.Reset()
			err := a.printReportJSON(shop)
			_, _ = w.Write(data.Bytes())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := write(&b); err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(b.String(), "\r\n", "\n") // of CSV
			if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }); i >= 0 {
				t.Errorf("%q in\n%q", text[i:min(i+8, len(text))], text)
			}
		})
	}
}

func TestEscapedJSONMeansTheSame(t *testing.T) {
	var b bytes.Buffer
	want := map[string]string{"title": reporttest.Hostile + "\u007f\U000e0001<&>é\U0001f600"}
	if err := (&app{out: &b}).printReportJSON(want); err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v: %q, want %q", err, got, want)
	}
}

func TestReportAsJSON(t *testing.T) {
	gather := seeded(t)
	for _, row := range []struct{ file, name string }{{"days.json", "winback"}, {"site.json", "shop"}, {"idle.json", "idle"}} {
		t.Run(row.file, func(t *testing.T) {
			var out, pretty bytes.Buffer
			if err := (&app{out: &out}).printReportJSON(gather(row.name, "2026-11-30", "2026-12-04")); err != nil {
				t.Fatal(err)
			}
			if err := json.Indent(&pretty, out.Bytes(), "", "  "); err != nil {
				t.Fatal(err)
			}
			goldenReport(t, row.file, pretty.String())
		})
	}
}

func TestReportAsCSV(t *testing.T) {
	gather := seeded(t)
	for _, row := range []struct{ file, name, from, to string }{
		{"days.csv", "winback", "2026-11-29", "2026-12-04"},
		{"idle.csv", "idle", "2026-12-01", "2026-12-02"},
	} {
		t.Run(row.file, func(t *testing.T) {
			var b strings.Builder
			r := gather(row.name, row.from, row.to)
			if err := writeReportCSV(&b, r); err != nil {
				t.Fatal(err)
			}
			goldenReport(t, row.file, b.String())
			if strings.Count(b.String(), "\n") != strings.Count(b.String(), "\r\n") {
				t.Error("a line that does not end with CRLF (RFC 4180)")
			}
			rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
			if err != nil || len(rows) != 1+len(r.EveryDay()) {
				t.Errorf("%d rows, %v: one a day", len(rows), err)
			}
		})
	}
}

func TestNoCellIsAFormula(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"plain", "https://example.com/?a=b", "https://example.com/?a=b"},
		{"empty", "", ""},
		{"equals", "=1+1", "'=1+1"},
		{"plus", "+1", "'+1"},
		{"minus", "-1", "'-1"},
		{"at", "@SUM(A1)", "'@SUM(A1)"},
		{"behind a space", " =1", "' =1"},
		{"behind a tab", "\t=1", "'\ufffd=1"},
		{"behind a new line", "\r\n=1", "'\ufffd\ufffd=1"},
		{"behind a space that does not break", "\u00a0=1", "'\u00a0=1"},
		{"behind a wide space and a joiner", "\u3000\u200d=1", "'\u3000\u200d=1"},
		{"full width", "＝1", "'＝1"},
		{"quotes and commas are the writer's business", `a,"b"`, `a,"b"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := cell(row.text); got != row.want {
				t.Errorf("%q, want %q", got, row.want)
			}
		})
	}
	var b strings.Builder
	l := &report.List{Campaign: "shop", List: "pages", Months: []string{"2026-11", "2026-12"}, Values: []report.Value{{Value: `=A1,"x"`, Title: "-1", N: 3}}}
	if err := writeListCSV(&b, l); err != nil {
		t.Fatal(err)
	}
	if want := "campaign,list,from_month,to_month,value,title,n\r\nshop,pages,2026-11,2026-12,\"'=A1,\"\"x\"\"\",'-1,3\r\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func TestWhoSpeaksUnicode(t *testing.T) {
	for _, row := range []struct {
		name, system string
		env          map[string]string
		want         bool
	}{
		{"nothing is set", "linux", nil, false},
		{"LANG", "linux", map[string]string{"LANG": "de_DE.UTF-8"}, true},
		{"the C locale", "linux", map[string]string{"LANG": "C"}, false},
		{"C with UTF-8", "linux", map[string]string{"LANG": "C.utf8"}, true},
		{"LC_ALL comes first", "linux", map[string]string{"LC_ALL": "POSIX", "LANG": "en_US.UTF-8"}, false},
		{"LC_CTYPE comes before LANG", "linux", map[string]string{"LC_CTYPE": "en_US.UTF-8", "LANG": "en_US.ISO-8859-1"}, true},
		{"a dumb terminal", "linux", map[string]string{"TERM": "dumb", "LANG": "en_US.UTF-8"}, false},
		{"the old console of Windows", "windows", nil, false},
		{"Windows Terminal", "windows", map[string]string{"WT_SESSION": "8f3"}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := speaksUnicode(func(name string) string { return row.env[name] }, row.system); got != row.want {
				t.Errorf("%v", got)
			}
		})
	}
}

func TestScreenOffATerminal(t *testing.T) {
	t.Setenv("LC_ALL", "C.UTF-8")
	t.Setenv("TERM", "xterm-256color")
	for _, row := range []struct {
		name, columns string
		ascii         bool
		want          screen
	}{
		{"nothing is known", "", false, screen{width: 80, unicode: true}},
		{"COLUMNS", "100", false, screen{width: 100, unicode: true}},
		{"too narrow", "3", false, screen{width: 40, unicode: true}},
		{"too wide", "100000", false, screen{width: 160, unicode: true}},
		{"nonsense", "-5", false, screen{width: 80, unicode: true}},
		{"asked for ASCII", "", true, screen{width: 80}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Setenv("COLUMNS", row.columns)
			if got := screenOf(io.Discard, row.ascii); got != row.want {
				t.Errorf("%+v, want %+v", got, row.want)
			}
		})
	}
}

func TestTextsThatAreTooLong(t *testing.T) {
	for _, row := range []struct {
		name, text string
		width      int
		screen     screen
		want       string
	}{
		{"fits", "abcde", 5, screen{unicode: true}, "abcde"},
		{"too long", "abcdef", 5, screen{unicode: true}, "abcd…"},
		{"too long, ASCII", "abcdef", 5, screen{}, "ab..."},
		{"two columns each", "新しい世界", 6, screen{unicode: true}, "新し…"},
		{"not half of one", "新しい世界", 5, screen{unicode: true}, "新し…"},
		{"a letter with its accent", "e\u0301e\u0301e\u0301", 2, screen{unicode: true}, "e\u0301…"},
		{"other scripts, ASCII", "schön", 5, screen{}, "sch?n"},
		{"invalid", "a\xffb", 5, screen{unicode: true}, "a\ufffdb"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := row.screen.text(row.text, row.width); got != row.want {
				t.Errorf("%q, want %q", got, row.want)
			}
		})
	}
}

func TestAnythingThatIsNotNothingShows(t *testing.T) {
	for _, s := range []screen{{width: 80, unicode: true}, {width: 80}} {
		if got := s.bar(1, 1_000_000, 10); got == "" {
			t.Error("one in a million has no bar")
		}
		if got := s.bar(5, 5, 10); uniseg.StringWidth(got) != 10 {
			t.Errorf("the longest bar is %q", got)
		}
		if got := s.bar(0, 5, 10); got != "" {
			t.Errorf("nothing has the bar %q", got)
		}
		if s.block(1, 1_000_000, 0) == " " {
			t.Error("one in a million has no column")
		}
	}
}

func TestReportOfTheCommandLine(t *testing.T) {
	s := newShell(t)
	s.external(t)
	s.write("templates/winback.html", winbackHTML)
	s.must("templates", "push", "templates", "--adopt")
	s.write("campaigns/winback.yaml", winbackYAML)
	s.must("campaigns", "apply", "campaigns")
	t.Setenv("LC_ALL", "C")

	if got := s.must("report", "winback"); !strings.Contains(got, "Nothing was counted") {
		t.Errorf("an empty report:\n%s", got)
	}
	if got := s.must("report", "winback", "--from", "2026-12-01", "--csv"); strings.Count(got, "\r\n") != 2 || !strings.HasPrefix(got, "day,campaign,sent,") {
		t.Errorf("an empty report as CSV:\n%s", got)
	}
	if got := s.must("report", "winback", "--list", "pages", "--csv"); got != "campaign,list,from_month,to_month,value,title,n\r\n" {
		t.Errorf("an empty list as CSV:\n%s", got)
	}
	for _, row := range []struct {
		name string
		code int
		says string
		args []string
	}{
		{"unknown campaign", exitFailed, "\"autumn\" is no campaign and no site: not found; `postbit campaigns list` shows the campaigns\n", []string{"report", "autumn"}},
		{"a name that is none", exitFailed, `"\x1b[2J" is no campaign`, []string{"report", "\x1b[2J"}},
		{"no date", exitUsage, `"tomorrow" is no date`, []string{"report", "winback", "--to", "tomorrow"}},
		{"backwards", exitUsage, "before it begins", []string{"report", "winback", "--from", "2026-12-02", "--to", "2026-12-01"}},
		{"endless", exitUsage, "at most 3600", []string{"report", "winback", "--from", "1066-10-14"}},
		{"no such list", exitUsage, "links, pages, referrers, terms", []string{"report", "winback", "--list", "users"}},
		{"a place in no list", exitUsage, "--list", []string{"report", "winback", "--after", "1:a"}},
		{"no such place", exitUsage, "no place in a list", []string{"report", "winback", "--list", "links", "--after", "x"}},
		{"too many lines", exitUsage, "1 to 1000", []string{"report", "winback", "--top", "1001"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := *s
			s.TB = t
			s.refuses(row.code, []string{row.says}, row.args...)
		})
	}
}
