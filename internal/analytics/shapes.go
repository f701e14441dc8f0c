package analytics

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// maxKnown bounds the memory of documents that are there; past it, it starts over.
const maxKnown = 50_000

// shapes makes the documents of days in their full shape before they are counted in for the first time, so that a document
// nobody foresaw is the same as one that was preallocated. It remembers which are there.
type shapes struct {
	mu    sync.Mutex
	known map[docKey]bool
}

// ensure makes those of docs that belong to days and are not there. It changes no count, so nothing depends on who does
// it, how often, or when.
func (s *shapes) ensure(ctx context.Context, db *mongo.Database, docs []stored) error {
	unknown := map[string][]stored{}
	for _, st := range docs {
		if strings.HasPrefix(st.Collection, daysPrefix) && !s.knows(docKey{st.Collection, st.ID}) {
			unknown[st.Collection] = append(unknown[st.Collection], st)
		}
	}
	for collection, docs := range unknown {
		if _, err := s.make(ctx, db.Collection(collection), docs); err != nil {
			return err
		}
	}
	return nil
}

// make returns how many of docs (all of coll) were not there and have been made.
func (s *shapes) make(ctx context.Context, coll *mongo.Collection, docs []stored) (int, error) {
	ids := make([]string, len(docs))
	for i, st := range docs {
		ids[i] = st.ID
	}
	there, err := existing(ctx, coll, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
	if err != nil {
		return 0, fmt.Errorf("look for %d documents in %s: %w", len(docs), coll.Name(), err)
	}
	made := 0
	const portion = 100 // 1.2 MB of updates
	var models []mongo.WriteModel
	flush := func() error {
		if len(models) == 0 {
			return nil
		}
		res, err := coll.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
		if res != nil {
			made += int(res.UpsertedCount)
		}
		models = models[:0]
		if err != nil && !onlyObjections(err) {
			return fmt.Errorf("make documents in %s: %w", coll.Name(), err)
		}
		return nil
	}
	for _, st := range docs {
		if there[st.ID] {
			continue
		}
		models = append(models, mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: st.ID}}).SetUpdate(makeDay(st.OnInsert)).SetUpsert(true))
		if len(models) == portion {
			if err := flush(); err != nil {
				return made, err
			}
		}
	}
	if err := flush(); err != nil {
		return made, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known)+len(docs) > maxKnown {
		clear(s.known)
	}
	for _, st := range docs {
		s.known[docKey{coll.Name(), st.ID}] = true
	}
	return made, nil
}

func (s *shapes) knows(key docKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[key]
}

// onlyObjections says that every error of a bulk is about a document that is there already (two made it at once), or that
// can never have the shape; the increment itself will tell.
func onlyObjections(err error) bool {
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) || bulk.WriteConcernError != nil {
		return false
	}
	for _, we := range bulk.WriteErrors {
		if !final(we.Code) && we.Code != 11000 {
			return false
		}
	}
	return true
}

// existing returns the ids of the documents that match.
func existing(ctx context.Context, coll *mongo.Collection, filter bson.D) (map[string]bool, error) {
	cur, err := coll.Find(ctx, filter, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for cur.Next(ctx) {
		if id, ok := cur.Current.Lookup("_id").StringValueOK(); ok {
			ids[id] = true
		}
	}
	return ids, errors.Join(cur.Err(), cur.Close(context.WithoutCancel(ctx)))
}
