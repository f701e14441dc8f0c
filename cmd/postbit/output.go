package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"golang.org/x/term"

	"postbit/internal/quantity"
)

// printJSON writes v as one line of JSON.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// say writes talk: what is going on, for people.
func (a *app) say(format string, args ...any) { fmt.Fprintf(a.err, format+"\n", args...) }

// table prints rows under a header, aligned by what a terminal shows (names come in every script). A column whose cells
// are all numbers stands to the right.
type table struct {
	header []string
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer) error {
	width := make([]int, len(t.header))
	right := make([]bool, len(t.header))
	for i, h := range t.header {
		width[i] = uniseg.StringWidth(h)
		right[i] = len(t.rows) > 0
		for _, row := range t.rows {
			row[i] = visible(row[i])
			width[i] = max(width[i], uniseg.StringWidth(row[i]))
			right[i] = right[i] && isNumber(row[i])
		}
	}
	var b strings.Builder
	for _, row := range append([][]string{t.header}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-uniseg.StringWidth(cell))
			if right[i] {
				cell = pad + cell
			} else {
				cell += pad
			}
			line.WriteString(cell + "  ")
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func isNumber(s string) bool {
	if s == "" || s == "-" {
		return true
	}
	digits := strings.Trim(strings.ReplaceAll(s, ",", ""), "%")
	_, err := strconv.ParseFloat(digits, 64)
	return err == nil
}

// visible makes a text from outside safe for a terminal: control characters and invalid bytes could move the cursor or
// change its colours, and marks of direction show a text that is not there. Spaces of all kinds and the joiners, which
// emoji and Persian names need, do neither.
func visible(s string) string {
	harmless := func(r rune) bool { return unicode.IsGraphic(r) || r == '\u200c' || r == '\u200d' }
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !harmless(r) }) < 0 {
		return s
	}
	return strings.Map(func(r rune) rune {
		if harmless(r) {
			return r
		}
		return '\uFFFD'
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// count writes a number with commas: 4,112,009.
func count(n int64) string { return quantity.Digits(n) }

// stamp writes a time as in RFC 3339, in whole seconds UTC; "-" for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// optionalTime is a time in JSON that may be missing: null.
func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// orDash shows an empty cell.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// visibleLines is visible for texts of several lines.
func visibleLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = visible(strings.ReplaceAll(strings.TrimSuffix(lines[i], "\r"), "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
