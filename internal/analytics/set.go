package analytics

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// AppliedCollection holds the sets of increments: those that are being applied, and for a while those that were.
const AppliedCollection = "applied"

// appliedSet is one document of `applied`. Its ids are unique over the whole collection.
type appliedSet struct {
	ID         string     `bson:"_id"` // "writer/number"
	Writer     string     `bson:"writer"`
	Number     int64      `bson:"number"`
	IDs        []string   `bson:"ids"`
	Increments []stored   `bson:"increments,omitempty"` // gone once it is done: nobody needs them again
	At         time.Time  `bson:"at"`
	DoneAt     *time.Time `bson:"done_at,omitempty"`
	Refused    []refusal  `bson:"refused,omitempty"` // documents that could not take their increments, ever
}

// stored are the increments of one document. Paths are values here and never keys, since a key with dots would be read as
// a path by every tool that touches `applied`.
type stored struct {
	Collection string   `bson:"collection"`
	ID         string   `bson:"id"`
	Inc        []amount `bson:"inc"`
	OnInsert   bson.D   `bson:"on_insert,omitempty"`
}

type amount struct {
	Path string `bson:"path"`
	By   int64  `bson:"by"`
}

// refusal is a document that the server will never let take its increments, for instance because somebody else put a
// string where a number was.
type refusal struct {
	Collection string `bson:"collection"`
	ID         string `bson:"id"`
	Code       int    `bson:"code"`
	Reason     string `bson:"reason"`
}

func setID(writer string, number int64) string { return fmt.Sprintf("%s/%d", writer, number) }

func newSet(writer string, number int64, ids []string, s *sums, at time.Time) *appliedSet {
	set := &appliedSet{ID: setID(writer, number), Writer: writer, Number: number, IDs: ids, At: at.UTC().Truncate(time.Millisecond)}
	for _, key := range s.order {
		d := s.docs[key]
		st := stored{Collection: key.collection, ID: key.id, OnInsert: d.onInsert}
		for _, path := range slices.Sorted(maps.Keys(d.inc)) {
			st.Inc = append(st.Inc, amount{path, d.inc[path]})
		}
		set.Increments = append(set.Increments, st)
	}
	return set
}

// filter matches the document as long as it has not taken the set: every document remembers the last number it took of
// each writer, and a writer finishes a number everywhere before it begins the next.
func (set *appliedSet) filter(id string) bson.D {
	return bson.D{{Key: "_id", Value: id}, {Key: "w." + set.Writer, Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gte", Value: set.Number}}}}}}
}

func (set *appliedSet) update(st stored) bson.D {
	u := bson.D{{Key: "$set", Value: bson.D{{Key: "w." + set.Writer, Value: set.Number}}}}
	if len(st.Inc) > 0 {
		inc := make(bson.D, len(st.Inc))
		for i, a := range st.Inc {
			inc[i] = bson.E{Key: a.Path, Value: smallest(a.By)}
		}
		u = append(u, bson.E{Key: "$inc", Value: inc})
	}
	if len(st.OnInsert) > 0 {
		u = append(u, bson.E{Key: "$setOnInsert", Value: st.OnInsert})
	}
	return u
}

// smallest stores a number in 4 bytes where it fits: a day's document holds 1,465 of them. The server widens a sum that
// outgrows 32 bits by itself.
func smallest(n int64) any {
	if n >= math.MinInt32 && n <= math.MaxInt32 {
		return int32(n)
	}
	return n
}
