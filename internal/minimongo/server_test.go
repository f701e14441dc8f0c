package minimongo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"postbit/internal/clock"
)

func count(t *testing.T, s *Server, coll string) int {
	t.Helper()
	return int(s.must(t, bson.D{{Key: "count", Value: coll}}).Lookup("n").AsInt64())
}

func TestDataOutlivesTheServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for round := range 3 {
		s, err := Open(Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if got := count(t, s, "c"); got != round {
			t.Errorf("round %d begins with %d documents", round, got)
		}
		s.must(t, parse(`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a","unique":true}]}`))
		s.must(t, bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{bson.D{{Key: "a", Value: round}}}}})
		raw, err := s.run(bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{bson.D{{Key: "a", Value: 0}}}}})
		if err != nil || raw.Lookup("writeErrors", "0", "code").AsInt64() != codeDuplicateKey {
			t.Errorf("round %d: the unique index is gone: %v %v", round, raw, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	}
}

func TestOneProcessPerFolder(t *testing.T) {
	dir := t.TempDir()
	open(t, Config{Dir: dir})
	_, err := Open(Config{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "another process has it open") {
		t.Errorf("got %v", err)
	}
}

func TestMemoryLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	s, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.must(t, parse(`{"insert":"c","documents":[{"_id":1}]}`))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

func TestUnixSocket(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Listen("unix", filepath.Join(t.TempDir(), "mongo")); err == nil {
		t.Error("a path that the driver would not know as a socket was taken")
	}
	dir, err := os.MkdirTemp("", "mm") // short: a socket's path has at most 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if _, err := s.Listen("unix", filepath.Join(dir, "m.sock")); err != nil {
		t.Fatal(err)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(s.URI()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.Background())
	if err := client.Ping(context.Background(), nil); err != nil {
		t.Error(err)
	}
}

// TestWritesShareCommits: each write of a shared commit succeeds or fails for itself.
func TestWritesShareCommits(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	s.must(t, parse(`{"createIndexes":"c","indexes":[{"key":{"u":1},"name":"u","unique":true}]}`))
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			raw, err := s.run(bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: i}, {Key: "u", Value: i / 2}}}}})
			if err != nil {
				t.Error(err)
				return
			}
			failed := len(raw.Lookup("writeErrors").Value) > 0
			n := raw.Lookup("n").AsInt64()
			if failed != (n == 0) {
				t.Errorf("insert %d: %s", i, raw)
			}
		}()
	}
	wg.Wait()
	if got := count(t, s, "c"); got != 32 {
		t.Errorf("%d documents, want one for each of 32 unique values", got)
	}
}

func TestPanicUndoesItsCommitOnly(t *testing.T) {
	s := open(t, Config{})
	s.must(t, parse(`{"insert":"c","documents":[{"_id":1}]}`))
	err := s.store.update(context.Background(), nil)
	if err == nil {
		t.Error("no error from a write that panics")
	}
	s.must(t, parse(`{"insert":"c","documents":[{"_id":2}]}`))
	if got := count(t, s, "c"); got != 2 {
		t.Errorf("%d documents", got)
	}
}

// TestCursorIsASnapshot reads with getMore while the same documents are changed, deleted and added to.
func TestCursorIsASnapshot(t *testing.T) {
	s := open(t, Config{})
	var docs []any
	for i := range 1000 {
		docs = append(docs, bson.D{{Key: "_id", Value: i}, {Key: "n", Value: 0}})
	}
	s.insertAll(t, "c", docs)
	raw := s.must(t, parse(`{"find":"c","batchSize":10}`))
	id := raw.Lookup("cursor", "id").Int64()
	s.must(t, parse(`{"update":"c","updates":[{"q":{},"u":{"$inc":{"n":1}},"multi":true}]}`))
	s.must(t, parse(`{"delete":"c","deletes":[{"q":{"_id":{"$gte":500}},"limit":0}]}`))
	s.must(t, parse(`{"insert":"c","documents":[{"_id":5000}]}`))
	// The store grows a lot while the cursor is open, and is not held up by it.
	for i := range 40 {
		s.must(t, bson.D{{Key: "insert", Value: "big"}, {Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: i}, {Key: "x", Value: make([]byte, 1<<20)}}}}})
	}
	seen := 10
	for id != 0 {
		raw := s.must(t, bson.D{{Key: "getMore", Value: id}, {Key: "collection", Value: "c"}, {Key: "batchSize", Value: 100}})
		batch, err := raw.Lookup("cursor", "nextBatch").Array().Values()
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range batch {
			if doc := v.Document(); doc.Lookup("n").AsInt64() != 0 || doc.Lookup("_id").AsInt64() != int64(seen) {
				t.Fatalf("document %d is %s", seen, doc)
			}
			seen++
		}
		id = raw.Lookup("cursor", "id").Int64()
	}
	if seen != 1000 {
		t.Errorf("%d documents, want 1000", seen)
	}
}

func TestSweep(t *testing.T) {
	clk := clock.At(time.UnixMilli(1_000_000_000))
	now := clk.Now()
	s := open(t, Config{Now: clk.Now}) // which sweeps by itself, too
	s.must(t, parse(`{"createIndexes":"c","indexes":[{"key":{"at":1},"name":"ttl","expireAfterSeconds":60}]}`))
	date := func(ago time.Duration) bson.DateTime { return bson.NewDateTimeFromTime(now.Add(-ago)) }
	s.must(t, bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{
		bson.D{{Key: "_id", Value: "old"}, {Key: "at", Value: date(61 * time.Second)}},
		bson.D{{Key: "_id", Value: "young"}, {Key: "at", Value: date(59 * time.Second)}},
		bson.D{{Key: "_id", Value: "none"}},
		bson.D{{Key: "_id", Value: "number"}, {Key: "at", Value: 5}},
		bson.D{{Key: "_id", Value: "array"}, {Key: "at", Value: bson.A{date(0), date(time.Hour)}}},
	}}})
	if n, err := s.Sweep(context.Background()); n != 2 || err != nil {
		t.Errorf("swept %d: %v", n, err)
	}
	if got := s.must(t, parse(`{"count":"c","query":{"_id":{"$in":["young","none","number"]}}}`)).Lookup("n").AsInt64(); got != 3 || count(t, s, "c") != 3 {
		t.Errorf("%d of the right documents are left", got)
	}
	clk.Advance(time.Minute)
	if n, err := s.Sweep(context.Background()); n != 1 || err != nil {
		t.Errorf("a minute later: swept %d: %v", n, err)
	}
}

func TestSweepRunsByItself(t *testing.T) {
	s := open(t, Config{SweepEvery: time.Millisecond})
	s.must(t, parse(`{"createIndexes":"c","indexes":[{"key":{"at":1},"name":"ttl","expireAfterSeconds":0}]}`))
	s.must(t, bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{bson.D{{Key: "at", Value: bson.DateTime(0)}}}}})
	for count(t, s, "c") > 0 { // a sweep tells nobody that it was there: look again
		<-time.After(time.Millisecond)
	}
}

func TestSweepAfterClose(t *testing.T) {
	s, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sweep(context.Background()); err == nil {
		t.Error("a closed server swept")
	}
	if _, err := s.Listen("tcp", "127.0.0.1:0"); err == nil {
		t.Error("a closed server listens")
	}
}

func TestTimeLimit(t *testing.T) {
	s := open(t, Config{})
	var docs []any
	for i := range 5000 {
		docs = append(docs, bson.D{{Key: "_id", Value: i}, {Key: "s", Value: strings.Repeat("ab", 500)}})
	}
	s.insertAll(t, "c", docs)
	_, err := s.run(parse(`{"find":"c","filter":{"s":{"$regex":"(a|b)*(ab)*c$"}},"maxTimeMS":1}`))
	if codeOf(err) != codeMaxTimeExpired {
		t.Errorf("got %v", err)
	}
}

// TestRefused: what minimongo does not have is an error that names it.
func TestRefused(t *testing.T) {
	s := open(t, Config{})
	s.must(t, parse(`{"insert":"c","documents":[{"_id":1,"a":[1]}]}`))
	for _, tt := range []struct{ command, named string }{
		{`{"mapReduce":"c"}`, "mapReduce"},
		{`{"distinct":"c","key":"a"}`, "distinct"},
		{`{"find":"c","filter":{"$where":"true"}}`, "$where"},
		{`{"find":"c","filter":{"$expr":{}}}`, "$expr"},
		{`{"find":"c","filter":{"$text":{"$search":"x"}}}`, "$text"},
		{`{"find":"c","filter":{"a":{"$mod":[2,0]}}}`, "$mod"},
		{`{"find":"c","filter":{"a":{"$bitsAnySet":1}}}`, "$bitsAnySet"},
		{`{"find":"c","filter":{"a":{"$regex":"(?=x)"}}}`, "RE2"},
		{`{"find":"c","filter":{"a":{"$regex":"x","$options":"x"}}}`, "option x"},
		{`{"find":"c","collation":{"locale":"de"}}`, "collation"},
		{`{"find":"c","tailable":true}`, "tailable"},
		{`{"find":"c","let":{"x":1}}`, "let"},
		{`{"find":"c","projection":{"a":{"$slice":1}}}`, "$slice"},
		{`{"find":"c","projection":{"a.$":1}}`, "a.$"},
		{`{"find":"c","projection":{"b":"$a"}}`, "b"},
		{`{"find":"c","sort":{"a":{"$meta":"textScore"}}}`, "$meta"},
		{`{"find":"c","readConcern":{"level":"snapshot"}}`, "snapshot"},
		{`{"find":"c","txnNumber":{"$numberLong":"1"}}`, "Transaction"},
		{`{"insert":"c","documents":[{}],"writeConcern":{"w":2}}`, "'w' > 1"},
		{`{"insert":"c","documents":[{}],"writeConcern":{"w":"tag"}}`, "tag"},
		{`{"findAndModify":"c","query":{},"update":{"$set":{"a":1}},"arrayFilters":[]}`, "arrayFilters"},
		{`{"findAndModify":"c","query":{},"update":[{"$set":{"a":1}}]}`, "pipeline"},
		{`{"findAndModify":"c","query":{},"update":{"$pull":{"a":1}}}`, "$pull"},
		{`{"findAndModify":"c","query":{},"update":{"$currentDate":{"b":true}}}`, "$currentDate"},
		{`{"findAndModify":"c","query":{},"update":{"$set":{"a.$[]":1}}}`, "a.$[]"},
		{`{"findAndModify":"c","query":{},"update":{"$push":{"a":{"$each":[],"$sort":1}}}}`, "$sort"},
		{`{"aggregate":"c","pipeline":[{"$lookup":{}}],"cursor":{}}`, "$lookup"},
		{`{"aggregate":"c","pipeline":[{"$project":{"a":1}}],"cursor":{}}`, "$project"},
		{`{"aggregate":"c","pipeline":[{"$group":{"_id":null,"x":{"$avg":"$a"}}}],"cursor":{}}`, "$avg"},
		{`{"aggregate":"c","pipeline":[{"$group":{"_id":{"$year":"$a"}}}],"cursor":{}}`, "$year"},
		{`{"aggregate":"c","pipeline":[{"$group":{"_id":"$$NOW"}}],"cursor":{}}`, "$$NOW"},
		{`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a","partialFilterExpression":{}}]}`, "partialFilterExpression"},
		{`{"createIndexes":"c","indexes":[{"key":{"a":"text"},"name":"a"}]}`, "text"},
		{`{"createIndexes":"c","indexes":[{"key":{"a.0":1},"name":"a"}]}`, "a.0"},
		{`{"createIndexes":"c","indexes":[{"key":{"$**":1},"name":"a"}]}`, "$**"},
		{`{"create":"d","capped":true}`, "capped"},
		{`{"explain":{"count":"c"}}`, "count"},
		{`{"explain":{"find":"c","fooBar":1}}`, "fooBar"},
		{`{"saslStart":1}`, "saslStart"},
	} {
		t.Run(tt.named, func(t *testing.T) {
			_, err := s.run(parse(tt.command))
			if err == nil || !strings.Contains(err.Error(), tt.named) || codeOf(err) == 0 {
				t.Errorf("%s: %v", tt.command, err)
			}
		})
	}
	if got := s.must(t, parse(`{"find":"c"}`)).Lookup("cursor", "firstBatch", "0").String(); !strings.Contains(got, `{"_id": {"$numberInt":"1"},"a": [{"$numberInt":"1"}]}`) {
		t.Errorf("a refused command changed something: %s", got)
	}
}

func TestHostileNames(t *testing.T) {
	s := open(t, Config{})
	for _, name := range []string{"", "a$b", "a\x00b", ".a", strings.Repeat("x", 300), "system.users"} {
		if _, err := s.run(bson.D{{Key: "insert", Value: name}, {Key: "documents", Value: bson.A{bson.D{}}}}); codeOf(err) != codeInvalidNamespace {
			t.Errorf("collection %q: %v", name, err)
		}
	}
	deep := bson.D{}
	for range 300 {
		deep = bson.D{{Key: "$or", Value: bson.A{deep}}}
	}
	if _, err := s.run(bson.D{{Key: "find", Value: "c"}, {Key: "filter", Value: deep}}); err == nil {
		t.Error("a query of 300 levels was taken")
	}
	long := strings.Repeat("x", 40_000)
	s.must(t, parse(`{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a"}]}`))
	for _, doc := range []bson.D{{{Key: "_id", Value: long}}, {{Key: "a", Value: long}}} {
		raw, err := s.run(bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{doc}}})
		if err != nil || raw.Lookup("writeErrors", "0", "code").AsInt64() != codeKeyTooLong {
			t.Errorf("a key of 40,000 bytes: %s %v", raw, err)
		}
	}
	if got := fmt.Sprint(count(t, s, "c")); got != "0" {
		t.Errorf("%s documents", got)
	}
}
