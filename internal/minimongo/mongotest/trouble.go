package mongotest

import (
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/minimongo"
)

// Trouble is what one command of a process meets, in tests where each command meets each trouble in turn.
type Trouble struct {
	before, after minimongo.Action
	late          bool // the command is carried out when all is over
	beside        bool // it is held up until another process has taken the same step
}

// Troubles are all that can become of a command that is not refused for good, and of one whose process is overtaken meanwhile.
var Troubles = map[string]Trouble{
	"fails":                    {before: minimongo.Action{Error: &minimongo.Error{Code: 50, Message: "operation exceeded time limit"}}},
	"lost":                     {before: minimongo.Action{Drop: true}},
	"reply lost":               {after: minimongo.Action{Drop: true}},
	"applied when all is over": {before: minimongo.Action{Hangup: true}, late: true},
	"held up, another process takes the step":                     {beside: true},
	"applied, the answer held up, another process takes the step": {after: minimongo.Action{Delay: 1}, beside: true},
}

// Troubled is a server on which one command will meet trouble.
type Troubled struct {
	beside   bool
	stepping atomic.Bool
	reached  chan struct{}
	release  func()
}

// Inject lets the nth command of the steps to come meet the trouble; 0: none does. heard is given each of them, from many goroutines at once.
func (x Trouble) Inject(srv *minimongo.Server, nth int, heard func(command bson.Raw)) *Troubled {
	release := make(chan struct{})
	s := &Troubled{beside: x.beside, reached: make(chan struct{}), release: sync.OnceFunc(func() { close(release) })}
	f := minimongo.Fault{Nth: nth, Before: x.before, After: x.after, Reached: func() { close(s.reached) }}
	if nth == 0 {
		f.Nth = 1 << 30
	}
	f.Where = func(_ string, command bson.Raw) bool {
		if !s.stepping.Load() {
			return false
		}
		if heard != nil {
			heard(command)
		}
		return true
	}
	switch {
	case x.beside && x.after.Delay > 0:
		f.After.Wait = release
	case x.beside, x.late:
		f.Before.Wait = release
	}
	srv.Inject(f)
	return s
}

// Step takes a step until it succeeds, as a loop or a queue does. Where it is held up, another process takes the step as well, and must not fail.
func (s *Troubled) Step(t testing.TB, step, other func() error) {
	t.Helper()
	s.stepping.Store(true)
	defer s.stepping.Store(false)
	for try := 1; ; try++ {
		err := s.once(t, step, other)
		if err == nil {
			return
		}
		if try == 5 {
			t.Fatal(err)
		}
	}
}

func (s *Troubled) once(t testing.TB, step, other func() error) error {
	t.Helper()
	took := make(chan error, 1)
	go func() { took <- step() }()
	if s.beside {
		select {
		case err := <-took:
			return err
		case <-s.reached:
			if err := other(); err != nil {
				t.Errorf("the other one: %v", err)
			}
			s.release()
		}
	}
	return <-took
}

// Over carries out what comes late, and reports whether a command has met the trouble.
func (s *Troubled) Over() bool {
	s.release()
	select {
	case <-s.reached:
		return true
	default:
		return false
	}
}
