package campaign

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/minimongo/mongotest"
	"postbit/rules"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func newStore(t *testing.T) *Store {
	t.Helper()
	s := NewStore(mongotest.DB(t))
	if err := s.EnsureIndexes(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func aRun(campaign string, slot time.Time) *Run {
	r := &Run{ID: RunID(campaign, slot), Campaign: campaign, Slot: slot, StartedAt: slot, State: RunPlanning,
		Spec: Spec{Name: campaign, Audience: "{}", ExpiresAfter: time.Hour}}
	copy(r.Short[:4], campaign)
	binary.BigEndian.PutUint32(r.Short[4:], uint32(slot.Unix()))
	return r
}

func insert(t *testing.T, s *Store, runs ...*Run) {
	t.Helper()
	for _, r := range runs {
		if err := s.InsertRun(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRunComesBackAsItWasStored(t *testing.T) {
	s := newStore(t)
	spec, err := ParseFile("winback.yaml", []byte(winback))
	if err != nil {
		t.Fatal(err)
	}
	template, err := bson.Marshal(bson.D{{Key: "_id", Value: "winback"}})
	if err != nil {
		t.Fatal(err)
	}
	want := &Run{
		ID: RunID("winback", noon), Short: ShortID{1, 2, 3, 4, 5, 6, 7, 8}, Campaign: "winback",
		Slot: noon, StartedAt: noon.Add(1234567 * time.Nanosecond), State: RunPlanning, Spec: spec, Template: template,
	}
	insert(t, s, want)
	for name, find := range map[string]func() (*Run, error){
		"by id":    func() (*Run, error) { return s.Run(t.Context(), "winback@2026-12-01T12:00:00Z") },
		"by short": func() (*Run, error) { return s.RunByShort(t.Context(), want.Short) },
		"latest":   func() (*Run, error) { return s.LatestRun(t.Context(), "winback") },
	} {
		got, err := find()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	for name, find := range map[string]func() (*Run, error){
		"by id":    func() (*Run, error) { return s.Run(t.Context(), "other") },
		"by short": func() (*Run, error) { return s.RunByShort(t.Context(), ShortID{}) },
		"by key":   func() (*Run, error) { return s.RunByKey(t.Context(), "winback", "k") },
		"latest":   func() (*Run, error) { return s.LatestRun(t.Context(), "other") },
	} {
		if _, err := find(); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", name, err)
		}
	}
}

func TestRunIsALock(t *testing.T) {
	s := newStore(t)
	var wg sync.WaitGroup
	var made, exists atomic.Int32
	for i := range 16 {
		wg.Go(func() {
			r := aRun("winback", noon)
			r.Short = ShortID{byte(i)}
			switch err := s.InsertRun(context.Background(), r); {
			case err == nil:
				made.Add(1)
			case errors.Is(err, ErrRunExists):
				exists.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made.Load() != 1 || exists.Load() != 15 {
		t.Fatalf("%d made, %d exist already; want 1 and 15", made.Load(), exists.Load())
	}
}

func TestInsertRunAgain(t *testing.T) {
	s := newStore(t)
	first := aRun("winback", noon)
	first.Key = RunKey("winback", "k")
	insert(t, s, first)
	t.Run("the same, as after a lost reply", func(t *testing.T) {
		if err := s.InsertRun(t.Context(), first); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("another run with the same key", func(t *testing.T) {
		other := aRun("winback", noon.Add(time.Minute))
		other.Key = first.Key
		if err := s.InsertRun(t.Context(), other); !errors.Is(err, ErrKeyInUse) {
			t.Fatalf("%v, want ErrKeyInUse", err)
		}
	})
	t.Run("runs without a key do not meet", func(t *testing.T) {
		insert(t, s, aRun("winback", noon.Add(2*time.Minute)), aRun("winback", noon.Add(3*time.Minute)))
	})
}

func TestTransition(t *testing.T) {
	for _, c := range []struct {
		name string
		is   RunState
		from []RunState
		want bool
	}{
		{"from the state it is in", RunPlanning, []RunState{RunPlanning}, true},
		{"from one of several", RunSending, []RunState{RunPlanning, RunSending}, true},
		{"from another", RunCancelling, []RunState{RunPlanning, RunSending}, false},
		{"out of a final state", RunDone, []RunState{RunPlanning, RunSending}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t)
			r := aRun("winback", noon)
			r.State = c.is
			insert(t, s, r)
			got, err := s.Transition(t.Context(), r.ID, c.from, RunSuperseding, bson.D{{Key: "reason", Value: "why"}})
			if err != nil || got != c.want {
				t.Fatalf("%v, %v; want %v", got, err, c.want)
			}
			now, err := s.Run(t.Context(), r.ID)
			if err != nil {
				t.Fatal(err)
			}
			if changed := now.State == RunSuperseding && now.Reason == "why"; changed != c.want {
				t.Fatalf("the run is %s (%q)", now.State, now.Reason)
			}
		})
	}
}

func TestSteering(t *testing.T) {
	s := newStore(t)
	r := aRun("winback", noon)
	insert(t, s, r)
	ctx := t.Context()
	is := func(state RunState, paused, by string) {
		t.Helper()
		now, err := s.Run(ctx, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if now.State != state || now.Paused != paused || now.PausedBy != by {
			t.Fatalf("the run is %s, paused %q by %q; want %s, %q, %q", now.State, now.Paused, now.PausedBy, state, paused, by)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(s.PauseRun(ctx, r.ID, "the server refuses the password", "worker"))
	is(RunPlanning, "the server refuses the password", "worker")
	do(s.PauseRun(ctx, r.ID, "later", "operator")) // the first reason stays
	is(RunPlanning, "the server refuses the password", "worker")
	do(s.ResumeRun(ctx, r.ID))
	is(RunPlanning, "", "")
	do(s.ResumeRun(ctx, r.ID)) // what goes on goes on
	do(s.PauseRun(ctx, r.ID, "", "operator"))
	is(RunPlanning, "paused", "operator")
	do(s.CancelRun(ctx, r.ID, "cancelled by operator")) // also while paused
	is(RunCancelling, "paused", "operator")
	do(s.CancelRun(ctx, r.ID, "again"))
	is(RunCancelling, "paused", "operator")
	ended, err := s.EndRun(ctx, r.ID, RunCancelling, RunCancelled, Counts{Audience: 3}, noon)
	if err != nil || !ended {
		t.Fatal(ended, err)
	}
	for name, err := range map[string]error{
		"pause": s.PauseRun(ctx, r.ID, "", ""), "resume": s.ResumeRun(ctx, r.ID), "cancel": s.CancelRun(ctx, r.ID, ""),
	} {
		if !errors.Is(err, ErrRunFinished) {
			t.Errorf("%s: %v, want ErrRunFinished", name, err)
		}
	}
	if err := s.CancelRun(ctx, "other", ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
}

func TestLookBothWays(t *testing.T) {
	slot := func(h int) time.Time { return noon.Add(time.Duration(h) * time.Hour) }
	at := func(h int, state RunState) *Run {
		r := aRun("winback", slot(h))
		r.State = state
		return r
	}
	single := func() *Run {
		r := aRun("winback", slot(9))
		r.ID, r.State, r.Short = "send/key", RunSending, ShortID{1}
		return r
	}
	for _, c := range []struct {
		name  string
		runs  []*Run // the first one looks
		newer string
		older []string
	}{
		{"alone", []*Run{at(1, RunPlanning)}, "", nil},
		{"older ones have ended", []*Run{at(3, RunPlanning), at(1, RunDone), at(2, RunCancelled)}, "", nil},
		{"older ones have not", []*Run{at(4, RunPlanning), at(1, RunSending), at(2, RunSuperseding), at(3, RunCancelling)}, "",
			[]string{RunID("winback", slot(1)), RunID("winback", slot(2)), RunID("winback", slot(3))}},
		{"a newer one", []*Run{at(1, RunPlanning), at(2, RunPlanning)}, RunID("winback", slot(2)), nil},
		{"a newer one that is done already", []*Run{at(1, RunPlanning), at(2, RunDone)}, RunID("winback", slot(2)), nil},
		{"a newer one that failed at its start", []*Run{at(1, RunPlanning), at(2, RunFailed)}, "", nil},
		{"another campaign", []*Run{at(1, RunPlanning), aRun("sale", slot(2))}, "", nil},
		{"a single mail stands outside", []*Run{single(), at(1, RunSending)}, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t)
			insert(t, s, c.runs...)
			got, err := s.LookBothWays(t.Context(), c.runs[0])
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(Neighbours{Newer: c.newer, Older: c.older}, got); d != "" {
				t.Fatal(d)
			}
		})
	}
}

func TestUnfinished(t *testing.T) {
	s := newStore(t)
	states := []RunState{RunSuperseded, RunPlanning, RunDone, RunSending, RunCancelling, RunFailed, RunSuperseding, RunCancelled}
	for i, state := range states {
		r := aRun("winback", noon.Add(time.Duration(i)*time.Hour))
		r.State = state
		insert(t, s, r)
	}
	runs, err := s.Unfinished(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []RunState
	for _, r := range runs {
		got = append(got, r.State)
	}
	if d := cmp.Diff([]RunState{RunPlanning, RunSending, RunCancelling, RunSuperseding}, got); d != "" {
		t.Fatal(d)
	}
	latest, err := s.Runs(t.Context(), "winback", 2)
	if err != nil || len(latest) != 2 || latest[0].State != RunCancelled || latest[1].State != RunSuperseding {
		t.Fatalf("the two latest are %v, %v", latest, err)
	}
}

func TestCountsAndPlan(t *testing.T) {
	s := newStore(t)
	r := aRun("winback", noon)
	insert(t, s, r)
	counts := Counts{Audience: 5, Checked: 5, Sent: 3, Skipped: map[string]int64{"address": 2}}
	if err := errors.Join(s.SaveCounts(t.Context(), r.ID, counts, 2), s.SetPlanned(t.Context(), r.ID, 7)); err != nil {
		t.Fatal(err)
	}
	now, err := s.Run(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(counts, now.Counts); d != "" || now.Planned != 7 || !now.PlanDone {
		t.Fatalf("planned %d, %v; counts %s", now.Planned, now.PlanDone, d)
	}
	done, err := s.EndRun(t.Context(), r.ID, RunPlanning, RunDone, counts, noon)
	if err != nil || !done {
		t.Fatal(done, err)
	}
	if err := s.SaveCounts(t.Context(), r.ID, Counts{Audience: 5}, 1); err != nil { // a scheduler that was held up
		t.Fatal(err)
	}
	if now, err = s.Run(t.Context(), r.ID); err != nil || cmp.Diff(counts, now.Counts) != "" || now.Planned != 7 {
		t.Errorf("after its end: planned %d, counts %+v, %v", now.Planned, now.Counts, err)
	}
	if err := s.SetPlanned(t.Context(), "other", 1); !errors.Is(err, ErrNotFound) {
		t.Fatalf("%v, want ErrNotFound", err)
	}
}

func TestShortID(t *testing.T) {
	id := ShortID{0, 1, 2, 3, 4, 5, 6, 0xff}
	text, _ := id.MarshalText()
	var again ShortID
	if err := again.UnmarshalText(text); err != nil || again != id || string(text) != "00010203040506ff" {
		t.Fatalf("%s, %v", text, err)
	}
	for _, bad := range []string{"", "00", "00010203040506fg", "00010203040506ff00", "0001020304050"} {
		if err := again.UnmarshalText([]byte(bad)); err == nil || again != id {
			t.Errorf("%q: %v, %s", bad, err, again)
		}
	}
}

func TestMessage(t *testing.T) {
	s, err := ParseFile("winback.yaml", []byte(winback))
	if err != nil {
		t.Fatal(err)
	}
	run := &Run{StartedAt: noon, Spec: s}
	want := rules.Message{Repeat: rules.Never, InactiveAfter: 90 * day, MinGap: day, Window: s.Rules.Window, ExpiresAt: noon.Add(36 * time.Hour)}
	if got := s.Message(rules.Never, run); got != want {
		t.Fatalf("%+v, want %+v", got, want)
	}
}
