package minimongo_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.uber.org/goleak"

	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
)

func leakFree(t *testing.T) {
	t.Helper()
	opts := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, opts) })
}

func inc(c *mongo.Collection) error {
	_, err := c.UpdateOne(context.Background(), bson.M{"_id": 1}, bson.M{"$inc": bson.M{"n": 1}})
	return err
}

func value(t *testing.T, c *mongo.Collection) int {
	t.Helper()
	var doc struct{ N int }
	if err := c.FindOne(context.Background(), bson.M{"_id": 1}).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	return doc.N
}

func TestFaults(t *testing.T) {
	tests := []struct {
		name  string
		fault minimongo.Fault
		// what n is after each of three updates, and which of them fail
		want  [3]int
		fails [3]bool
	}{
		{"dropped before it is applied", minimongo.Fault{Command: "update", Nth: 2, Before: minimongo.Action{Drop: true}}, [3]int{1, 1, 2}, [3]bool{false, true, false}},
		{"dropped after it is applied", minimongo.Fault{Command: "update", Nth: 2, After: minimongo.Action{Drop: true}}, [3]int{1, 2, 3}, [3]bool{false, true, false}},
		{"refused", minimongo.Fault{Command: "update", Before: minimongo.Action{Error: &minimongo.Error{Code: 91, Message: "ShutdownInProgress"}}}, [3]int{0, 1, 2}, [3]bool{true, false, false}},
		{"refused twice", minimongo.Fault{Command: "update", Times: 2, Before: minimongo.Action{Error: &minimongo.Error{Code: 91}}}, [3]int{0, 0, 1}, [3]bool{true, true, false}},
		{"refused for ever", minimongo.Fault{Command: "update", Times: -1, Before: minimongo.Action{Error: &minimongo.Error{Code: 91}}}, [3]int{0, 0, 0}, [3]bool{true, true, true}},
		{"applied and answered with an error", minimongo.Fault{Command: "update", After: minimongo.Action{Error: &minimongo.Error{Code: 64, Message: "waiting for replication timed out"}}}, [3]int{1, 2, 3}, [3]bool{true, false, false}},
		{"answered late", minimongo.Fault{Command: "update", After: minimongo.Action{Delay: time.Millisecond}}, [3]int{1, 2, 3}, [3]bool{}},
		{"another command", minimongo.Fault{Command: "insert", Before: minimongo.Action{Drop: true}}, [3]int{1, 2, 3}, [3]bool{}},
		{"only where it says", minimongo.Fault{Where: func(_ string, cmd bson.Raw) bool {
			return cmd.Lookup("update").Type != 0 && cmd.Lookup("ordered").Boolean()
		}, Nth: 3, Before: minimongo.Action{Drop: true}}, [3]int{1, 2, 2}, [3]bool{false, false, true}},
	}
	leakFree(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // after a lost connection the driver waits for half a second
			s, db := mongotest.Server(t)
			c := db.Collection("c")
			if _, err := c.InsertOne(context.Background(), bson.M{"_id": 1, "n": 0}); err != nil {
				t.Fatal(err)
			}
			remove := s.Inject(tt.fault)
			for i := range 3 {
				if err := inc(c); (err != nil) != tt.fails[i] {
					t.Errorf("update %d: %v", i, err)
				}
				if got := value(t, c); got != tt.want[i] {
					t.Errorf("n is %d after update %d, want %d", got, i, tt.want[i])
				}
			}
			remove()
			if err := inc(c); err != nil {
				t.Errorf("after remove: %v", err)
			}
		})
	}
}

func TestFaultAppliedLate(t *testing.T) {
	leakFree(t)
	s, db := mongotest.Server(t)
	c := db.Collection("c")
	if _, err := c.InsertOne(context.Background(), bson.M{"_id": 1, "n": 0}); err != nil {
		t.Fatal(err)
	}
	hold, reached, applied := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.Inject(minimongo.Fault{Command: "update", Reached: func() { close(reached) }, Before: minimongo.Action{Hangup: true, Wait: hold}, After: minimongo.Action{Wait: applied}})
	if err := inc(c); !mongo.IsNetworkError(err) {
		t.Fatalf("the client did not see a lost connection: %v", err)
	}
	<-reached
	if got := value(t, c); got != 0 {
		t.Fatalf("n is %d before the update is let go", got)
	}
	close(hold)
	applied <- struct{}{} // somebody takes it once the update is applied
	if got := value(t, c); got != 1 {
		t.Errorf("n is %d after it", got)
	}
}

func TestFaultClientGivesUp(t *testing.T) {
	leakFree(t)
	s, db := mongotest.Server(t)
	c := db.Collection("c")
	if _, err := c.InsertOne(context.Background(), bson.M{"_id": 1, "n": 0}); err != nil {
		t.Fatal(err)
	}
	hold, applied := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	s.Inject(minimongo.Fault{Command: "update", Reached: cancel, Before: minimongo.Action{Wait: hold}, After: minimongo.Action{Wait: applied}})
	_, err := c.UpdateOne(ctx, bson.M{"_id": 1}, bson.M{"$inc": bson.M{"n": 1}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	close(hold)
	applied <- struct{}{} // somebody takes it once the update is applied
	if got := value(t, c); got != 1 {
		t.Errorf("n is %d after it", got)
	}
}

func TestCloseEndsWhatWaits(t *testing.T) {
	leakFree(t)
	s, db := mongotest.Server(t)
	reached := make(chan struct{})
	s.Inject(minimongo.Fault{Command: "insert", Reached: func() { close(reached) }, Before: minimongo.Action{Wait: make(chan struct{})}})
	done := make(chan error, 1)
	go func() {
		_, err := db.Collection("c").InsertOne(context.Background(), bson.M{})
		done <- err
	}()
	<-reached
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("an insert into a closed server succeeded")
	}
}
