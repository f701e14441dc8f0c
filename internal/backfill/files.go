package backfill

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// maxLine bounds a line of JSON, and the beginning of a CSV file.
const maxLine = 1 << 20

// File is CSV or JSON lines. Which of them shows in its first byte that is no space: { begins JSON.
type File struct {
	Name     string
	Open     func() (io.ReadCloser, error)
	Columns  Columns
	Optional Columns // columns that need not be there; a column named in Columns does
	NoHeader bool    // of CSV: columns are numbers from 1
}

func (s *File) String() string { return s.Name }

// Rows implements Source.
func (s *File) Rows(ctx context.Context, f func(*Row) error) error { return ahead(ctx, s.read, f) }

func (s *File) read(ctx context.Context, f func(*Row) error) error {
	in, err := s.Open()
	if err != nil {
		return &SourceError{Source: s.Name, Err: err}
	}
	defer in.Close()
	r := bufio.NewReaderSize(in, 256<<10)
	if bom, _ := r.Peek(3); string(bom) == "\xef\xbb\xbf" {
		_, _ = r.Discard(3)
	}
	first, err := firstByte(r)
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return &SourceError{Source: s.Name, Err: err}
	case first == '{':
		return s.json(ctx, r, f)
	case first == '[':
		return &SourceError{Source: s.Name, Line: 1, Err: errors.New("a JSON array; write one object on each line (jq -c '.[]')")}
	}
	return s.csv(ctx, r, f)
}

// firstByte looks at the first byte that is no space, and leaves what stands before it to be read.
func firstByte(r *bufio.Reader) (byte, error) {
	for n := 1; ; n++ {
		b, err := r.Peek(n)
		if err != nil {
			return 0, err
		}
		if c := b[n-1]; c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c, nil
		}
	}
}

// json reads one object a line. Extended JSON ({"$oid": …}, {"$date": …}) is understood.
func (s *File) json(ctx context.Context, r *bufio.Reader, f func(*Row) error) error {
	paths := s.columns().paths()
	for n := int64(1); ; n++ {
		line, err := readLine(r)
		if err != nil && !errors.Is(err, io.EOF) {
			return &SourceError{s.Name, n, err}
		}
		if len(bytes.TrimSpace(line)) > 0 {
			doc, perr := parseLine(line)
			if perr != nil {
				return &SourceError{s.Name, n, perr}
			}
			if err := f(paths.row(n, doc)); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func readLine(r *bufio.Reader) ([]byte, error) {
	var long []byte
	for {
		part, err := r.ReadSlice('\n')
		switch {
		case len(long)+len(part) > maxLine:
			return nil, fmt.Errorf("a line of more than %d bytes", maxLine)
		case errors.Is(err, bufio.ErrBufferFull):
			long = append(long, part...)
			continue
		case long != nil:
			return append(long, part...), err
		}
		return part, err
	}
}

// parseLine reads one JSON object.
func parseLine(line []byte) (bson.Raw, error) {
	line = bytes.TrimSpace(line)
	var doc bson.Raw
	if line[0] != '{' || !json.Valid(line) { // the other reader takes no notice of what follows an object
		return nil, errors.New("not a JSON object")
	}
	if err := bson.UnmarshalExtJSON(line, false, &doc); err != nil {
		return nil, fieldFault(line, err)
	}
	return doc, nil
}

// fieldFault names the field of an object that is JSON, but no Extended JSON: the other reader doesn't.
func fieldFault(object []byte, err error) error {
	var fields map[string]json.RawMessage
	if uerr := json.Unmarshal(object, &fields); uerr != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var doc bson.Raw
		ferr := bson.UnmarshalExtJSON(slices.Concat([]byte(`{"v":`), fields[name], []byte("}")), false, &doc)
		var number *strconv.NumError
		switch {
		case errors.As(ferr, &number):
			return fmt.Errorf("%s: not Extended JSON: %q is no number", name, clip(number.Num, 40))
		case ferr != nil:
			return fmt.Errorf("%s: not Extended JSON: %w", name, ferr)
		}
	}
	return fmt.Errorf("not Extended JSON: %w", err)
}

func (s *File) columns() Columns {
	c := s.Columns
	for _, p := range [...]struct{ to, or *string }{
		{&c.User, &s.Optional.User}, {&c.Template, &s.Optional.Template}, {&c.SentAt, &s.Optional.SentAt}, {&c.OpenedAt, &s.Optional.OpenedAt},
	} {
		if *p.to == "" {
			*p.to = *p.or
		}
	}
	return c
}

// csv reads records under a header that names the columns.
func (s *File) csv(ctx context.Context, in *bufio.Reader, f func(*Row) error) error {
	var at [4]int
	var row Row
	var texts []byte // of the row
	return eachRecord(s.Name, in, 0, func(record []string, line int64, first bool) (err error) {
		if first {
			if at, err = s.places(record); err != nil {
				return &SourceError{s.Name, line, err}
			}
			if !s.NoHeader {
				return nil
			}
		}
		row, texts = Row{Line: line}, texts[:0]
		for i, to := range [...]*bson.RawValue{&row.User, &row.Template, &row.SentAt, &row.OpenedAt} {
			if at[i] >= 0 && at[i] < len(record) {
				from := len(texts)
				texts = bsoncore.AppendString(texts, record[at[i]])
				*to = bson.RawValue{Type: bson.TypeString, Value: texts[from:]}
			}
		}
		if err := f(&row); err != nil {
			return err
		}
		return ctx.Err()
	})
}

// places finds the columns; -1 where an optional one is not there.
func (s *File) places(header []string) (at [4]int, err error) {
	find := func(name string) int {
		if s.NoHeader {
			n, err := strconv.Atoi(name)
			if err != nil || n < 1 || n > len(header) {
				return -1
			}
			return n - 1
		}
		for i, h := range header {
			if strings.EqualFold(strings.TrimSpace(h), name) {
				return i
			}
		}
		return -1
	}
	for i, c := range [...][2]string{
		{s.Columns.User, s.Optional.User}, {s.Columns.Template, s.Optional.Template}, {s.Columns.SentAt, s.Optional.SentAt}, {s.Columns.OpenedAt, s.Optional.OpenedAt},
	} {
		name, optional := c[0], c[1]
		switch at[i] = -1; {
		case name != "":
			if at[i] = find(name); at[i] < 0 {
				if s.NoHeader {
					return at, fmt.Errorf("there is no column %q: without a header columns are numbers, here from 1 to %d", name, len(header))
				}
				return at, fmt.Errorf("there is no column %q; the header has %s", name, clip(strings.Join(header, ", "), 200))
			}
		case optional != "":
			at[i] = find(optional)
		}
	}
	return at, nil
}
