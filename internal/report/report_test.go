package report_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/report"
	"postbit/internal/report/reporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRangeOfDays(t *testing.T) {
	now := time.Date(2026, 12, 4, 23, 30, 0, 0, time.FixedZone("UTC+14", 14*3600)) // 09:30 UTC
	for _, row := range []struct{ name, from, to, want, fault string }{
		{"the last 30 days, by UTC", "", "", "2026-11-05 2026-12-04", ""},
		{"30 days up to one", "", "2026-03-01", "2026-01-31 2026-03-01", ""},
		{"one day", "2026-12-01", "2026-12-01", "2026-12-01 2026-12-01", ""},
		{"a leap day", "2028-02-29", "2028-02-29", "2028-02-29 2028-02-29", ""},
		{"ends before it begins", "2026-12-02", "2026-12-01", "", "before it begins"},
		{"from is in the future", "2027-01-01", "", "", "before it begins"},
		{"no date", "2026-12-1", "", "", `from: "2026-12-1" is no date`},
		{"no such day", "", "2026-02-29", "", "to: "},
		{"a time", "", "2026-12-01T09:00:00Z", "", "is no date"},
		{"longer than it can be", "0001-01-01", "9999-12-31", "", "at most 3600"},
		{"hostile", "\x1b[2J", "", "", `"\x1b[2J" is no date`},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := report.ParseRange(row.from, row.to, now)
			if row.fault != "" {
				if !errors.Is(err, report.ErrRange) || !strings.Contains(err.Error(), row.fault) {
					t.Errorf("error %v, want %q", err, row.fault)
				}
				return
			}
			if text := got.From.Format(time.DateOnly) + " " + got.To.Format(time.DateOnly); err != nil || text != row.want {
				t.Errorf("%s, %v; want %s", text, err, row.want)
			}
		})
	}
}

func TestTheLongestRangeTouchesAtMost120Months(t *testing.T) {
	for day := range 366 {
		to := time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, day)
		r, err := report.ParseRange(to.AddDate(0, 0, -3599).Format(time.DateOnly), to.Format(time.DateOnly), to)
		if err != nil || len(r.Months()) > 120 {
			t.Fatalf("up to %s: %d months, %v", to, len(r.Months()), err)
		}
	}
}

func gather(t *testing.T, s report.Sources, name, from, to string) *report.Report {
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

func TestWhatIsKeptByDayIsExact(t *testing.T) {
	s := reporttest.Seed(t, mongotest.DB(t))
	for _, row := range []struct {
		name, from, to        string
		sent, decided, clicks int64
		at10                  [2]int64 // hits, opened
		days, runs            int
	}{
		{"the first day", "2026-11-30", "2026-11-30", 6000, 9800, 400, [2]int64{280 + 140 + 70 + 900, 280 + 140 + 900}, 1, 1},
		{"over the end of a month", "2026-11-30", "2026-12-01", 6200, 10000, 560, [2]int64{1390 + 112 + 56 + 28 + 360, 1320 + 112 + 56 + 360}, 2, 1},
		{"December alone", "2026-12-01", "2026-12-31", 700, 700, 280, [2]int64{973, 924}, 4, 1},
		{"before anything was sent", "2026-11-01", "2026-11-29", 0, 0, 0, [2]int64{}, 0, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := gather(t, s, "winback", row.from, row.to)
			if r.Sent != row.sent || r.Decided != row.decided || r.Clicked != row.clicks || len(r.Days) != row.days || len(r.Runs) != row.runs {
				t.Errorf("sent %d, decided %d, clicked %d, %d days, %d runs; want %+v", r.Sent, r.Decided, r.Clicked, len(r.Days), len(r.Runs), row)
			}
			if got := [2]int64{r.Hours.Hits[10], r.Hours.Opened[10]}; got != row.at10 {
				t.Errorf("hits and opened at 10: %v, want %v", got, row.at10)
			}
			if o := r.Opens; o.Hits != o.Human+o.Proxy+o.Prefetch+o.Machine {
				t.Errorf("the kinds do not add up: %+v", o)
			}
		})
	}
}

// A report has the latest runs of its range, and says how many there are.
func TestOfManyRunsTheLatestAreShown(t *testing.T) {
	s := reporttest.Seed(t, mongotest.DB(t))
	var runs []campaign.Run
	for i := range 70 {
		slot := reporttest.Now.Add(-time.Duration(i) * time.Hour)
		runs = append(runs, campaign.Run{ID: campaign.RunID("winback", slot), Campaign: "winback", Slot: slot, State: campaign.RunDone})
	}
	s.Runs = reporttest.Campaigns{"winback": runs}
	for _, row := range []struct {
		name, from, to string
		shown          int
		all            int64
		latest         string
	}{
		{"more than are shown", "2026-11-30", "2026-12-04", report.MaxRuns, 70, "winback@2026-12-04T18:00:00Z"},
		{"of an earlier day, all", "2026-12-02", "2026-12-02", 24, 24, "winback@2026-12-02T23:00:00Z"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := gather(t, s, "winback", row.from, row.to)
			if len(r.Runs) != row.shown || r.RunsAll != row.all || r.Runs[0].ID != row.latest {
				t.Errorf("%d of %d runs, the latest %s", len(r.Runs), r.RunsAll, r.Runs[0].ID)
			}
		})
	}
}

func TestWhatIsKeptByMonthSaysOfWhichMonthsItIs(t *testing.T) {
	s := reporttest.Seed(t, mongotest.DB(t))
	for _, row := range []struct {
		name, from, to string
		months         []string
		exact          bool
		gmail, clicks  int64
	}{
		{"a part of a month", "2026-11-30", "2026-11-30", []string{"2026-11"}, false, 45, 5},
		{"a whole month", "2026-11-01", "2026-11-30", []string{"2026-11"}, true, 45, 5},
		{"over the end of a month", "2026-11-30", "2026-12-01", []string{"2026-11", "2026-12"}, false, 75, 8},
		{"up to today: what is to come is nothing", "2026-11-01", "2026-12-04", []string{"2026-11", "2026-12"}, true, 75, 8},
		{"up to yesterday", "2026-11-01", "2026-12-03", []string{"2026-11", "2026-12"}, false, 75, 8},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := gather(t, s, "winback", row.from, row.to).ByMonth
			if !cmp.Equal(m.Months, row.months) || m.Exact != row.exact {
				t.Errorf("months %v, exact %v; want %v, %v", m.Months, m.Exact, row.months, row.exact)
			}
			n := int64(0)
			for _, b := range m.Clients {
				if b.Name == "Gmail" {
					n = b.N
				}
			}
			if n != row.gmail || len(m.Links) == 0 || m.Links[0].N != row.clicks {
				t.Errorf("%d opens by Gmail, links %v", n, m.Links)
			}
		})
	}
}

func TestBucketsAreInOrder(t *testing.T) {
	s := reporttest.Seed(t, mongotest.DB(t))
	m := gather(t, s, "winback", "2026-11-30", "2026-12-04").ByMonth
	names := func(buckets []report.Bucket) (names []string) {
		for _, b := range buckets {
			names = append(names, b.Name)
		}
		return names
	}
	if got := names(m.Delay); !cmp.Equal(got, analytics.Buckets(analytics.DelayField)) {
		t.Errorf("time to open: %v", got)
	}
	if got, want := names(m.Clients), []string{"Gmail", "Apple Mail", "Outlook", "Thunderbird", "unknown"}; !cmp.Equal(got, want) {
		t.Errorf("clients: %v, want %v: the most frequent first, what is unknown last", got, want)
	}
}

func TestWhoCanBeReportedOn(t *testing.T) {
	s := reporttest.Seed(t, mongotest.DB(t))
	for _, row := range []struct {
		name, of string
		known    bool
	}{
		{"a campaign", "winback", true},
		{"a campaign that has counted nothing", "idle", true},
		{"a site", "shop", true},
		{"all", "all", true},
		{"nobody", "autumn", false},
		{"a part of an _id", "winback.sent", false},
		{"nothing", "", false},
		{"hostile", "\x1b[2J", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			days, err := report.ParseRange("", "", reporttest.Now)
			if err != nil {
				t.Fatal(err)
			}
			q := report.Query{Name: row.of, Range: days, Now: reporttest.Now}
			_, whole := s.Gather(t.Context(), q)
			_, list := s.Page(t.Context(), report.ListQuery{Query: q, List: "links"})
			for _, err := range []error{whole, list} {
				if row.known && err != nil || !row.known && (!errors.Is(err, campaign.ErrNotFound) || strings.Contains(err.Error(), "\x1b")) {
					t.Errorf("error %v", err)
				}
			}
		})
	}
}

func TestAnIdleCampaignHasNoNulls(t *testing.T) {
	r := gather(t, reporttest.Seed(t, mongotest.DB(t)), "idle", "", "")
	m := r.ByMonth
	if r.Days == nil || r.Runs == nil || m.Delay == nil || m.Clients == nil || m.Devices == nil || m.Systems == nil || m.ScreenWidths == nil ||
		m.BrowserWidths == nil || m.BrowserHeights == nil || m.Links == nil || m.Pages == nil || m.Referrers == nil || m.Terms == nil || len(r.Skipped) != len(campaign.SkipReasons) {
		t.Errorf("%+v", r)
	}
}

func TestPagesOfAListJoinUp(t *testing.T) {
	s := reporttest.Seed(t, mongotest.DB(t))
	days, err := report.ParseRange("2026-11-30", "2026-12-04", reporttest.Now)
	if err != nil {
		t.Fatal(err)
	}
	q := report.ListQuery{Query: report.Query{Name: "winback", Range: days, Now: reporttest.Now, Top: 1}, List: "links"}
	var got []int64
	for {
		l, err := s.Page(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range l.Values {
			got = append(got, v.N)
		}
		if q.After = l.Next; q.After == "" {
			break
		}
	}
	if want := []int64{8, 2, 1}; !cmp.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for name, bad := range map[string]func(*report.ListQuery){
		"no such list":  func(q *report.ListQuery) { q.List = "users" },
		"too many":      func(q *report.ListQuery) { q.Top = analytics.MaxTop + 1 },
		"no such place": func(q *report.ListQuery) { q.After = "$where" },
	} {
		t.Run(name, func(t *testing.T) {
			q := q
			bad(&q)
			if _, err := s.Page(t.Context(), q); !errors.Is(err, report.ErrList) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestMonthsOfAReport(t *testing.T) {
	r := gather(t, reporttest.Seed(t, mongotest.DB(t)), "winback", "2026-10-15", "2026-12-04")
	type month struct {
		Month, From, To string
		Partly          bool
		Sent            int64
	}
	var got []month
	for _, m := range r.Months() {
		got = append(got, month{m.Month, m.From, m.To, m.Partly, m.Metrics["sent"]})
	}
	want := []month{{"2026-10", "2026-10-15", "2026-10-31", true, 0}, {"2026-11", "2026-11-01", "2026-11-30", false, 6000}, {"2026-12", "2026-12-01", "2026-12-04", true, 700}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := len(r.EveryDay()); n != 51 {
		t.Errorf("%d days", n)
	}
}
