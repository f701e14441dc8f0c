package backfill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"postbit/internal/clock"
)

// MarksCollection is the usual name of the collection of marks.
const MarksCollection = "backfills"

// markEvery is how many batches lie between two marks. What lies behind the last mark is looked at again after a kill.
const markEvery = 8

// Marks remember how far a backfill has come: a document for each fingerprint and users collection. A mark is written after what
// it covers, so it may be behind, never ahead.
type Marks struct {
	coll  *mongo.Collection
	users string // which collection they are about
	clock *clock.Clock
}

// NewMarks keeps marks in a database.
func NewMarks(db *mongo.Database, usersNamespace string, clk *clock.Clock) *Marks {
	journal := true
	return &Marks{clock: clk, users: usersNamespace, coll: db.Collection(MarksCollection, options.Collection().
		SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()).
		SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journal}))}
}

// mark is such a document.
type mark struct {
	ID      string           `bson:"_id"`
	Source  string           `bson:"source"`
	Started time.Time        `bson:"started_at"`
	At      time.Time        `bson:"at"`
	Done    time.Time        `bson:"done_at,omitempty"`
	Key     []byte           `bson:"key"` // everybody up to it is done; nil: nobody
	Result  Result           `bson:"result"`
	Bits    map[string]int64 `bson:"bits"`

	since int // batches since it was written
}

// result is what was counted up to the mark.
func (m *mark) result() *Result {
	r := m.Result
	for name, n := range m.Bits {
		if bit, err := strconv.Atoi(name); err == nil {
			if r.Bits == nil {
				r.Bits = map[int]int64{}
			}
			r.Bits[bit] = n
		}
	}
	return &r
}

// begin finds the mark of an interrupted backfill, or makes a new one.
func (s *Marks) begin(ctx context.Context, fingerprint, source string) (*mark, error) {
	id := s.users + "/" + fingerprint
	m := &mark{}
	err := s.coll.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(m)
	switch {
	case err == nil && m.Done.IsZero():
		return m, nil
	case err != nil && !errors.Is(err, mongo.ErrNoDocuments):
		return nil, fmt.Errorf("look for a mark of an interrupted backfill in %s: %w", MarksCollection, err)
	}
	m = &mark{ID: id, Source: source, Started: s.clock.Now().UTC()}
	return m, s.write(ctx, m)
}

// keepAt says that everybody up to key is done.
func (s *Marks) keepAt(ctx context.Context, m *mark, key []byte, r *Result) error {
	m.Key = key
	return s.keep(ctx, m, r)
}

func (s *Marks) done(ctx context.Context, m *mark, r *Result) error {
	m.Done = s.clock.Now().UTC()
	return s.keep(ctx, m, r)
}

func (s *Marks) keep(ctx context.Context, m *mark, r *Result) error {
	m.Result, m.since = *r, 0
	m.Bits = map[string]int64{}
	for bit, n := range maps.All(r.Bits) {
		m.Bits[strconv.Itoa(bit)] = n
	}
	return s.write(ctx, m)
}

func (s *Marks) write(ctx context.Context, m *mark) error {
	m.At = s.clock.Now().UTC()
	_, err := s.coll.ReplaceOne(ctx, bson.D{{Key: "_id", Value: m.ID}}, m, options.Replace().SetUpsert(true))
	if err != nil {
		return fmt.Errorf("write the mark of the backfill in %s: %w", MarksCollection, err)
	}
	return nil
}
