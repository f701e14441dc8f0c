package campaign

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestBatchLimits(t *testing.T) {
	b := newBatchTest(t)
	big := bson.RawValue{Type: bson.TypeString, Value: bsonString(strings.Repeat("x", MaxBatchIDBytes))}
	for name, ids := range map[string][]bson.RawValue{"none": nil, "501 users": userIDs(501), "64 KB of ids": {big}} {
		if err := b.s.Insert(b.ctx, b.run, 1, ids); !errors.Is(err, ErrBatchTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func bsonString(s string) []byte {
	_, data, _ := bson.MarshalValue(s)
	return data
}

// The worst that can happen to a batch: the most and longest ids, a reply of 200 bytes for everyone, months of 4xx, each user in a wave of his
// own, all claims held, all outcomes in minutes of their own.
func TestWorstCaseSize(t *testing.T) {
	b := newBatchTest(t)
	b.run.ID = strings.Repeat("c", 64) + "@2026-12-01T09:00:00Z+manual-XXXX"
	per := MaxBatchIDBytes/MaxBatchUsers - 6
	var ids []bson.RawValue
	for i := range MaxBatchUsers {
		ids = append(ids, bson.RawValue{Type: bson.TypeString, Value: bsonString(fmt.Sprintf("%0*d", per, i))})
	}
	b.check(b.s.Insert(b.ctx, b.run, 1, ids))
	largest := 0
	measure := func() {
		raw, err := b.s.coll(b.run.Slot).FindOne(b.ctx, bson.D{}).Raw()
		b.check(err)
		largest = max(largest, len(raw))
	}
	reply := strings.Repeat("é", 300)
	const rounds = 3
	for round := range rounds {
		o := b.own(1)
		if d := o.Unsettled(); d != nil {
			b.check(b.s.MarkApplied(b.ctx, b.run, 1, d.Pass))
			o.Applied()
		}
		waiting := o.Waiting()
		for at := 0; at < len(waiting); at += MaxWaveUsers {
			wave := waiting[at:min(at+MaxWaveUsers, len(waiting))]
			b.check(o.PushWave(b.ctx, waveOf(wave...), nil, b.clk.Now()))
			var rs []Result
			for _, i := range wave {
				rs = append(rs, Result{Index: i, Claim: &HeldClaim{LastAt: b.clk.Now()}, Tried: true, Reply: reply, UnknownZone: true})
			}
			b.check(o.EndWave(b.ctx, rs, b.clk.Now()))
		}
		if round == rounds-1 {
			for _, i := range waiting { // every one in a minute of his own
				b.clk.Advance(time.Minute)
				o.Batch.record([]Result{{Index: i, Outcome: FailedTemporary}}, b.clk.Now())
			}
			b.check(o.write(b.ctx, o.Batch.clone(), bson.D{{Key: "log", Value: bson.Binary{Data: encodeLog(o.Batch.log)}},
				{Key: "claims", Value: bson.Binary{Data: encodeClaims(o.Batch.claims, len(ids))}}}, nil))
			b.check(o.write(b.ctx, o.Batch.clone(), bson.D{{Key: "open", Value: bson.Binary{Data: make([]byte, 2*MaxBatchUsers)}}}, nil))
		}
		measure()
		b.clk.Advance(6 * time.Hour)
		_, err := o.StorePass(b.ctx, PassEnd{Now: b.clk.Now(), Visited: true, TookBack: false, NotBefore: b.clk.Now()})
		b.check(err)
		measure()
	}
	t.Logf("largest document: %d bytes", largest)
	if largest > 200_000 || largest < 150_000 {
		t.Errorf("%d bytes, want the worst case below 200,000", largest)
	}
}
