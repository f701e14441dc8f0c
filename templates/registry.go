package templates

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

// Names of the collections.
const (
	Collection     = "templates"
	PushCollection = "templates.pushes" // pushes under way, see journal.go
)

// Registry is the templates in MongoDB, and who owns which bit.
type Registry struct {
	templates, pushes *mongo.Collection
	patience          time.Duration // how long a push that does not end is waited for
}

// Open returns the registry of db. It is read and written with majority and journal, whatever the URI says.
func Open(db *mongo.Database) (*Registry, error) {
	journal := true
	durable := options.Collection().
		SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()).
		SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journal})
	return &Registry{
		templates: db.Collection(Collection, durable),
		pushes:    db.Collection(PushCollection, durable),
		patience:  10 * time.Second,
	}, nil
}

// EnsureIndexes makes the unique index that lets a bit belong to one template only.
func (r *Registry) EnsureIndexes(ctx context.Context) error {
	_, err := r.templates.Indexes().CreateOne(ctx, mongo.IndexModel{
		Keys:    bson.D{{Key: "bitIndex", Value: 1}},
		Options: options.Index().SetUnique(true).SetName("bitIndex_1"),
	})
	if err != nil {
		return fmt.Errorf("templates: unique index on bitIndex: %w", err)
	}
	return nil
}

// settled leaves out the names that a push under way has only reserved.
func settled(filter ...bson.E) bson.D {
	return append(bson.D{{Key: "pending", Value: bson.D{{Key: "$ne", Value: true}}}}, filter...)
}

// Get returns a template, also a retired or an imported one, or ErrNotFound.
func (r *Registry) Get(ctx context.Context, name string) (*Template, error) {
	var rec record
	err := r.templates.FindOne(ctx, settled(bson.E{Key: "_id", Value: name})).Decode(&rec)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, fmt.Errorf("template %q: %w", name, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("template %q: %w", name, err)
	}
	return rec.template()
}

// Entry is a line of the list of who owns which bit.
type Entry struct {
	Name      string     `bson:"_id" json:"name"`
	BitIndex  int        `bson:"bitIndex" json:"bitIndex"`
	Repeat    string     `bson:"repeat" json:"repeat"`     // empty: imported
	Revision  int        `bson:"revision" json:"revision"` // 0: imported
	RetiredAt *time.Time `bson:"retired_at" json:"retired_at"`
	Used      *int64     `bson:"-" json:"used,omitempty"` // users with that bit; nil: not counted
}

// BitsInUse tells on how many users these bits are set; nil asks for all that any user has.
type BitsInUse func(ctx context.Context, bits []int) (map[int]int64, error)

// List returns all templates by bit index, retired and imported ones included.
func (r *Registry) List(ctx context.Context) ([]Entry, error) {
	opts := options.Find().SetSort(bson.D{{Key: "bitIndex", Value: 1}}).SetProjection(bson.D{
		{Key: "bitIndex", Value: 1}, {Key: "repeat", Value: 1}, {Key: "revision", Value: 1}, {Key: "retired_at", Value: 1},
	})
	entries, err := findAll[Entry](ctx, r.templates, settled(), opts)
	if err != nil {
		return nil, fmt.Errorf("list templates: %w", err)
	}
	return entries, nil
}

// ListUsed is List with the number of users that have each bit.
func (r *Registry) ListUsed(ctx context.Context, inUse BitsInUse) ([]Entry, error) {
	entries, err := r.List(ctx)
	if err != nil || len(entries) == 0 {
		return entries, err
	}
	bits := make([]int, len(entries))
	for i, e := range entries {
		bits[i] = e.BitIndex
	}
	users, err := inUse(ctx, bits)
	if err != nil {
		return nil, fmt.Errorf("list templates: users per bit: %w", err)
	}
	for i := range entries {
		n := users[entries[i].BitIndex]
		entries[i].Used = &n
	}
	return entries, nil
}

// ListMap is the map of names and bit indexes that Import reads, retired ones included: their bits are taken, too.
func (r *Registry) ListMap(ctx context.Context) (map[string]int, error) {
	entries, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	m := make(map[string]int, len(entries))
	for _, e := range entries {
		m[e.Name] = e.BitIndex
	}
	return m, nil
}

// findAll reads all documents that match, an empty slice where none does.
func findAll[T any](ctx context.Context, coll *mongo.Collection, filter bson.D, opts ...options.Lister[options.FindOptions]) ([]T, error) {
	cur, err := coll.Find(ctx, filter, opts...)
	if err != nil {
		return nil, err
	}
	found := []T{}
	err = cur.All(ctx, &found)
	return found, err
}

// all reads every template, bodies included.
func (r *Registry) all(ctx context.Context) (map[string]*Template, error) {
	recs, err := findAll[record](ctx, r.templates, settled())
	if err != nil {
		return nil, fmt.Errorf("read templates: %w", err)
	}
	all := make(map[string]*Template, len(recs))
	for _, rec := range recs {
		if all[rec.Name], err = rec.template(); err != nil {
			return nil, err
		}
	}
	return all, nil
}
