package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"pgregory.net/rapid"

	"postbit/internal/campaign"
	"postbit/internal/minimongo/mongotest"
)

// memory is a plan in memory, for many plans in little time.
type memory struct {
	batches [][]bson.RawValue
	visited int
	end     bool
}

func (m *memory) EnsureIndexes(context.Context, time.Time) error { return nil }

func (m *memory) Insert(_ context.Context, _ *campaign.Run, n int, ids []bson.RawValue) error {
	if n != len(m.batches)+1 || m.end {
		return campaign.ErrBatchExists
	}
	m.batches = append(m.batches, slices.Clone(ids))
	return nil
}

func (m *memory) InsertEnd(_ context.Context, _ *campaign.Run, n int) error {
	if n != len(m.batches)+1 {
		return errors.New("an end that is not behind the last batch")
	}
	m.end = true
	return nil
}

func (m *memory) Last(context.Context, *campaign.Run) (campaign.BatchHead, bool, error) {
	n := len(m.batches)
	switch {
	case m.end:
		return campaign.BatchHead{N: n + 1, End: true}, true, nil
	case n == 0:
		return campaign.BatchHead{}, false, nil
	}
	return campaign.BatchHead{N: n, LastID: m.batches[n-1][len(m.batches[n-1])-1]}, true, nil
}

func (m *memory) Unvisited(context.Context, *campaign.Run) (int, error) {
	return len(m.batches) - m.visited, nil
}

// sameUser is the same for ids that can't be there beside each other: whole numbers of any type. SecantusDB (secantusd-rs) gives an
// int64 that fits as an int32 where _id alone is asked for.
func sameUser(id bson.RawValue) string {
	if f, ok := id.DoubleOK(); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return fmt.Sprint("number ", int64(f))
	}
	if id.Type == bson.TypeInt32 || id.Type == bson.TypeInt64 {
		return fmt.Sprint("number ", id.AsInt64())
	}
	return string(id.Type) + string(id.Value)
}

// TestPlanOfAnyUsers: whoever is in the collection is planned once, whatever the ids, the window and the order of visits.
func TestPlanOfAnyUsers(t *testing.T) {
	p := newPlanning(t)
	id := rapid.OneOf(
		rapid.Map(rapid.Int64(), func(v int64) any { return v }),
		rapid.Map(rapid.Int32(), func(v int32) any { return v }),
		rapid.Map(rapid.Float64(), func(v float64) any {
			if os.Getenv(mongotest.EnvURI) != "" && math.Abs(v) < 1e-100 {
				return 0.5 // secantusd-rs sorts the tiniest behind whole numbers, and compares them as what they are
			}
			return v
		}),
		rapid.Map(rapid.StringN(0, 3, -1), func(v string) any { return v }),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 3, 3), func(v []byte) any { return bson.Binary{Data: v} }),
		rapid.Map(rapid.Byte(), func(v byte) any { return bson.ObjectID{v} }),
		rapid.Map(rapid.Int64Range(-1<<45, 1<<45), func(v int64) any { return bson.DateTime(v) }),
		rapid.Map(rapid.Bool(), func(v bool) any { return v }),
		rapid.Map(rapid.IntRange(0, 9), func(v int) any { return bson.D{{Key: "k", Value: v}} }),
		rapid.Just[any](nil), rapid.Just[any](bson.MinKey{}), rapid.Just[any](bson.MaxKey{}),
		rapid.Map(rapid.StringN(1500, 2000, 8000), func(v string) any { return v }), // so that a batch is full of bytes before it is of users
	)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		p.t = t
		p.ok(p.users.Drop(p.ctx))
		docs := map[string]bool{}
		for _, v := range rapid.SliceOfN(id, 0, 40).Draw(t, "ids") {
			if _, err := p.users.InsertOne(p.ctx, bson.D{{Key: "_id", Value: v}}); mongo.IsDuplicateKeyError(err) {
				continue // 1 and 1.0
			} else {
				p.ok(err)
			}
			docs[sameUser(rawID(v))] = true
		}
		r := p.start("x", "{}", testStart.Add(time.Duration(n)*time.Second))
		defer func() { // so that it is in no other's way, also where this one fails
			_, err := p.runs.EndRun(p.ctx, r.ID, campaign.RunPlanning, campaign.RunDone, campaign.Counts{}, testStart)
			p.ok(err)
		}()
		m := &memory{}
		pl := p.planner(rapid.IntRange(1, 4).Draw(t, "window"))
		pl.Batches = m
		for i := 0; i < 200 && !m.end; i++ {
			p.handle(pl, r)
			m.visited = rapid.IntRange(min(m.visited+1, len(m.batches)), len(m.batches)).Draw(t, "visited")
		}
		if !m.end {
			t.Fatalf("the plan does not end: %v", sizes(m.batches))
		}
		for _, id := range slices.Concat(m.batches...) {
			key := sameUser(id)
			if !docs[key] {
				t.Fatalf("%s is planned twice, or nobody", id)
			}
			delete(docs, key)
		}
		if len(docs) > 0 {
			t.Fatalf("%d users are left out", len(docs))
		}
	})
}
