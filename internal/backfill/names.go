package backfill

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/bitfield"
	"postbit/internal/quantity"
)

// Names maps what sources call a template to its bit: its name, or its index where a template owns it.
type Names struct {
	bits  map[string]int
	owned [bitfield.MaxIndex + 1]string
}

// NewNames takes the bit index of every template, retired ones included.
func NewNames(bits map[string]int) (*Names, error) {
	n := &Names{bits: bits}
	for name, bit := range bits {
		if bit < 0 || bit > bitfield.MaxIndex {
			return nil, fmt.Errorf("the template %s has the bit index %d", name, bit)
		}
		n.owned[bit] = name
	}
	return n, nil
}

// Name is the template that owns a bit; "" where none does.
func (n *Names) Name(bit int) string {
	if bit < 0 || bit > bitfield.MaxIndex {
		return ""
	}
	return n.owned[bit]
}

// bit finds the template of a row. A name that looks like a number is a name first.
func (n *Names) bit(v bson.RawValue) (int, bool) {
	if text, ok := v.StringValueOK(); ok {
		if bit, ok := n.bits[text]; ok {
			return bit, true
		}
		text = strings.TrimSpace(text)
		if bit, ok := n.bits[text]; ok {
			return bit, true
		}
		bit, err := strconv.Atoi(text)
		return bit, err == nil && strconv.Itoa(bit) == text && n.Name(bit) != ""
	}
	f, ok := number(v)
	if !ok || f != math.Trunc(f) || f < 0 || f > bitfield.MaxIndex {
		return 0, false
	}
	return int(f), n.Name(int(f)) != ""
}

func number(v bson.RawValue) (float64, bool) {
	switch v.Type {
	case bson.TypeInt32:
		n, ok := v.Int32OK()
		return float64(n), ok
	case bson.TypeInt64:
		n, ok := v.Int64OK()
		return float64(n), ok
	case bson.TypeDouble:
		return v.DoubleOK()
	}
	return 0, false
}

// label shows a value that is no template, for people.
func label(v bson.RawValue) string {
	switch v.Type {
	case 0:
		return "(missing)"
	case bson.TypeNull, bson.TypeUndefined:
		return "(null)"
	case bson.TypeString:
		text, ok := v.StringValueOK()
		switch {
		case !ok:
			return "(unreadable)"
		case text == "":
			return "(empty)"
		}
		return clip(text, 80)
	}
	if f, ok := number(v); ok {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return fmt.Sprintf("(BSON type %s)", v.Type)
}

func clip(s string, n int) string {
	if len(s) > n {
		s = s[:n]
		for len(s) > 0 && !utf8.ValidString(s[max(0, len(s)-4):]) && len(s) > n-4 {
			s = s[:len(s)-1]
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// tally counts names, the first maxTally different ones each on its own.
type tally struct {
	counts map[string]int64
	total  int64
}

const maxTally = 1000

func (t *tally) add(name string) {
	t.total++
	if t.counts == nil {
		t.counts = map[string]int64{}
	}
	if _, ok := t.counts[name]; ok || len(t.counts) < maxTally {
		t.counts[name]++
	}
}

// UnknownError says which names of a source belong to no template.
type UnknownError struct {
	Rows  int64
	Names map[string]int64 // how often; at most 1,000 of them
}

func (e *UnknownError) Error() string {
	names := make([]string, 0, len(e.Names))
	for name := range e.Names {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := e.Names[b] - e.Names[a]; d != 0 {
			return int(max(-1, min(1, d)))
		}
		return strings.Compare(a, b)
	})
	shown := names[:min(len(names), 20)]
	for i, name := range shown {
		shown[i] = fmt.Sprintf("%s (%d)", name, e.Names[name])
	}
	more := ""
	if len(names) > len(shown) {
		more = fmt.Sprintf(" and %d more", len(names)-len(shown))
	}
	return fmt.Sprintf("%s a template is named that postbit does not know: %s%s; register them with `templates import`, or leave them out with --skip-unknown. Nothing was written",
		quantity.Of(e.Rows, "time"), strings.Join(shown, ", "), more)
}
