package users

import (
	"context"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/bitfield"
)

// Shape is what a sample of users looks like, for doctor and before a first campaign.
type Shape struct {
	Sampled     int
	BadState    int             // the state field holds something that postbit did not write
	BadStateIDs []bson.RawValue // the first few of them
	BadBits     int             // the bitfield can't be read
	HasBits     int             // some template was sent
	BitsNoDate  int             // … and no date of a mail is known, so inactive and min_gap pass them
	BitsNoOpen  int             // … and no open is known
	BadAddress  int
	UnknownZone int

	state string
}

// Err is an error that wraps ErrStateShape where a user's state field is not ours to write.
func (s *Shape) Err() error {
	if s.BadState == 0 {
		return nil
	}
	ids := make([]string, len(s.BadStateIDs))
	for i, id := range s.BadStateIDs {
		ids[i] = FormatID(id)
	}
	return fmt.Errorf("users: %s of %d of %d users sampled (%s): %w; give users.state_field a name of its own",
		s.state, s.BadState, s.Sampled, strings.Join(ids, ", "), ErrStateShape)
}

// Sample looks at n users, half of them the first by _id, half the last: collections tend to change their shape with time.
func (s *Store) Sample(ctx context.Context, n int) (*Shape, error) {
	shape := &Shape{state: s.cfg.State}
	seen := make(map[string]bool, n)
	for _, end := range [...]struct{ order, limit int }{{1, (n + 1) / 2}, {-1, n / 2}} {
		if end.limit == 0 {
			continue
		}
		cur, err := s.coll.Find(ctx, bson.D{}, options.Find().SetProjection(s.Fields(nil)).
			SetSort(bson.D{{Key: "_id", Value: end.order}}).SetLimit(int64(end.limit)).SetBatchSize(cursorBatch))
		if err != nil {
			return nil, fmt.Errorf("users: sample: %w", err)
		}
		for cur.Next(ctx) {
			u := s.Parse(cur.Current, -1)
			if key := idKey(u.ID); !seen[key] {
				seen[key] = true
				shape.add(&u)
			}
		}
		err = cur.Err()
		cur.Close(context.WithoutCancel(ctx))
		if err != nil {
			return nil, fmt.Errorf("users: sample: %w", err)
		}
	}
	return shape, nil
}

func (s *Shape) add(u *User) {
	count := func(n *int, when bool) {
		if when {
			*n++
		}
	}
	r := &u.Recipient
	hasBits := bitfield.Any(u.was.blob)
	s.Sampled++
	count(&s.BadState, !u.was.readable)
	if !u.was.readable && len(s.BadStateIDs) < 5 {
		id := bson.RawValue{Type: u.ID.Type, Value: append([]byte(nil), u.ID.Value...)}
		s.BadStateIDs = append(s.BadStateIDs, id)
	}
	count(&s.BadBits, u.was.bitsErr != nil)
	count(&s.HasBits, hasBits)
	count(&s.BitsNoDate, hasBits && r.FirstAt.IsZero() && r.LastAt.IsZero())
	count(&s.BitsNoOpen, hasBits && r.OpenFirstAt.IsZero() && r.OpenLastAt.IsZero())
	count(&s.BadAddress, !r.AddressOK)
	count(&s.UnknownZone, u.UnknownZone)
}

// BitsInUse counts on how many users each of the bits is set; nil asks for all that are set on anybody. It reads the one
// field of all users, in one pass. Fields that can't be read hold no bits.
func (s *Store) BitsInUse(ctx context.Context, bits []int) (map[int]int64, error) {
	cur, err := s.coll.Find(ctx, bson.D{}, options.Find().
		SetProjection(bson.D{{Key: s.cfg.Bits, Value: 1}, {Key: "_id", Value: 0}}).SetBatchSize(10*cursorBatch))
	if err != nil {
		return nil, fmt.Errorf("users: count bits: %w", err)
	}
	defer cur.Close(context.WithoutCancel(ctx))
	out := make(map[int]int64)
	only := &Store{cfg: s.cfg, fields: &field{}}
	only.fields.add(s.cfg.Bits, slotBits)
	for cur.Next(ctx) {
		var f found
		only.walk(cur.Current, only.fields, &f)
		blob, err := bitfield.Decode(f.values[slotBits])
		if err != nil {
			continue
		}
		if bits == nil {
			for i := range bitfield.Indexes(blob) {
				out[i]++
			}
			continue
		}
		for _, i := range bits {
			if bitfield.Has(blob, i) {
				out[i]++
			}
		}
	}
	if err := cur.Err(); err != nil {
		return nil, fmt.Errorf("users: count bits: %w", err)
	}
	return out, nil
}
