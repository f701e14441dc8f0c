package analytics

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/clock"
	"postbit/internal/minimongo/mongotest"
)

func count(t testing.TB, db *mongo.Database, collection, prefix string) int {
	t.Helper()
	n, err := db.Collection(collection).CountDocuments(t.Context(), idRange(prefix))
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// shapeOf is a document without its numbers and marks.
func shapeOf(t testing.TB, db *mongo.Database, collection, id string) map[string]any {
	t.Helper()
	var doc bson.M
	if err := db.Collection(collection).FindOne(t.Context(), bson.D{{Key: "_id", Value: id}}).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	delete(doc, "w")
	delete(doc, "_id")
	delete(doc, "metadata")
	var blank func(v any) any
	blank = func(v any) any {
		d, ok := v.(bson.D)
		if !ok {
			return fmt.Sprintf("%T", v)
		}
		m := map[string]any{}
		for _, e := range d {
			m[e.Key] = blank(e.Value)
		}
		return m
	}
	shape := map[string]any{}
	for k, v := range doc {
		shape[k] = blank(v)
	}
	return shape
}

func TestAFirstHitMakesTheShapeOfPreallocation(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	apply(t, w, "id1", Day("winback", Hits, noon, 1)) // foreseen by nobody
	tomorrow := noon.AddDate(0, 0, 1)
	if n, err := w.Preallocate(t.Context(), tomorrow, midnight(tomorrow)); err != nil || n != 2 {
		t.Fatalf("Preallocate = %d, %v; want 2", n, err)
	}
	first, ahead := shapeOf(t, db, "days.2026.12", "20261201/winback.hits"), shapeOf(t, db, "days.2026.12", "20261202/winback.hits")
	if diff := cmp.Diff(ahead, first); diff != "" {
		t.Errorf("preallocated and made by a first hit differ:\n%s", diff)
	}
	hourly, _ := ahead["hourly"].(map[string]any)
	minute, _ := ahead["minute"].(map[string]any)
	minutes := 0
	for _, h := range minute {
		m, _ := h.(map[string]any)
		minutes += len(m)
	}
	if len(hourly) != 24 || minutes != 1440 {
		t.Errorf("%d hours and %d minutes, want 24 and 1440", len(hourly), minutes)
	}
	var doc struct {
		Daily    int64 `bson:"daily"`
		Metadata struct {
			Date   time.Time `bson:"date"`
			Metric string    `bson:"metric"`
		} `bson:"metadata"`
	}
	if err := db.Collection("days.2026.12").FindOne(t.Context(), bson.D{{Key: "_id", Value: "20261202/winback.hits"}}).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if doc.Daily != 0 || !doc.Metadata.Date.Equal(midnight(tomorrow)) || doc.Metadata.Metric != "winback.hits" {
		t.Errorf("preallocated: %+v", doc)
	}
	apply(t, w, "id2", Day("winback", Hits, tomorrow, 1))
	if got := value(t, db, "days.2026.12", "20261202/winback.hits", "minute", "12", "00"); got != 1 {
		t.Errorf("a hit on a preallocated day counts %d, want 1", got)
	}
}

func TestPreallocationIsSpreadOverTheEvening(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	const metrics = 30
	var incs []Increment
	for i := range metrics {
		incs = append(incs, dayIncrement(fmt.Sprint("c", i), Hits, noon, 1))
	}
	apply(t, w, "id", incs)
	tomorrow := midnight(noon).AddDate(0, 0, 1)
	// Two schedulers that know nothing of each other, and one that is always late.
	a, b := NewWriter(db, clock.At(noon), quiet()), NewWriter(db, clock.At(noon), quiet())
	var had []int
	for at := tomorrow.Add(-8 * time.Hour); !at.After(tomorrow); at = at.Add(time.Hour) {
		made := 0
		for _, s := range []*Writer{a, b} {
			n, err := s.Preallocate(t.Context(), tomorrow.Add(time.Hour), at)
			if err != nil {
				t.Fatal(err)
			}
			made += n
		}
		now := count(t, db, "days.2026.12", "20261202/")
		if len(had) > 0 && made != now-had[len(had)-1] {
			t.Errorf("%s: %d made, but there are %d after %d", at, made, now, had[len(had)-1])
		}
		had = append(had, now)
	}
	if had[0] != 0 || had[2] != 0 {
		t.Errorf("by hour: %v; want none before the evening begins at 18:00", had)
	}
	for i := 3; i < len(had); i++ {
		if got := had[i] - had[i-1]; got == metrics {
			t.Errorf("by hour: %v; all in one hour", had)
		}
	}
	if last := had[len(had)-1]; last != metrics {
		t.Errorf("by hour: %v; want all %d at midnight", had, metrics)
	}
}

func TestPreallocationLeavesCountsAlone(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	tomorrow := noon.AddDate(0, 0, 1)
	apply(t, w, "id1", Day("winback", Hits, noon, 1))
	apply(t, w, "id2", Day("winback", Hits, tomorrow, 3)) // a clock that is ahead
	for range 2 {
		if _, err := NewWriter(db, clock.At(noon), quiet()).Preallocate(t.Context(), tomorrow, midnight(tomorrow)); err != nil {
			t.Fatal(err)
		}
	}
	if got := value(t, db, "days.2026.12", "20261202/winback.hits", "minute", "12", "00"); got != 3 {
		t.Errorf("counts %d, want 3", got)
	}
}

// What was only preallocated, and never counted, is not made again for ever.
func TestPreallocationFollowsCountsOnly(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	apply(t, w, "id1", Day("winback", Hits, noon, 1))
	for i, want := range []int{2, 2, 2, 2, 2, 2, 2, 0, 0} { // seven days after the last count it ends
		day := midnight(noon).AddDate(0, 0, i+1)
		if n, err := w.Preallocate(t.Context(), day, day); err != nil || n != want {
			t.Errorf("day %d after the last count: %d, %v; want %d", i+1, n, err, want)
		}
	}
}

func TestPreallocationCrossesMonths(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	apply(t, w, "id1", Day("winback", Hits, time.Date(2026, 12, 31, 23, 59, 0, 0, time.UTC), 1))
	newYear := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	if n, err := w.Preallocate(t.Context(), newYear, newYear.Add(-time.Minute)); err != nil || n != 2 {
		t.Fatalf("Preallocate = %d, %v; want 2", n, err)
	}
	if n := count(t, db, "days.2027.01", "20270101/"); n != 2 {
		t.Errorf("days.2027.01 holds %d documents, want 2", n)
	}
}
