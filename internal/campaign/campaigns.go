package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Get is the campaign of that name, or ErrNotFound.
func (s *Store) Get(ctx context.Context, name string) (*Campaign, error) {
	var c Campaign
	err := s.campaigns.FindOne(ctx, bson.D{{Key: "_id", Value: name}}).Decode(&c)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, fmt.Errorf("campaign %s: %w", name, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("campaign %s: %w", name, err)
	}
	return &c, nil
}

// List is every campaign, by name.
func (s *Store) List(ctx context.Context) ([]Campaign, error) {
	return s.findCampaigns(ctx, bson.D{})
}

// DueCampaigns are the active campaigns whose next slot is at or before now.
func (s *Store) DueCampaigns(ctx context.Context, now time.Time) ([]Campaign, error) {
	return s.findCampaigns(ctx, bson.D{
		{Key: "state", Value: StateActive},
		{Key: "next_at", Value: bson.D{{Key: "$lte", Value: now}}},
	})
}

func (s *Store) findCampaigns(ctx context.Context, filter bson.D) ([]Campaign, error) {
	cur, err := s.campaigns.Find(ctx, filter, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("campaigns: %w", err)
	}
	found := []Campaign{}
	if err := cur.All(ctx, &found); err != nil {
		return nil, fmt.Errorf("campaigns: %w", err)
	}
	return found, nil
}

// Advance writes down that slot of c has been fired or skipped, and when c fires next (zero: never again). It reports false
// where c's next slot has changed since c was read: another scheduler was there first, or somebody applied or paused it.
func (s *Store) Advance(ctx context.Context, c *Campaign, slot, next time.Time) (bool, error) {
	set := bson.D{{Key: "last_at", Value: utcMillis(slot)}}
	update := bson.D{}
	if next.IsZero() {
		update = append(update, bson.E{Key: "$unset", Value: bson.D{{Key: "next_at", Value: ""}}})
	} else {
		set = append(set, bson.E{Key: "next_at", Value: utcMillis(next)})
	}
	update = append(update, bson.E{Key: "$set", Value: set})
	res, err := s.campaigns.UpdateOne(ctx, bson.D{{Key: "_id", Value: c.Name}, {Key: "next_at", Value: c.NextAt}}, update)
	if err != nil {
		return false, fmt.Errorf("campaign %s: next slot: %w", c.Name, err)
	}
	return res.MatchedCount == 1, nil
}

// Pause stops the schedule of a campaign; its run goes on. Slots that pass meanwhile are not made up for.
func (s *Store) Pause(ctx context.Context, name string) error {
	return s.updateCampaign(ctx, bson.D{{Key: "_id", Value: name}}, name, bson.D{
		{Key: "$set", Value: bson.D{{Key: "state", Value: StatePaused}}},
		{Key: "$unset", Value: bson.D{{Key: "next_at", Value: ""}}},
	})
}

// Resume starts the schedule of a campaign again, with its first slot after now.
func (s *Store) Resume(ctx context.Context, name string, now time.Time) (*Campaign, error) {
	c, err := s.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	if c.State == StateActive {
		return c, nil
	}
	next, err := c.Spec.Schedule.Next(later(now, c.LastAt))
	if err != nil {
		return nil, fmt.Errorf("campaign %s: %w", name, err)
	}
	c.State, c.NextAt = StateActive, next
	err = s.updateCampaign(ctx, bson.D{{Key: "_id", Value: name}}, name, bson.D{{Key: "$set", Value: scheduleFields(c.State, next)}})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (s *Store) updateCampaign(ctx context.Context, filter bson.D, name string, update bson.D) error {
	res, err := s.campaigns.UpdateOne(ctx, filter, update)
	if err != nil {
		return fmt.Errorf("campaign %s: %w", name, err)
	}
	if res.MatchedCount == 0 {
		return fmt.Errorf("campaign %s: %w", name, ErrNotFound)
	}
	return nil
}

func scheduleFields(state string, next time.Time) bson.D {
	set := bson.D{{Key: "state", Value: state}}
	if !next.IsZero() {
		set = append(set, bson.E{Key: "next_at", Value: utcMillis(next)})
	}
	return set
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
