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

// types has one document of each type under "a", in the order of MongoDB's comparison; 0 has none.
var types = []string{
	`{}`,
	`{"a": {"$minKey": 1}}`,
	`{"a": null}`,
	`{"a": {"$numberDouble": "NaN"}}`,
	`{"a": {"$numberDouble": "-Infinity"}}`,
	`{"a": -5}`,
	`{"a": {"$numberLong": "0"}}`,
	`{"a": {"$numberDouble": "1.5"}}`,
	`{"a": {"$numberDecimal": "2.50"}}`,
	`{"a": {"$numberLong": "9007199254740993"}}`,
	`{"a": ""}`,
	`{"a": "Anna"}`,
	`{"a": "anna"}`,
	`{"a": {}}`,
	`{"a": {"b": 1}}`,
	`{"a": {"$binary": {"base64": "", "subType": "00"}}}`,
	`{"a": {"$binary": {"base64": "gYA=", "subType": "00"}}}`,
	`{"a": {"$oid": "000000000000000000000001"}}`,
	`{"a": false}`,
	`{"a": true}`,
	`{"a": {"$date": {"$numberLong": "0"}}}`,
	`{"a": {"$timestamp": {"t": 1, "i": 1}}}`,
	`{"a": {"$regularExpression": {"pattern": "^a", "options": ""}}}`,
	`{"a": {"$maxKey": 1}}`,
}

var arrays = []string{
	`{"a": []}`,                                   // 0
	`{"a": [1, 2, 3]}`,                            // 1
	`{"a": [[1, 2], 3]}`,                          // 2
	`{"a": [{"b": 1}, {"b": 2, "c": 1}]}`,         // 3
	`{"a": [{"b": [4, 5]}, 7]}`,                   // 4
	`{"a": {"b": [1, 2]}}`,                        // 5
	`{"a": 2}`,                                    // 6
	`{"a": [null]}`,                               // 7
	`{"a": {"0": 1}}`,                             // 8
	`{"a": [{"b": 1, "c": 5}, {"b": 5, "c": 1}]}`, // 9
	`{}`, // 10
}

var binaries = []string{
	`{"a": {"$binary": {"base64": "", "subType": "00"}}}`,
	`{"a": {"$binary": {"base64": "AQ==", "subType": "00"}}}`, // bit 0
	`{"a": {"$binary": {"base64": "gA==", "subType": "00"}}}`, // bit 7
	`{"a": {"$binary": {"base64": "AAE=", "subType": "00"}}}`, // bit 8
	`{"a": {"$binary": {"base64": "gYA=", "subType": "80"}}}`, // bits 0, 7, 15
	`{"a": 129}`,
	`{"a": {"$numberLong": "-1"}}`,
	`{"a": {"$numberDouble": "1.5"}}`,
	`{"a": "x"}`,
	`{}`,
}

func TestQuery(t *testing.T) {
	db := testDB(t)
	tests := []struct {
		name    string
		docs    []string
		filter  string
		want    []int
		code    int
		differs differs
	}{
		// Comparison within one type only.
		{name: "eq int finds all numeric types", docs: []string{`{"a":1}`, `{"a":{"$numberLong":"1"}}`, `{"a":{"$numberDouble":"1"}}`, `{"a":{"$numberDecimal":"1.0"}}`, `{"a":"1"}`, `{"a":true}`}, filter: `{"a":1}`, want: []int{0, 1, 2, 3}},
		{name: "large long is not its neighbour as a double", docs: types, filter: `{"a":{"$numberDouble":"9007199254740992"}}`},
		{name: "large long", docs: types, filter: `{"a":{"$numberLong":"9007199254740993"}}`, want: []int{9}},
		{name: "decimal eq int", docs: types, filter: `{"a":{"$numberDecimal":"0"}}`, want: []int{6}},
		{name: "gt number", docs: types, filter: `{"a":{"$gt":0}}`, want: []int{7, 8, 9}},
		{name: "gte number", docs: types, filter: `{"a":{"$gte":0}}`, want: []int{6, 7, 8, 9}},
		{name: "lt number leaves NaN out", docs: types, filter: `{"a":{"$lt":0}}`, want: []int{4, 5}},
		{name: "lte number", docs: types, filter: `{"a":{"$lte":0}}`, want: []int{4, 5, 6}},
		{name: "NaN equals NaN", docs: types, filter: `{"a":{"$numberDouble":"NaN"}}`, want: []int{3}},
		{name: "gte NaN is NaN", docs: types, filter: `{"a":{"$gte":{"$numberDouble":"NaN"}}}`, want: []int{3}},
		{name: "gt NaN is nothing", docs: types, filter: `{"a":{"$gt":{"$numberDouble":"NaN"}}}`},
		{name: "gt string", docs: types, filter: `{"a":{"$gt":"Anna"}}`, want: []int{12}},
		{name: "lt string", docs: types, filter: `{"a":{"$lt":"anna"}}`, want: []int{10, 11}, differs: differs{secantus: "an index with a descending field loses the empty string"}},
		{name: "gt false", docs: types, filter: `{"a":{"$gt":false}}`, want: []int{19}},
		{name: "gt oid", docs: types, filter: `{"a":{"$gt":{"$oid":"000000000000000000000000"}}}`, want: []int{17}},
		{name: "gte date", docs: types, filter: `{"a":{"$gte":{"$date":{"$numberLong":"-1"}}}}`, want: []int{20}},
		{name: "lt date is no timestamp", docs: types, filter: `{"a":{"$lt":{"$date":{"$numberLong":"99999"}}}}`, want: []int{20}},
		{name: "gt binary: longer is greater", docs: types, filter: `{"a":{"$gt":{"$binary":{"base64":"/w==","subType":"00"}}}}`, want: []int{16}, differs: differs{secantus: "compares binaries byte by byte, not by length first"}},
		{name: "gt document", docs: types, filter: `{"a":{"$gt":{}}}`, want: []int{14}},
		{name: "eq document", docs: types, filter: `{"a":{"b":1}}`, want: []int{14}},
		{name: "eq document of another numeric type", docs: types, filter: `{"a":{"b":{"$numberDouble":"1"}}}`, want: []int{14}},
		{name: "eq null finds missing", docs: types, filter: `{"a":null}`, want: []int{0, 2}},
		{name: "gte null finds missing", docs: types, filter: `{"a":{"$gte":null}}`, want: []int{0, 2}},
		{name: "gt null is nothing", docs: types, filter: `{"a":{"$gt":null}}`},
		{name: "gt MinKey crosses types", docs: types[1:], filter: `{"a":{"$gt":{"$minKey":1}}}`, want: []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22}},
		{name: "lt MaxKey crosses types", docs: types[1:], filter: `{"a":{"$lt":{"$maxKey":1}}}`, want: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21}},
		{name: "range", docs: types, filter: `{"a":{"$gte":-5,"$lt":2}}`, want: []int{5, 6, 7}},
		{name: "empty range", docs: types, filter: `{"a":{"$gt":5,"$lt":2}}`},
		{name: "ne", docs: types[:7], filter: `{"a":{"$ne":0}}`, want: []int{0, 1, 2, 3, 4, 5}},
		{name: "ne null leaves missing out", docs: types[:7], filter: `{"a":{"$ne":null}}`, want: []int{1, 3, 4, 5, 6}},

		// Sets and logic.
		{name: "in", docs: types, filter: `{"a":{"$in":["anna",0,true,"nobody"]}}`, want: []int{6, 12, 19}},
		{name: "in null", docs: types, filter: `{"a":{"$in":[null,true]}}`, want: []int{0, 2, 19}},
		{name: "in regex", docs: types, filter: `{"a":{"$in":[{"$regularExpression":{"pattern":"^A","options":""}},1.5]}}`, want: []int{7, 11}, differs: differs{secantus: "an index loses what regular expressions in $in match"}},
		{name: "in empty", docs: types, filter: `{"a":{"$in":[]}}`},
		{name: "in needs an array", docs: types, filter: `{"a":{"$in":1}}`, code: 2},
		{name: "in takes no operators", docs: types, filter: `{"a":{"$in":[{"$gt":1}]}}`, code: 2},
		{name: "nin", docs: types[:7], filter: `{"a":{"$nin":[null,0]}}`, want: []int{1, 3, 4, 5}},
		{name: "and", docs: types, filter: `{"$and":[{"a":{"$gte":0}},{"a":{"$lt":2}}]}`, want: []int{6, 7}},
		{name: "or", docs: types, filter: `{"$or":[{"a":true},{"a":{"$lt":-4}}]}`, want: []int{4, 5, 19}},
		{name: "or beside a field", docs: types, filter: `{"a":{"$gte":0},"$or":[{"a":0},{"a":1.5}]}`, want: []int{6, 7}},
		{name: "nor", docs: types[:7], filter: `{"$nor":[{"a":null},{"a":{"$lt":0}}]}`, want: []int{1, 3, 6}},
		{name: "and must not be empty", docs: types, filter: `{"$and":[]}`, code: 2},
		{name: "or takes objects only", docs: types, filter: `{"$or":[1]}`, code: 2},
		{name: "not", docs: types[:7], filter: `{"a":{"$not":{"$gte":-5}}}`, want: []int{0, 1, 2, 3, 4}},
		{name: "not regex", docs: types[:13], filter: `{"a":{"$not":{"$regularExpression":{"pattern":"^a","options":"i"}}}}`, want: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		{name: "not needs operators", docs: types, filter: `{"a":{"$not":1}}`, code: 2},
		{name: "unknown operator", docs: types, filter: `{"a":{"$foo":1}}`, code: 2},
		{name: "unknown operator at the top", docs: types, filter: `{"$foo":1}`, code: 2},
		{name: "the writer's filter: not gte", docs: []string{`{"w":{"x":3}}`, `{"w":{"x":4}}`, `{"w":{}}`, `{}`}, filter: `{"w.x":{"$not":{"$gte":4}}}`, want: []int{0, 2, 3}},

		// Presence, type, text.
		{name: "exists", docs: types[:3], filter: `{"a":{"$exists":true}}`, want: []int{1, 2}},
		{name: "exists false", docs: types[:3], filter: `{"a":{"$exists":false}}`, want: []int{0}},
		{name: "type by name", docs: types, filter: `{"a":{"$type":"string"}}`, want: []int{10, 11, 12}},
		{name: "type number", docs: types, filter: `{"a":{"$type":"number"}}`, want: []int{3, 4, 5, 6, 7, 8, 9}},
		{name: "type by code", docs: types, filter: `{"a":{"$type":5}}`, want: []int{15, 16}},
		{name: "types", docs: types, filter: `{"a":{"$type":["bool","date","minKey","maxKey","timestamp","regex","null","objectId","object","decimal","long","double","int"]}}`, want: []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14, 17, 18, 19, 20, 21, 22, 23}},
		{name: "type unknown", docs: types, filter: `{"a":{"$type":"strin"}}`, code: 2},
		{name: "type array", docs: arrays, filter: `{"a":{"$type":"array"}}`, want: []int{0, 1, 2, 3, 4, 7, 9}},
		{name: "type of elements", docs: arrays, filter: `{"a":{"$type":"object"}}`, want: []int{3, 4, 5, 8, 9}},
		{name: "regex", docs: types, filter: `{"a":{"$regex":"nn"}}`, want: []int{11, 12}},
		{name: "regex with options", docs: types, filter: `{"a":{"$regex":"^AN","$options":"i"}}`, want: []int{11, 12}},
		{name: "regex value finds itself", docs: types, filter: `{"a":{"$regularExpression":{"pattern":"^a","options":""}}}`, want: []int{12, 22}, differs: differs{secantus: "an index gives the stored regular expression only"}},
		{name: "regex end before newline", docs: []string{`{"a":"x\n"}`, `{"a":"x"}`, `{"a":"x\n\n"}`, `{"a":"xy"}`}, filter: `{"a":{"$regex":"x$"}}`, want: []int{0, 1}},
		{name: "options without regex", docs: types, filter: `{"a":{"$options":"i"}}`, code: 2},
		{name: "gt takes no regex", docs: types, filter: `{"a":{"$gt":{"$regularExpression":{"pattern":"^a","options":""}}}}`, code: 2},

		// Arrays and dotted paths.
		{name: "eq finds elements", docs: arrays, filter: `{"a":2}`, want: []int{1, 6}},
		{name: "eq array whole or as an element", docs: arrays, filter: `{"a":[1,2]}`, want: []int{2}},
		{name: "eq empty array", docs: arrays, filter: `{"a":[]}`, want: []int{0}},
		{name: "in array", docs: arrays, filter: `{"a":{"$in":[[1,2,3],2]}}`, want: []int{1, 6}},
		{name: "ne over elements", docs: arrays, filter: `{"a":{"$ne":2}}`, want: []int{0, 2, 3, 4, 5, 7, 8, 9, 10}},
		{name: "null element", docs: arrays, filter: `{"a":null}`, want: []int{7, 10}},
		{name: "range by different elements", docs: arrays, filter: `{"a":{"$gt":2,"$lt":2}}`, want: []int{1}, differs: differs{secantus: "an index on an array wants one element within the whole range"}},
		{name: "gt array", docs: arrays, filter: `{"a":{"$gt":[1,2,2]}}`, want: []int{1, 2, 3, 4, 9}},
		{name: "dotted", docs: arrays, filter: `{"a.b":1}`, want: []int{3, 5, 9}},
		{name: "dotted to an array inside", docs: arrays, filter: `{"a.b":4}`, want: []int{4}},
		{name: "dotted to a whole array", docs: arrays, filter: `{"a.b":[1,2]}`, want: []int{5}},
		{name: "dotted null", docs: arrays, filter: `{"a.b":null}`, want: []int{6, 8, 10}},
		{name: "dotted null in documents of an array", docs: arrays, filter: `{"a.c":null}`, want: []int{3, 4, 5, 6, 8, 10}},
		{name: "dotted exists false", docs: arrays, filter: `{"a.b":{"$exists":false}}`, want: []int{0, 1, 2, 6, 7, 8, 10}},
		{name: "position", docs: arrays, filter: `{"a.0":1}`, want: []int{1, 8}},
		{name: "position and name", docs: arrays, filter: `{"a.1.b":5}`, want: []int{9}},
		{name: "position in an inner array", docs: arrays, filter: `{"a.b.1":2}`, want: []int{5}},
		{name: "position exists", docs: arrays, filter: `{"a.1":{"$exists":true}}`, want: []int{1, 2, 3, 4, 9}},
		{name: "size", docs: arrays, filter: `{"a":{"$size":2}}`, want: []int{2, 3, 4, 9}},
		{name: "size 0", docs: arrays, filter: `{"a":{"$size":0}}`, want: []int{0}},
		{name: "size takes a whole number", docs: arrays, filter: `{"a":{"$size":1.5}}`, code: 2},
		{name: "size takes no negative number", docs: arrays, filter: `{"a":{"$size":-1}}`, code: 2},
		{name: "regex that is none", docs: types, filter: `{"a":{"$regex":"("}}`, code: 51091},
		{name: "all", docs: arrays, filter: `{"a":{"$all":[3,1]}}`, want: []int{1}},
		{name: "all of one", docs: arrays, filter: `{"a":{"$all":[2]}}`, want: []int{1, 6}},
		{name: "all of an array", docs: arrays, filter: `{"a":{"$all":[[1,2]]}}`, want: []int{2}},
		{name: "all of none", docs: arrays, filter: `{"a":{"$all":[]}}`},
		{name: "all elemMatch", docs: arrays, filter: `{"a":{"$all":[{"$elemMatch":{"b":1}},{"$elemMatch":{"c":1}}]}}`, want: []int{3, 9}},
		{name: "elemMatch of documents", docs: arrays, filter: `{"a":{"$elemMatch":{"b":1,"c":5}}}`, want: []int{9}},
		{name: "two dotted conditions need no common element", docs: arrays, filter: `{"a.b":1,"a.c":1}`, want: []int{3, 9}},
		{name: "elemMatch of values", docs: arrays, filter: `{"a":{"$elemMatch":{"$gt":1,"$lt":3}}}`, want: []int{1}},
		{name: "elemMatch or", docs: arrays, filter: `{"a":{"$elemMatch":{"$or":[{"c":5},{"b":2}]}}}`, want: []int{3, 9}, differs: differs{secantus: "no $or in $elemMatch"}},
		{name: "elemMatch needs an object", docs: arrays, filter: `{"a":{"$elemMatch":1}}`, code: 2},

		// Bits: position 0 is the least significant bit of the first byte.
		{name: "bitsAllSet positions", docs: binaries, filter: `{"a":{"$bitsAllSet":[0]}}`, want: []int{1, 4, 5, 6}},
		{name: "bitsAllSet two positions", docs: binaries, filter: `{"a":{"$bitsAllSet":[0,7]}}`, want: []int{4, 5, 6}},
		{name: "bitsAllSet in the second byte", docs: binaries, filter: `{"a":{"$bitsAllSet":[8]}}`, want: []int{3, 6}},
		{name: "bitsAllSet mask", docs: binaries, filter: `{"a":{"$bitsAllSet":129}}`, want: []int{4, 5, 6}},
		{name: "bitsAllSet binary", docs: binaries, filter: `{"a":{"$bitsAllSet":{"$binary":{"base64":"gYA=","subType":"00"}}}}`, want: []int{4, 6}},
		{name: "bitsAllClear", docs: binaries, filter: `{"a":{"$bitsAllClear":[0,7]}}`, want: []int{0, 3}},
		{name: "bitsAllClear beyond the end", docs: binaries, filter: `{"a":{"$bitsAllClear":[1000]}}`, want: []int{0, 1, 2, 3, 4, 5}},
		{name: "bitsAllSet beyond the end of a negative number", docs: binaries, filter: `{"a":{"$bitsAllSet":[200]}}`, want: []int{6}},
		{name: "bits of nothing", docs: binaries, filter: `{"a":{"$bitsAllSet":[]}}`, want: []int{0, 1, 2, 3, 4, 5, 6}},
		{name: "bits take no negative positions", docs: binaries, filter: `{"a":{"$bitsAllSet":[-1]}}`, code: 2},
		{name: "bits take no strings", docs: binaries, filter: `{"a":{"$bitsAllSet":"x"}}`, code: 2},
		{name: "bits of subtype 2 begin at its inner length", docs: []string{`{"a":{"$binary":{"base64":"gA==","subType":"02"}}}`}, filter: `{"a":{"$bitsAllSet":[0,39]}}`, want: []int{0},
			differs: differs{secantus: "skips the inner length of subtype 2"}},
	}
	for _, tt := range tests {
		check(t, db, tt.name, tt.differs, func(c *mongo.Collection) error {
			if err := load(c, tt.docs...); err != nil {
				return err
			}
			if err := findIDs(c, doc(tt.filter), tt.want, tt.code); err != nil {
				return fmt.Errorf("without an index: %w", err)
			}
			// An index may change the way, never the result.
			for _, keys := range []bson.D{{{Key: "a", Value: 1}}, {{Key: "a", Value: -1}, {Key: "w.x", Value: 1}}, {{Key: "a.b", Value: 1}, {Key: "a.c", Value: -1}}, {{Key: "w.x", Value: 1}}} {
				name, err := c.Indexes().CreateOne(context.Background(), mongo.IndexModel{Keys: keys})
				if codeOf(err) == 171 { // parallel arrays
					continue
				}
				if err == nil {
					err = findIDs(c, doc(tt.filter), tt.want, tt.code)
				}
				if err != nil {
					return fmt.Errorf("with the index %s: %w", text(keys), err)
				}
				if err := c.Indexes().DropOne(context.Background(), name); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func findIDs(c *mongo.Collection, filter any, want []int, code int) error {
	cur, err := c.Find(context.Background(), filter, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	var got []struct {
		ID int `bson:"_id"`
	}
	if err == nil {
		err = cur.All(context.Background(), &got)
	}
	if code != 0 || err != nil {
		return wantCode(err, code, "")
	}
	var ids []int
	for _, g := range got {
		ids = append(ids, g.ID)
	}
	slices.Sort(ids)
	if !slices.Equal(ids, want) {
		return fmt.Errorf("found %v, want %v", ids, want)
	}
	return nil
}
