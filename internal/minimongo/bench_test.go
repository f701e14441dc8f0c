package minimongo_test

import (
	"context"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/minimongo/mongotest"
)

const benchDocs = 100_000

// benchUsers looks like the users of the demo.
func benchUsers(b *testing.B) *mongo.Collection {
	b.Helper()
	c := mongotest.DB(b).Collection("users")
	var docs []any
	for i := range benchDocs {
		docs = append(docs, bson.D{
			{Key: "_id", Value: i}, {Key: "email", Value: fmt.Sprintf("user%d@example.com", i)}, {Key: "name", Value: "Anna Example"},
			{Key: "timezone", Value: "Europe/Berlin"}, {Key: "plan", Value: []string{"free", "pro"}[i%2]}, {Key: "n", Value: 0},
			{Key: "tpls_sent_at_least_once", Value: bson.Binary{Data: make([]byte, 19)}},
		})
		if len(docs) == 10_000 {
			if _, err := c.InsertMany(context.Background(), docs, options.InsertMany().SetOrdered(false)); err != nil {
				b.Fatal(err)
			}
			docs = docs[:0]
		}
	}
	b.ResetTimer()
	return c
}

func drain(b *testing.B, c *mongo.Collection, filter any) int {
	cur, err := c.Find(context.Background(), filter)
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for cur.Next(context.Background()) {
		n++
	}
	if err := cur.Err(); err != nil {
		b.Fatal(err)
	}
	return n
}

func BenchmarkScan(b *testing.B) {
	c := benchUsers(b)
	n := 0
	for b.Loop() {
		n += drain(b, c, bson.D{})
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "docs/s")
}

func BenchmarkFindByIDRange(b *testing.B) {
	c := benchUsers(b)
	n, at := 0, 0
	for b.Loop() {
		at = (at + 7919) % (benchDocs - 500)
		n += drain(b, c, bson.D{{Key: "plan", Value: "free"}, {Key: "_id", Value: bson.D{{Key: "$gte", Value: at}, {Key: "$lt", Value: at + 500}}}})
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "docs/s")
}

func BenchmarkFindByIDIn1000(b *testing.B) {
	c := benchUsers(b)
	n, at := 0, 0
	for b.Loop() {
		ids := make(bson.A, 1000)
		for i := range ids {
			at = (at + 7919) % benchDocs
			ids[i] = at
		}
		n += drain(b, c, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "docs/s")
}

func BenchmarkCompareAndSetBulk32(b *testing.B)  { compareAndSet(b, 32) }
func BenchmarkCompareAndSetBulk500(b *testing.B) { compareAndSet(b, 500) }

func compareAndSet(b *testing.B, size int) {
	c := benchUsers(b)
	n, at, round := 0, 0, make([]int, benchDocs)
	for b.Loop() {
		var models []mongo.WriteModel
		for range size {
			at = (at + 1) % benchDocs
			models = append(models, mongo.NewUpdateOneModel().
				SetFilter(bson.D{{Key: "_id", Value: at}, {Key: "n", Value: round[at]}, {Key: "tpls_sent_at_least_once", Value: bson.Binary{Data: make([]byte, 19)}}}).
				SetUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: round[at] + 1}, {Key: "postbit.last_at", Value: bson.DateTime(at)}}}}))
			round[at]++
		}
		res, err := c.BulkWrite(context.Background(), models, options.BulkWrite().SetOrdered(false))
		if err != nil {
			b.Fatal(err)
		}
		if res.ModifiedCount != int64(size) {
			b.Fatalf("%d of %d modified", res.ModifiedCount, size)
		}
		n += size
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "updates/s")
}

func BenchmarkUpdateOneParallel(b *testing.B) {
	c := benchUsers(b)
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, err := c.UpdateOne(context.Background(), bson.D{{Key: "_id", Value: i % benchDocs}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "updates/s")
}
