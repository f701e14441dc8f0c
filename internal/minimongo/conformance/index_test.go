package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func TestUnique(t *testing.T) {
	db := testDB(t)
	tests := []struct {
		name    string
		keys    string
		sparse  bool
		docs    []string
		insert  string
		value   string // of the duplicate key; empty: no error
		differs differs
	}{
		{name: "another value", keys: `{"a":1}`, docs: []string{`{"a":1}`}, insert: `{"a":2}`},
		{name: "the same value", keys: `{"a":1}`, docs: []string{`{"a":1}`}, insert: `{"a":1}`, value: `{"a":1}`},
		{name: "the same number of another type", keys: `{"a":1}`, docs: []string{`{"a":1}`}, insert: `{"a":{"$numberDouble":"1"}}`, value: `{"a":{"$numberDouble":"1"}}`},
		{name: "decimal and long", keys: `{"a":1}`, docs: []string{`{"a":{"$numberLong":"10"}}`}, insert: `{"a":{"$numberDecimal":"1.0E1"}}`, value: `{"a":{"$numberDecimal":"1.0E1"}}`},
		{name: "a number and a string", keys: `{"a":1}`, docs: []string{`{"a":1}`}, insert: `{"a":"1"}`},
		{name: "missing counts as null", keys: `{"a":1}`, docs: []string{`{}`}, insert: `{"a":null}`, value: `{"a":null}`},
		{name: "missing twice", keys: `{"a":1}`, docs: []string{`{}`}, insert: `{"b":1}`, value: `{"a":null}`},
		{name: "missing twice in a sparse index", keys: `{"a":1}`, sparse: true, docs: []string{`{}`}, insert: `{"b":1}`},
		{name: "null is in a sparse index", keys: `{"a":1}`, sparse: true, docs: []string{`{"a":null}`}, insert: `{"a":null}`, value: `{"a":null}`},
		{name: "compound, one part differs", keys: `{"a":1,"b":-1}`, docs: []string{`{"a":1,"b":1}`}, insert: `{"a":1,"b":2}`},
		{name: "compound", keys: `{"a":1,"b":-1}`, docs: []string{`{"a":1,"b":1}`}, insert: `{"a":1,"b":1}`, value: `{"a":1,"b":1}`},
		{name: "compound with a missing part", keys: `{"a":1,"b":-1}`, docs: []string{`{"a":1}`}, insert: `{"a":1,"b":null}`, value: `{"a":1,"b":null}`},
		{name: "array element against element", keys: `{"ids":1}`, docs: []string{`{"ids":["x","y"]}`}, insert: `{"ids":["z","y"]}`, value: `{"ids":"y"}`},
		{name: "array element against a plain value", keys: `{"ids":1}`, docs: []string{`{"ids":"y"}`}, insert: `{"ids":["z","y"]}`, value: `{"ids":"y"}`},
		{name: "other elements", keys: `{"ids":1}`, docs: []string{`{"ids":["x","y"]}`}, insert: `{"ids":["z"]}`},
		{name: "the same element twice in one document", keys: `{"ids":1}`, docs: []string{`{"ids":["x"]}`}, insert: `{"ids":["z","z"]}`},
		{name: "empty arrays", keys: `{"ids":1}`, docs: []string{`{"ids":[]}`}, insert: `{"ids":[]}`, value: `{"ids":{"$undefined":true}}`, differs: differs{secantus: "keyValue shows an empty array as such, not as undefined"}},
		{name: "an empty array is not a missing field", keys: `{"ids":1}`, docs: []string{`{"ids":[]}`}, insert: `{}`},
		{name: "dotted into an array", keys: `{"a.b":1}`, docs: []string{`{"a":[{"b":1},{"b":2}]}`}, insert: `{"a":{"b":2}}`, value: `{"a.b":2}`},
		{name: "documents", keys: `{"a":1}`, docs: []string{`{"a":{"x":1,"y":2}}`}, insert: `{"a":{"y":2,"x":1}}`},
		{name: "equal documents", keys: `{"a":1}`, docs: []string{`{"a":{"x":1}}`}, insert: `{"a":{"x":1}}`, value: `{"a":{"x":1}}`},
		{name: "binary", keys: `{"a":1}`, docs: []string{`{"a":{"$binary":{"base64":"gYA=","subType":"00"}}}`}, insert: `{"a":{"$binary":{"base64":"gYA=","subType":"00"}}}`, value: `{"a":{"$binary":{"base64":"gYA=","subType":"00"}}}`},
		{name: "binary of another subtype", keys: `{"a":1}`, docs: []string{`{"a":{"$binary":{"base64":"gYA=","subType":"00"}}}`}, insert: `{"a":{"$binary":{"base64":"gYA=","subType":"80"}}}`, differs: differs{secantus: "indexes leave the subtype of a binary out"}},
		{name: "strings with NUL", keys: `{"a":1,"b":1}`, docs: []string{`{"a":"x\u0000","b":"y"}`}, insert: `{"a":"x","b":"\u0000y"}`},
	}
	for _, tt := range tests {
		check(t, db, tt.name, tt.differs, func(c *mongo.Collection) error {
			ctx := context.Background()
			opts := options.Index().SetUnique(true)
			if tt.sparse {
				opts.SetSparse(true)
			}
			name, err := c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: doc(tt.keys), Options: opts})
			if err != nil {
				return err
			}
			if err := load(c, tt.docs...); err != nil {
				return err
			}
			insert := append(bson.D{{Key: "_id", Value: 99}}, doc(tt.insert)...)
			_, err = c.InsertOne(ctx, insert)
			if err := wantDuplicate(err, c, name, tt.keys, tt.value); err != nil {
				return fmt.Errorf("insert: %w", err)
			}
			if tt.value == "" {
				return nil
			}
			// The same by an update, and it leaves no trace.
			if _, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: 99}, {Key: "a", Value: "other"}, {Key: "ids", Value: "other"}}); err != nil {
				return fmt.Errorf("after a failed insert: %w", err)
			}
			_, err = c.UpdateOne(ctx, bson.D{{Key: "_id", Value: 99}}, bson.D{{Key: "$unset", Value: bson.D{{Key: "none", Value: ""}}}, {Key: "$set", Value: setAll(tt.insert, "a", "b", "ids")}})
			if strings.Contains(tt.keys, "ids") || len(doc(tt.insert)) > 0 && doc(tt.insert)[0].Key == "a" {
				if err := wantDuplicate(err, c, name, tt.keys, tt.value); err != nil {
					return fmt.Errorf("update: %w", err)
				}
			}
			return nil
		})
	}
}

// setAll sets what a document has of some fields.
func setAll(s string, names ...string) bson.D {
	out := bson.D{}
	for _, e := range doc(s) {
		for _, n := range names {
			if e.Key == n {
				out = append(out, e)
			}
		}
	}
	return out
}

func wantDuplicate(err error, c *mongo.Collection, index, keys, value string) error {
	if value == "" {
		return err
	}
	var we mongo.WriteException
	if !errors.As(err, &we) || len(we.WriteErrors) != 1 || we.WriteErrors[0].Code != 11000 || !mongo.IsDuplicateKeyError(err) {
		return fmt.Errorf("no duplicate key: %w", orNil(err))
	}
	e := we.WriteErrors[0]
	if want := fmt.Sprintf("E11000 duplicate key error collection: %s.%s index: %s dup key: {", c.Database().Name(), c.Name(), index); !strings.Contains(e.Message, want) { // in updates: "Plan executor error during update :: caused by :: …"
		return fmt.Errorf("message %q without %q", e.Message, want)
	}
	if err := same(e.Raw.Lookup("keyPattern").Document(), keys); err != nil {
		return fmt.Errorf("keyPattern: %w", err)
	}
	if err := same(e.Raw.Lookup("keyValue").Document(), value); err != nil {
		return fmt.Errorf("keyValue: %w", err)
	}
	return nil
}

func TestDuplicateID(t *testing.T) {
	db := testDB(t)
	for _, tt := range []struct {
		name, first, second, shown string
		d                          differs
	}{
		{"int", `{"_id":1}`, `{"_id":1}`, "{ _id: 1 }", nil},
		{"int and double", `{"_id":1}`, `{"_id":{"$numberDouble":"1"}}`, "{ _id: 1.0 }", nil},
		{"string", `{"_id":"x/1"}`, `{"_id":"x/1"}`, `{ _id: "x/1" }`, nil},
		{"document", `{"_id":{"r":"x","u":1}}`, `{"_id":{"r":"x","u":1}}`, `{ _id: { r: "x", u: 1 } }`, differs{secantus: "prints documents in the way of Python"}},
		{"oid", `{"_id":{"$oid":"0123456789abcdef01234567"}}`, `{"_id":{"$oid":"0123456789abcdef01234567"}}`, "{ _id: ObjectId('0123456789abcdef01234567') }", nil},
		{"null", `{"_id":null}`, `{"_id":null}`, "{ _id: null }", nil},
	} {
		check(t, db, tt.name, tt.d, func(c *mongo.Collection) error {
			if err := load(c, tt.first); err != nil {
				return err
			}
			_, err := c.InsertOne(context.Background(), doc(tt.second))
			var we mongo.WriteException
			if !errors.As(err, &we) || len(we.WriteErrors) != 1 {
				return fmt.Errorf("no write error: %w", orNil(err))
			}
			want := fmt.Sprintf("E11000 duplicate key error collection: %s.%s index: _id_ dup key: %s", c.Database().Name(), c.Name(), tt.shown)
			if got := we.WriteErrors[0].Message; got != want {
				return fmt.Errorf("message %q, want %q", got, want)
			}
			return nil
		})
	}
	for _, tt := range []struct {
		name, doc string
		code      int
	}{
		{"array", `{"_id":[1]}`, 53},
		{"regex", `{"_id":{"$regularExpression":{"pattern":"a","options":""}}}`, 53},
	} {
		check(t, db, "no _id of type "+tt.name, differs{secantus: "takes any type as _id"}, func(c *mongo.Collection) error {
			_, err := c.InsertOne(context.Background(), doc(tt.doc))
			return wantCode(err, tt.code, tt.name)
		})
	}
}

func TestIndexCommands(t *testing.T) {
	db := testDB(t)
	ctx := context.Background()
	model := func(keys string, opts *options.IndexOptionsBuilder) mongo.IndexModel {
		return mongo.IndexModel{Keys: doc(keys), Options: opts}
	}
	list := func(c *mongo.Collection) (out []bson.Raw, err error) {
		cur, err := c.Indexes().List(ctx)
		if err != nil {
			return nil, err
		}
		return out, cur.All(ctx, &out)
	}
	check(t, db, "definitions are listed", nil, func(c *mongo.Collection) error {
		names, err := c.Indexes().CreateMany(ctx, []mongo.IndexModel{
			model(`{"a":1,"b":-1}`, nil),
			model(`{"ids":1}`, options.Index().SetUnique(true).SetSparse(true)),
			model(`{"done_at":1}`, options.Index().SetExpireAfterSeconds(3600)),
			model(`{"sid":1,"v":-1}`, options.Index().SetName("top")),
		})
		if err != nil {
			return err
		}
		if got := strings.Join(names, " "); got != "a_1_b_-1 ids_1 done_at_1 top" {
			return fmt.Errorf("names %s", got)
		}
		specs, err := c.Indexes().ListSpecifications(ctx)
		if err != nil {
			return err
		}
		var got []string
		for _, s := range specs {
			line := s.Name + " " + text(s.KeysDocument)
			if s.Unique != nil && *s.Unique {
				line += " unique"
			}
			if s.Sparse != nil && *s.Sparse {
				line += " sparse"
			}
			if s.ExpireAfterSeconds != nil {
				line += fmt.Sprint(" ttl ", *s.ExpireAfterSeconds)
			}
			got = append(got, line)
		}
		slices.Sort(got)
		want := `_id_ {"_id":{"$numberInt":"1"}}
a_1_b_-1 {"a":{"$numberInt":"1"},"b":{"$numberInt":"-1"}}
done_at_1 {"done_at":{"$numberInt":"1"}} ttl 3600
ids_1 {"ids":{"$numberInt":"1"}} unique sparse
top {"sid":{"$numberInt":"1"},"v":{"$numberInt":"-1"}}`
		if g := strings.Join(got, "\n"); g != want {
			return fmt.Errorf("got\n%s\nwant\n%s", g, want)
		}
		return nil
	})
	check(t, db, "again is no error", nil, func(c *mongo.Collection) error {
		for range 2 {
			if _, err := c.Indexes().CreateOne(ctx, model(`{"a":1}`, options.Index().SetUnique(true))); err != nil {
				return err
			}
		}
		docs, err := list(c)
		if len(docs) != 2 {
			return fmt.Errorf("%d indexes", len(docs))
		}
		return err
	})
	for _, tt := range []struct {
		name string
		ix   mongo.IndexModel
		code int
		d    differs
	}{
		{"the same name with other keys", model(`{"b":1}`, options.Index().SetName("a_1")), 86, nil},
		{"the same name with other options", model(`{"a":1}`, options.Index().SetUnique(true)), 86, nil},
		{"the same keys with another name", model(`{"a":1}`, options.Index().SetName("x")), 85, nil},
		{"the same keys with another name and time", model(`{"a":1}`, options.Index().SetName("x").SetExpireAfterSeconds(5)), 85, differs{secantus: "takes the time of a TTL index for a part of what it is"}},
		{"the same keys and name with another time", model(`{"a":1}`, options.Index().SetExpireAfterSeconds(5)), 85, differs{secantus: "takes the time of a TTL index for a part of what it is"}},
		{"no direction", model(`{"b":0}`, nil), 67, differs{secantus: "takes a direction of 0"}},
		{"no fields", mongo.IndexModel{Keys: bson.D{}, Options: options.Index().SetName("x")}, 67, nil},
		{"TTL on two fields", model(`{"b":1,"c":1}`, options.Index().SetExpireAfterSeconds(1)), 67, differs{secantus: "takes a TTL index on two fields"}},
		{"unique over duplicates", model(`{"dup":1}`, options.Index().SetUnique(true)), 11000, nil},
		{"two arrays", model(`{"x":1,"y":1}`, nil), 171, differs{secantus: "indexes two arrays at once"}},
	} {
		check(t, db, tt.name, tt.d, func(c *mongo.Collection) error {
			if err := load(c, `{"dup":1}`, `{"dup":1}`, `{"x":[1],"y":[2]}`); err != nil {
				return err
			}
			if _, err := c.Indexes().CreateOne(ctx, model(`{"a":1}`, nil)); err != nil {
				return err
			}
			_, err := c.Indexes().CreateOne(ctx, tt.ix)
			if err := wantCode(err, tt.code, ""); err != nil {
				return err
			}
			docs, err := list(c)
			if len(docs) != 2 {
				return fmt.Errorf("%d indexes afterwards", len(docs))
			}
			return err
		})
	}
	check(t, db, "the same keys, unique, with another name are another index", nil, func(c *mongo.Collection) error {
		_, err := c.Indexes().CreateMany(ctx, []mongo.IndexModel{model(`{"a":1}`, nil), model(`{"a":1}`, options.Index().SetName("x").SetUnique(true))})
		if err != nil {
			return err
		}
		docs, err := list(c)
		if len(docs) != 3 {
			return fmt.Errorf("%d indexes", len(docs))
		}
		return err
	})
	check(t, db, "parallel arrays are refused on insert", differs{secantus: "indexes two arrays at once"}, func(c *mongo.Collection) error {
		if _, err := c.Indexes().CreateOne(ctx, model(`{"x":1,"y":1}`, nil)); err != nil {
			return err
		}
		_, err := c.InsertOne(ctx, bson.M{"x": bson.A{1}, "y": bson.A{1}})
		return wantCode(err, 171, "")
	})
	check(t, db, "drop an index", nil, func(c *mongo.Collection) error {
		name, err := c.Indexes().CreateOne(ctx, model(`{"a":1}`, options.Index().SetUnique(true)))
		if err != nil {
			return err
		}
		if err := c.Indexes().DropOne(ctx, name); err != nil {
			return err
		}
		if err := load(c, `{"a":1}`, `{"a":1}`); err != nil {
			return err
		}
		return wantCode(c.Indexes().DropOne(ctx, name), 27, "")
	})
	check(t, db, "drop all indexes but _id", nil, func(c *mongo.Collection) error {
		if _, err := c.Indexes().CreateMany(ctx, []mongo.IndexModel{model(`{"a":1}`, nil), model(`{"b":1}`, nil)}); err != nil {
			return err
		}
		if err := c.Indexes().DropAll(ctx); err != nil {
			return err
		}
		docs, err := list(c)
		if len(docs) != 1 {
			return fmt.Errorf("%d indexes", len(docs))
		}
		return err
	})
	check(t, db, "indexes of no collection", nil, func(c *mongo.Collection) error {
		docs, err := list(c)
		if len(docs) != 0 {
			return fmt.Errorf("%d indexes", len(docs))
		}
		return err
	})
}
