package backfill

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"unicode"
	"unicode/utf8"
)

// eachRecord calls f with the records of a CSV text separated by commas, semicolons or tabs, and the line of each. first is the record
// that may be a header. comment 0: no line is one. A record is valid until f returns.
func eachRecord(source string, in *bufio.Reader, comment byte, f func(record [][]byte, line int64, first bool) error) error {
	beginning, err := in.Peek(in.Size())
	if err != nil && !errors.Is(err, io.EOF) {
		return &SourceError{Source: source, Err: err}
	}
	r := &records{in: in, comma: separator(beginning), comment: comment}
	for first := true; ; first = false {
		record, line, err := r.next()
		if err != nil {
			return recordFault(source, err)
		}
		if err := f(record, line, first); err != nil {
			return err
		}
	}
}

// recordFault says where records end, nothing where they do because all have come.
func recordFault(source string, err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	if perr := (*csv.ParseError)(nil); errors.As(err, &perr) {
		return &SourceError{source, int64(perr.Line), perr.Err}
	}
	return &SourceError{source, 0, err}
}

// separator is the one of , ; and tab that the first line has most of.
func separator(beginning []byte) byte {
	line, _, _ := bytes.Cut(beginning, []byte("\n"))
	best, most := byte(','), 0
	for _, c := range []byte(",;\t") {
		if n := bytes.Count(line, []byte{c}); n > most {
			best, most = c, n
		}
	}
	return best
}

// records reads CSV as encoding/csv does, without spaces at the beginning of fields and without a copy of every record. What has quotes
// other than around a whole field it leaves to encoding/csv, record by record.
type records struct {
	in      *bufio.Reader
	comma   byte
	comment byte
	line    int64 // the one read last, from 1
	long    []byte
	fields  [][]byte
	quoted  *csv.Reader
	lines   quotedLines
}

// next gives a record and its line. A *csv.ParseError has the line of the text; after the last record comes io.EOF.
func (r *records) next() (record [][]byte, line int64, err error) {
	for {
		raw, err := r.readLine()
		if err != nil {
			return nil, r.line, err
		}
		text := withoutEnd(raw)
		if len(text) == 0 || r.comment != 0 && text[0] == r.comment {
			continue
		}
		if r.split(text) {
			return r.fields, r.line, nil
		}
		return r.readQuoted(raw)
	}
}

// readLine gives a line with its end, valid until the next one is read. The last one has none.
func (r *records) readLine() ([]byte, error) {
	line, err := r.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		r.long = r.long[:0]
		for errors.Is(err, bufio.ErrBufferFull) {
			r.long = append(r.long, line...)
			line, err = r.in.ReadSlice('\n')
		}
		r.long = append(r.long, line...)
		line = r.long
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil
	}
	r.line++
	return line, err
}

// withoutEnd cuts off \n, \r\n, or the \r at the end of the text.
func withoutEnd(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r"))
}

// split finds the fields of a record that is one line. It gives up where quotes are anywhere but around a whole field.
func (r *records) split(text []byte) bool {
	r.fields = r.fields[:0]
	quotes := bytes.IndexByte(text, '"') >= 0
	for {
		text = r.trim(text)
		if quotes && len(text) > 0 && text[0] == '"' {
			end := bytes.IndexByte(text[1:], '"')
			if end < 0 {
				return false
			}
			r.fields = append(r.fields, text[1:1+end])
			text = text[2+end:]
			switch {
			case len(text) == 0:
				return true
			case text[0] != r.comma:
				return false
			}
			text = text[1:]
			continue
		}
		end := bytes.IndexByte(text, r.comma)
		field := text
		if end >= 0 {
			field = text[:end]
		}
		if quotes && bytes.IndexByte(field, '"') >= 0 {
			return false
		}
		r.fields = append(r.fields, field)
		if end < 0 {
			return true
		}
		text = text[end+1:]
	}
}

// trim leaves out spaces before a field. A tab between two fields is none.
func (r *records) trim(text []byte) []byte {
	for len(text) > 0 {
		c := text[0]
		if ' ' < c && c < utf8.RuneSelf || c == r.comma {
			break
		}
		space, n := utf8.DecodeRune(text)
		if !unicode.IsSpace(space) {
			break
		}
		text = text[n:]
	}
	return text
}

// readQuoted reads the record that begins with a line.
func (r *records) readQuoted(line []byte) ([][]byte, int64, error) {
	if r.quoted == nil {
		r.lines.of = r
		r.quoted = csv.NewReader(&r.lines)
		r.quoted.Comma, r.quoted.FieldsPerRecord, r.quoted.ReuseRecord = rune(r.comma), -1, true
		r.quoted.TrimLeadingSpace = r.comma != '\t'
	}
	first := r.line
	r.lines.rest = line
	record, err := r.quoted.Read()
	before := first - 1 - r.lines.read // lines that the other reader has not seen
	r.lines.read += r.line - first + 1
	if perr := (*csv.ParseError)(nil); err != nil && errors.As(err, &perr) {
		perr.StartLine += int(before)
		perr.Line += int(before)
	}
	r.fields = r.fields[:0]
	for _, field := range record {
		r.fields = append(r.fields, []byte(field))
	}
	return r.fields, first, err
}

// quotedLines gives lines one by one, so that who reads it takes none beyond its record.
type quotedLines struct {
	of   *records
	rest []byte
	read int64 // lines before the record
}

func (q *quotedLines) Read(to []byte) (int, error) {
	if len(q.rest) == 0 {
		line, err := q.of.readLine()
		if err != nil {
			return 0, err
		}
		q.rest = line
	}
	n := copy(to, q.rest)
	q.rest = q.rest[n:]
	return n, nil
}
