package backfill

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"io"
)

// eachRecord calls f with the records of a CSV text separated by commas, semicolons or tabs, and the line of each. first is the record
// that may be a header. comment 0: no line is one. A record is valid until f returns.
func eachRecord(source string, in *bufio.Reader, comment rune, f func(record []string, line int64, first bool) error) error {
	beginning, err := in.Peek(in.Size())
	if err != nil && !errors.Is(err, io.EOF) {
		return &SourceError{Source: source, Err: err}
	}
	r := csv.NewReader(in)
	r.Comma, r.Comment, r.FieldsPerRecord, r.ReuseRecord = separator(beginning), comment, -1, true
	r.TrimLeadingSpace = r.Comma != '\t' // a tab is a space: an empty field would be none
	for first := true; ; first = false {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if perr := (*csv.ParseError)(nil); errors.As(err, &perr) {
			return &SourceError{source, int64(perr.Line), perr.Err}
		}
		if err != nil {
			return &SourceError{source, 0, err}
		}
		line, _ := r.FieldPos(0)
		if err := f(record, int64(line), first); err != nil {
			return err
		}
	}
}

// separator is the one of , ; and tab that the first line has most of.
func separator(beginning []byte) rune {
	line, _, _ := bytes.Cut(beginning, []byte("\n"))
	best, most := ',', bytes.Count(line, []byte(","))
	for _, c := range ";\t" {
		if n := bytes.Count(line, []byte(string(c))); n > most {
			best, most = c, n
		}
	}
	return best
}
