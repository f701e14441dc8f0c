package minimongo

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"pgregory.net/rapid"
)

func (s *Server) explainFind(t testing.TB, find string) (stage, index string, keys, docs, returned int) {
	t.Helper()
	raw := s.must(t, bson.D{{Key: "explain", Value: parse(find)}})
	plan := raw.Lookup("queryPlanner", "winningPlan").Document()
	stage = plan.Lookup("stage").StringValue()
	if stage == "SORT" {
		plan = plan.Lookup("inputStage").Document()
		stage = "SORT+" + plan.Lookup("stage").StringValue()
	}
	index, _ = plan.Lookup("indexName").StringValueOK()
	stats := raw.Lookup("executionStats").Document()
	return stage, index, int(stats.Lookup("totalKeysExamined").AsInt64()), int(stats.Lookup("totalDocsExamined").AsInt64()), int(stats.Lookup("nReturned").AsInt64())
}

func TestIndexesAreUsed(t *testing.T) {
	s := open(t, Config{})
	const n = 10_000
	var docs []any
	for i := range n {
		docs = append(docs, bson.D{{Key: "_id", Value: i}, {Key: "run", Value: i % 100}, {Key: "at", Value: i}, {Key: "plan", Value: []string{"free", "pro"}[i%2]},
			{Key: "ids", Value: bson.A{fmt.Sprint("a", i), fmt.Sprint("b", i)}}, {Key: "blob", Value: bson.Binary{Data: []byte{byte(i)}}}})
	}
	s.insertAll(t, "c", docs)
	s.must(t, parse(`{"createIndexes":"c","indexes":[
		{"key":{"run":1,"at":-1},"name":"run_at"},{"key":{"plan":1},"name":"plan"},{"key":{"ids":1},"name":"ids","unique":true},{"key":{"opened":1},"name":"opened","sparse":true}]}`))
	var in []string
	for i := range 1000 {
		in = append(in, fmt.Sprint(i*17%n))
	}
	thousand := `{"find":"c","filter":{"_id":{"$in":[` + string(bytes.Join(toBytes(in), []byte(","))) + `]}}}`
	tests := []struct {
		name, find, stage, index string
		docs, returned           int // documents examined: at most; returned: exactly
	}{
		{"_id", `{"find":"c","filter":{"_id":77}}`, "IDHACK", "_id_", 1, 1},
		{"compare-and-set", `{"find":"c","filter":{"_id":77,"blob":{"$binary":{"base64":"TQ==","subType":"00"}},"at":{"$lt":100}}}`, "IDHACK", "_id_", 1, 1},
		{"range of _id", `{"find":"c","filter":{"_id":{"$gte":100,"$lt":600}}}`, "IXSCAN", "_id_", 500, 500},
		{"range of _id and audience", `{"find":"c","filter":{"plan":"free","_id":{"$gte":100,"$lte":599}}}`, "IXSCAN", "_id_", 500, 250},
		{"next page by _id", `{"find":"c","filter":{"plan":"free","_id":{"$gt":9900}},"sort":{"_id":1},"limit":10}`, "IXSCAN", "_id_", 20, 10},
		{"$in of a thousand ids", thousand, "IXSCAN", "_id_", 1000, 1000},
		{"the last by _id", `{"find":"c","sort":{"_id":-1},"limit":1}`, "IXSCAN", "_id_", 1, 1},
		{"equality and range", `{"find":"c","filter":{"run":7,"at":{"$gte":1000,"$lt":2000}}}`, "IXSCAN", "run_at", 10, 10},
		{"equality and sort", `{"find":"c","filter":{"run":7},"sort":{"at":-1},"limit":5}`, "IXSCAN", "run_at", 5, 5},
		{"equality and sort backwards", `{"find":"c","filter":{"run":7},"sort":{"at":1},"limit":5}`, "IXSCAN", "run_at", 5, 5},
		{"sort by the prefix", `{"find":"c","sort":{"run":1,"at":-1},"limit":5}`, "IXSCAN", "run_at", 5, 5},
		{"sort by the prefix downwards", `{"find":"c","sort":{"run":-1,"at":1},"limit":5}`, "IXSCAN", "run_at", 5, 5},
		{"$in on the prefix, sorted", `{"find":"c","filter":{"run":{"$in":[7,3]}},"sort":{"run":1,"at":-1},"limit":5}`, "IXSCAN", "run_at", 5, 5},
		{"sort against the index", `{"find":"c","filter":{"run":7},"sort":{"run":1,"plan":1}}`, "SORT+IXSCAN", "run_at", 100, 100},
		{"array element", `{"find":"c","filter":{"ids":"b500"}}`, "IXSCAN", "ids", 1, 1},
		{"array elements", `{"find":"c","filter":{"ids":{"$in":["a1","b1","a2"]}}}`, "IXSCAN", "ids", 3, 2},
		{"in $and", `{"find":"c","filter":{"$and":[{"run":7},{"$and":[{"at":1007}]}]}}`, "IXSCAN", "run_at", 1, 1},
		{"contradiction", `{"find":"c","filter":{"_id":{"$gt":5,"$lt":3}}}`, "IXSCAN", "_id_", 0, 0},
		{"sparse index has no missing fields", `{"find":"c","filter":{"opened":null},"limit":3}`, "COLLSCAN", "", 3, 3},
		{"sparse index has the others", `{"find":"c","filter":{"opened":{"$gt":{"$date":{"$numberLong":"0"}}}}}`, "IXSCAN", "opened", 0, 0},
		{"no index", `{"find":"c","filter":{"at":5}}`, "COLLSCAN", "", n, 1},
		{"hint", `{"find":"c","filter":{"_id":{"$gte":0},"run":7,"at":107},"hint":"_id_"}`, "IXSCAN", "_id_", n, 1},
		{"hint of a pattern", `{"find":"c","filter":{"plan":"free"},"sort":{"_id":1},"limit":1,"hint":{"plan":1}}`, "IXSCAN", "plan", 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stage, index, _, docs, returned := s.explainFind(t, tt.find)
			if stage != tt.stage || index != tt.index || docs > tt.docs || returned != tt.returned {
				t.Errorf("%s by %q, %d documents for %d; want %s by %q, %d for %d", stage, index, docs, returned, tt.stage, tt.index, tt.docs, tt.returned)
			}
		})
	}
	if _, err := s.run(parse(`{"find":"c","hint":"none"}`)); codeOf(err) != codeBadValue {
		t.Errorf("hint of no index: %v", err)
	}
}

func toBytes(in []string) (out [][]byte) {
	for _, s := range in {
		out = append(out, []byte(s))
	}
	return out
}

// TestIndexesChangeNothing writes at random and asks at random: with indexes or without, the answer is the same,
// and the indexes hold exactly the keys of the documents.
func TestIndexesChangeNothing(t *testing.T) {
	s := open(t, Config{})
	small := rapid.OneOf(
		rapid.Map(rapid.IntRange(0, 4), func(n int) any { return n }),
		rapid.SampledFrom([]any{nil, "x", 1.5, int64(2), true, bson.A{}, bson.A{1, 3}, bson.A{nil}, bson.D{{Key: "b", Value: 1}}, bson.A{bson.D{{Key: "b", Value: 2}}, bson.D{{Key: "b", Value: 4}}}}),
	)
	id := rapid.OneOf(rapid.Map(rapid.IntRange(0, 6), func(n int) any { return n }), rapid.SampledFrom([]any{"x", 1.5}))
	paths := rapid.SampledFrom([]string{"_id", "a", "a.b", "c"})
	condition := rapid.Custom(func(t *rapid.T) any {
		op := rapid.SampledFrom([]string{"$eq", "$gt", "$gte", "$lt", "$lte", "$in", "$ne", "$nin"}).Draw(t, "op")
		var arg any = small.Draw(t, "arg")
		if op == "$in" || op == "$nin" {
			arg = bson.A(rapid.SliceOfN(small, 0, 3).Draw(t, "list"))
		}
		d := bson.D{{Key: op, Value: arg}}
		if rapid.Bool().Draw(t, "two") {
			d = append(d, bson.E{Key: "$lte", Value: small.Draw(t, "arg2")})
			if op == "$lte" {
				d = d[:1]
			}
		}
		return d
	})
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		plain, indexed := fmt.Sprint("p", round), fmt.Sprint("i", round)
		s.must(t, bson.D{{Key: "create", Value: plain}})
		s.must(t, append(bson.D{{Key: "createIndexes", Value: indexed}}, parse(`{"indexes":[{"key":{"a":1},"name":"a"},{"key":{"c":-1,"a.b":1},"name":"ca"},{"key":{"a.b":-1},"name":"ab","sparse":true}]}`)...))
		for range rapid.IntRange(1, 15).Draw(t, "writes") {
			var cmd bson.D
			q := bson.D{{Key: "_id", Value: id.Draw(t, "id")}}
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0, 1:
				u := bson.D{{Key: "$set", Value: bson.D{{Key: rapid.SampledFrom([]string{"a", "c"}).Draw(t, "field"), Value: small.Draw(t, "value")}}}}
				cmd = bson.D{{Key: "updates", Value: bson.A{bson.D{{Key: "q", Value: q}, {Key: "u", Value: u}, {Key: "upsert", Value: true}}}}}
				cmd = append(bson.D{{Key: "update"}}, cmd...)
			case 2:
				u := bson.D{{Key: "$unset", Value: bson.D{{Key: "a", Value: ""}}}}
				cmd = bson.D{{Key: "update"}, {Key: "updates", Value: bson.A{bson.D{{Key: "q", Value: q}, {Key: "u", Value: u}}}}}
			default:
				cmd = bson.D{{Key: "delete"}, {Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: q}, {Key: "limit", Value: 1}}}}}
			}
			cmd[0].Value = indexed
			raw, err := s.run(cmd)
			if err != nil {
				t.Fatalf("%v: %v", cmd, err)
			}
			if code, err := raw.LookupErr("writeErrors", "0", "code"); err == nil {
				if code.AsInt64() != codeParallelArrays {
					t.Fatalf("%v: %v", cmd, raw)
				}
				continue // refused because of an index, so not for the other collection either
			}
			cmd[0].Value = plain
			s.must(t, cmd)
		}
		checkIndexes(t, s, indexed)
		for range 5 {
			filter := bson.D{}
			for range rapid.IntRange(0, 2).Draw(t, "conditions") {
				filter = append(filter, bson.E{Key: paths.Draw(t, "path"), Value: condition.Draw(t, "condition")})
			}
			order := bson.D{{Key: paths.Draw(t, "sort"), Value: rapid.SampledFrom([]int{1, -1}).Draw(t, "dir")}}
			if order[0].Key != "_id" {
				order = append(order, bson.E{Key: "_id", Value: 1})
			}
			ask := func(coll string) bson.RawArray {
				return s.must(t, bson.D{{Key: "find", Value: coll}, {Key: "filter", Value: filter}, {Key: "sort", Value: order}}).Lookup("cursor", "firstBatch").Array()
			}
			if p, i := ask(plain), ask(indexed); !bytes.Equal(p, i) {
				t.Fatalf("filter %v, sort %v: without indexes\n%s\nwith\n%s", filter, order, p, i)
			}
		}
	})
}

func checkIndexes(t failer, s *Server, coll string) {
	err := s.store.view(func(tx *bolt.Tx) error {
		c, err := s.store.lookup(tx, "db", coll)
		if err != nil {
			return err
		}
		for _, ix := range c.indexes {
			var want, got [][]byte
			docs := tx.Bucket(c.documents()).Cursor()
			for id, doc := docs.First(); id != nil; id, doc = docs.Next() {
				list, multi, err := ix.entries(doc)
				if err != nil {
					return err
				}
				if multi && !ix.multikey {
					t.Fatalf("%s holds an array and is not multikey", ix.name)
				}
				for _, e := range list {
					want = append(want, e.full(id))
				}
			}
			slices.SortFunc(want, bytes.Compare)
			keys := tx.Bucket(ix.bucket).Cursor()
			for k, _ := keys.First(); k != nil; k, _ = keys.Next() {
				got = append(got, k)
			}
			if !slices.EqualFunc(got, want, bytes.Equal) {
				t.Fatalf("%s holds %d keys, the documents have %d", ix.name, len(got), len(want))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// TestListsOfIDs reads by _id whatever stands in the query, close together and far apart, and compares with the filter applied to every document.
func TestListsOfIDs(t *testing.T) {
	s := open(t, Config{})
	id := rapid.OneOf(
		rapid.Map(rapid.IntRange(0, 30), func(n int) any { return n }),
		rapid.Map(rapid.IntRange(0, 30), func(n int) any { return float64(n) }),
		rapid.SampledFrom([]any{"a", "b", "\x00", 1.5, nil, true, bson.D{}, bson.D{{Key: "x", Value: 1}}}))
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		coll := fmt.Sprint("l", round)
		var docs bson.A
		for _, v := range rapid.SliceOfNDistinct(id, 1, 40, func(v any) string {
			typ, data, _ := bson.MarshalValue(v)
			return string(appendKey(nil, value{Type: bsoncore.Type(typ), Data: data}))
		}).Draw(t, "ids") {
			docs = append(docs, bson.D{{Key: "_id", Value: v}, {Key: "n", Value: len(docs) % 3}})
		}
		s.must(t, bson.D{{Key: "insert", Value: coll}, {Key: "documents", Value: docs}})
		list := bson.A(rapid.SliceOfN(id, 0, 40).Draw(t, "list"))
		filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: list}}}}
		switch rapid.IntRange(0, 5).Draw(t, "and") {
		case 0:
			filter = append(filter, bson.E{Key: "n", Value: 1})
		case 1:
			filter[0].Value = append(filter[0].Value.(bson.D), bson.E{Key: "$gte", Value: 7})
		case 2:
			filter = append(filter, bson.E{Key: "$and", Value: bson.A{bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: 5}}}}}})
		case 3:
			filter[0].Value = append(filter[0].Value.(bson.D), bson.E{Key: "$type", Value: "int"})
		case 4:
			filter = bson.D{{Key: "$and", Value: bson.A{filter, bson.D{{Key: "n", Value: 0}}}}}
		}
		raw, err := bson.Marshal(filter)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parseFilter(raw)
		if err != nil {
			t.Fatal(err)
		}
		direction := rapid.SampledFrom([]int{1, -1}).Draw(t, "direction")
		var want []bson.Raw
		if err := s.store.view(func(tx *bolt.Tx) error {
			c, err := s.store.lookup(tx, "db", coll)
			if err != nil {
				return err
			}
			all := tx.Bucket(c.documents()).Cursor()
			for k, doc := all.First(); k != nil; k, doc = all.Next() {
				if f.match(doc) {
					want = append(want, bson.Raw(bytes.Clone(doc)))
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if direction < 0 {
			slices.Reverse(want)
		}
		found, err := s.must(t, bson.D{{Key: "find", Value: coll}, {Key: "filter", Value: filter}, {Key: "sort", Value: bson.D{{Key: "_id", Value: direction}}}}).
			Lookup("cursor", "firstBatch").Array().Values()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(want, found, func(a bson.Raw, b bson.RawValue) bool { return bytes.Equal(a, b.Value) }) {
			t.Fatalf("%v: %v, want %v", filter, found, want)
		}
	})
}
