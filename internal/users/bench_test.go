package users

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/minimongo/mongotest"
)

// BenchmarkClaim compares waves of claims with the same number of bare compare-and-sets in bulks of the same size.
// POSTBIT_TEST_MONGO_URI names the server.
func BenchmarkClaim(b *testing.B) {
	const wave, n = 32, 3200
	f := open(b, mongotest.DB(b), Config{})
	ids := make([]bson.RawValue, n)
	docs := make([]bson.D, n)
	for i := range n {
		ids[i] = value(b, i)
		docs[i] = d("_id", i, "email", "a@example.com", "tpls_sent_at_least_once", blob(0, 147))
	}
	f.insert(docs...)
	rate := func(name string, once func(round int)) {
		b.Run(name, func(b *testing.B) {
			round := 0
			for b.Loop() {
				once(round)
				round++
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "users/s")
		})
	}
	rate("claims", func(round int) {
		b.StopTimer()
		us, err := f.store.Load(b.Context(), nil, ids, nil, round%4000)
		if err != nil || len(us) != n {
			b.Fatal(len(us), err)
		}
		b.StartTimer()
		for i := 0; i < n; i += wave {
			res, err := f.store.Claim(b.Context(), us[i:i+wave], round%4000, RunID{byte(round), byte(round >> 8), 1}, noon)
			if err != nil || res[0].State != Claimed || res[wave-1].State != Claimed {
				b.Fatal(res, err)
			}
		}
	})
	rate("bare", func(round int) {
		b.StopTimer()
		us, err := f.store.Load(b.Context(), nil, ids, nil, round%4000)
		if err != nil || len(us) != n {
			b.Fatal(len(us), err)
		}
		models := make([]mongo.WriteModel, n)
		for i := range us {
			c := us[i].claim(round%4000, RunID{byte(round), byte(round >> 8), 2}, noon)
			models[i] = f.store.claimModel(&us[i], &c)
		}
		b.StartTimer()
		for i := 0; i < n; i += wave {
			res, err := f.store.coll.BulkWrite(b.Context(), models[i:i+wave], options.BulkWrite().SetOrdered(false))
			if err != nil || res.MatchedCount != wave {
				b.Fatal(res, err)
			}
		}
	})
}
