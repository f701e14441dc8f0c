package backfill

import (
	"context"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Collection is a log of sends in MongoDB: a document for each.
type Collection struct {
	Coll    *mongo.Collection
	Columns Columns // dotted paths
	Where   bson.D  // which documents; nil is all
}

func (s *Collection) String() string { return s.Coll.Database().Name() + "." + s.Coll.Name() }

// Rows implements Source. Documents come in no order; those that are added meanwhile may or may not come.
func (s *Collection) Rows(ctx context.Context, f func(*Row) error) error {
	where := s.Where
	if where == nil {
		where = bson.D{}
	}
	paths := s.Columns.paths()
	cur, err := s.Coll.Find(ctx, where, options.Find().SetProjection(paths.projection()).SetBatchSize(2000))
	if err != nil {
		return fmt.Errorf("read %s: %w", s, err)
	}
	defer cur.Close(context.WithoutCancel(ctx))
	for n := int64(1); cur.Next(ctx); n++ {
		if err := f(paths.row(n, cur.Current)); err != nil {
			return err
		}
	}
	if err := cur.Err(); err != nil {
		return fmt.Errorf("read %s: %w", s, err)
	}
	return nil
}

// paths are columns as paths of a document, in the order of a Row.
type paths [4][]string

func (c Columns) paths() (p paths) {
	for i, name := range [...]string{c.User, c.Template, c.SentAt, c.OpenedAt} {
		if name != "" {
			p[i] = strings.Split(name, ".")
		}
	}
	return p
}

func (p *paths) row(line int64, doc bson.Raw) *Row {
	row := &Row{Line: line}
	for i, to := range [...]*bson.RawValue{&row.User, &row.Template, &row.SentAt, &row.OpenedAt} {
		if p[i] == nil {
			continue
		}
		if v, err := doc.LookupErr(p[i]...); err == nil {
			*to = v
		}
	}
	return row
}

// projection asks for the first part of each path: those can't collide.
func (p *paths) projection() bson.D {
	out := bson.D{}
	id := false
	for _, path := range p {
		if path == nil {
			continue
		}
		top := path[0]
		id = id || top == "_id"
		if !hasKey(out, top) {
			out = append(out, bson.E{Key: top, Value: 1})
		}
	}
	if !id {
		out = append(out, bson.E{Key: "_id", Value: 0})
	}
	return out
}

func hasKey(d bson.D, key string) bool {
	for _, e := range d {
		if e.Key == key {
			return true
		}
	}
	return false
}
