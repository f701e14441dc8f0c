package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// Errors where the caller decides what they come to.
var (
	ErrNotFound    = errors.New("not found")
	ErrRunExists   = errors.New("the run exists already")
	ErrRunFinished = errors.New("the run is finished")
	ErrKeyInUse    = errors.New("the key belongs to another run")
)

// Store keeps campaigns and runs. It is safe for concurrent use.
type Store struct {
	campaigns *mongo.Collection
	runs      *mongo.Collection
}

// NewStore returns the store in db. Whatever db's own settings say, it reads from the primary with majority and writes with
// majority and journal: a run's _id is a lock, and a lock that is forgotten when a server is killed is none.
func NewStore(db *mongo.Database) *Store {
	return &Store{
		campaigns: db.Collection("campaigns", Durable()),
		runs:      db.Collection("runs", Durable()),
	}
}

// Durable are the options of every collection that a guarantee rests on.
func Durable() *options.CollectionOptionsBuilder {
	journaled := true
	return options.Collection().
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()).
		SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journaled})
}

// EnsureIndexes creates what is missing. The index on key is sparse: most runs have none.
func (s *Store) EnsureIndexes(ctx context.Context) error {
	_, err := s.runs.Indexes().CreateMany(ctx, []mongo.IndexModel{
		{Keys: bson.D{{Key: "short", Value: 1}}, Options: options.Index().SetUnique(true)},
		{Keys: bson.D{{Key: "campaign", Value: 1}, {Key: "slot", Value: -1}}},
		{Keys: bson.D{{Key: "state", Value: 1}}},
		{Keys: bson.D{{Key: "key", Value: 1}}, Options: options.Index().SetUnique(true).SetSparse(true)},
	})
	if err != nil {
		return fmt.Errorf("campaign: indexes of runs: %w", err)
	}
	_, err = s.campaigns.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "state", Value: 1}, {Key: "next_at", Value: 1}}})
	if err != nil {
		return fmt.Errorf("campaign: indexes of campaigns: %w", err)
	}
	return nil
}

// utcMillis is t as MongoDB keeps it.
func utcMillis(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
