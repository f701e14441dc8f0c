package conformance

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func TestSort(t *testing.T) {
	db := testDB(t)
	upwards := []int{1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}
	tests := []struct {
		name    string
		docs    []string
		sort    string
		want    []int
		index   string
		code    int
		differs differs
	}{
		{name: "types upwards", docs: types, sort: `{"a":1,"_id":1}`, want: upwards},
		{name: "types downwards", docs: types, sort: `{"a":-1,"_id":-1}`, want: reversed(upwards)},
		{name: "types upwards by an index", docs: types, sort: `{"a":1}`, want: upwards, index: `{"a":1}`},
		{name: "types downwards by an index", docs: types, sort: `{"a":-1}`, want: reversed(upwards), index: `{"a":1}`},
		{name: "types downwards by a descending index", docs: types, sort: `{"a":-1,"_id":1}`, want: append(reversed(upwards)[:21], 0, 2, 1), index: `{"a":-1,"_id":1}`, differs: differs{secantus: "an index with a descending field has the empty string in the wrong place"}},
		{name: "two fields", docs: []string{`{"a":1,"b":1}`, `{"a":2,"b":1}`, `{"a":1,"b":2}`, `{"a":2,"b":2}`}, sort: `{"a":1,"b":-1}`, want: []int{2, 0, 3, 1}},
		{name: "two fields by an index", docs: []string{`{"a":1,"b":1}`, `{"a":2,"b":1}`, `{"a":1,"b":2}`, `{"a":2,"b":2}`}, sort: `{"a":1,"b":-1}`, want: []int{2, 0, 3, 1}, index: `{"a":1,"b":-1}`},
		{name: "two fields by an index backwards", docs: []string{`{"a":1,"b":1}`, `{"a":2,"b":1}`, `{"a":1,"b":2}`, `{"a":2,"b":2}`}, sort: `{"a":-1,"b":1}`, want: []int{1, 3, 0, 2}, index: `{"a":1,"b":-1}`},
		{name: "arrays by their least element", docs: []string{`{"a":[5,1]}`, `{"a":3}`, `{"a":[2,9]}`, `{"a":[]}`, `{}`}, sort: `{"a":1,"_id":1}`, want: []int{3, 4, 0, 2, 1}},
		{name: "arrays downwards by their greatest element", docs: []string{`{"a":[5,1]}`, `{"a":3}`, `{"a":[2,9]}`, `{"a":[]}`, `{}`}, sort: `{"a":-1,"_id":1}`, want: []int{2, 0, 1, 4, 3}},
		{name: "dotted", docs: []string{`{"a":{"b":2}}`, `{"a":{"b":1}}`, `{"a":5}`}, sort: `{"a.b":1}`, want: []int{2, 1, 0}},
		{name: "dotted into an array", docs: []string{`{"a":[{"b":5},{"b":2}]}`, `{"a":[{"b":3}]}`}, sort: `{"a.b":1}`, want: []int{0, 1}},
		{name: "neither 1 nor -1", docs: types, sort: `{"a":2}`, code: 15975},
		{name: "not a number", docs: types, sort: `{"a":"x"}`, code: 15974},
	}
	for _, tt := range tests {
		check(t, db, tt.name, tt.differs, func(c *mongo.Collection) error {
			if err := load(c, tt.docs...); err != nil {
				return err
			}
			if tt.index != "" {
				if _, err := c.Indexes().CreateOne(context.Background(), mongo.IndexModel{Keys: doc(tt.index)}); err != nil {
					return err
				}
			}
			cur, err := c.Find(context.Background(), bson.D{}, options.Find().SetSort(doc(tt.sort)))
			if tt.code != 0 || err != nil {
				return wantCode(err, tt.code, "")
			}
			got, err := ids(cur)
			if err == nil && !slices.Equal(got, tt.want) {
				err = fmt.Errorf("got %v, want %v", got, tt.want)
			}
			return err
		})
	}
}

func reversed(in []int) []int {
	out := slices.Clone(in)
	slices.Reverse(out)
	return out
}

func ids(cur *mongo.Cursor) (out []int, err error) {
	defer cur.Close(context.Background())
	for cur.Next(context.Background()) {
		out = append(out, int(cur.Current.Lookup("_id").AsInt64()))
	}
	return out, cur.Err()
}

func TestProjection(t *testing.T) {
	db := testDB(t)
	const full = `{"_id":1,"a":1,"b":{"c":1,"d":{"e":2}},"l":[{"x":1,"y":2},3,[{"x":4,"y":5}]]}`
	tests := []struct {
		name, projection, want string
		code                   int
		differs                differs
	}{
		{name: "include", projection: `{"a":1}`, want: `{"_id":1,"a":1}`},
		{name: "include keeps the order of the document", projection: `{"b":1,"a":1}`, want: `{"_id":1,"a":1,"b":{"c":1,"d":{"e":2}}}`},
		{name: "include without _id", projection: `{"a":true,"_id":0}`, want: `{"a":1}`},
		{name: "only _id", projection: `{"_id":1}`, want: `{"_id":1}`},
		{name: "all but _id", projection: `{"_id":0}`, want: `{"a":1,"b":{"c":1,"d":{"e":2}},"l":[{"x":1,"y":2},3,[{"x":4,"y":5}]]}`},
		{name: "exclude", projection: `{"a":0}`, want: `{"_id":1,"b":{"c":1,"d":{"e":2}},"l":[{"x":1,"y":2},3,[{"x":4,"y":5}]]}`},
		{name: "include dotted", projection: `{"b.c":1}`, want: `{"_id":1,"b":{"c":1}}`},
		{name: "include two below one", projection: `{"b.c":1,"b.d.e":1}`, want: `{"_id":1,"b":{"c":1,"d":{"e":2}}}`},
		{name: "exclude dotted", projection: `{"b.d.e":0,"l":0}`, want: `{"_id":1,"a":1,"b":{"c":1,"d":{}}}`},
		{name: "include in arrays", projection: `{"l.x":1}`, want: `{"_id":1,"l":[{"x":1},[{"x":4}]]}`},
		{name: "exclude in arrays", projection: `{"l.x":0,"b":0}`, want: `{"_id":1,"a":1,"l":[{"y":2},3,[{"y":5}]]}`},
		{name: "include below a plain value", projection: `{"a.x":1}`, want: `{"_id":1}`},
		{name: "include what is missing", projection: `{"none.x":1}`, want: `{"_id":1}`},
		{name: "nested", projection: `{"b":{"c":1}}`, want: `{"_id":1,"b":{"c":1}}`},
		{name: "empty", projection: `{}`, want: full},
		{name: "mixed", projection: `{"a":1,"b":0}`, code: 31254},
		{name: "mixed the other way", projection: `{"b":0,"a":1}`, code: 31253},
		{name: "collision", projection: `{"b":1,"b.c":1}`, code: 31249},
	}
	for _, tt := range tests {
		check(t, db, tt.name, tt.differs, func(c *mongo.Collection) error {
			if err := load(c, full); err != nil {
				return err
			}
			raw, err := c.FindOne(context.Background(), bson.D{}, options.FindOne().SetProjection(doc(tt.projection))).Raw()
			if tt.code != 0 || err != nil {
				return wantCode(err, tt.code, "")
			}
			return same(raw, tt.want)
		})
	}
}

func numbers(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf(`{"a":%d}`, i))
	}
	return out
}

func TestCursor(t *testing.T) {
	db := testDB(t)
	ctx := context.Background()
	for _, tt := range []struct {
		name        string
		opts        *options.FindOptionsBuilder
		first, size int
	}{
		{"all in batches of the default size", options.Find(), 0, 300},
		{"batches of 7", options.Find().SetBatchSize(7), 0, 300},
		{"skip", options.Find().SetSkip(290).SetBatchSize(3), 290, 10},
		{"limit", options.Find().SetLimit(10).SetBatchSize(3), 0, 10},
		{"limit is a multiple of the batch", options.Find().SetLimit(9).SetBatchSize(3), 0, 9},
		{"skip and limit", options.Find().SetSkip(5).SetLimit(10), 5, 10},
		{"skip all", options.Find().SetSkip(1000), 0, 0},
		{"negative limit: one batch", options.Find().SetLimit(-5), 0, 5},
	} {
		check(t, db, tt.name, nil, func(c *mongo.Collection) error {
			if err := load(c, numbers(300)...); err != nil {
				return err
			}
			cur, err := c.Find(ctx, bson.D{}, tt.opts.SetSort(bson.D{{Key: "_id", Value: 1}}))
			if err != nil {
				return err
			}
			got, err := ids(cur)
			if err != nil {
				return err
			}
			var want []int
			for i := range tt.size {
				want = append(want, tt.first+i)
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("got %v, want %v", got, want)
			}
			return nil
		})
	}
	check(t, db, "documents of many megabytes", nil, func(c *mongo.Collection) error {
		for i := range 6 {
			if _, err := c.InsertOne(ctx, bson.M{"_id": i, "a": make([]byte, 5<<20)}); err != nil {
				return err
			}
		}
		cur, err := c.Find(ctx, bson.D{})
		if err != nil {
			return err
		}
		got, err := ids(cur)
		if len(got) != 6 {
			return fmt.Errorf("%d documents", len(got))
		}
		return err
	})
	check(t, db, "a sorted cursor does not see later changes", nil, func(c *mongo.Collection) error {
		if err := load(c, numbers(300)...); err != nil {
			return err
		}
		cur, err := c.Find(ctx, bson.D{}, options.Find().SetBatchSize(10).SetSort(bson.D{{Key: "a", Value: -1}}))
		if err != nil {
			return err
		}
		if _, err := c.InsertOne(ctx, bson.M{"_id": 1000, "a": -1}); err != nil {
			return err
		}
		got, err := ids(cur)
		if len(got) != 300 {
			return fmt.Errorf("%d documents", len(got))
		}
		return err
	})
	check(t, db, "a killed cursor is gone", nil, func(c *mongo.Collection) error {
		if err := load(c, numbers(300)...); err != nil {
			return err
		}
		cur, err := c.Find(ctx, bson.D{}, options.Find().SetBatchSize(10))
		if err != nil {
			return err
		}
		id := cur.ID()
		if err := cur.Close(ctx); err != nil {
			return err
		}
		err = c.Database().RunCommand(ctx, bson.D{{Key: "getMore", Value: id}, {Key: "collection", Value: c.Name()}}).Err()
		return wantCode(err, 43, "")
	})
	check(t, db, "no collection", nil, func(c *mongo.Collection) error {
		cur, err := c.Find(ctx, bson.M{"a": 1})
		if err != nil {
			return err
		}
		got, err := ids(cur)
		if len(got) != 0 {
			return fmt.Errorf("found %v", got)
		}
		return err
	})
}

func TestAggregate(t *testing.T) {
	db := testDB(t)
	sales := []string{
		`{"k":"a","n":1,"d":{"x":1}}`, `{"k":"a","n":{"$numberLong":"2"},"d":{"x":2}}`, `{"k":"b","n":0.5}`, `{"k":"b","n":"no number"}`, `{"n":7,"l":[1,2]}`, `{"k":null}`,
	}
	tests := []struct {
		name     string
		pipeline string // {"p": [stages]}
		want     []string
		code     int
		differs  differs
	}{
		{name: "empty", pipeline: `{"p":[{"$match":{"_id":0}}]}`, want: []string{`{"_id":0,"k":"a","n":1,"d":{"x":1}}`}},
		{name: "sum by group", pipeline: `{"p":[{"$group":{"_id":"$k","n":{"$sum":"$n"},"c":{"$sum":1}}},{"$sort":{"_id":1}}]}`,
			want: []string{`{"_id":null,"n":7,"c":2}`, `{"_id":"a","n":{"$numberLong":"3"},"c":2}`, `{"_id":"b","n":0.5,"c":2}`}},
		{name: "sum of nothing is 0", pipeline: `{"p":[{"$group":{"_id":null,"n":{"$sum":"$none"}}}]}`, want: []string{`{"_id":null,"n":0}`}},
		{name: "min and max", pipeline: `{"p":[{"$match":{"k":"a"}},{"$group":{"_id":null,"lo":{"$min":"$n"},"hi":{"$max":"$d.x"},"none":{"$max":"$none"}}}]}`, want: []string{`{"_id":null,"lo":1,"hi":2,"none":null}`}},
		{name: "min over types passes over what is missing", pipeline: `{"p":[{"$group":{"_id":null,"lo":{"$min":"$k"},"hi":{"$max":"$n"}}}]}`, want: []string{`{"_id":null,"lo":"a","hi":"no number"}`}},
		{name: "group by a document", pipeline: `{"p":[{"$match":{"k":"a"}},{"$group":{"_id":{"k":"$k","x":"$d.x","none":"$none"},"c":{"$sum":1}}},{"$sort":{"_id":-1}}]}`,
			want: []string{`{"_id":{"k":"a","x":2},"c":1}`, `{"_id":{"k":"a","x":1},"c":1}`}},
		{name: "groups of equal numbers", pipeline: `{"p":[{"$match":{"_id":{"$lt":2}}},{"$group":{"_id":"$d.none","c":{"$sum":{"$numberLong":"1"}}}}]}`, want: []string{`{"_id":null,"c":{"$numberLong":"2"}}`}, differs: differs{secantus: "sums longs into an int"}},
		{name: "int sums grow into long", pipeline: `{"p":[{"$group":{"_id":null,"n":{"$sum":2000000000}}}]}`, want: []string{`{"_id":null,"n":{"$numberLong":"12000000000"}}`}},
		{name: "count", pipeline: `{"p":[{"$match":{"k":{"$in":["a","b"]}}},{"$count":"n"}]}`, want: []string{`{"n":4}`}},
		{name: "count of nothing", pipeline: `{"p":[{"$match":{"k":"z"}},{"$count":"n"}]}`, differs: differs{secantus: "counts nothing as 0"}},
		{name: "sort, skip, limit", pipeline: `{"p":[{"$sort":{"_id":-1}},{"$skip":1},{"$limit":1},{"$match":{"k":null}}]}`, want: []string{`{"_id":4,"n":7,"l":[1,2]}`}},
		{name: "match after limit", pipeline: `{"p":[{"$sort":{"_id":1}},{"$limit":1},{"$match":{"k":"b"}}]}`},
		{name: "match after group", pipeline: `{"p":[{"$group":{"_id":"$k","c":{"$sum":1}}},{"$match":{"_id":"a"}}]}`, want: []string{`{"_id":"a","c":2}`}},
		{name: "two matches", pipeline: `{"p":[{"$match":{"k":"a"}},{"$match":{"n":2}},{"$count":"n"}]}`, want: []string{`{"n":1}`}},
		{name: "unknown stage", pipeline: `{"p":[{"$foo":{}}]}`, code: 40324},
		{name: "two stages in one", pipeline: `{"p":[{"$skip":1,"$limit":1}]}`, code: 40323},
		{name: "group without _id", pipeline: `{"p":[{"$group":{"n":{"$sum":1}}}]}`, code: 15955},
		{name: "unknown accumulator", pipeline: `{"p":[{"$group":{"_id":null,"n":{"$foo":1}}}]}`, code: 15952, differs: differs{secantus: "an unknown accumulator has another code, 168"}},
		{name: "limit 0", pipeline: `{"p":[{"$limit":0}]}`, code: 15958},
	}
	for _, tt := range tests {
		check(t, db, tt.name, tt.differs, func(c *mongo.Collection) error {
			if err := load(c, sales...); err != nil {
				return err
			}
			cur, err := c.Aggregate(context.Background(), doc(tt.pipeline)[0].Value)
			if tt.code != 0 || err != nil {
				return wantCode(err, tt.code, "")
			}
			var got []bson.Raw
			if err := cur.All(context.Background(), &got); err != nil {
				return err
			}
			if len(got) != len(tt.want) {
				return fmt.Errorf("%d documents, want %d: %v", len(got), len(tt.want), got)
			}
			for i := range got {
				if err := same(got[i], tt.want[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	check(t, db, "count documents", nil, func(c *mongo.Collection) error {
		if err := load(c, sales...); err != nil {
			return err
		}
		n, err := c.CountDocuments(context.Background(), bson.M{"k": "a"})
		if err != nil {
			return err
		}
		est, err := c.EstimatedDocumentCount(context.Background())
		if n != 2 || est != 6 {
			return fmt.Errorf("counted %d, estimated %d", n, est)
		}
		return err
	})
}
