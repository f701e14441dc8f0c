package users

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// outranked are the statuses that a new one replaces. A person's own wish outranks a server's word: whoever unsubscribed and
// then bounced must not get mail again once the bounce is forgiven. A status that we don't know is never replaced.
var outranked = map[string][]string{
	Complained:   {Unsubscribed, Bounced},
	Unsubscribed: {Bounced},
	Bounced:      {},
}

// Suppress marks the user so that no run mails him. A status that weighs more, or the same one, stays with its date.
// ErrNotFound: no such user. ErrStateShape: there is no room for the mark in the document; nothing was changed.
func (s *Store) Suppress(ctx context.Context, id bson.RawValue, status string, at time.Time) error {
	replaces, ok := outranked[status]
	if !ok {
		return fmt.Errorf("users: %q is no status; say %s, %s or %s", status, Unsubscribed, Bounced, Complained)
	}
	at = at.UTC().Truncate(time.Millisecond)
	weaker := bson.A{nil, ""} // null stands for missing too
	for _, w := range replaces {
		weaker = append(weaker, w)
	}
	for {
		u, err := s.stateOf(ctx, id)
		if err != nil {
			return err
		}
		var filter, update bson.D
		switch u.Type {
		case 0, bson.TypeEmbeddedDocument:
			filter = bson.D{{Key: "_id", Value: id}, {Key: s.cfg.State, Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$type", Value: 10}}}}},
				{Key: s.paths.status, Value: bson.D{{Key: "$in", Value: weaker}}}}
			update = bson.D{{Key: "$set", Value: bson.D{{Key: s.paths.status, Value: status}, {Key: s.paths.statusAt, Value: at}}}}
		case bson.TypeNull:
			filter = bson.D{{Key: "_id", Value: id}, {Key: s.cfg.State, Value: bson.D{{Key: "$type", Value: 10}}}}
			update = bson.D{{Key: "$set", Value: bson.D{{Key: s.cfg.State, Value: bson.D{{Key: "status", Value: status}, {Key: "status_at", Value: at}}}}}}
		default:
			return fmt.Errorf("users: suppress %s: %s is of BSON type %s: %w", FormatID(id), s.cfg.State, u.Type, ErrStateShape)
		}
		res, err := s.coll.UpdateOne(ctx, filter, update)
		if err != nil && !shapeChanged(err) {
			return fmt.Errorf("users: suppress %s: %w", FormatID(id), err)
		}
		if err == nil && res.MatchedCount == 1 {
			return nil
		}
		if now, err := s.stateOf(ctx, id); err != nil {
			return err
		} else if now.Type == u.Type {
			return s.weighs(id, now) // a status that weighs as much stands there
		}
	}
}

// weighs makes sure that what kept a status from being written is a status.
func (s *Store) weighs(id, state bson.RawValue) error {
	var status bson.RawValue
	if state.Type == bson.TypeEmbeddedDocument {
		status = bson.Raw(state.Value).Lookup("status")
	}
	if text, ok := textOf(status); ok && len(text) > 0 {
		return nil
	}
	return fmt.Errorf("users: suppress %s: %s is of BSON type %s: %w", FormatID(id), s.paths.status, status.Type, ErrStateShape)
}

// stateOf reads the state field as it stands; type 0: missing.
func (s *Store) stateOf(ctx context.Context, id bson.RawValue) (bson.RawValue, error) {
	raw, err := s.coll.FindOne(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: id}}}},
		options.FindOne().SetProjection(bson.D{{Key: s.cfg.State, Value: 1}})).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return bson.RawValue{}, fmt.Errorf("users: %s: %w", FormatID(id), ErrNotFound)
	}
	if err != nil {
		return bson.RawValue{}, fmt.Errorf("users: read %s: %w", FormatID(id), err)
	}
	var f found
	s.walk(raw, s.fields, &f)
	if f.unreadable {
		return bson.RawValue{}, fmt.Errorf("users: %s: %s can't be written: %w", FormatID(id), s.cfg.State, ErrStateShape)
	}
	return f.values[slotState], nil
}

// shapeChanged reports whether a write failed because a field cannot be made where the document holds something else.
func shapeChanged(err error) bool {
	var se mongo.ServerError
	return errors.As(err, &se) && (se.HasErrorCode(28) || se.HasErrorCode(2)) // PathNotViable, BadValue (older servers)
}

// Unsuppress takes the mark away, whatever it says. It does not touch the team's own fields, nor the user's bits.
func (s *Store) Unsuppress(ctx context.Context, id bson.RawValue) error {
	state, err := s.stateOf(ctx, id)
	if err != nil {
		return err
	}
	switch state.Type {
	case 0, bson.TypeNull:
		return nil
	case bson.TypeEmbeddedDocument:
	default:
		return fmt.Errorf("users: unsuppress %s: %s is of BSON type %s: %w", FormatID(id), s.cfg.State, state.Type, ErrStateShape)
	}
	_, err = s.coll.UpdateOne(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: id}}}},
		bson.D{{Key: "$unset", Value: bson.D{{Key: s.paths.status, Value: ""}, {Key: s.paths.statusAt, Value: ""}}}})
	if err != nil {
		return fmt.Errorf("users: unsuppress %s: %w", FormatID(id), err)
	}
	return nil
}
