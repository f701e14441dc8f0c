package users

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"postbit/internal/bitfield"
)

// TakeBack clears the bits that the claims set, each only while no other claim has followed and only if it was clear
// before. Dates and names of the claims stay. Doing it again changes nothing, whoever does it. It tries until ctx ends.
func (s *Store) TakeBack(ctx context.Context, cs []Claim) error {
	left := make(map[string]Claim, len(cs))
	for _, c := range cs {
		if !c.Before {
			left[idKey(c.ID)] = c
		}
	}
	var wait backoff
	for len(left) > 0 {
		if err := s.takeBackOnce(ctx, left); err != nil && !worthAgain(err) {
			return fmt.Errorf("users: take back %d claims: %w", len(left), err)
		}
		if len(left) > 0 && !wait.sleep(ctx) {
			return fmt.Errorf("users: take back %d claims: %w", len(left), context.Cause(ctx))
		}
	}
	return nil
}

// takeBackOnce reads the users and writes those whose bit is to be cleared. Who needs nothing leaves the map; who was
// written is looked at once more by the next round, unless all went well.
func (s *Store) takeBackOnce(ctx context.Context, left map[string]Claim) error {
	us := make([]User, 0, len(left))
	for _, c := range left {
		us = append(us, User{ID: c.ID})
	}
	now, err := s.readAgain(ctx, us, &projectionOf{fields: s.Fields(nil)})
	if err != nil {
		return err
	}
	var models []mongo.WriteModel
	for key, c := range left {
		u, ok := now[key]
		if !ok || !s.holds(&u, &c) {
			delete(left, key)
			continue
		}
		models = append(models, s.takeBackModel(&u, &c))
	}
	if len(models) == 0 {
		return nil
	}
	matched, rejected, err := s.issue(ctx, models)
	if err == nil && matched == len(models) {
		clear(left)
	}
	if rejected != nil {
		return fmt.Errorf("%w: %w", ErrRefused, rejected)
	}
	return err
}

// holds reports whether the claim is still the last one on the user and its bit still set.
func (s *Store) holds(u *User, c *Claim) bool {
	w := &u.was
	return w.readable && w.runs[0] == c.Run && w.lastTime.Equal(c.LastAt) && bitfield.Has(w.blob, c.Bit)
}

func (s *Store) takeBackModel(u *User, c *Claim) mongo.WriteModel {
	at, filter := bsoncore.AppendDocumentStart(nil)
	filter = appendID(filter, u.ID)
	filter = appendSame(filter, s.cfg.Bits, u.was.bits)
	filter = appendSame(filter, s.paths.lastAt, u.was.lastAt)
	filter, _ = bsoncore.AppendDocumentEnd(filter, at)
	update := bson.D{{Key: "$set", Value: bson.D{{Key: s.cfg.Bits, Value: bson.Binary{
		Subtype: bitfield.Subtype(u.was.bits), Data: bitfield.Without(u.was.blob, c.Bit),
	}}}}}
	return mongo.NewUpdateOneModel().SetFilter(bson.Raw(filter)).SetUpdate(update)
}
