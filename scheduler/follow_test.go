package scheduler

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/clock"
	"postbit/internal/minimongo"
)

// The database's clock answers late: the request or the answer is held while time goes on. How late it was must never be taken for an error of
// this machine's clock, so beyond two seconds nothing is done, and below it half of the way is the error at most.
func TestTheDatabasesClockAnswersLate(t *testing.T) {
	for _, c := range []struct {
		name      string
		off, late time.Duration
		onTheWay  bool          // the request is held; otherwise the answer
		wrong     time.Duration // by how much it is wrong afterwards
	}{
		{"right, the answer 3 s late", 0, 3 * time.Second, false, 0},
		{"right, the request 3 s late", 0, 3 * time.Second, true, 0},
		{"right, the answer an hour late", 0, time.Hour, false, 0},
		{"right, the answer 2 s late", 0, 2 * time.Second, false, 0},
		{"right, the request 1.5 s late", 0, 1500 * time.Millisecond, true, 0},
		{"a minute ahead, the answer 3 s late", time.Minute, 3 * time.Second, false, time.Minute},
		{"a minute behind, the request 3 s late", -time.Minute, 3 * time.Second, true, -time.Minute},
		{"a minute ahead, the answer 1.5 s late", time.Minute, 1500 * time.Millisecond, false, -750 * time.Millisecond},
		{"a minute behind, the request 1.5 s late", -time.Minute, 1500 * time.Millisecond, true, 750 * time.Millisecond},
		{"a minute ahead, at once", time.Minute, 0, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			truth, ours := clock.At(start), clock.At(start.Add(c.off)) // both stand, so that nothing here depends on how fast it runs
			reached, read, held := make(chan struct{}), make(chan struct{}), make(chan struct{})
			var asked atomic.Bool
			srv, db := mongoWith(t, func() time.Time {
				now := truth.Now()
				if asked.CompareAndSwap(true, false) {
					close(read)
				}
				return now
			})
			fault := minimongo.Fault{Command: "hello", Where: func(of string, _ bson.Raw) bool { return of == db.Name() },
				Reached: func() { asked.Store(!c.onTheWay); close(reached) }}
			if c.onTheWay {
				fault.Before.Wait = held
			} else {
				fault.After.Wait = held
			}
			srv.Inject(fault)
			var said bytes.Buffer
			log := slog.New(slog.NewTextHandler(&said, nil))
			followed := make(chan error, 1)
			go func() { followed <- FollowClock(t.Context(), db, ours, log) }()
			<-reached
			if !c.onTheWay {
				<-read // the time that the answer holds
			}
			truth.Advance(c.late)
			ours.Advance(c.late)
			close(held)
			if err := <-followed; err != nil {
				t.Fatal(err)
			}
			if wrong := ours.Now().Sub(truth.Now()); wrong != c.wrong {
				t.Errorf("wrong by %s, want %s", wrong, c.wrong)
			}
			if c.late > slowestAnswer && said.Len() > 0 {
				t.Errorf("it said %s", said.String())
			}
			// The next answer is in time, and puts right what is wrong.
			if err := FollowClock(t.Context(), db, ours, log); err != nil {
				t.Fatal(err)
			}
			if wrong := ours.Now().Sub(truth.Now()); wrong != 0 {
				t.Errorf("after the next answer it is wrong by %s", wrong)
			}
		})
	}
}

// mongoWith is a minimongo with a clock, and a client that asks for the time only where the test does.
func mongoWith(t *testing.T, now func() time.Time) (*minimongo.Server, *mongo.Database) {
	t.Helper()
	srv, err := minimongo.Open(minimongo.Config{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	if _, err := srv.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(srv.URI()).SetHeartbeatInterval(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	if err := client.Ping(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return srv, client.Database("late")
}

// Whatever becomes of a machine's clocks, time goes by the database's: a step of the wall clock does not move it, and after a sleep the database is
// asked at once.
func TestKeeping(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(m *machine)
		wrong time.Duration // until the next look
		asks  bool
	}{
		{"nothing", func(*machine) {}, 0, false},
		{"the wall clock is stepped an hour ahead", func(m *machine) { m.wall += time.Hour }, 0, true},
		{"the wall clock is stepped an hour back", func(m *machine) { m.wall -= time.Hour }, 0, true},
		{"the machine sleeps for an hour", func(m *machine) { m.truth.Advance(time.Hour); m.wall += time.Hour }, -time.Hour, true},
		{"it sleeps, and its clock is set wrong meanwhile", func(m *machine) { m.truth.Advance(time.Hour); m.wall += 3 * time.Hour }, -time.Hour, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &machine{truth: clock.At(start), wall: 17 * time.Minute} // wrong from the first
			srv, db := mongoWith(t, m.truth.Now)
			ours := clock.By(clock.Stopwatch{
				Mono: func() time.Time { return start.Add(m.mono) },
				Wall: func() time.Time { return start.Add(m.wall) },
			})
			var asked atomic.Int32
			srv.Inject(minimongo.Fault{Command: "hello", Where: func(of string, _ bson.Raw) bool {
				if of == db.Name() {
					asked.Add(1)
				}
				return false
			}})
			look := keeping(db, ours, slog.New(slog.DiscardHandler))
			wrong := func() time.Duration { return ours.Now().Sub(m.truth.Now()) }
			if err := look(t.Context()); err != nil || wrong() != 0 {
				t.Fatalf("wrong by %s after the first look: %v", wrong(), err)
			}
			asked.Store(0)
			c.do(m)
			if wrong() != c.wrong {
				t.Errorf("wrong by %s, want %s", wrong(), c.wrong)
			}
			if err := look(t.Context()); err != nil || wrong() != 0 {
				t.Errorf("wrong by %s after the next look: %v", wrong(), err)
			}
			if err := look(t.Context()); err != nil || wrong() != 0 {
				t.Errorf("wrong by %s after another look: %v", wrong(), err)
			}
			if n := asked.Load(); (n > 0) != c.asks || n > 1 {
				t.Errorf("it asked %d times", n)
			}
		})
	}
}

// machine has two clocks, by how far each is from the start.
type machine struct {
	truth      *clock.Clock
	wall, mono time.Duration
}
