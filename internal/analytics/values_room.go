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

var projectValue = options.Find().SetProjection(bson.D{{Key: "k", Value: 1}})

// fullFor is how long a process that was told that there is no room does not ask again. Rooms don't become free but by the
// setting, and where several made the same.
const fullFor = time.Minute

// make makes the documents of new values of one sid as far as there is room; the others count under OtherValues. It returns
// those whose _id somebody else took in the meantime, for another value.
func (v *Values) make(ctx context.Context, coll *mongo.Collection, sid string, ws []*wanted, n int) (lost []*wanted, err error) {
	// Two values of one hash in the same chunk: the second one comes to the next _id.
	taken := map[string]bool{}
	var first []*wanted
	for _, w := range ws {
		if id := v.nth(w, n); taken[id] {
			lost = append(lost, w)
		} else {
			taken[id] = true
			first = append(first, w)
		}
	}
	room, err := v.reserve(ctx, coll, sid, int64(len(first)))
	if err != nil {
		return nil, fmt.Errorf("room for %d values of %s: %w", len(first), sid, err)
	}
	other(first[room:])
	if first = first[:room]; room == 0 {
		return lost, nil
	}
	made, err := v.insert(ctx, coll, first, n)
	if err != nil {
		return nil, err
	}
	if made == room {
		for _, w := range first {
			v.remember(w, v.nth(w, n))
		}
		return lost, nil
	}
	if err := v.giveBack(ctx, coll, sid, room-made); err != nil {
		return nil, err
	}
	owner, err := v.owners(ctx, coll, first, n)
	if err != nil {
		return nil, err
	}
	for _, w := range first {
		switch id := v.nth(w, n); {
		case owner[id] == nil:
			return nil, fmt.Errorf("%s is not on a majority of the servers yet: try again", id)
		case owner[id].is(w):
			v.remember(w, id)
		default:
			lost = append(lost, w)
		}
	}
	return lost, nil
}

// insert returns how many of the documents were not there.
func (v *Values) insert(ctx context.Context, coll *mongo.Collection, ws []*wanted, n int) (made int64, err error) {
	docs := make([]any, len(ws))
	for i, w := range ws {
		w.id = v.nth(w, n)
		docs[i] = append(bson.D{{Key: "_id", Value: w.id}, {Key: "v", Value: int32(0)}}, w.fields()...)
		w.id = ""
	}
	_, err = coll.InsertMany(ctx, docs, options.InsertMany().SetOrdered(false))
	if err == nil {
		return int64(len(docs)), nil
	}
	there, ok := duplicates(err)
	if !ok {
		return 0, err
	}
	return int64(len(docs) - there), nil
}

// duplicates counts the documents of a bulk that were there already; false where something else was wrong, too.
func duplicates(err error) (int, bool) {
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) || !onlyDuplicates(err) {
		return 0, false
	}
	return len(bulk.WriteErrors), true
}

// reserve takes room for up to n values of a sid, and returns how much it got. What is taken stands in one document of the
// collection, so that all processes together keep to the limit. A process that dies between this and making the documents
// leaves the room taken: as much as a chunk has new values, and the month after begins anew.
func (v *Values) reserve(ctx context.Context, coll *mongo.Collection, sid string, n int64) (int64, error) {
	key, now := docKey{coll.Name(), sid}, v.clock.Now()
	if v.isFull(key, now) {
		return 0, nil
	}
	// The document is made before it is counted in: where two processes make it at once by a find-and-modify, one server answers
	// the loser with nothing, though it has counted.
	for made := false; ; made = true {
		var after struct {
			N int64 `bson:"n"`
		}
		err := coll.FindOneAndUpdate(ctx,
			bson.D{{Key: "_id", Value: sid}, {Key: "n", Value: bson.D{{Key: "$lt", Value: v.limit}}}},
			bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: n}}}},
			options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&after)
		switch {
		case err == nil:
			room := min(n, max(0, n-(after.N-v.limit)))
			if room < n {
				err = v.giveBack(ctx, coll, sid, n-room)
			}
			return room, err
		case !errors.Is(err, mongo.ErrNoDocuments):
			return 0, err
		case made: // it is there, and full
			v.mu.Lock()
			v.full[key] = now.Add(fullFor)
			v.mu.Unlock()
			return 0, nil
		}
		if err := makeRoom(ctx, coll, sid); err != nil {
			return 0, err
		}
	}
}

// makeRoom makes the document that holds how much room of a sid is taken, unless it is there.
func makeRoom(ctx context.Context, coll *mongo.Collection, sid string) error {
	_, err := coll.UpdateOne(ctx, bson.D{{Key: "_id", Value: sid}}, bson.D{{Key: "$setOnInsert", Value: bson.D{{Key: "n", Value: int64(0)}}}}, options.UpdateOne().SetUpsert(true))
	if mongo.IsDuplicateKeyError(err) {
		return nil
	}
	return err
}

func (v *Values) isFull(key docKey, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	until, ok := v.full[key]
	if ok && !now.Before(until) {
		delete(v.full, key)
		ok = false
	}
	return ok
}

// giveBack returns room that was not needed: there was less than asked for, or others have made the same documents.
func (v *Values) giveBack(ctx context.Context, coll *mongo.Collection, sid string, n int64) error {
	_, err := coll.UpdateOne(ctx, bson.D{{Key: "_id", Value: sid}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: -n}}}})
	return err
}

// ensureIndex makes the index of a month's collection, once in a process.
func (v *Values) ensureIndex(ctx context.Context, coll *mongo.Collection) error {
	v.mu.Lock()
	there := v.indexed[coll.Name()]
	v.mu.Unlock()
	if there {
		return nil
	}
	if _, err := coll.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: topIndexKeys, Options: options.Index().SetName("top")}); err != nil {
		return fmt.Errorf("index of %s for reading: %w", coll.Name(), err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.indexed[coll.Name()] = true
	return nil
}
