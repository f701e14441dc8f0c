package conformance

import (
	"context"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func TestUpdate(t *testing.T) {
	db := testDB(t)
	tests := []struct {
		name     string
		before   string
		filter   string // default {"_id": 0}
		update   string
		upsert   bool
		want     string // the document afterwards; default: as before
		noop     bool   // matched, but not modified
		code     int
		fragment string // of the message
		differs  differs
	}{
		// $set, $unset
		{name: "set", before: `{"a":1}`, update: `{"$set":{"a":2,"b":"x"}}`, want: `{"_id":0,"a":2,"b":"x"}`},
		{name: "set appends in the order of names", before: `{}`, update: `{"$set":{"b":1,"a":2,"10":1,"9":2}}`, want: `{"_id":0,"9":2,"10":1,"a":2,"b":1}`, differs: differs{secantus: "applies modifiers in the order they are written, not of names"}},
		{name: "set the same is no modification", before: `{"a":1}`, update: `{"$set":{"a":1}}`, noop: true},
		{name: "set another numeric type is one", before: `{"a":1}`, update: `{"$set":{"a":{"$numberLong":"1"}}}`, want: `{"_id":0,"a":{"$numberLong":"1"}}`},
		{name: "set makes documents on the way", before: `{}`, update: `{"$set":{"a.b.c":1}}`, want: `{"_id":0,"a":{"b":{"c":1}}}`},
		{name: "set keeps the place of a field", before: `{"a":1,"b":2}`, update: `{"$set":{"a":{"x":1}}}`, want: `{"_id":0,"a":{"x":1},"b":2}`},
		{name: "set under null", before: `{"a":null}`, update: `{"$set":{"a.x":1}}`, code: 28, fragment: "Cannot create field 'x' in element {a: null}"},
		{name: "set under a string", before: `{"a":{"b":"s"}}`, update: `{"$set":{"a.b.x":1}}`, code: 28, fragment: `Cannot create field 'x' in element {b: "s"}`},
		{name: "set a name in an array", before: `{"a":[1]}`, update: `{"$set":{"a.x":1}}`, code: 28, fragment: "Cannot create field 'x' in element {a: [ 1 ]}"},
		{name: "set a position", before: `{"waves":[{"done":false},{"done":false}]}`, update: `{"$set":{"waves.1.done":true}}`, want: `{"_id":0,"waves":[{"done":false},{"done":true}]}`},
		{name: "set a position behind the end pads with null", before: `{"a":[1]}`, update: `{"$set":{"a.3":2}}`, want: `{"_id":0,"a":[1,null,null,2]}`},
		{name: "set under a position behind the end", before: `{"a":[]}`, update: `{"$set":{"a.1.b":2}}`, want: `{"_id":0,"a":[null,{"b":2}]}`},
		{name: "set far behind the end", before: `{"a":[1]}`, update: `{"$set":{"a.99999999":2}}`, code: 2, differs: differs{secantus: "a position far behind the end of an array is an internal error"}},
		{name: "a position is a name in a document", before: `{"a":{}}`, update: `{"$set":{"a.0":1}}`, want: `{"_id":0,"a":{"0":1}}`},
		{name: "an empty set", before: `{"a":1}`, update: `{"$set":{}}`, noop: true},
		{name: "unset", before: `{"a":1,"b":{"c":1,"d":2}}`, update: `{"$unset":{"a":"","b.c":1}}`, want: `{"_id":0,"b":{"d":2}}`},
		{name: "unset what is not there", before: `{"a":1}`, update: `{"$unset":{"b":"","a.c":"","x.y":""}}`, noop: true},
		{name: "unset a position leaves null", before: `{"a":[1,2]}`, update: `{"$unset":{"a.0":""}}`, want: `{"_id":0,"a":[null,2]}`},

		// $inc
		{name: "inc", before: `{"a":1}`, update: `{"$inc":{"a":2}}`, want: `{"_id":0,"a":3}`},
		{name: "inc a missing field", before: `{}`, update: `{"$inc":{"a.b":2}}`, want: `{"_id":0,"a":{"b":2}}`},
		{name: "inc by 0 makes the field", before: `{}`, update: `{"$inc":{"a":0}}`, want: `{"_id":0,"a":0}`},
		{name: "inc by 0 is no modification", before: `{"a":7}`, update: `{"$inc":{"a":0}}`, noop: true},
		{name: "inc int by long", before: `{"a":1}`, update: `{"$inc":{"a":{"$numberLong":"1"}}}`, want: `{"_id":0,"a":{"$numberLong":"2"}}`},
		{name: "inc long by int", before: `{"a":{"$numberLong":"1"}}`, update: `{"$inc":{"a":1}}`, want: `{"_id":0,"a":{"$numberLong":"2"}}`},
		{name: "inc int by double", before: `{"a":1}`, update: `{"$inc":{"a":0.5}}`, want: `{"_id":0,"a":1.5}`},
		{name: "inc by decimal", before: `{"a":1}`, update: `{"$inc":{"a":{"$numberDecimal":"0.10"}}}`, want: `{"_id":0,"a":{"$numberDecimal":"1.10"}}`},
		{name: "int grows into long", before: `{"a":2147483647}`, update: `{"$inc":{"a":1}}`, want: `{"_id":0,"a":{"$numberLong":"2147483648"}}`},
		{name: "int grows into long downwards", before: `{"a":-2147483648}`, update: `{"$inc":{"a":-1}}`, want: `{"_id":0,"a":{"$numberLong":"-2147483649"}}`},
		{name: "long does not overflow", before: `{"a":{"$numberLong":"9223372036854775807"}}`, update: `{"$inc":{"a":1}}`, code: 2},
		{name: "long does not overflow downwards", before: `{"a":{"$numberLong":"-9223372036854775808"}}`, update: `{"$inc":{"a":-1}}`, code: 2},
		{name: "inc a string", before: `{"a":"1"}`, update: `{"$inc":{"a":1}}`, code: 14, fragment: "non-numeric"},
		{name: "inc null", before: `{"a":null}`, update: `{"$inc":{"a":1}}`, code: 14},
		{name: "inc by a string", before: `{"a":1}`, update: `{"$inc":{"a":"1"}}`, code: 14},
		{name: "inc under null", before: `{"a":null}`, update: `{"$inc":{"a.b":1}}`, code: 28},

		// $min, $max
		{name: "min", before: `{"a":5,"b":5,"c":5}`, update: `{"$min":{"a":3,"b":7,"d":1}}`, want: `{"_id":0,"a":3,"b":5,"c":5,"d":1}`},
		{name: "max", before: `{"a":5,"b":5}`, update: `{"$max":{"a":3,"b":7,"d":1}}`, want: `{"_id":0,"a":5,"b":7,"d":1}`},
		{name: "max of dates", before: `{"a":{"$date":{"$numberLong":"5"}}}`, update: `{"$max":{"a":{"$date":{"$numberLong":"6"}}}}`, want: `{"_id":0,"a":{"$date":{"$numberLong":"6"}}}`},
		{name: "min over types: null is less than a date", before: `{"a":null}`, update: `{"$min":{"a":{"$date":{"$numberLong":"5"}}}}`, noop: true},
		{name: "max over types: a date is more than a string", before: `{"a":"z"}`, update: `{"$max":{"a":{"$date":{"$numberLong":"5"}}}}`, want: `{"_id":0,"a":{"$date":{"$numberLong":"5"}}}`},
		{name: "min of an equal number keeps the type", before: `{"a":1}`, update: `{"$min":{"a":{"$numberLong":"1"}}}`, noop: true},
		{name: "max under a string", before: `{"a":"x"}`, update: `{"$max":{"a.b":1}}`, code: 28},

		// $push
		{name: "push", before: `{"a":[1]}`, update: `{"$push":{"a":2}}`, want: `{"_id":0,"a":[1,2]}`},
		{name: "push makes the array", before: `{}`, update: `{"$push":{"a.b":{"x":1}}}`, want: `{"_id":0,"a":{"b":[{"x":1}]}}`},
		{name: "push an array whole", before: `{"a":[]}`, update: `{"$push":{"a":[1,2]}}`, want: `{"_id":0,"a":[[1,2]]}`},
		{name: "push each", before: `{"a":[1]}`, update: `{"$push":{"a":{"$each":[2,3]}}}`, want: `{"_id":0,"a":[1,2,3]}`},
		{name: "push and keep the last", before: `{"a":[1,2]}`, update: `{"$push":{"a":{"$each":[3],"$slice":-2}}}`, want: `{"_id":0,"a":[2,3]}`},
		{name: "push and keep the first", before: `{"a":[1,2]}`, update: `{"$push":{"a":{"$each":[3],"$slice":2}}}`, noop: true},
		{name: "push and keep none", before: `{"a":[1,2]}`, update: `{"$push":{"a":{"$each":[3],"$slice":0}}}`, want: `{"_id":0,"a":[]}`},
		{name: "push nothing", before: `{"a":[1]}`, update: `{"$push":{"a":{"$each":[]}}}`, noop: true},
		{name: "push onto a number", before: `{"a":1}`, update: `{"$push":{"a":1}}`, code: 2, fragment: "must be an array but is of type int"},
		{name: "push onto null", before: `{"a":null}`, update: `{"$push":{"a":1}}`, code: 2},
		{name: "push each of no array", before: `{}`, update: `{"$push":{"a":{"$each":1}}}`, code: 2},

		// Conflicts and refusals: nothing is changed.
		{name: "the same path twice", before: `{"a":1}`, update: `{"$set":{"a":2},"$inc":{"a":1}}`, code: 40, fragment: "would create a conflict at 'a'"},
		{name: "a path and one below", before: `{"a":{}}`, update: `{"$set":{"a":{}},"$inc":{"a.b":1}}`, code: 40, fragment: "would create a conflict at 'a'"},
		{name: "names with a common beginning do not conflict", before: `{}`, update: `{"$set":{"a":1,"ab":2,"a-b.c":3}}`, want: `{"_id":0,"a":1,"a-b":{"c":3},"ab":2}`, differs: differs{secantus: "applies modifiers in the order they are written, not of names"}},
		{name: "the first modifier is undone by the second one's error", before: `{"a":1,"b":"x"}`, update: `{"$set":{"a":2},"$inc":{"b":1}}`, code: 14},
		{name: "_id cannot be changed", before: `{"a":1}`, update: `{"$set":{"_id":1}}`, code: 66},
		{name: "_id may be set to what it is", before: `{"a":1}`, update: `{"$set":{"_id":0,"a":2}}`, want: `{"_id":0,"a":2}`},
		{name: "_id cannot be unset", before: `{"a":1}`, update: `{"$unset":{"_id":""}}`, code: 66},
		{name: "unknown modifier", before: `{"a":1}`, update: `{"$foo":{"a":1}}`, code: 9, fragment: "$foo"},
		{name: "empty path", before: `{"a":1}`, update: `{"$set":{"":1}}`, code: 56},
		{name: "empty part of a path", before: `{"a":1}`, update: `{"$set":{"a..b":1}}`, code: 56},

		// Upsert
		{name: "upsert", filter: `{"_id":7}`, update: `{"$set":{"a":1}}`, upsert: true, want: `{"_id":7,"a":1}`},
		{name: "upsert takes equalities over", filter: `{"_id":7,"b":2,"c":{"$eq":3},"d":{"$gt":1},"$and":[{"e":5}]}`, update: `{"$set":{"a":1}}`, upsert: true, want: `{"_id":7,"b":2,"c":3,"e":5,"a":1}`},
		{name: "upsert puts _id first", filter: `{"b":2,"_id":7}`, update: `{"$set":{"a":1}}`, upsert: true, want: `{"_id":7,"b":2,"a":1}`},
		{name: "upsert of a dotted equality", filter: `{"_id":7,"a.b":2}`, update: `{"$inc":{"a.c":1}}`, upsert: true, want: `{"_id":7,"a":{"b":2,"c":1}}`},
		{name: "upsert of a document as _id", filter: `{"_id":{"r":"run","u":5,"k":"person"}}`, update: `{"$setOnInsert":{"hit":"h1"}}`, upsert: true, want: `{"_id":{"r":"run","u":5,"k":"person"},"hit":"h1"}`},
		{name: "upsert of a negated condition", filter: `{"_id":"d","w.x":{"$not":{"$gte":4}}}`, update: `{"$inc":{"daily":1},"$set":{"w.x":4}}`, upsert: true, want: `{"_id":"d","daily":1,"w":{"x":4}}`},
		{name: "setOnInsert on insert", filter: `{"_id":7}`, update: `{"$setOnInsert":{"a":1},"$set":{"b":2}}`, upsert: true, want: `{"_id":7,"a":1,"b":2}`},
		{name: "setOnInsert on update", before: `{"a":1}`, update: `{"$setOnInsert":{"a":9,"c":1},"$set":{"b":2}}`, upsert: true, want: `{"_id":0,"a":1,"b":2}`},
		{name: "upsert from setOnInsert's _id", filter: `{"b":1}`, update: `{"$setOnInsert":{"_id":9}}`, upsert: true, want: `{"_id":9,"b":1}`},
		{name: "upsert in conflict with its filter", filter: `{"_id":7}`, update: `{"$set":{"_id":8}}`, upsert: true, code: 66},
		{name: "upsert of a field matched twice", filter: `{"_id":7,"a":1,"$and":[{"a":2}]}`, update: `{"$set":{"b":1}}`, upsert: true, code: 54},
		{name: "upsert of a field and one below it", filter: `{"_id":7,"a":{"b":1},"a.c":1}`, update: `{"$set":{"b":1}}`, upsert: true, code: 54, differs: differs{secantus: "takes a field and one below it from the filter of an upsert"}},
		{name: "upsert of two fields below one", filter: `{"_id":7,"a.b":1,"a.c":2}`, update: `{"$set":{"a.d":3}}`, upsert: true, want: `{"_id":7,"a":{"b":1,"c":2,"d":3}}`},
		{name: "upsert of an $or of one", filter: `{"_id":7,"$or":[{"a":1}]}`, update: `{"$set":{"b":1}}`, upsert: true, want: `{"_id":7,"a":1,"b":1}`},
		{name: "upsert of an $or of two", filter: `{"_id":7,"$or":[{"a":1},{"a":2}]}`, update: `{"$set":{"b":1}}`, upsert: true, want: `{"_id":7,"b":1}`},
		{name: "upsert of modifiers on an equality", filter: `{"_id":7,"n":5}`, update: `{"$inc":{"n":1}}`, upsert: true, want: `{"_id":7,"n":6}`},
		{name: "no upsert where something matches", before: `{"a":1}`, filter: `{"a":1}`, update: `{"$set":{"b":2}}`, upsert: true, want: `{"_id":0,"a":1,"b":2}`},
		{name: "a failed condition on an existing _id is a duplicate", before: `{"w":{"x":4}}`, filter: `{"_id":0,"w.x":{"$not":{"$gte":4}}}`, update: `{"$inc":{"n":1}}`, upsert: true, code: 11000},
		{name: "upsert of an array as _id", filter: `{"_id":{"$eq":[1]}}`, update: `{"$set":{"b":1}}`, upsert: true, code: 53, differs: differs{secantus: "takes an array as _id in an upsert"}},

		// Replacement
		{name: "replace", before: `{"a":1}`, update: `{"b":2}`, want: `{"_id":0,"b":2}`},
		{name: "replace by the same", before: `{"a":1}`, update: `{"a":1}`, noop: true},
		{name: "replace with another _id", before: `{"a":1}`, update: `{"_id":5,"b":2}`, code: 66},
		{name: "replace with its _id", before: `{"a":1}`, update: `{"b":2,"_id":0}`, want: `{"_id":0,"b":2}`},
		{name: "replacement upsert takes only _id from the filter", filter: `{"_id":7,"b":2}`, update: `{"c":3}`, upsert: true, want: `{"_id":7,"c":3}`},
	}
	for _, tt := range tests {
		check(t, db, tt.name, tt.differs, func(c *mongo.Collection) error {
			before := `{"_id":0}`
			if tt.before != "" {
				if err := load(c, tt.before); err != nil {
					return err
				}
				docs, err := all(c)
				if err != nil {
					return err
				}
				before = text(docs[0])
			}
			filter := tt.filter
			if filter == "" {
				filter = `{"_id":0}`
			}
			res, err := runUpdate(c, doc(filter), doc(tt.update), tt.upsert)
			if tt.code != 0 || err != nil {
				if err := wantCode(err, tt.code, tt.fragment); err != nil {
					return err
				}
			} else if tt.before == "" && res.UpsertedCount != 1 || tt.before != "" && (res.MatchedCount != 1 || (res.ModifiedCount == 0) != tt.noop) {
				return fmt.Errorf("matched %d, modified %d, upserted %d", res.MatchedCount, res.ModifiedCount, res.UpsertedCount)
			}
			docs, err := all(c)
			if err != nil {
				return err
			}
			want := tt.want
			if want == "" {
				want = before
			}
			if tt.before == "" && tt.code != 0 {
				if len(docs) != 0 {
					return fmt.Errorf("a failed upsert left %s", text(docs[0]))
				}
				return nil
			}
			if len(docs) != 1 {
				return fmt.Errorf("%d documents", len(docs))
			}
			return same(docs[0], want)
		})
	}
}

// runUpdate goes around the driver, which insists that a replacement is none of modifiers.
func runUpdate(c *mongo.Collection, filter, update bson.D, upsert bool) (*mongo.UpdateResult, error) {
	if len(update) > 0 && update[0].Key[0] == '$' {
		return c.UpdateOne(context.Background(), filter, update, options.UpdateOne().SetUpsert(upsert))
	}
	return c.ReplaceOne(context.Background(), filter, update, options.Replace().SetUpsert(upsert))
}

func TestUpdateMany(t *testing.T) {
	db := testDB(t)
	ctx := context.Background()
	check(t, db, "update many", nil, func(c *mongo.Collection) error {
		if err := load(c, `{"a":1}`, `{"a":2}`, `{"a":3}`); err != nil {
			return err
		}
		res, err := c.UpdateMany(ctx, bson.M{"a": bson.M{"$gte": 2}}, bson.M{"$max": bson.M{"a": 3}})
		if err != nil {
			return err
		}
		if res.MatchedCount != 2 || res.ModifiedCount != 1 {
			return fmt.Errorf("matched %d, modified %d", res.MatchedCount, res.ModifiedCount)
		}
		return nil
	})
	check(t, db, "an update does not meet its own results", nil, func(c *mongo.Collection) error {
		if err := load(c, `{"a":1}`, `{"a":2}`, `{"a":3}`); err != nil {
			return err
		}
		if _, err := c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.M{"a": 1}}); err != nil {
			return err
		}
		res, err := c.UpdateMany(ctx, bson.M{"a": bson.M{"$gte": 1}}, bson.M{"$inc": bson.M{"a": 10}})
		if err != nil {
			return err
		}
		if res.ModifiedCount != 3 {
			return fmt.Errorf("modified %d", res.ModifiedCount)
		}
		return findIDs(c, bson.M{"a": bson.M{"$in": bson.A{11, 12, 13}}}, []int{0, 1, 2}, 0)
	})
	check(t, db, "many replacements are refused", nil, func(c *mongo.Collection) error {
		err := c.Database().RunCommand(ctx, bson.D{{Key: "update", Value: c.Name()}, {Key: "updates", Value: bson.A{
			bson.D{{Key: "q", Value: bson.D{}}, {Key: "u", Value: bson.D{{Key: "a", Value: 1}}}, {Key: "multi", Value: true}}}}}).Err()
		if err == nil {
			return fmt.Errorf("no error")
		}
		return nil
	})
	check(t, db, "delete one and many", nil, func(c *mongo.Collection) error {
		if err := load(c, `{"a":1}`, `{"a":1}`, `{"a":1}`, `{"a":2}`); err != nil {
			return err
		}
		one, err := c.DeleteOne(ctx, bson.M{"a": 1})
		if err != nil {
			return err
		}
		many, err := c.DeleteMany(ctx, bson.M{"a": 1})
		if err != nil {
			return err
		}
		if one.DeletedCount != 1 || many.DeletedCount != 2 {
			return fmt.Errorf("deleted %d and %d", one.DeletedCount, many.DeletedCount)
		}
		return findIDs(c, bson.D{}, []int{3}, 0)
	})
}
