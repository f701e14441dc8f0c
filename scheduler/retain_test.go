package scheduler

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
)

func TestRetain(t *testing.T) {
	const days = 24 * time.Hour
	all := []string{"batches.2026.09", "batches.2026.10", "batches.2026.11", "batches.old", "days.2026.09", "opens.2026.09", "opens.2026.10"}
	for _, c := range []struct {
		name       string
		now        string
		unfinished string // slot of a run that is
		gone       []string
	}{
		{"a month is kept until its last day is old enough", "2026-11-29T23:59:59Z", "", nil},
		{"and then dropped as a whole", "2026-11-30T00:00:00Z", "", []string{"batches.2026.09", "opens.2026.09"}},
		{"two months", "2026-12-31T00:00:00Z", "", []string{"batches.2026.09", "batches.2026.10", "opens.2026.09", "opens.2026.10"}},
		{"never while a run in it is unfinished", "2026-12-31T00:00:00Z", "2026-09-30T23:59:59Z", []string{"batches.2026.10", "opens.2026.10"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, at(t, c.now))
			w.Retention = 60 * days
			for _, name := range all {
				if _, err := w.db.Collection(name).InsertOne(t.Context(), bson.D{}); err != nil {
					t.Fatal(err)
				}
			}
			if c.unfinished != "" {
				slot := at(t, c.unfinished)
				if err := w.runs.InsertRun(t.Context(), &campaign.Run{ID: campaign.RunID("x", slot), Slot: slot, State: campaign.RunSending}); err != nil {
					t.Fatal(err)
				}
			}
			w.do(w.Retain)
			names, err := w.db.ListCollectionNames(t.Context(), bson.D{})
			if err != nil {
				t.Fatal(err)
			}
			var gone []string
			for _, name := range all {
				if !slices.Contains(names, name) {
					gone = append(gone, name)
				}
			}
			if d := cmp.Diff(c.gone, gone); d != "" {
				t.Fatal(d)
			}
		})
	}
}
