package backfill

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Chunks are big because handing one over is dear: those of 256 rows take more time than a second processor saves.
const (
	chunkRows  = 2048
	chunkBytes = 512 << 10 // of values; a single row may have more
	chunks     = 3         // one is filled, one is waiting, one is being understood
)

// ahead calls f with the rows that read calls its function with, in their order, and then returns what read does. read runs some rows ahead in a
// goroutine of its own, which has ended when ahead returns.
func ahead(ctx context.Context, read func(ctx context.Context, f func(*Row) error) error, f func(*Row) error) error {
	ctx, stop := context.WithCancel(ctx)
	full, empty := make(chan *chunk), make(chan *chunk, chunks)
	for range chunks {
		empty <- &chunk{}
	}
	var fault error // of read, once full is closed
	go func() {
		defer close(full)
		fault = fill(ctx, read, full, empty)
	}()
	defer func() { // where f has failed
		stop()
		for range full {
		}
	}()
	for c := range full {
		for i := range c.rows {
			if err := f(&c.rows[i]); err != nil {
				return err
			}
		}
		empty <- c
	}
	return fault
}

// fill puts rows into empty chunks. With an error of ctx some may be missing.
func fill(ctx context.Context, read func(ctx context.Context, f func(*Row) error) error, full chan<- *chunk, empty <-chan *chunk) error {
	c := <-empty
	send := func() error {
		select {
		case full <- c:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	fault := read(ctx, func(row *Row) error {
		if c.add(row); len(c.rows) < chunkRows && len(c.values) < chunkBytes {
			return nil
		}
		if err := send(); err != nil {
			return err
		}
		select {
		case c = <-empty:
			c.rows, c.values = c.rows[:0], c.values[:0]
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := send(); err != nil {
		return err
	}
	return fault
}

// chunk is a number of rows that go from one goroutine to the other, with their values.
type chunk struct {
	rows   []Row
	values []byte
}

func (c *chunk) add(row *Row) {
	c.rows = append(c.rows, *row)
	own := &c.rows[len(c.rows)-1]
	for _, v := range [...]*bson.RawValue{&own.User, &own.Template, &own.SentAt, &own.OpenedAt} {
		from := len(c.values)
		c.values = append(c.values, v.Value...)
		v.Value = c.values[from:]
	}
}
