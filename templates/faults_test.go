package templates

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
)

// TestAFaultAtEveryCommand applies a push and has one command after the other go wrong, each way: refused, the connection
// lost before it was applied, the answer lost, and all that follow lost as well, as for a process that is killed. What is
// seen afterwards is the old state or the new one and never a part of it, and the next push completes it.
func TestAFaultAtEveryCommand(t *testing.T) {
	const most = 20 // commands of an Apply that goes well, at most
	drop, no := minimongo.Action{Drop: true}, minimongo.Action{Error: &minimongo.Error{Code: 8000, Message: "no"}}
	before, after := folder(t, "old 2 x", "z 8 x"), folder(t, "a 1 x", "old 2 y", "y 9 x", "z 8 y")
	for name, fault := range map[string]minimongo.Fault{
		"refused":             {Before: no},
		"applied and refused": {After: no},
		"lost before":         {Before: drop},
		"the answer lost":     {After: drop},
		"killed":              {Before: drop, Times: -1},
	} {
		t.Run(name, func(t *testing.T) {
			var g errgroup.Group // the driver waits half a second after a lost connection
			hit := make([]atomic.Bool, most)
			for i := range hit {
				server, db := mongotest.Server(t)
				f := fault
				f.Nth, f.Reached = i+1, func() { hit[i].Store(true) }
				g.Go(func() error {
					if err := pushWithFault(t.Context(), server, db, f, before, after); err != nil {
						return fmt.Errorf("command %d: %w", i+1, err)
					}
					return nil
				})
			}
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
			if !hit[9].Load() || hit[most-1].Load() {
				t.Errorf("the commands that were hit are not those of a push: the tenth %t, number %d %t", hit[9].Load(), most, hit[most-1].Load())
			}
		})
	}
}

func pushWithFault(ctx context.Context, server *minimongo.Server, db *mongo.Database, f minimongo.Fault, before, after string) error {
	const old, done = "a:missing old:1 y:missing z:1 ", "a:1 old:2 y:1 z:2 "
	r, err := Open(db)
	if err != nil {
		return err
	}
	r.patience = 0
	if err := r.EnsureIndexes(ctx); err != nil {
		return err
	}
	apply := func(dir string, fault *minimongo.Fault) error {
		p, err := r.PlanPush(ctx, dir, PushOptions{})
		if err != nil {
			return err
		}
		if fault != nil {
			defer server.Inject(*fault)()
		}
		return r.Apply(ctx, p)
	}
	if err := apply(before, nil); err != nil {
		return err
	}
	applied := apply(after, &f)
	if err := r.Repair(ctx); err != nil {
		return err
	}
	if got := revisions(ctx, r); got != done && (applied == nil || got != old) {
		return fmt.Errorf("Apply says %v, and there is %s", applied, got)
	}
	if left, err := db.Collection(PushCollection).EstimatedDocumentCount(ctx); err != nil || left > 0 {
		return fmt.Errorf("%d pushes are left, %v", left, err)
	}
	if err := apply(after, nil); err != nil {
		return fmt.Errorf("pushed again: %w", err)
	}
	if got := revisions(ctx, r); got != done {
		return fmt.Errorf("pushed again: %s", got)
	}
	return nil
}

func revisions(ctx context.Context, r *Registry) (s string) {
	for _, name := range []string{"a", "old", "y", "z"} {
		t, err := r.Get(ctx, name)
		switch {
		case errors.Is(err, ErrNotFound):
			s += name + ":missing "
		case err != nil:
			s += err.Error()
		default:
			s += fmt.Sprintf("%s:%d ", name, t.Revision)
		}
	}
	return s
}

// A push that a live one has to wait for: it goes on as soon as the other is done.
func TestWaitingForAPush(t *testing.T) {
	server, db := mongotest.Server(t)
	r, err := Open(db)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.EnsureIndexes(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.patience = time.Minute
	first, err := r.PlanPush(t.Context(), folder(t, "a 1 x"), PushOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held, staging := make(chan struct{}), make(chan struct{})
	server.Inject(minimongo.Fault{Command: "update", Reached: func() { close(staging) }, Before: minimongo.Action{Wait: held}})
	applied := make(chan error, 1)
	go func() { applied <- r.Apply(t.Context(), first) }()
	<-staging // it is about to commit
	planned := make(chan error, 1)
	dir := folder(t, "a 1 x", "b 2 x")
	go func() {
		_, err := r.PlanPush(t.Context(), dir, PushOptions{})
		planned <- err
	}()
	select {
	case err := <-planned:
		t.Fatalf("planned while the other is at work: %v", err)
	default:
	}
	close(held)
	if err := <-applied; err != nil {
		t.Error(err)
	}
	if err := <-planned; err != nil {
		t.Error(err)
	}
	if got := listing(t, r); got != "a:1@1" {
		t.Errorf("%s", got)
	}
}
