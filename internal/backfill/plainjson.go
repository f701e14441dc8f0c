package backfill

import (
	"bytes"
	"encoding/binary"
	"math"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// plainObjects reads rows out of objects as logs have them: the fields are texts, whole numbers, true, false, null, {"$oid": …} and
// {"$date": …}. With all else, and with all that may be wrong, it gives up: parseLine then finds out what it is, at twenty times the price.
type plainObjects struct {
	paths  *paths
	row    Row
	values []byte // of the row
	rest   []byte // of the line
}

// read gives the row of a line that begins with {, valid until the next is read.
func (o *plainObjects) read(n int64, line []byte) (*Row, bool) {
	o.row, o.values, o.rest = Row{Line: n}, o.values[:0], line[1:]
	for first := true; !o.take('}'); first = false {
		if !first && !o.take(',') {
			return nil, false
		}
		name, ok := o.word()
		if !ok || bytes.HasPrefix(name, []byte("$")) || !o.take(':') {
			return nil, false
		}
		v, ok := o.value()
		if !ok {
			return nil, false
		}
		o.set(name, v)
	}
	return &o.row, len(o.rest) == 0
}

// set gives the row a field. Of two with one name the first counts.
func (o *plainObjects) set(name []byte, v bson.RawValue) {
	for i, to := range [...]*bson.RawValue{&o.row.User, &o.row.Template, &o.row.SentAt, &o.row.OpenedAt} {
		if path := o.paths[i]; len(path) == 1 && path[0] == string(name) && to.Type == 0 {
			*to = v
		}
	}
}

// take skips spaces and reads one character.
func (o *plainObjects) take(c byte) bool {
	for len(o.rest) > 0 && (o.rest[0] == ' ' || o.rest[0] == '\t' || o.rest[0] == '\r' || o.rest[0] == '\n') {
		o.rest = o.rest[1:]
	}
	if len(o.rest) == 0 || o.rest[0] != c {
		return false
	}
	o.rest = o.rest[1:]
	return true
}

// word reads a text in quotes that has no escapes.
func (o *plainObjects) word() ([]byte, bool) {
	if !o.take('"') {
		return nil, false
	}
	end := bytes.IndexByte(o.rest, '"')
	if end < 0 {
		return nil, false
	}
	text := o.rest[:end]
	o.rest = o.rest[end+1:]
	ascii := true
	for _, c := range text {
		if c < ' ' || c == '\\' {
			return nil, false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	return text, ascii || utf8.Valid(text)
}

// value reads what stands behind a name. That it ends there shows in what follows.
func (o *plainObjects) value() (bson.RawValue, bool) {
	from := len(o.values)
	kind, ok := bson.TypeString, false
	if o.take('{') {
		kind, ok = o.wrapped()
	} else if len(o.rest) > 0 && o.rest[0] == '"' { // take has skipped the spaces
		var text []byte
		text, ok = o.word()
		o.values = appendText(o.values, text)
	} else if kind, ok = o.literal(); !ok {
		kind, ok = o.number()
	}
	return bson.RawValue{Type: kind, Value: o.values[from:]}, ok
}

// wrapped reads an id or a date behind its {.
func (o *plainObjects) wrapped() (bson.Type, bool) {
	name, ok := o.word()
	if !ok || !o.take(':') {
		return 0, false
	}
	text, ok := o.word()
	if !ok || !o.take('}') {
		return 0, false
	}
	switch string(name) {
	case "$oid":
		oid, _, ok := objectID(text)
		o.values = append(o.values, oid[:]...)
		return bson.TypeObjectID, ok
	case "$date":
		ms, ok := plainTime(text)
		o.values = binary.LittleEndian.AppendUint64(o.values, uint64(ms))
		return bson.TypeDateTime, ok
	}
	return 0, false
}

func (o *plainObjects) literal() (bson.Type, bool) {
	for _, l := range [...]struct {
		text  string
		kind  bson.Type
		value []byte
	}{{"null", bson.TypeNull, nil}, {"true", bson.TypeBoolean, []byte{1}}, {"false", bson.TypeBoolean, []byte{0}}} {
		if rest, ok := bytes.CutPrefix(o.rest, []byte(l.text)); ok {
			o.rest, o.values = rest, append(o.values, l.value...)
			return l.kind, true
		}
	}
	return 0, false
}

// number reads a whole number of at most 18 digits, of 32 bits where it has room in them.
func (o *plainObjects) number() (bson.Type, bool) {
	digits, negative := bytes.CutPrefix(o.rest, []byte("-"))
	n, i := int64(0), 0
	for ; i < len(digits) && '0' <= digits[i] && digits[i] <= '9'; i++ {
		if i == 18 || i == 1 && n == 0 {
			return 0, false
		}
		n = n*10 + int64(digits[i]-'0')
	}
	o.rest = digits[i:]
	if negative {
		n = -n
	}
	if n < math.MinInt32 || n > math.MaxInt32 {
		o.values = binary.LittleEndian.AppendUint64(o.values, uint64(n))
		return bson.TypeInt64, i > 0
	}
	o.values = binary.LittleEndian.AppendUint32(o.values, uint32(n))
	return bson.TypeInt32, i > 0
}
