package scheduler

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"postbit/internal/campaign"
)

func at(t *testing.T, s string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestThreeSchedulersTenTicks(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", `{ cron: "* * * * *" }`)
	schedulers := []*Scheduler{w.Scheduler, New(w.config), New(w.config)}
	for range 10 {
		w.clk.Advance(time.Minute)
		var wg sync.WaitGroup
		for _, s := range schedulers {
			wg.Go(func() {
				if err := s.Fire(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	want := []string{}
	for i := range 10 {
		want = append(want, campaign.RunID("x", start.Add(time.Duration(i+1)*time.Minute)))
	}
	if d := cmp.Diff(want, w.ids("x")); d != "" {
		t.Fatal(d)
	}
}

// TestFireThroughTime goes through days minute by minute or so and looks at the runs that came out.
func TestFireThroughTime(t *testing.T) {
	for _, c := range []struct {
		name, schedule, from, to string
		want                     []string
	}{
		{"02:30 across the spring gap", `{ cron: "30 2 * * *", timezone: Europe/Berlin }`, "2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z",
			[]string{"x@2026-03-28T01:30:00Z", "x@2026-03-29T01:00:00Z", "x@2026-03-30T00:30:00Z"}},
		{"02:30 across the autumn overlap", `{ cron: "30 2 * * *", timezone: Europe/Berlin }`, "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z",
			[]string{"x@2026-10-25T00:30:00Z", "x@2026-10-26T01:30:00Z"}},
		{"midnight that does not exist", `{ cron: "0 0 * * *", timezone: America/Santiago }`, "2026-09-05T12:00:00Z", "2026-09-07T12:00:00Z",
			[]string{"x@2026-09-06T04:00:00Z", "x@2026-09-07T03:00:00Z"}},
		{"a day that is left out", `{ cron: "0 9 * * *", timezone: Pacific/Apia }`, "2011-12-29T12:00:00Z", "2012-01-01T00:00:00Z",
			[]string{"x@2011-12-29T19:00:00Z", "x@2011-12-30T10:00:00Z", "x@2011-12-30T19:00:00Z", "x@2011-12-31T19:00:00Z"}},
		{"half an hour comes twice", `{ cron: "45 1 * * *", timezone: Australia/Lord_Howe }`, "2026-04-03T18:00:00Z", "2026-04-06T00:00:00Z",
			[]string{"x@2026-04-04T14:45:00Z", "x@2026-04-05T15:15:00Z"}},
		{"half-hour zone, spring in October", `{ cron: "30 2 * * *", timezone: Australia/Adelaide }`, "2026-10-02T12:00:00Z", "2026-10-05T00:00:00Z",
			[]string{"x@2026-10-02T17:00:00Z", "x@2026-10-03T16:30:00Z", "x@2026-10-04T16:00:00Z"}},
		{"once, at a time", `{ at: 2026-12-01 09:00, timezone: Europe/Berlin }`, "2026-12-01T00:00:00Z", "2026-12-03T00:00:00Z",
			[]string{"x@2026-12-01T08:00:00Z"}},
		{"by hand", "", "2026-12-01T00:00:00Z", "2026-12-02T00:00:00Z", []string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, at(t, c.from))
			w.apply("x", c.schedule)
			for end := at(t, c.to); w.clk.Now().Before(end); w.clk.Advance(7 * time.Minute) {
				w.do(w.Fire)
			}
			if d := cmp.Diff(c.want, w.ids("x")); d != "" {
				t.Fatal(d)
			}
		})
	}
}

func TestCatchUp(t *testing.T) {
	for _, c := range []struct {
		name     string
		schedule string
		down     time.Duration // from 08:59 on
		want     []string
		said     string
	}{
		{"not late", `{ cron: "0 9 * * *" }`, time.Minute, []string{"x@2026-12-01T09:00:00Z"}, ""},
		{"within the grace", `{ cron: "0 9 * * *" }`, time.Hour, []string{"x@2026-12-01T09:00:00Z"}, ""},
		{"just within the grace", `{ cron: "0 9 * * *" }`, 61 * time.Minute, []string{"x@2026-12-01T09:00:00Z"}, ""},
		{"too late", `{ cron: "0 9 * * *" }`, 5 * time.Hour, []string{},
			"skipped a slot that is older than misfire_grace: no run, no mail\" campaign=x slot=2026-12-01T09:00:00.000Z late=4h59m0s misfire_grace=1h0m0s slots_skipped=1"},
		{"only the last one that was missed", `{ cron: "0 * * * *" }`, 5 * time.Hour, []string{"x@2026-12-01T13:00:00Z"},
			"only the last one that was missed is made up for\" campaign=x slots_skipped=4 first_skipped=2026-12-01T09:00:00.000Z fired=2026-12-01T13:00:00.000Z"},
		{"a year of minutes", `{ cron: "* * * * *" }`, 365 * 24 * time.Hour, []string{"x@2027-12-01T08:59:00Z"}, "only the last one that was missed"},
		{"a year, and rarely", `{ cron: "0 9 1 1 *" }`, 365 * 24 * time.Hour, []string{}, "slot=2027-01-01T09:00:00.000Z"},
		{"a year, by the clock of a zone", `{ cron: "0 9 1 1 *", timezone: Pacific/Apia }`, 365 * 24 * time.Hour, []string{}, "slot=2026-12-31T20:00:00.000Z"},
		{"within the grace, by the clock of a zone", `{ cron: "30 20 * * *", timezone: Australia/Adelaide }`, 2 * time.Hour, []string{"x@2026-12-01T10:00:00Z"}, ""},
		{"a time that has passed", `{ at: 2026-12-01 09:00 }`, 5 * time.Hour, []string{}, "older than misfire_grace"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, start)
			w.apply("x", c.schedule)
			w.clk.Advance(c.down)
			for range 3 { // it is said once
				w.do(w.Fire)
			}
			if d := cmp.Diff(c.want, w.ids("x")); d != "" {
				t.Fatal(d)
			}
			if log := w.log.String(); strings.Count(log, "level=WARN") > 1 || !strings.Contains(log, c.said) || c.said == "" && strings.Contains(log, "WARN") {
				t.Fatalf("it said:\n%s\nwant %q", log, c.said)
			}
		})
	}
}

func TestClockJumps(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", `{ cron: "* * * * *" }`)
	seen := map[string]bool{}
	for _, jump := range []time.Duration{time.Minute, 10 * time.Minute, -5 * time.Minute, time.Minute, -time.Hour, 2 * time.Hour, 0, -30 * time.Second, 2 * time.Minute} {
		w.clk.Advance(jump)
		w.do(w.Fire)
	}
	for _, id := range w.ids("x") {
		if seen[id] {
			t.Fatalf("%s twice", id)
		}
		seen[id] = true
	}
	if len(seen) != 4 { // +1 m, +10 m, back and 2 h on, +2 m
		t.Fatalf("runs: %v", w.ids("x"))
	}
}

func TestSchedulerDiesBetweenRunAndSchedule(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", `{ cron: "0 9 * * *" }`)
	slot := start.Add(time.Minute)
	w.clk.Advance(time.Minute)
	if err := w.runs.InsertRun(t.Context(), &campaign.Run{ID: campaign.RunID("x", slot), Short: campaign.ShortID{1}, Campaign: "x", Slot: slot,
		StartedAt: slot, State: campaign.RunPlanning}); err != nil {
		t.Fatal(err)
	}
	w.do(w.Fire)
	if d := cmp.Diff([]string{campaign.RunID("x", slot)}, w.ids("x")); d != "" {
		t.Fatal(d)
	}
	c, err := w.runs.Get(t.Context(), "x")
	if err != nil || !c.NextAt.Equal(slot.Add(24*time.Hour)) || !c.LastAt.Equal(slot) {
		t.Fatalf("next at %s, last %s, %v", c.NextAt, c.LastAt, err)
	}
}

func TestFireTakesTheCampaignAsItIs(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", `{ cron: "0 9 * * *" }`, "expires_after: 3h")
	w.clk.Advance(90 * time.Second)
	w.do(w.Fire)
	r := w.run("x@2026-12-01T09:00:00Z")
	if r.State != campaign.RunPlanning || r.Spec.ExpiresAfter != 3*time.Hour || r.Short == (campaign.ShortID{}) ||
		!r.StartedAt.Equal(start.Add(90*time.Second)) || !r.Slot.Equal(start.Add(time.Minute)) || r.Template.Lookup("_id").StringValue() != "t" {
		t.Fatalf("%+v", r)
	}
}

func TestFireWithoutATemplate(t *testing.T) {
	for _, c := range []struct {
		name     string
		template campaign.TemplateInfo
		want     string
	}{
		{"gone", campaign.TemplateInfo{}, "there is no template t to be sent"},
		{"retired", campaign.TemplateInfo{Exists: true, Retired: true}, "template t is retired"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, start)
			w.apply("x", `{ cron: "0 9 * * *" }`)
			w.templates["t"] = c.template
			w.clk.Advance(time.Minute)
			w.do(w.Fire)
			r := w.run("x@2026-12-01T09:00:00Z")
			if r.State != campaign.RunFailed || r.Reason != c.want || r.EndedAt.IsZero() {
				t.Fatalf("%s, %q", r.State, r.Reason)
			}
			if _, err := w.StartManual(t.Context(), "x", ""); err == nil {
				t.Fatal("by hand it must be an error")
			}
		})
	}
}

func TestTheTroubleOfOneCampaignIsNotThatOfOthers(t *testing.T) {
	w := newWorld(t, start)
	w.applyText("name: a\ntemplate: trouble\naudience: {}\nschedule: { cron: 0 9 * * * }\n")
	w.apply("b", `{ cron: "0 9 * * *" }`)
	w.clk.Advance(time.Minute)
	if err := w.Fire(t.Context()); err == nil || !strings.Contains(err.Error(), "fire a: ") {
		t.Fatalf("%v, want the trouble of a", err)
	}
	if got := fmt.Sprint(w.ids("a"), w.ids("b")); got != "[] [b@2026-12-01T09:00:00Z]" {
		t.Fatalf("runs: %s", got)
	}
}

func TestPausedCampaignsDoNotFire(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", `{ cron: "0 9 * * *" }`)
	if err := w.runs.Pause(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	w.clk.Advance(time.Minute)
	w.do(w.Fire)
	if ids := w.ids("x"); len(ids) > 0 {
		t.Fatal(ids)
	}
	if r := w.manual("x"); r.State != campaign.RunPlanning {
		t.Fatalf("by hand it must go on: %s", r.State)
	}
}

func TestStartManual(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", "")
	first, err := w.StartManual(t.Context(), "x", "key-1")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(first.ID, "x@2026-12-01T08:59:00Z+manual-") || len(w.queue.plans) != 1 {
		t.Fatalf("%s, plans %v", first.ID, w.queue.plans)
	}
	w.clk.Advance(time.Hour)
	again, err := w.StartManual(t.Context(), "x", "key-1")
	if err != nil || again.ID != first.ID {
		t.Fatalf("the same key made %v, %v", again, err)
	}
	other, err := w.StartManual(t.Context(), "x", "key-2")
	if err != nil || other.ID == first.ID {
		t.Fatalf("another key made %v, %v", other, err)
	}
	if w.manual("x").ID == w.manual("x").ID {
		t.Fatal("without a key each call makes a run")
	}
	for _, key := range []string{"a b", "a/b", strings.Repeat("x", 65), "\n"} {
		if _, err := w.StartManual(t.Context(), "x", key); err == nil {
			t.Errorf("the key %q was taken", key)
		}
	}
	if _, err := w.StartManual(t.Context(), "y", ""); err == nil {
		t.Error("a campaign that is not there was started")
	}
}

func TestStartManualWithOneKeyAtOnce(t *testing.T) {
	w := newWorld(t, start)
	w.apply("x", "")
	var wg sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		wg.Go(func() {
			r, err := w.StartManual(context.Background(), "x", "k")
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = r.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("one key, several runs: %v", ids)
		}
	}
}
