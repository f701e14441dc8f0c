package backfill

import (
	"context"
	"encoding/binary"
	"fmt"

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

// textOf is the text of a string without a copy of it, valid as long as the value is.
func textOf(v bson.RawValue) ([]byte, bool) {
	if v.Type != bson.TypeString || len(v.Value) < 5 {
		return nil, false
	}
	n := int32(binary.LittleEndian.Uint32(v.Value)) // with the zero at the end
	if n < 1 || int(n) > len(v.Value)-4 {
		return nil, false
	}
	return v.Value[4 : 4+n-1], true
}

// appendText appends a string as the value of BSON.
func appendText(to, text []byte) []byte {
	to = binary.LittleEndian.AppendUint32(to, uint32(len(text)+1))
	return append(append(to, text...), 0)
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
		return fmt.Sprintf("%s: %v", e.Source, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.Source, e.Line, e.Err)
}

func (e *SourceError) Unwrap() error { return e.Err }
