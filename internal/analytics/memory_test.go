package analytics

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/clock"
	"postbit/internal/minimongo/mongotest"
)

const day = 24 * time.Hour

// starts is a process that begins to count, with a memory of d.
func starts(t *testing.T, db *mongo.Database, c *clock.Clock, d time.Duration) *Writer {
	t.Helper()
	w := NewWriter(db, c, quiet(), WithMemory(d))
	if err := w.EnsureIndexes(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestTheIndexForgetsAfterTheLongestMemory(t *testing.T) {
	db := mongotest.DB(t)
	for _, c := range []struct {
		name         string
		memory, want time.Duration
	}{
		{"the first start", DefaultMemory, DefaultMemory},
		{"another", DefaultMemory, DefaultMemory},
		{"the setting is raised", 14 * day, 14 * day},
		{"a process that has not been told", DefaultMemory, 14 * day},
	} {
		starts(t, db, clock.At(noon), c.memory)
		specs, err := db.Collection(AppliedCollection).Indexes().ListSpecifications(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]mongo.IndexSpecification{}
		for _, s := range specs {
			got[s.Name] = s
		}
		if u := got["ids"].Unique; u == nil || !*u {
			t.Errorf("%s: the index over ids is not unique", c.name)
		}
		if s := got["done_at"].ExpireAfterSeconds; s == nil || time.Duration(*s)*time.Second != c.want+memoryMargin {
			t.Errorf("%s: done_at expires after %v, want %s", c.name, s, c.want+memoryMargin)
		}
	}
}

// What was forgotten before the memory was raised does not come back: it grows with the days.
func TestARaisedMemoryReachesNoFurtherBackThanIdsWereKept(t *testing.T) {
	db := mongotest.DB(t)
	c := clock.At(noon)
	before := starts(t, db, c, 7*day)
	raised := starts(t, db, c, 14*day)
	for _, row := range []struct {
		name              string
		later             time.Duration
		raised, other, is time.Duration
	}{
		{"at once", 0, 7 * day, 7 * day, 7 * day},
		{"three days on", 3 * day, 10 * day, 7 * day, 10 * day},
		{"a week on", 4 * day, 14 * day, 7 * day, 14 * day},
		{"and it stays", 4 * day, 14 * day, 7 * day, 14 * day},
	} {
		c.Advance(row.later)
		if got := raised.Memory(); got != row.raised {
			t.Errorf("%s: who raised it remembers %s, want %s", row.name, got, row.raised)
		}
		if got := before.Memory(); got != row.other {
			t.Errorf("%s: who has not been told remembers %s, want %s", row.name, got, row.other)
		}
		if got := starts(t, db, c, 14*day).Memory(); got != row.is {
			t.Errorf("%s: a process that starts remembers %s, want %s", row.name, got, row.is)
		}
	}
}

// Raised twice: what the first raise could not bring back, the second can't, either.
func TestAMemoryThatIsRaisedAgain(t *testing.T) {
	db := mongotest.DB(t)
	c := clock.At(noon)
	starts(t, db, c, 7*day)
	c.Advance(time.Hour)
	starts(t, db, c, 14*day)
	c.Advance(day)
	starts(t, db, c, 30*day)
	c.Advance(day)
	if got, want := starts(t, db, c, 30*day).Memory(), 9*day; got != want {
		t.Errorf("it remembers %s, want %s", got, want)
	}
}

// A note of growth is no set: nobody carries it out, and it goes by the index that it is about.
func TestANoteOfGrowthIsNoSetToFinish(t *testing.T) {
	db := mongotest.DB(t)
	c := clock.At(noon)
	starts(t, db, c, 7*day)
	w := starts(t, db, c, 14*day)
	if n, err := w.FinishStale(t.Context(), 0); err != nil || n != 0 {
		t.Errorf("finished %d, %v", n, err)
	}
	var note struct {
		DoneAt time.Time `bson:"done_at"`
	}
	if err := db.Collection(AppliedCollection).FindOne(t.Context(), bson.D{{Key: "kept_from", Value: bson.D{{Key: "$exists", Value: true}}}}).Decode(&note); err != nil || !note.DoneAt.Equal(noon) {
		t.Errorf("%+v, %v", note, err)
	}
}
