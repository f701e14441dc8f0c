package templates

import (
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// A template sees a user document as plain values: nil (missing, null, and what can't be shown), string, bool, int64,
// float64, decimal, date, list and map[string]any. No field access reaches a method of them: rewrite.go turns each into a
// look-up in a map.
type (
	list    = []any
	decimal struct {
		digits string
		approx float64
	}
	date struct {
		at   time.Time // in the user's zone
		wall bool      // exactly midnight UTC: a calendar day, which no zone moves
	}
)

// maxDepth is how deep documents and arrays within each other are followed; what lies deeper is missing.
const maxDepth = 16

// present marks a document of which only some fields were taken, so that `with` finds it there when none of them is.
const present = ""

// find follows a path of field names through documents.
func find(doc []byte, path []string) (bsoncore.Value, bool) {
	for i, name := range path {
		v, ok := element(doc, name)
		if !ok {
			return bsoncore.Value{}, false
		}
		if i == len(path)-1 {
			return v, true
		}
		if v.Type != bsoncore.TypeEmbeddedDocument {
			return bsoncore.Value{}, false
		}
		doc = v.Data
	}
	return bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: doc}, true
}

// element is the first field of doc with that name. A document that can't be read further has no more fields.
func element(doc []byte, name string) (found bsoncore.Value, ok bool) {
	each(doc, func(key []byte, v bsoncore.Value) bool {
		if string(key) == name {
			found, ok = v, true
		}
		return !ok
	})
	return found, ok
}

// each calls f for the elements of a document or an array until it returns false, or they can't be read.
func each(doc []byte, f func(key []byte, v bsoncore.Value) bool) {
	length, rest, ok := bsoncore.ReadLength(doc)
	if !ok || int(length) > len(doc) || length < 5 {
		return
	}
	rest = rest[:length-4]
	for len(rest) > 1 {
		elem, after, ok := bsoncore.ReadElement(rest)
		if !ok {
			return
		}
		key, err := elem.KeyBytesErr()
		if err != nil {
			return
		}
		v, err := elem.ValueErr()
		if err != nil {
			return
		}
		nested := v.Type == bsoncore.TypeEmbeddedDocument || v.Type == bsoncore.TypeArray // checked when it is walked
		if !nested && v.Validate() != nil {
			return
		}
		if !f(key, v) {
			return
		}
		rest = after
	}
}

// plain turns a value of a user document into what templates see, cut down to the fields that are needed of it.
func plain(v bsoncore.Value, n *need, zone *time.Location, depth int) any {
	if depth > maxDepth {
		return nil
	}
	switch v.Type {
	case bsoncore.TypeEmbeddedDocument:
		return plainDocument(v.Data, n, zone, depth)
	case bsoncore.TypeArray:
		return plainArray(v.Data, n, zone, depth)
	}
	if !n.whole {
		return nil // only its fields are asked for, and it has none
	}
	return scalar(v, zone)
}

func plainDocument(doc []byte, n *need, zone *time.Location, depth int) map[string]any {
	out := map[string]any{}
	if !n.whole {
		out[present] = true
	}
	each(doc, func(key []byte, v bsoncore.Value) bool {
		field := n
		if !n.whole {
			if field = n.fields[string(key)]; field == nil {
				return true
			}
		}
		if p := plain(v, field, zone, depth+1); p != nil {
			name := clean(string(key))
			if _, twice := out[name]; !twice {
				out[name] = p
			}
		}
		return true
	})
	return out
}

func plainArray(doc []byte, n *need, zone *time.Location, depth int) any {
	out := list{}
	each(doc, func(_ []byte, v bsoncore.Value) bool {
		p := plain(v, n, zone, depth+1)
		if p != nil || n.whole {
			out = append(out, p)
		}
		return true
	})
	return out
}

func scalar(v bsoncore.Value, zone *time.Location) any {
	switch v.Type {
	case bsoncore.TypeString:
		if text, ok := v.StringValueOK(); ok {
			return clean(text)
		}
	case bsoncore.TypeSymbol:
		if text, ok := v.SymbolOK(); ok {
			return clean(text)
		}
	case bsoncore.TypeBoolean:
		return v.Boolean()
	case bsoncore.TypeInt32:
		return int64(v.Int32())
	case bsoncore.TypeInt64:
		return v.Int64()
	case bsoncore.TypeDouble:
		return number(v.Double())
	case bsoncore.TypeDecimal128:
		h, l := v.Decimal128()
		return decimalNumber(bson.NewDecimal128(h, l))
	case bsoncore.TypeDateTime:
		return dateOf(time.UnixMilli(v.DateTime()), zone)
	case bsoncore.TypeTimestamp:
		t, _ := v.Timestamp()
		return dateOf(time.Unix(int64(t), 0), zone)
	case bsoncore.TypeObjectID:
		id := v.ObjectID()
		return hex.EncodeToString(id[:])
	case bsoncore.TypeBinary:
		if subtype, b, ok := v.BinaryOK(); ok && len(b) == 16 && (subtype == 3 || subtype == 4) {
			x := hex.EncodeToString(b)
			return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
		}
	}
	return nil
}

// number gives whole doubles as integers: Node.js writes every integer beyond 32 bits as a double.
func number(f float64) any {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return nil
	case f == math.Trunc(f) && math.Abs(f) <= 1<<53:
		return int64(f)
	}
	return f
}

func decimalNumber(d bson.Decimal128) any {
	digits := d.String()
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	return decimal{digits, f}
}

// dateOf refuses years that no calendar shows.
func dateOf(t time.Time, zone *time.Location) any {
	t = t.UTC()
	if t.Year() < 1 || t.Year() > 9999 {
		return nil
	}
	if t.Truncate(24 * time.Hour).Equal(t) {
		return date{t, true}
	}
	if zone != nil {
		t = t.In(zone)
	}
	return date{t, false}
}

// clean makes a string safe to show: valid UTF-8, and of the control characters only newline and tab.
func clean(s string) string {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf || c == 0x7f || c < ' ' && c != '\n' && c != '\t' {
			return cleanSlow(s)
		}
	}
	return s
}

func cleanSlow(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r' || r == '\u2028' || r == '\u2029' || r == '\u0085':
			return '\n'
		case r < ' ' || r >= 0x7f && r < 0xa0:
			return -1
		}
		return r
	}, s)
}

// show is how a value reads where a template prints it.
func show(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case int:
		return strconv.Itoa(v)
	case float64:
		if a := math.Abs(v); a != 0 && (a < 1e-6 || a >= 1e21) {
			return strconv.FormatFloat(v, 'g', -1, 64)
		}
		return strconv.FormatFloat(v, 'f', -1, 64)
	case decimal:
		return v.digits
	case bool:
		return strconv.FormatBool(v)
	case date:
		if v.wall {
			return v.at.Format("2006-01-02")
		}
		return v.at.Format("2006-01-02 15:04")
	case list:
		return showList(v)
	}
	return ""
}

func showList(l list) string {
	words := make([]string, 0, len(l))
	for _, v := range l {
		if w := show(v); w != "" {
			words = append(words, w)
		}
	}
	return strings.Join(words, ", ")
}

// truth is what `if`, `with`, `and`, `or` and `not` mean by true: not missing, false, zero or empty.
func truth(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case string:
		return v != ""
	case bool:
		return v
	case int64:
		return v != 0
	case int:
		return v != 0
	case float64:
		return v != 0
	case decimal:
		return v.approx != 0
	case list:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return true
}

// blank is what `default` replaces: what is missing, strings of spaces, empty lists.
func blank(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return strings.TrimSpace(v) == ""
	case list:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// compare orders two values of one kind; ok is false for others.
func compare(a, b any) (order int, ok bool) {
	if x, isNumber := float(a); isNumber {
		y, ok := float(b)
		if ia, ok := a.(int64); ok {
			if ib, ok := b.(int64); ok {
				return compareOrdered(ia, ib), true
			}
		}
		return compareOrdered(x, y), ok
	}
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return strings.Compare(a, b), ok
	case bool:
		b, ok := b.(bool)
		return compareOrdered(btoi(a), btoi(b)), ok
	case date:
		b, ok := b.(date)
		return a.at.Compare(b.at), ok
	}
	return 0, false
}

func compareOrdered[T int | int64 | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func float(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case int:
		return float64(v), true
	case float64:
		return v, true
	case decimal:
		return v.approx, true
	}
	return 0, false
}

// sortedNames are the fields of a document in a fixed order, without the mark of a partial one.
func sortedNames(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		if name != present {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
