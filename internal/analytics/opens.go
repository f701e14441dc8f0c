package analytics

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The two kinds of first opens. A scanner that comes first does not take a person's first open away.
const (
	Person  = "person"
	Machine = "machine"
)

// OpensCollection is where the first opens of the runs of a month are kept: "opens.2026.12".
func OpensCollection(month string) string { return "opens." + month }

// Month names the month of an instant, by UTC, as collections do: "2026.12".
func Month(at time.Time) string { return at.UTC().Format(monthLayout) }

// OpenKey is a hit that may be the first of its kind of a user in a run.
type OpenKey struct {
	Run   string // the run's _id
	Month string // of the run's slot, see Month
	User  bson.RawValue
	Kind  string // Person or Machine
	Hit   string // the hit's id, unique among all hits
	At    time.Time
}

// Opens keeps the first opens.
type Opens struct{ db *mongo.Database }

// NewOpens returns the first opens in db.
func NewOpens(db *mongo.Database) *Opens { return &Opens{db} }

type open struct {
	ID  string `bson:"_id"`
	Hit string `bson:"hit"`
}

// First records the hits, and tells for each whether it is the first: whether the document bears its id, now or since an
// earlier call with it. So the answer to a hit stays the same, however often it is asked and whatever went wrong between.
func (o *Opens) First(ctx context.Context, keys []OpenKey) ([]bool, error) {
	first := make([]bool, len(keys))
	byMonth := map[string][]int{}
	for i, k := range keys {
		byMonth[k.Month] = append(byMonth[k.Month], i)
	}
	for month, indexes := range byMonth {
		hits, err := o.firstHits(ctx, month, keys, indexes)
		if err != nil {
			return nil, fmt.Errorf("first opens of %s: %w", month, err)
		}
		for _, i := range indexes {
			if id := keys[i].id(); hits[id] == keys[i].Hit {
				first[i] = true
				delete(hits, id) // the same hit twice in one list is one hit
			}
		}
	}
	return first, nil
}

// id is the _id of the document: "run/kind/07:6b0d…", the user as the number of his id's BSON type and its bytes, both in hex. It is
// text and no document of three fields, since not every server of the protocol finds such a one by its index.
func (k *OpenKey) id() string {
	return fmt.Sprintf("%s/%s/%02x:%x", k.Run, k.Kind, byte(k.User.Type), k.User.Value)
}

// firstHits returns the hit that stands in the document of each of the keys, by the document's _id.
func (o *Opens) firstHits(ctx context.Context, month string, keys []OpenKey, indexes []int) (map[string]string, error) {
	coll := durable(o.db, OpensCollection(month))
	hits := make(map[string]string, len(indexes))
	var (
		models []mongo.WriteModel
		ids    []string
		made   = map[string]string{}
	)
	for _, i := range indexes {
		k := &keys[i]
		id := k.id()
		if _, again := made[id]; again {
			continue // the earlier one of this list is put up for the first
		}
		made[id] = k.Hit
		ids = append(ids, id)
		models = append(models, mongo.NewUpdateOneModel().SetUpsert(true).
			SetFilter(bson.D{{Key: "_id", Value: id}}).
			SetUpdate(bson.D{{Key: "$setOnInsert", Value: bson.D{{Key: "u", Value: k.User}, {Key: "hit", Value: k.Hit}, {Key: "at", Value: k.At.UTC().Truncate(time.Millisecond)}}}}))
	}
	res, err := coll.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	if err != nil && !onlyDuplicates(err) {
		return nil, err
	}
	var look []string
	for i, id := range ids {
		if _, inserted := res.UpsertedIDs[int64(i)]; inserted && err == nil {
			hits[id] = made[id]
			continue
		}
		look = append(look, id)
	}
	if err := readHits(ctx, coll, look, hits); err != nil {
		return nil, err
	}
	for _, id := range ids {
		if _, known := hits[id]; !known {
			return nil, fmt.Errorf("a first open is not on a majority of the servers yet: try again")
		}
	}
	return hits, nil
}

func readHits(ctx context.Context, coll *mongo.Collection, ids []string, hits map[string]string) error {
	const portion = 500
	for ; len(ids) > 0; ids = ids[min(portion, len(ids)):] {
		cur, err := coll.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids[:min(portion, len(ids))]}}}})
		if err != nil {
			return err
		}
		var found []open
		if err := cur.All(ctx, &found); err != nil {
			return err
		}
		for _, f := range found {
			hits[f.ID] = f.Hit
		}
	}
	return nil
}

// onlyDuplicates says that the only thing wrong with a bulk of upserts was that somebody else made the same documents at
// the same moment.
func onlyDuplicates(err error) bool {
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) || bulk.WriteConcernError != nil {
		return false
	}
	for _, we := range bulk.WriteErrors {
		if we.Code != 11000 {
			return false
		}
	}
	return true
}
