package backfill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Row is one line of a team's records: a mail that was sent, or, of a list of users, one user. What is missing has type 0. Values
// are valid until the function that was given the row returns.
type Row struct {
	Line     int64 // of a file from 1; of a collection the number of the document as it came
	User     bson.RawValue
	Template bson.RawValue
	SentAt   bson.RawValue
	OpenedAt bson.RawValue
}

// Source is something that has rows.
type Source interface {
	fmt.Stringer
	// Rows calls f for each; with an error f ends the reading. A *SourceError says where it is malformed.
	Rows(ctx context.Context, f func(*Row) error) error
}

// Columns are the names of a source's fields: columns of a CSV file, dotted paths of documents. Empty: there is none.
type Columns struct {
	User, Template, SentAt, OpenedAt string
}

// SourceError says where a source can't be read.
type SourceError struct {
	Source string
	Line   int64 // 0: the whole of it
	Err    error
}

func (e *SourceError) Error() string {
	if e.Line == 0 {
		err := e.Err
		if p := (*fs.PathError)(nil); errors.As(err, &p) && p.Path == e.Source {
			err = p.Err // which does not say the path once more
		}
		return fmt.Sprintf("%s: %v", e.Source, err)
	}
	return fmt.Sprintf("%s:%d: %v", e.Source, e.Line, e.Err)
}

func (e *SourceError) Unwrap() error { return e.Err }
