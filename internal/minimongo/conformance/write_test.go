package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"
)

func TestBulk(t *testing.T) {
	db := testDB(t)
	ctx := context.Background()
	models := func() []mongo.WriteModel {
		return []mongo.WriteModel{
			mongo.NewInsertOneModel().SetDocument(doc(`{"_id":10,"u":1}`)),
			mongo.NewInsertOneModel().SetDocument(doc(`{"_id":11,"u":1}`)), // duplicate
			mongo.NewInsertOneModel().SetDocument(doc(`{"_id":12,"u":3}`)),
			mongo.NewUpdateOneModel().SetFilter(doc(`{"_id":10}`)).SetUpdate(doc(`{"$set":{"_id":5}}`)), // immutable
			mongo.NewUpdateOneModel().SetFilter(doc(`{"_id":12}`)).SetUpdate(doc(`{"$set":{"z":1}}`)),
			mongo.NewUpdateOneModel().SetFilter(doc(`{"_id":20}`)).SetUpdate(doc(`{"$set":{"u":20}}`)).SetUpsert(true),
			mongo.NewDeleteOneModel().SetFilter(doc(`{"_id":0}`)),
		}
	}
	for _, tt := range []struct {
		name    string
		ordered bool
		errors  []string
		left    []int
	}{
		{"ordered bulk ends with its first error", true, []string{"1:11000"}, []int{0, 10}},
		{"unordered bulk does all it can", false, []string{"1:11000", "3:66"}, []int{10, 12, 20}},
	} {
		check(t, db, tt.name, nil, func(c *mongo.Collection) error {
			if err := load(c, `{"u":0}`); err != nil {
				return err
			}
			if _, err := c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: doc(`{"u":1}`), Options: options.Index().SetUnique(true)}); err != nil {
				return err
			}
			res, err := c.BulkWrite(ctx, models(), options.BulkWrite().SetOrdered(tt.ordered))
			var be mongo.BulkWriteException
			if !errors.As(err, &be) {
				return fmt.Errorf("no bulk error: %w", orNil(err))
			}
			var got []string
			for _, e := range be.WriteErrors {
				got = append(got, fmt.Sprintf("%d:%d", e.Index, e.Code))
			}
			if !slices.Equal(got, tt.errors) {
				return fmt.Errorf("errors %v, want %v", got, tt.errors)
			}
			if !tt.ordered && (res.InsertedCount != 2 || res.ModifiedCount != 1 || res.UpsertedCount != 1 || res.DeletedCount != 1 || res.UpsertedIDs[5] != int32(20)) {
				return fmt.Errorf("result %+v", res)
			}
			return findIDs(c, bson.D{}, tt.left, 0)
		})
	}
	check(t, db, "ten thousand inserts in one bulk", nil, func(c *mongo.Collection) error {
		if err := load(c, numbers(10_000)...); err != nil {
			return err
		}
		n, err := c.CountDocuments(ctx, bson.D{})
		if n != 10_000 {
			return fmt.Errorf("%d documents", n)
		}
		return err
	})
	check(t, db, "upserted ids keep their index", nil, func(c *mongo.Collection) error {
		var models []mongo.WriteModel
		for i := range 5 {
			models = append(models, mongo.NewUpdateOneModel().SetFilter(bson.M{"_id": i % 3}).SetUpdate(bson.M{"$inc": bson.M{"n": 1}}).SetUpsert(true))
		}
		res, err := c.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
		if err != nil {
			return err
		}
		if len(res.UpsertedIDs) != 3 || res.UpsertedIDs[2] != int32(2) || res.MatchedCount != 2 || res.ModifiedCount != 2 {
			return fmt.Errorf("result %+v", res)
		}
		return nil
	})
	check(t, db, "an _id is made where there is none", nil, func(c *mongo.Collection) error {
		err := c.Database().RunCommand(ctx, bson.D{{Key: "insert", Value: c.Name()}, {Key: "documents", Value: bson.A{bson.M{"a": 1}}}}).Err()
		if err != nil {
			return err
		}
		docs, err := all(c)
		if err != nil {
			return err
		}
		if first, err := docs[0].IndexErr(0); err != nil || first.Key() != "_id" || first.Value().Type != bson.TypeObjectID {
			return fmt.Errorf("got %s", docs[0])
		}
		return nil
	})
}

func TestFindAndModify(t *testing.T) {
	db := testDB(t)
	tests := []struct {
		name, command string
		value         string // empty: null
		last          string
		code          int
		after         string // the document 0
		differs       differs
	}{
		{name: "old", command: `{"query":{"_id":0},"update":{"$inc":{"n":1}}}`, value: `{"_id":0,"n":1,"m":"x"}`, last: `{"n":1,"updatedExisting":true}`, after: `{"_id":0,"n":2,"m":"x"}`},
		{name: "new", command: `{"query":{"_id":0},"update":{"$inc":{"n":1}},"new":true}`, value: `{"_id":0,"n":2,"m":"x"}`, last: `{"n":1,"updatedExisting":true}`, after: `{"_id":0,"n":2,"m":"x"}`},
		{name: "new without a change", command: `{"query":{"_id":0},"update":{"$set":{"n":1}},"new":true}`, value: `{"_id":0,"n":1,"m":"x"}`, last: `{"n":1,"updatedExisting":true}`},
		{name: "fields", command: `{"query":{"_id":0},"update":{"$inc":{"n":1}},"new":true,"fields":{"n":1,"_id":0}}`, value: `{"n":2}`, last: `{"n":1,"updatedExisting":true}`, after: `{"_id":0,"n":2,"m":"x"}`},
		{name: "nothing found", command: `{"query":{"_id":9},"update":{"$inc":{"n":1}}}`, last: `{"n":0,"updatedExisting":false}`},
		{name: "compare and set that loses", command: `{"query":{"_id":0,"n":7},"update":{"$inc":{"n":1}},"new":true}`, last: `{"n":0,"updatedExisting":false}`},
		{name: "upsert old", command: `{"query":{"_id":9},"update":{"$inc":{"n":1}},"upsert":true}`, last: `{"n":1,"updatedExisting":false,"upserted":9}`},
		{name: "upsert new", command: `{"query":{"_id":9},"update":{"$inc":{"n":1}},"upsert":true,"new":true}`, value: `{"_id":9,"n":1}`, last: `{"n":1,"updatedExisting":false,"upserted":9}`},
		{name: "sort", command: `{"query":{},"update":{"$set":{"hit":true}},"sort":{"n":-1},"new":true}`, value: `{"_id":1,"n":5,"hit":true}`, last: `{"n":1,"updatedExisting":true}`},
		{name: "remove", command: `{"query":{"_id":1},"remove":true}`, value: `{"_id":1,"n":5}`, last: `{"n":1}`},
		{name: "remove nothing", command: `{"query":{"_id":9},"remove":true}`, last: `{"n":0}`},
		{name: "replace", command: `{"query":{"_id":0},"update":{"r":1},"new":true}`, value: `{"_id":0,"r":1}`, last: `{"n":1,"updatedExisting":true}`, after: `{"_id":0,"r":1}`},
		{name: "error", command: `{"query":{"_id":0},"update":{"$inc":{"m":1}}}`, code: 14},
		{name: "neither update nor remove", command: `{"query":{"_id":0}}`, code: 9},
		{name: "both", command: `{"query":{"_id":0},"update":{"a":1},"remove":true}`, code: 9},
	}
	for _, tt := range tests {
		check(t, db, tt.name, tt.differs, func(c *mongo.Collection) error {
			if err := load(c, `{"n":1,"m":"x"}`, `{"n":5}`); err != nil {
				return err
			}
			raw, err := c.Database().RunCommand(context.Background(), append(bson.D{{Key: "findAndModify", Value: c.Name()}}, doc(tt.command)...)).Raw()
			if tt.code != 0 || err != nil {
				return wantCode(err, tt.code, "")
			}
			if err := same(raw.Lookup("lastErrorObject").Document(), tt.last); err != nil {
				return fmt.Errorf("lastErrorObject: %w", err)
			}
			value, ok := raw.Lookup("value").DocumentOK()
			if ok != (tt.value != "") {
				return fmt.Errorf("value %s", raw.Lookup("value"))
			}
			if ok {
				if err := same(value, tt.value); err != nil {
					return fmt.Errorf("value: %w", err)
				}
			}
			if tt.after == "" {
				tt.after = `{"_id":0,"n":1,"m":"x"}`
			}
			docs, err := all(c)
			if err != nil {
				return err
			}
			return same(docs[0], tt.after)
		})
	}
}

func TestConcurrency(t *testing.T) {
	db := testDB(t)
	ctx := context.Background()
	check(t, db, "640 increments with upsert on one key", nil, func(c *mongo.Collection) error {
		var g errgroup.Group
		for range 32 {
			g.Go(func() error {
				for range 20 {
					for {
						_, err := c.UpdateOne(ctx, bson.M{"_id": "k"}, bson.M{"$inc": bson.M{"n": 1}}, options.UpdateOne().SetUpsert(true))
						if mongo.IsDuplicateKeyError(err) {
							continue // two upserts met: MongoDB lets the client try again
						}
						if err != nil {
							return err
						}
						break
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		docs, err := all(c)
		if err != nil {
			return err
		}
		return same(docs[0], `{"_id":"k","n":640}`)
	})
	check(t, db, "one winner of a compare-and-set on a binary", nil, func(c *mongo.Collection) error {
		old, set := bson.Binary{Data: []byte{0x81, 0x80}}, bson.Binary{Data: []byte{0xc1, 0x80}}
		for round := range 20 {
			if _, err := c.InsertOne(ctx, bson.M{"_id": round, "blob": old}); err != nil {
				return err
			}
			var g errgroup.Group
			var mu sync.Mutex
			won := 0
			for range 16 {
				g.Go(func() error {
					res, err := c.UpdateOne(ctx, bson.M{"_id": round, "blob": old}, bson.M{"$set": bson.M{"blob": set}})
					if err == nil && res.ModifiedCount == 1 {
						mu.Lock()
						won++
						mu.Unlock()
					}
					return err
				})
			}
			if err := g.Wait(); err != nil {
				return err
			}
			if won != 1 {
				return fmt.Errorf("%d winners", won)
			}
		}
		return nil
	})
	check(t, db, "one of many inserts of a unique value", nil, func(c *mongo.Collection) error {
		if _, err := c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.M{"ids": 1}, Options: options.Index().SetUnique(true)}); err != nil {
			return err
		}
		var g errgroup.Group
		for i := range 16 {
			g.Go(func() error {
				_, err := c.InsertOne(ctx, bson.M{"_id": i, "ids": bson.A{fmt.Sprint("own", i), "shared"}})
				if mongo.IsDuplicateKeyError(err) {
					return nil
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		n, err := c.CountDocuments(ctx, bson.M{"ids": "shared"})
		if n != 1 {
			return fmt.Errorf("%d documents", n)
		}
		return err
	})
	check(t, db, "a counter is counted once per number", nil, func(c *mongo.Collection) error {
		// The update of the analytics model: whoever comes again with the same number finds it done.
		var g errgroup.Group
		for range 8 {
			g.Go(func() error {
				for n := 1; n <= 10; n++ {
					for {
						_, err := c.UpdateOne(ctx,
							bson.D{{Key: "_id", Value: "20261201/all.hits"}, {Key: "w.a", Value: bson.M{"$not": bson.M{"$gte": n}}}},
							bson.D{{Key: "$inc", Value: bson.M{"daily": 1}}, {Key: "$set", Value: bson.M{"w.a": n}}}, options.UpdateOne().SetUpsert(true))
						if mongo.IsDuplicateKeyError(err) {
							done, err := c.CountDocuments(ctx, bson.M{"_id": "20261201/all.hits", "w.a": bson.M{"$gte": n}})
							if err != nil {
								return err
							}
							if done == 0 {
								continue
							}
						} else if err != nil {
							return err
						}
						break
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		docs, err := all(c)
		if err != nil {
			return err
		}
		return same(docs[0], `{"_id":"20261201/all.hits","daily":10,"w":{"a":10}}`)
	})
}

func TestCommands(t *testing.T) {
	db := testDB(t)
	ctx := context.Background()
	for _, tt := range []struct {
		name, command string
		code          int
		differs       differs
	}{
		{name: "unknown command", command: `{"fooBar":1}`, code: 59},
		{name: "unknown field", command: `{"find":"c","fooBar":1}`, code: 40415, differs: differs{secantus: "passes over fields that it does not know"}},
		{name: "unknown field of an update", command: `{"update":"c","updates":[{"q":{},"u":{},"fooBar":1}]}`, code: 40415},
		{name: "no updates", command: `{"update":"c"}`, code: 40414, differs: differs{secantus: "takes an update without updates"}},
		{name: "getMore of no cursor", command: `{"getMore":{"$numberLong":"12345"},"collection":"c"}`, code: 43},
		{name: "no filter of an object", command: `{"find":"c","filter":1}`, code: 14},
		{name: "create again, as of MongoDB 7 no error", command: `{"create":"exists"}`},
		{name: "ping", command: `{"ping":1}`},
		{name: "drop of nothing", command: `{"drop":"nothing"}`},
		{name: "bad collection name", command: `{"insert":"","documents":[{}]}`, code: 73},
	} {
		check(t, db, tt.name, tt.differs, func(c *mongo.Collection) error {
			if tt.command == `{"create":"exists"}` {
				if err := db.CreateCollection(ctx, "exists"); err != nil {
					return err
				}
			}
			return wantCode(db.RunCommand(ctx, doc(tt.command)).Err(), tt.code, "")
		})
	}
	check(t, db, "collections are listed", nil, func(c *mongo.Collection) error {
		for _, name := range []string{"batches.2026.11", "batches.2026.12", "runs"} {
			if _, err := db.Collection(name).InsertOne(ctx, bson.M{}); err != nil {
				return err
			}
		}
		names, err := db.ListCollectionNames(ctx, bson.M{"name": bson.M{"$regex": `^batches\.`}})
		if err != nil {
			return err
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{"batches.2026.11", "batches.2026.12"}) {
			return fmt.Errorf("got %v", names)
		}
		if err := db.Collection("batches.2026.11").Drop(ctx); err != nil {
			return err
		}
		names, err = db.ListCollectionNames(ctx, bson.M{"name": bson.M{"$regex": `^batches\.`}})
		if !slices.Equal(names, []string{"batches.2026.12"}) {
			return fmt.Errorf("after a drop: %v", names)
		}
		return err
	})
	check(t, db, "a database is listed and dropped", nil, func(c *mongo.Collection) error {
		if err := load(c, `{}`); err != nil {
			return err
		}
		other := db.Client().Database(db.Name() + "_b")
		if _, err := other.Collection("x").InsertOne(ctx, bson.M{}); err != nil {
			return err
		}
		names, err := db.Client().ListDatabaseNames(ctx, bson.D{})
		if err != nil {
			return err
		}
		if !slices.Contains(names, db.Name()) || !slices.Contains(names, other.Name()) {
			return fmt.Errorf("databases %v", names)
		}
		if err := other.Drop(ctx); err != nil {
			return err
		}
		names, err = db.Client().ListDatabaseNames(ctx, bson.D{})
		if slices.Contains(names, other.Name()) || !slices.Contains(names, db.Name()) {
			return fmt.Errorf("databases after a drop %v", names)
		}
		return err
	})
	check(t, db, "write concern majority, journaled", nil, func(c *mongo.Collection) error {
		err := db.RunCommand(ctx, doc(`{"insert":"wc","documents":[{"a":1}],"writeConcern":{"w":"majority","j":true}}`)).Err()
		if err != nil {
			return err
		}
		return db.RunCommand(ctx, doc(`{"find":"wc","readConcern":{"level":"majority"}}`)).Err()
	})
	check(t, db, "hello", nil, func(c *mongo.Collection) error {
		raw, err := db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Raw()
		if err != nil {
			return err
		}
		if _, ok := raw.Lookup("localTime").DateTimeOK(); !ok || !raw.Lookup("isWritablePrimary").Boolean() || raw.Lookup("maxWireVersion").AsInt64() < 9 {
			return fmt.Errorf("%s", raw)
		}
		return nil
	})
}
