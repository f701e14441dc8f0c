package templates

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// killed runs Apply up to a point, as a process that is killed there would have.
func killed(t *testing.T, r *Registry, p *Plan, id string, staged int, commit bool, finished int) {
	t.Helper()
	ctx := t.Context()
	if _, err := r.pushes.InsertOne(ctx, pushRecord{id, staging}); err != nil {
		t.Fatal(err)
	}
	if err := r.stage(ctx, id, p.Changes[:staged]); err != nil {
		t.Fatal(err)
	}
	if !commit {
		return
	}
	if won, err := r.commit(ctx, id); err != nil || !won {
		t.Fatal(won, err)
	}
	for _, c := range p.Changes[:finished] {
		if _, err := r.templates.ReplaceOne(ctx, record{Name: c.Name}.key(), c.new.record()); err != nil {
			t.Fatal(err)
		}
	}
}

func (r record) key() map[string]string { return map[string]string{"_id": r.Name} }

// A push of two new templates and a new revision is killed at every step. Before the commit nothing of it is seen and the
// next command undoes it, after the commit the next one finishes it.
func TestKillInTheMiddleOfAPush(t *testing.T) {
	const old, done = "old:2@1", "a:1@1, old:2@2, z:9@1"
	type at struct {
		staged, finished int
		commit           bool
	}
	var points []at
	for n := range 4 {
		points = append(points, at{staged: n}, at{staged: 3, commit: true, finished: n})
	}
	for _, c := range points {
		r, db := registry(t)
		pushed(t, r, folder(t, "old 2 x"), PushOptions{})
		dir := folder(t, "a 1 x", "old 2 y", "z 9 x")
		p, err := r.PlanPush(t.Context(), dir, PushOptions{})
		if err != nil {
			t.Fatal(err)
		}
		killed(t, r, p, "killed", c.staged, c.commit, c.finished)
		if !c.commit {
			if got := listing(t, r); got != old {
				t.Errorf("%+v: seen before the commit: %s", c, got)
			}
			if _, err := r.Get(t.Context(), "a"); !errors.Is(err, ErrNotFound) {
				t.Errorf("%+v: a reserved name is seen: %v", c, err)
			}
		}
		if err := r.Repair(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := old
		if c.commit {
			want = done
		}
		if got := listing(t, r); got != want {
			t.Errorf("%+v: after the repair %s, want %s", c, got, want)
		}
		tidy(t, db)
		pushed(t, r, dir, PushOptions{})
		if got := listing(t, r); got != done {
			t.Errorf("%+v: pushed again: %s", c, got)
		}
	}
}

// A push that was given up for dead, and is not, comes back after another one has undone it.
func TestAGivenUpPushComesBack(t *testing.T) {
	r, db := registry(t)
	p, err := r.PlanPush(t.Context(), folder(t, "a 1 x", "z 9 x"), PushOptions{})
	if err != nil {
		t.Fatal(err)
	}
	killed(t, r, p, "slow", 1, false, 0)
	pushed(t, r, folder(t, "other 1 x"), PushOptions{})
	err = r.stage(t.Context(), "slow", p.Changes[1:])
	if err != nil {
		t.Fatal(err)
	}
	if won, err := r.commit(t.Context(), "slow"); err != nil || won {
		t.Fatalf("committed: %v, %v", won, err)
	}
	if got := listing(t, r); got != "other:1@1" {
		t.Errorf("%s", got)
	}
	if err := r.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	tidy(t, db)
	pushed(t, r, folder(t, "z 9 x"), PushOptions{})
	if got := listing(t, r); got != "other:1@1, z:9@1" {
		t.Errorf("%s", got)
	}
}

func TestRunsSeeTheOldRevisionUntilThePushIsInPlace(t *testing.T) {
	r, _ := registry(t)
	pushed(t, r, folder(t, "old 2 x"), PushOptions{})
	p, err := r.PlanPush(t.Context(), folder(t, "old 2 y"), PushOptions{})
	if err != nil {
		t.Fatal(err)
	}
	killed(t, r, p, "k", 1, true, 0)
	got, err := r.Get(t.Context(), "old")
	if err != nil || got.Subject != "x" || got.Revision != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	compile(t, got)
}

func TestTheIndexIsUnique(t *testing.T) {
	r, _ := registry(t)
	if _, err := r.templates.InsertOne(t.Context(), record{Name: "a", BitIndex: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.templates.InsertOne(t.Context(), record{Name: "b", BitIndex: 1}); !mongo.IsDuplicateKeyError(err) {
		t.Errorf("%v", err)
	}
	if err := r.EnsureIndexes(t.Context()); err != nil {
		t.Errorf("a second time: %v", err)
	}
}
