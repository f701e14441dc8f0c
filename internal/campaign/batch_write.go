package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// clone is the batch with a state of its own; the ids and a stored delta are shared.
func (b *Batch) clone() *Batch {
	n := *b
	n.log = slices.Clone(b.log)
	n.claims = maps.Clone(b.claims)
	n.replies = maps.Clone(b.replies)
	n.Counts.Skipped = maps.Clone(b.Counts.Skipped)
	return &n
}

// record applies results. An outcome is final: a second one is not taken.
func (b *Batch) record(results []Result, now time.Time) {
	at := uint32(now.Unix())
	for _, r := range results {
		e := &b.log[r.Index]
		if e.outcome != Waiting {
			continue
		}
		e.setZone(r.UnknownZone)
		if r.Reply != "" {
			b.replies[r.Index] = cutReply(r.Reply)
		}
		if r.Claim != nil {
			b.claims[r.Index] = HeldClaim{LastAt: r.Claim.LastAt, Before: r.Claim.Before}
		}
		if r.Outcome == Waiting {
			switch {
			case r.Tried:
				e.tries = min(e.tries, 254) + 1
				e.at, e.flags = at, e.flags&^flagDeferred
			case !r.Until.IsZero():
				e.at, e.flags = uint32(r.Until.Add(time.Second-1).Unix()), e.flags|flagDeferred
			}
			continue
		}
		e.outcome, e.at, e.flags = r.Outcome, at, e.flags&^flagDeferred
		c, claimed := b.claims[r.Index]
		switch {
		case r.Outcome == Sent || r.Outcome == Unconfirmed:
			delete(b.claims, r.Index)
		case claimed:
			c.Back = true
			b.claims[r.Index] = c
		}
		if r.Reply == "" && !r.Outcome.Failed() {
			delete(b.replies, r.Index)
		}
	}
}

// count adds a delta to the counts of the batch and marks its users as counted.
func (b *Batch) count(d *Delta) {
	b.Counts.Audience = int64(len(b.Users))
	for _, r := range d.Rows {
		b.Counts.add(r.Outcome, int64(r.N))
	}
	for i := range b.log {
		e := &b.log[i]
		if e.outcome != Waiting && e.flags&flagCounted == 0 {
			e.flags |= flagCounted
			if e.flags&flagUnknownZone != 0 {
				b.Counts.UnknownZone++
			}
		}
	}
}

// write brings the document from the state o knows to next. The filter holds the epoch, which shuts out whoever lost the batch,
// and the number of writes, which shuts out a write that was issued twice or comes late: that implies the model's conditions
// on the number of waves and on the wave being open.
func (o *Owned) write(ctx context.Context, next *Batch, set, unset bson.D) error {
	next.Rev = o.Rev + 1
	set, unset = o.changes(next, set, unset)
	update := bson.D{{Key: "$set", Value: set}}
	if len(unset) > 0 {
		update = append(update, bson.E{Key: "$unset", Value: unset})
	}
	var matched int64
	err := answered(ctx, func(ctx context.Context) error {
		res, err := o.coll.UpdateOne(ctx, bson.D{{Key: "_id", Value: o.id}, {Key: "epoch", Value: o.Epoch}, {Key: "rev", Value: o.Rev}}, update)
		if err == nil {
			matched = res.MatchedCount
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("campaign: write batch %s: %w", o.id, err)
	}
	if matched == 0 {
		if err := o.wasWritten(ctx, next.Rev); err != nil {
			return err
		}
	}
	o.Batch = next
	return nil
}

// wasWritten tells, after a write found nothing to match, whether that was because an earlier issue of the same write had been
// applied, its reply lost.
func (o *Owned) wasWritten(ctx context.Context, rev int64) error {
	var doc struct {
		Epoch int64 `bson:"epoch"`
		Rev   int64 `bson:"rev"`
	}
	err := answered(ctx, func(ctx context.Context) error {
		return o.coll.FindOne(ctx, bson.D{{Key: "_id", Value: o.id}}, options.FindOne().SetProjection(project("epoch", "rev"))).Decode(&doc)
	})
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return fmt.Errorf("campaign: read batch %s: %w", o.id, err)
	}
	if err == nil && doc.Epoch == o.Epoch && doc.Rev == rev {
		return nil
	}
	o.mu.Lock()
	o.lost = true
	o.mu.Unlock()
	return fmt.Errorf("batch %s: %w", o.id, ErrLostOwnership)
}

// changes lists the fields in which next differs.
func (o *Owned) changes(next *Batch, set, unset bson.D) (bson.D, bson.D) {
	b := o.Batch
	set = append(set, bson.E{Key: "rev", Value: next.Rev})
	binary := func(key string, before, after []byte) {
		switch {
		case slices.Equal(before, after):
		case len(after) == 0:
			unset = append(unset, bson.E{Key: key, Value: ""})
		default:
			set = append(set, bson.E{Key: key, Value: bson.Binary{Data: after}})
		}
	}
	if !slices.Equal(b.log, next.log) {
		set = append(set, bson.E{Key: "log", Value: bson.Binary{Data: encodeLog(next.log)}})
	}
	if next.Waves != b.Waves {
		set = append(set, bson.E{Key: "waves", Value: next.Waves})
	}
	binary("open", encodeIndexes(b.Open), encodeIndexes(next.Open))
	binary("claims", encodeClaims(b.claims, len(b.Users)), encodeClaims(next.claims, len(b.Users)))
	if len(b.replies)+len(next.replies) == 0 {
		return set, unset
	}
	for i := range b.Users {
		before, had := b.replies[i]
		after, has := next.replies[i]
		key := "replies." + strconv.Itoa(i)
		switch {
		case has && (!had || before != after):
			set = append(set, bson.E{Key: key, Value: after})
		case had && !has:
			unset = append(unset, bson.E{Key: key, Value: ""})
		}
	}
	return set, unset
}
