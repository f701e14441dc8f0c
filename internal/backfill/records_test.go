package backfill

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// plainRecords is what encoding/csv alone reads.
func plainRecords(text, name string, comma, comment rune) (out []string) {
	r := csv.NewReader(strings.NewReader(text))
	r.Comma, r.Comment, r.FieldsPerRecord, r.TrimLeadingSpace = comma, comment, -1, true
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if perr := (*csv.ParseError)(nil); errors.As(err, &perr) {
			return append(out, fmt.Sprintf("%s:%d: %v", name, perr.Line, perr.Err))
		}
		line, _ := r.FieldPos(0)
		out = append(out, fmt.Sprintf("%d %q", line, record))
	}
}

func readRecords(text string, size int, comment byte) (out []string) {
	err := eachRecord("log", bufio.NewReaderSize(strings.NewReader(text), size), comment, func(record [][]byte, line int64, _ bool) error {
		out = append(out, fmt.Sprintf("%d %q", line, record))
		return nil
	})
	if err != nil {
		out = append(out, err.Error())
	}
	return out
}

func TestRecordsAreThoseOfEncodingCSV(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		comma := rapid.SampledFrom([]string{",", ";"}).Draw(t, "comma")
		cell := rapid.SampledFrom([]string{"", "a", "b c", " d", "  ", "\t", "\u00a0é", "\xff", "\r", "#", `"q"`, ` "q"`, `"x"y"`, `"a""b"`, "\"a\nb\"", "\"a\r\n\n" + comma + "\"", `""`, strings.Repeat("long", 30), `"` + strings.Repeat("long", 30) + `"`})
		fault := rapid.SampledFrom([]string{`x"y`, `"`, `"x" `, `"x"y`, "\"\n"})
		end := rapid.SampledFrom([]string{"\n", "\n", "\r\n", "\n\n", "\r\n\r\n", "\r", "\r\r\n"})
		text := "h" + comma + "k\n" // the separator shows in the first line
		for range rapid.IntRange(0, 12).Draw(t, "records") {
			cells := rapid.SliceOfN(cell, 0, 4).Draw(t, "cells")
			if rapid.IntRange(0, 19).Draw(t, "faulty") == 0 {
				cells = append(cells, fault.Draw(t, "fault"))
			}
			text += strings.Join(cells, comma) + end.Draw(t, "end")
		}
		if rapid.Bool().Draw(t, "cut") {
			text = text[:rapid.IntRange(len("h,k\n"), len(text)).Draw(t, "to")]
		}
		comment := rapid.SampledFrom([]byte{0, '#'}).Draw(t, "comment")
		size := rapid.SampledFrom([]int{16, 40, 4096}).Draw(t, "buffer")
		if diff := cmp.Diff(plainRecords(text, "log", rune(comma[0]), rune(comment)), readRecords(text, size, comment)); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	})
}

func TestRecordsWithTabs(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"an empty field is one", "a\tb\tc\n1\t\t3\n\t\t\n", []string{`1 ["a" "b" "c"]`, `2 ["1" "" "3"]`, `3 ["" "" ""]`}},
		{"beside quotes", "a\tb\tc\n\"1\"\t\t\"3\"\n\t\"x\"\"y\"\t\t\n", []string{`1 ["a" "b" "c"]`, `2 ["1" "" "3"]`, `3 ["" "x\"y" "" ""]`}},
		{"spaces before a field are none of it", "a\tb\n 1\t \u00a0\"2\"\n", []string{`1 ["a" "b"]`, `2 ["1" "2"]`}},
		{"at the end of a line", "a\tb\n1\t\r\n2\t", []string{`1 ["a" "b"]`, `2 ["1" ""]`, `3 ["2" ""]`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, readRecords(c.text, 4096, 0)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRecordsEndWithTheFileThatBreaks(t *testing.T) {
	broken := errors.New("the disk is broken")
	for _, text := range []string{"a,b\n1,2", "a,b\n1,\"2", "a,b\n1,\"2\n"} {
		n := 0
		in := bufio.NewReaderSize(io.MultiReader(bytes.NewBufferString(strings.Repeat("a,b\n", 10)+text), iotest.ErrReader(broken)), 16)
		err := eachRecord("log", in, 0, func([][]byte, int64, bool) error { n++; return nil })
		var fault *SourceError
		if !errors.As(err, &fault) || !errors.Is(err, broken) || fault.Line != 0 || n != 11 {
			t.Errorf("%q: %d records, %v", text, n, err)
		}
	}
}
