package users

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Each calls f for every user of the audience. The user and his document are valid until f returns; with an error f ends the
// pass. Documents are fetched while others are evaluated; memory is flat, whatever the size of the audience.
func (s *Store) Each(ctx context.Context, audience bson.D, extra []string, bit int, f func(*User) error) error {
	if audience == nil {
		audience = bson.D{}
	}
	return s.each(ctx, audience, &projectionOf{fields: s.Fields(extra), bit: bit}, f)
}

func (s *Store) each(ctx context.Context, audience bson.D, load *projectionOf, f func(*User) error) error {
	ctx, cancel := context.WithCancel(ctx)
	r := &reader{full: make(chan *chunk), empty: make(chan *chunk, chunksInFlight)}
	for range chunksInFlight {
		r.empty <- &chunk{}
	}
	go r.read(ctx, s, audience, load.fields)
	defer func() { // the reader ends before we do
		cancel()
		for range r.full {
		}
	}()
	for c := range r.full {
		start := 0
		for _, end := range c.ends {
			u := User{load: load}
			s.parse(&u, bson.Raw(c.docs[start:end:end]), load.bit)
			if err := f(&u); err != nil {
				return err
			}
			start = end
		}
		r.empty <- c
	}
	if r.err != nil {
		return fmt.Errorf("users: read the audience: %w", r.err)
	}
	return nil
}

const (
	chunksInFlight = 3 // one is filled, one waits, one is evaluated
	chunkDocs      = 256
	chunkBytes     = 256 << 10
)

// chunk is a number of documents, one behind the other. Chunks are used again and again.
type chunk struct {
	docs []byte
	ends []int
}

// reader fills chunks. It closes full when it is done; then err may be read.
type reader struct {
	full, empty chan *chunk
	err         error
}

func (r *reader) read(ctx context.Context, s *Store, audience, fields bson.D) {
	defer close(r.full)
	cur, err := s.coll.Find(ctx, audience, options.Find().SetProjection(fields).SetBatchSize(2*cursorBatch))
	if err != nil {
		r.err = err
		return
	}
	defer cur.Close(context.WithoutCancel(ctx))
	for c := r.take(ctx); c != nil; c = r.take(ctx) {
		for len(c.ends) < chunkDocs && len(c.docs) < chunkBytes && cur.Next(ctx) {
			c.docs = append(c.docs, cur.Current...)
			c.ends = append(c.ends, len(c.docs))
		}
		if len(c.ends) == 0 {
			break
		}
		select {
		case r.full <- c:
		case <-ctx.Done():
		}
	}
	if r.err = cur.Err(); r.err == nil {
		r.err = ctx.Err()
	}
}

// take is an empty chunk, or nil when ctx has ended.
func (r *reader) take(ctx context.Context) *chunk {
	select {
	case c := <-r.empty:
		c.docs, c.ends = c.docs[:0], c.ends[:0]
		return c
	case <-ctx.Done():
		return nil
	}
}
