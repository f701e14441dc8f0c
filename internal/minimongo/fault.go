package minimongo

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Fault makes something go wrong with chosen commands, for tests of what a client makes of it.
//
//	Fault{Command: "update", Nth: 2, Before: Action{Drop: true}}                  not applied, connection gone
//	Fault{Command: "update", After: Action{Drop: true}}                           applied, but the answer is lost
//	Fault{Command: "update", Before: Action{Hangup: true, Wait: ch}}              the client sees a lost connection, the update comes later
//	Fault{Command: "update", After: Action{Delay: time.Second}}                   applied at once, answered late
//	Fault{Command: "find", Before: Action{Error: &Error{Code: 91, Message: "…"}}} refused
type Fault struct {
	// Command is a command's name; empty stands for all but hello, ping, endSessions and killCursors, which the driver sends by itself.
	Command string
	// Where, if set, must accept the command as well: only those count.
	Where func(db string, command bson.Raw) bool
	// Nth is the first command that is hit, counted from Inject; 0 and 1 are the next one.
	Nth int
	// Times is how many in a row are hit; 0 is one, negative is all from then on.
	Times int
	// Reached is called when a command is hit, before anything else; it must not block for long.
	Reached func()
	// Before happens before the command is applied, After between that and the answer.
	Before, After Action
}

// An Action is what a Fault does, in the order of its fields.
type Action struct {
	// Hangup closes the connection at once, but goes on with the command.
	Hangup bool
	// Wait holds the command until the channel is closed (or the server is), Delay for a time.
	Wait  <-chan struct{}
	Delay time.Duration
	// Drop closes the connection and ends the command here: before it is applied, or without an answer.
	Drop bool
	// Error is the answer; in Before the command is not applied, in After it was.
	Error *Error
}

func (a Action) run(ctx context.Context, c net.Conn) (drop bool, failure *Error) {
	if a.Hangup {
		c.Close()
	}
	if a.Wait != nil {
		select {
		case <-a.Wait:
		case <-ctx.Done():
		}
	}
	if a.Delay > 0 {
		t := time.NewTimer(a.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return a.Drop, a.Error
}

type faults struct {
	mu   sync.Mutex
	list []*armed
}

type armed struct {
	Fault
	seen int
}

// Inject arms a fault; remove takes it back. Of several that hit the same command the first one acts,
// but all of them count it.
func (s *Server) Inject(f Fault) (remove func()) {
	a := &armed{Fault: f}
	a.Nth = max(a.Nth, 1)
	if a.Times == 0 {
		a.Times = 1
	}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list = append(s.faults.list, a)
	return func() {
		s.faults.mu.Lock()
		defer s.faults.mu.Unlock()
		s.faults.list = slices.DeleteFunc(s.faults.list, func(x *armed) bool { return x == a })
	}
}

func (f *faults) take(command, db string, body bson.Raw) Fault {
	f.mu.Lock()
	var hit *armed
	for _, a := range f.list {
		if !a.counts(command, db, body) {
			continue
		}
		a.seen++
		if hit == nil && a.seen >= a.Nth && (a.Times < 0 || a.seen < a.Nth+a.Times) {
			hit = a
		}
	}
	f.mu.Unlock()
	if hit == nil {
		return Fault{}
	}
	if hit.Reached != nil {
		hit.Reached()
	}
	return hit.Fault
}

func (a *armed) counts(command, db string, body bson.Raw) bool {
	switch {
	case a.Command == "":
		switch command {
		case "hello", "isMaster", "ismaster", "ping", "endSessions", "killCursors":
			return false
		}
	case a.Command != command:
		return false
	}
	return a.Where == nil || a.Where(db, body)
}
