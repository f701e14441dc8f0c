package campaign_test

import (
	"errors"
	"testing"
	"time"

	"postbit/internal/campaign"
	"postbit/internal/minimongo/mongotest"
)

func TestElsewhereRun(t *testing.T) {
	db := mongotest.DB(t)
	s, ctx := campaign.NewStore(db), t.Context()
	if err := s.EnsureIndexes(ctx); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC)
	if _, err := s.ElsewhereRun(ctx, "winback", now); !errors.Is(err, campaign.ErrNotFound) {
		t.Errorf("of no campaign: %v", err)
	}
	if _, err := db.Collection("campaigns").InsertOne(ctx, campaign.Campaign{Name: "winback", State: campaign.StatePaused}); err != nil {
		t.Fatal(err)
	}
	first, err := s.ElsewhereRun(ctx, "winback", now)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.ElsewhereRun(ctx, "winback", now.AddDate(0, 0, 7))
	if err != nil || again.Short != first.Short {
		t.Errorf("the same month: %v, %v", again, err)
	}
	next, err := s.ElsewhereRun(ctx, "winback", now.AddDate(0, 0, 8))
	if err != nil || next.Short == first.Short || next.Slot != time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC) {
		t.Errorf("the next month: %+v, %v", next, err)
	}
	if byShort, err := s.RunByShort(ctx, first.Short); err != nil || byShort.Campaign != "winback" {
		t.Errorf("hits can't find it: %v", err)
	}

	t.Run("stands in no run's way", func(t *testing.T) {
		run := &campaign.Run{ID: "winback@x", Short: campaign.ShortID{1}, Campaign: "winback", Slot: now.AddDate(0, -1, 0), State: campaign.RunPlanning}
		if err := s.InsertRun(ctx, run); err != nil {
			t.Fatal(err)
		}
		if n, err := s.LookBothWays(ctx, run); err != nil || n.Newer != "" || len(n.Older) > 0 {
			t.Errorf("%+v, %v", n, err)
		}
		if latest, err := s.LatestRun(ctx, "winback"); err != nil || latest.ID != run.ID {
			t.Errorf("latest: %v, %v", latest, err)
		}
		if runs, err := s.Runs(ctx, "winback", 0); err != nil || len(runs) != 1 {
			t.Errorf("%d runs, %v", len(runs), err)
		}
	})
}
