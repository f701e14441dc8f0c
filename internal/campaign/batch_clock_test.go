package campaign

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"pgregory.net/rapid"

	"postbit/internal/clock"
	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
)

// world is a database and machines with clocks of their own; time passes for all of them alike.
type world struct {
	*testing.T
	srv *minimongo.Server
	db  *mongo.Database
	run *Run

	mu       sync.Mutex
	passed   time.Duration // beside what really passes
	machines []*machine
}

type machine struct {
	w       *world
	clk     *clock.Clock
	s       *Batches
	stepped time.Duration // guarded by w.mu: by how much its wall clock is off
	slept   time.Duration // guarded by w.mu: for how long its monotonic clock stood
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, run: testRun("winback@2026-12-01T09:00:00Z")}
	w.srv, w.db = mongotest.Server(t, func(c *minimongo.Config) { c.Now = w.now })
	return w
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.passed)
}

func (w *world) machine() *machine {
	m := &machine{w: w, clk: clock.New()}
	m.s = NewBatches(w.db, m.clk)
	m.s.leases = newLeaseClock(w.db, m.clk, clock.Stopwatch{
		Mono: func() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return time.Now().Add(w.passed - m.slept) },
		Wall: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			return time.Now().Round(0).Add(w.passed + m.stepped)
		},
	})
	w.machines = append(w.machines, m)
	return m
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passed += d
	for _, m := range w.machines {
		m.clk.Advance(d)
	}
}

// step moves the wall clock of a machine.
func (m *machine) step(d time.Duration) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.stepped += d
	m.clk.Advance(d)
}

// sleep lets time pass while a machine is suspended.
func (m *machine) sleep(d time.Duration) {
	m.w.pass(d)
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.slept += d
}

// Whose clock is wrong, and how, is all the same: a batch is taken from its owner when he hasn't renewed for 40 s of the database's
// clock, and not before.
func TestLeasesGoByTheDatabasesClock(t *testing.T) {
	type actors struct {
		*world
		owner, taker *machine
		o            *Owned
	}
	live := func(a *actors, d time.Duration) { // as a worker does that is well
		for range d / (10 * time.Second) {
			a.pass(10 * time.Second)
			if err := a.o.Renew(a.Context()); err != nil {
				a.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		name  string
		wrong func(a *actors) // from the start
		then  func(a *actors) // when the batch is owned
		taken bool
	}{
		{"all clocks are right, and the owner lives", nil, func(a *actors) { live(a, 2*time.Minute) }, false},
		{"the taker is an hour ahead", func(a *actors) { a.taker.step(time.Hour) }, func(a *actors) { live(a, 20*time.Second) }, false},
		{"the taker is a year ahead", func(a *actors) { a.taker.step(365 * 24 * time.Hour) }, func(a *actors) {}, false},
		{"the taker steps an hour ahead in mid-run", nil, func(a *actors) { live(a, 20*time.Second); a.taker.step(time.Hour) }, false},
		{"the taker steps a minute ahead, twice", nil, func(a *actors) {
			a.taker.step(time.Minute)
			live(a, 10*time.Second)
			a.taker.step(time.Minute)
		}, false},
		{"the taker's machine wakes up", nil, func(a *actors) { live(a, 20*time.Second); a.taker.sleep(9 * time.Second) }, false},
		{"the owner is an hour behind", func(a *actors) { a.owner.step(-time.Hour) }, func(a *actors) { live(a, 20*time.Second) }, false},
		{"the owner steps back by an hour in mid-run", nil, func(a *actors) {
			live(a, 20*time.Second)
			a.owner.step(-time.Hour)
			live(a, time.Minute)
		}, false},
		{"both are an hour off, each its own way", func(a *actors) { a.owner.step(-time.Hour); a.taker.step(time.Hour) }, func(a *actors) { live(a, time.Minute) }, false},
		{"the owner has not renewed for 38 s", nil, func(a *actors) { live(a, 20*time.Second); a.pass(38 * time.Second) }, false},
		{"the owner has not renewed for 38 s, the taker is ahead", nil, func(a *actors) { a.taker.step(time.Hour); a.pass(38 * time.Second) }, false},

		{"the owner is dead", nil, func(a *actors) { live(a, 20*time.Second); a.pass(41 * time.Second) }, true},
		{"the owner is dead, and was an hour ahead", func(a *actors) { a.owner.step(time.Hour) }, func(a *actors) { live(a, 20*time.Second); a.pass(41 * time.Second) }, true},
		{"the owner is dead, and stepped ahead before that", nil, func(a *actors) { a.owner.step(time.Hour); live(a, 20*time.Second); a.pass(41 * time.Second) }, true},
		{"the owner is dead, the taker an hour behind", func(a *actors) { a.taker.step(-time.Hour) }, func(a *actors) { a.pass(41 * time.Second) }, true},
		{"the owner is dead, and the taker steps back", nil, func(a *actors) { a.pass(41 * time.Second); a.taker.step(-time.Hour) }, true},
		{"the owner's machine sleeps", nil, func(a *actors) { a.owner.sleep(41 * time.Second) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := &actors{world: newWorld(t)}
			a.owner, a.taker = a.machine(), a.machine()
			if tt.wrong != nil {
				tt.wrong(a)
			}
			for n := range 2 {
				if err := a.owner.s.Insert(t.Context(), a.run, n+1, userIDs(3)); err != nil {
					t.Fatal(err)
				}
			}
			var err error
			if a.o, err = a.owner.s.Own(t.Context(), a.run, 1, 1, "owner"); err != nil {
				t.Fatal(err)
			}
			if _, err = a.taker.s.Own(t.Context(), a.run, 2, 1, "taker"); err != nil { // it has work of its own
				t.Fatal(err)
			}
			tt.then(a)
			if alive := a.o.Alive(); alive && tt.taken {
				t.Error("an owner whose batch may be taken believes that he may go on")
			}
			_, err = a.taker.s.Own(t.Context(), a.run, 1, 1, "taker")
			switch {
			case tt.taken && err != nil:
				t.Errorf("not taken over: %v", err)
			case !tt.taken && !errors.Is(err, ErrBatchOwned):
				t.Errorf("taken from its owner: %v", err)
			case tt.taken:
				if err := a.o.Renew(t.Context()); !errors.Is(err, ErrLostOwnership) {
					t.Errorf("the former owner renews: %v", err)
				}
			default:
				if err := a.o.Renew(t.Context()); err != nil || !a.o.Alive() {
					t.Errorf("the owner can't go on: %v", err)
				}
			}
		})
	}
}

// An owner goes on for as long as his lease lasts by both clocks of his machine.
func TestAliveUntilTheLeaseEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		then func(w *world, m *machine)
		want bool
	}{
		{"29 s", func(w *world, m *machine) { w.pass(29 * time.Second) }, true},
		{"31 s", func(w *world, m *machine) { w.pass(31 * time.Second) }, false},
		{"it slept for 31 s", func(w *world, m *machine) { m.sleep(31 * time.Second) }, false},
		{"its wall clock steps back by an hour", func(w *world, m *machine) { m.step(-time.Hour) }, true},
		{"and 31 s pass", func(w *world, m *machine) { m.step(-time.Hour); w.pass(31 * time.Second) }, false},
		{"its wall clock steps ahead by an hour: nobody knows whether it slept", func(w *world, m *machine) { m.step(time.Hour) }, false},
		{"its wall clock steps ahead by 20 s", func(w *world, m *machine) { m.step(20 * time.Second) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			m := w.machine()
			if err := m.s.Insert(t.Context(), w.run, 1, userIDs(3)); err != nil {
				t.Fatal(err)
			}
			o, err := m.s.Own(t.Context(), w.run, 1, 1, "owner")
			if err != nil {
				t.Fatal(err)
			}
			tt.then(w, m)
			if got := o.Alive(); got != tt.want {
				t.Errorf("alive: %t", got)
			}
			if err := o.Renew(t.Context()); err != nil || !o.Alive() {
				t.Errorf("renewed, and not alive: %v", err)
			}
		})
	}
}

// Whatever becomes of the question for the time, and however late the answer is, a living owner keeps his batch and a dead one's is taken.
func TestTheDatabasesClockIsHardToRead(t *testing.T) {
	ofLease := func(_ string, cmd bson.Raw) bool {
		_, err := cmd.LookupErr("$db")
		return err == nil && cmd.Lookup("lsid").Type != 0
	}
	for way, f := range map[string]minimongo.Fault{
		"lost":         {Before: minimongo.Action{Drop: true}},
		"reply lost":   {After: minimongo.Action{Drop: true}},
		"fails":        {Before: minimongo.Action{Error: &minimongo.Error{Code: 11602, Message: "interrupted"}}},
		"applied late": {Before: minimongo.Action{Hangup: true}},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			owner, taker := w.machine(), w.machine()
			if err := owner.s.Insert(t.Context(), w.run, 1, userIDs(3)); err != nil {
				t.Fatal(err)
			}
			ask := func() <-chan struct{} {
				reached := make(chan struct{})
				f := f
				f.Command, f.Where, f.Reached = "hello", ofLease, sync.OnceFunc(func() { close(reached) })
				w.srv.Inject(f)
				return reached
			}
			met := func(reached <-chan struct{}) {
				t.Helper()
				select {
				case <-reached:
				default:
					t.Error("the database was not asked for its time")
				}
			}
			reached := ask()
			o, err := owner.s.Own(t.Context(), w.run, 1, 1, "owner")
			if err != nil {
				t.Fatal(err)
			}
			met(reached)
			w.pass(20 * time.Second)
			reached = ask()
			if err := o.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
			met(reached)
			w.pass(20 * time.Second)
			taker.step(time.Hour)
			reached = ask()
			if _, err := taker.s.Own(t.Context(), w.run, 1, 1, "taker"); !errors.Is(err, ErrBatchOwned) {
				t.Errorf("taken from its owner: %v", err)
			}
			met(reached)
			w.pass(21 * time.Second)
			reached = ask()
			if _, err := taker.s.Own(t.Context(), w.run, 1, 1, "taker"); err != nil {
				t.Errorf("not taken over: %v", err)
			}
			met(reached)
		})
	}
}

// The bounds hold the database's time, whatever steps this machine's wall clock makes, however long an answer takes and wherever in
// that time the database looked at its clock; only a machine that has slept may be behind, and that shows.
func TestBoundsOfTheDatabasesClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
		upTo := func(most time.Duration, what string) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, what))
		}
		var passed, stepped time.Duration
		off := upTo(2*time.Hour, "off") - time.Hour
		asked := 0
		c := newLeaseClock(nil, clock.New(), clock.Stopwatch{
			Mono: func() time.Time { return start.Add(passed) },
			Wall: func() time.Time { return start.Add(passed + stepped) },
		})
		theirs := func() time.Time { return start.Add(passed + off) }
		c.ask = func(context.Context) (time.Time, error) {
			asked++
			passed += upTo(30*time.Second, "question")
			at := theirs()
			passed += upTo(30*time.Second, "answer")
			return at, nil
		}
		t.Repeat(map[string]func(*rapid.T){
			"":      func(*rapid.T) {},
			"pass":  func(*rapid.T) { passed += upTo(8*time.Second, "pass") },
			"step":  func(*rapid.T) { stepped += upTo(4*time.Hour, "step") - 2*time.Hour },
			"drift": func(*rapid.T) { stepped += upTo(time.Millisecond, "drift") },
			"look": func(t *rapid.T) {
				least, most, err := c.now(context.Background())
				if err != nil || theirs().Before(least) || theirs().After(most) {
					t.Fatalf("it is %s, not between %s and %s: %v", theirs(), least, most, err)
				}
			},
		})
		if asked > 0 { // a step is seen: it asks again
			before := asked
			if _, _, ok := c.known(); ok {
				stepped += 2 * time.Second
			}
			if _, _, err := c.now(context.Background()); err != nil || asked != before+1 {
				t.Fatalf("asked %d times, want %d: %v", asked, before+1, err)
			}
		}
	})
}
