package campaign

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/rules"
)

// registry is a registry of templates in memory.
type registry map[string]TemplateInfo

func (r registry) TemplateInfo(_ context.Context, name string) (TemplateInfo, error) {
	return r[name], nil
}

var templates = registry{
	"winback": {Exists: true, Repeat: rules.Never},
	"digest":  {Exists: true, Repeat: rules.UntilFirstOpen},
	"old":     {Exists: true, Retired: true},
}

func dir(t *testing.T, files map[string]string) string {
	t.Helper()
	d := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(d, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// byHand is a campaign without a schedule.
func byHand(name string, more ...string) string {
	return "name: " + name + "\ntemplate: winback\naudience: {}\n" + strings.Join(more, "\n")
}

func daily(name string, more ...string) string {
	return byHand(name, append([]string{"schedule: { cron: 0 9 * * *, timezone: Europe/Berlin }"}, more...)...)
}

func apply(t *testing.T, s *Store, files map[string]string, o ApplyOptions) *ApplyPlan {
	t.Helper()
	if o.Now.IsZero() {
		o.Now = noon
	}
	o.Templates = templates
	plan, err := s.PlanApply(t.Context(), dir(t, files), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	return plan
}

func get(t *testing.T, s *Store, name string) *Campaign {
	t.Helper()
	c, err := s.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestMisfireGraceOfTheSettings(t *testing.T) {
	s := newStore(t)
	files := map[string]string{"a.yaml": daily("a"), "b.yaml": daily("b", "misfire_grace: 1h")}
	apply(t, s, files, ApplyOptions{})
	for _, o := range []ApplyOptions{{}, {MisfireGrace: 5 * time.Hour}} {
		apply(t, s, files, o)
		want := max(o.MisfireGrace, DefaultMisfireGrace)
		if a, b := get(t, s, "a"), get(t, s, "b"); a.Spec.MisfireGrace != want || b.Spec.MisfireGrace != time.Hour {
			t.Errorf("%s and %s; settings: %s", a.Spec.MisfireGrace, b.Spec.MisfireGrace, o.MisfireGrace)
		}
	}
}

func TestApplyNew(t *testing.T) {
	for _, c := range []struct {
		name, file string
		start      bool
		state      string
		next       string
	}{
		{"a scheduled one is paused", daily("x"), false, StatePaused, ""},
		{"unless it is to be started", daily("x"), true, StateActive, "2026-12-02T08:00:00Z"},
		{"one that is started by hand is active", byHand("x"), false, StateActive, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t)
			plan := apply(t, s, map[string]string{"x.yaml": c.file}, ApplyOptions{Start: c.start})
			got := get(t, s, "x")
			next := ""
			if !got.NextAt.IsZero() {
				next = got.NextAt.Format(time.RFC3339)
			}
			if got.State != c.state || next != c.next || plan.Changes[0].Action != ActionCreate || plan.Changes[0].State != c.state {
				t.Fatalf("%s, next at %q, plan %+v; want %s, %q", got.State, next, plan.Changes[0], c.state, c.next)
			}
			if d := cmp.Diff(plan.Changes[0].Spec, got.Spec); d != "" {
				t.Fatal(d)
			}
		})
	}
}

func TestApplyShowsFirings(t *testing.T) {
	s := newStore(t)
	plan := apply(t, s, map[string]string{"x.yaml": daily("x")}, ApplyOptions{Now: time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC)})
	var got []string
	for _, f := range plan.Changes[0].Firings {
		got = append(got, f.UTC.Format(time.RFC3339)+" "+f.Local.Format(time.RFC3339))
	}
	want := []string{
		"2026-03-28T08:00:00Z 2026-03-28T09:00:00+01:00",
		"2026-03-29T07:00:00Z 2026-03-29T09:00:00+02:00",
		"2026-03-30T07:00:00Z 2026-03-30T09:00:00+02:00",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
}

func TestApplyAgain(t *testing.T) {
	s := newStore(t)
	apply(t, s, map[string]string{"a.yaml": daily("a"), "b.yaml": daily("b"), "c.yml": byHand("c")}, ApplyOptions{Start: true})
	if err := s.Pause(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	hourly := "name: a\ntemplate: winback\naudience: {}\nschedule: { cron: '@hourly' }\n"
	plan := apply(t, s, map[string]string{"a.yaml": hourly, "b.yaml": daily("b", "expires_after: 2h"), "d.yaml": daily("d"), "note.txt": "-"}, ApplyOptions{})
	type row struct{ Name, Action, State, Next string }
	var got []row
	for _, c := range plan.Changes {
		r := row{c.Name, c.Action, c.State, ""}
		if at := get(t, s, c.Name).NextAt; !at.IsZero() {
			r.Next = at.Format(time.RFC3339)
		}
		got = append(got, r)
	}
	want := []row{
		{"a", ActionUpdate, StateActive, "2026-12-01T13:00:00Z"}, // goes on by its new schedule
		{"b", ActionUpdate, StatePaused, ""},                     // stays paused
		{"d", ActionCreate, StatePaused, ""},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	if d := cmp.Diff([]string{"c"}, plan.Gone); d != "" {
		t.Fatal(d)
	}
	if get(t, s, "c").State != StateActive {
		t.Fatal("a campaign without a file was not left alone")
	}
	again := apply(t, s, map[string]string{"a.yaml": hourly}, ApplyOptions{})
	if again.Changes[0].Action != ActionKeep {
		t.Fatalf("the same file again: %s", again.Changes[0].Action)
	}
	scheduled := apply(t, s, map[string]string{"c.yaml": daily("c")}, ApplyOptions{})
	if scheduled.Changes[0].State != StatePaused || get(t, s, "c").State != StatePaused {
		t.Fatal("a campaign by hand that gets a schedule must be started like a new one")
	}
}

func TestApplyRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"two files, each with its faults", map[string]string{"a.yaml": byHand("a", "expires_afer: 1h"), "b.yaml": "name: b\ntemplate: winback\naudience: {}\nrules: { days: x }\n"},
			"a.yaml:4: expires_afer: unknown; expires_after?\nb.yaml:4: rules.days: \"x\" is not a day; say mon-fri, or mon,wed"},
		{"no such template", map[string]string{"a.yaml": "name: a\ntemplate: welcome\naudience: {}\n", "b.yaml": byHand("b")},
			`a.yaml:2: template: there is no template "welcome" to be sent; push it first`},
		{"a retired template", map[string]string{"a.yaml": "name: a\ntemplate: old\naudience: {}\n"}, "a.yaml:2: template: old is retired"},
		{"one name twice", map[string]string{"a.yaml": byHand("x"), "b.yaml": byHand("x")}, "b.yaml:1: name: x is the campaign of a.yaml already"},
		{"a query that MongoDB refuses", map[string]string{"a.yaml": "name: a\ntemplate: winback\naudience: { a: { $foo: 1 } }\n"}, "a.yaml:3: audience: unknown operator: $foo"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t)
			_, err := s.PlanApply(t.Context(), dir(t, c.files), ApplyOptions{Now: noon, Templates: templates, Count: func(_ context.Context, q bson.D, _ int64) (int64, error) {
				if len(q) > 0 {
					return 0, errors.New("unknown operator: $foo")
				}
				return 1, nil
			}})
			var errs FileErrors
			if !errors.As(err, &errs) || err.Error() != c.want {
				t.Fatalf("%v\nwant\n%s", err, c.want)
			}
			if list, err := s.List(t.Context()); err != nil || len(list) > 0 {
				t.Fatalf("%v, %v: something was applied", list, err)
			}
		})
	}
	t.Run("a database that is away is not the file's fault", func(t *testing.T) {
		_, err := newStore(t).PlanApply(t.Context(), dir(t, map[string]string{"a.yaml": byHand("a")}), ApplyOptions{Now: noon, Templates: templates,
			Count: func(context.Context, bson.D, int64) (int64, error) { return 0, context.DeadlineExceeded }})
		var errs FileErrors
		if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &errs) {
			t.Fatal(err)
		}
	})
	full := dir(t, map[string]string{"a.yaml": byHand("a")})
	for _, c := range []struct{ name, dir, want string }{
		{"an empty directory", t.TempDir(), ": there is no *.yaml there"},
		{"no directory", filepath.Join(full, "gone"), "gone: no such folder"},
		{"a file", filepath.Join(full, "a.yaml"), "a.yaml: that is a file; name its folder"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := newStore(t).PlanApply(t.Context(), c.dir, ApplyOptions{Templates: templates})
			if errs := (FileErrors)(nil); !errors.As(err, &errs) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %s", err, c.want)
			}
		})
	}
}

func TestApplyDoesNotUndoAPause(t *testing.T) {
	s := newStore(t)
	apply(t, s, map[string]string{"a.yaml": daily("a")}, ApplyOptions{Start: true})
	plan, err := s.PlanApply(t.Context(), dir(t, map[string]string{"a.yaml": daily("a", "expires_after: 2h")}), ApplyOptions{Now: noon, Templates: templates})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Pause(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(t.Context(), plan); err == nil {
		t.Fatal("no error")
	}
	if c := get(t, s, "a"); c.State != StatePaused || c.Spec.ExpiresAfter != DefaultExpiresAfter {
		t.Fatalf("%s, %s", c.State, c.Spec.ExpiresAfter)
	}
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		name, file string
		users      int64
		want       []string
	}{
		{"nothing to say", daily("x", "rules: { window: 09:00-20:00 }"), 10, nil},
		{"a weekend longer than expires_after", byHand("x", "rules: { window: 09:00-20:00, days: mon-fri }", "expires_after: 36h"), 10,
			[]string{"window and days can stay shut for 2d13h, longer than expires_after (1d12h)"}},
		{"a weekend shorter than expires_after", byHand("x", "rules: { window: 09:00-20:00, days: mon-fri }", "expires_after: 61h"), 10, nil},
		{"limits that just suffice", byHand("x", "limits: { rate: [100/h, 500/d] }"), 500, nil},
		{"limits that do not", byHand("x", "limits: { rate: [100/h, 500/d] }"), 501,
			[]string{"limits.rate 500/d lets through at most 500 mails within expires_after (1d)"}},
		{"a recurring schedule and until_first_open", strings.Replace(daily("x"), "template: winback", "template: digest", 1), 10,
			[]string{"whoever has opened any mail gets it at every firing"}},
		{"until_first_open by hand", strings.Replace(byHand("x"), "template: winback", "template: digest", 1), 10, nil},
		{"a time that has passed", byHand("x", "schedule: { at: 2026-11-01 09:00 }"), 10, []string{"it will never fire"}},
		{"nobody", byHand("x"), 0, []string{"the audience is empty now"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t)
			plan := apply(t, s, map[string]string{"x.yaml": c.file}, ApplyOptions{Count: func(_ context.Context, _ bson.D, limit int64) (int64, error) {
				return min(c.users, limit), nil
			}})
			got := plan.Changes[0].Warnings
			if len(got) != len(c.want) {
				t.Fatalf("%q, want %q", got, c.want)
			}
			for i, want := range c.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("%q, want %q", got[i], want)
				}
			}
		})
	}
}

func TestLongestShut(t *testing.T) {
	for _, c := range []struct {
		window, days string
		want         time.Duration
	}{
		{"", "", 0},
		{"", "mon-fri", 2 * day},
		{"09:00-20:00", "", 13 * time.Hour},
		{"21:00-06:00", "", 15 * time.Hour},
		{"21:00-06:00", "mon-fri", 63 * time.Hour}, // from Saturday 06:00 to Monday 21:00
		{"09:00-10:00", "wed", 7*day - time.Hour},
		{"00:00-24:00", "", 0},
	} {
		var w rules.Window
		var err error
		if c.window != "" {
			if w, err = rules.ParseWindow(c.window); err != nil {
				t.Fatal(err)
			}
		}
		if c.days != "" {
			if w.Days, err = rules.ParseDays(c.days); err != nil {
				t.Fatal(err)
			}
		}
		if got := longestShut(w); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.window, c.days, got, c.want)
		}
	}
}

func TestPauseAndResume(t *testing.T) {
	s := newStore(t)
	apply(t, s, map[string]string{"x.yaml": daily("x")}, ApplyOptions{Start: true})
	if err := s.Pause(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if c := get(t, s, "x"); c.State != StatePaused || !c.NextAt.IsZero() {
		t.Fatalf("%s, next at %s", c.State, c.NextAt)
	}
	week := noon.Add(7 * day) // what passed meanwhile is not made up for
	if _, err := s.Resume(t.Context(), "x", week); err != nil {
		t.Fatal(err)
	}
	if c := get(t, s, "x"); c.State != StateActive || !c.NextAt.Equal(time.Date(2026, 12, 9, 8, 0, 0, 0, time.UTC)) {
		t.Fatalf("%s, next at %s", c.State, c.NextAt)
	}
	if _, err := s.Resume(t.Context(), "y", week); !errors.Is(err, ErrNotFound) {
		t.Fatalf("%v, want ErrNotFound", err)
	}
	if err := s.Pause(t.Context(), "y"); !errors.Is(err, ErrNotFound) {
		t.Fatalf("%v, want ErrNotFound", err)
	}
}

func TestAdvance(t *testing.T) {
	s := newStore(t)
	apply(t, s, map[string]string{"x.yaml": daily("x"), "y.yaml": byHand("y")}, ApplyOptions{Start: true})
	first := time.Date(2026, 12, 2, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		now  time.Time
		want int
	}{{noon, 0}, {first.Add(-1), 0}, {first, 1}} {
		due, err := s.DueCampaigns(t.Context(), c.now)
		if err != nil || len(due) != c.want {
			t.Fatalf("at %s: %v, %v", c.now, due, err)
		}
	}
	c := get(t, s, "x")
	for i, want := range []bool{true, false} { // the second one lost
		got, err := s.Advance(t.Context(), c, first, first.Add(day))
		if err != nil || got != want {
			t.Fatalf("%d: %v, %v", i, got, err)
		}
	}
	c = get(t, s, "x")
	if !c.LastAt.Equal(first) || !c.NextAt.Equal(first.Add(day)) {
		t.Fatalf("last %s, next %s", c.LastAt, c.NextAt)
	}
	if done, err := s.Advance(t.Context(), c, c.NextAt, time.Time{}); err != nil || !done {
		t.Fatal(done, err)
	}
	got := get(t, s, "x")
	if d := cmp.Diff(c, got, cmpopts.IgnoreFields(Campaign{}, "LastAt", "NextAt")); d != "" || !got.NextAt.IsZero() {
		t.Fatalf("next %s; %s", got.NextAt, d)
	}
}
