package users

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// eachElement calls f for the elements of a document and reports whether it could be read to its end.
func eachElement(doc []byte, f func(name []byte, v bson.RawValue)) bool {
	length, rest, ok := bsoncore.ReadLength(doc)
	if !ok || int(length) > len(doc) || length < 5 {
		return false
	}
	rest = rest[:length-4]
	for len(rest) > 1 {
		typ := rest[0]
		end := bytes.IndexByte(rest[1:], 0)
		if end < 0 {
			return false
		}
		value, next, ok := bsoncore.ReadValue(rest[end+2:], bsoncore.Type(typ))
		if !ok {
			return false
		}
		f(rest[1:1+end], bson.RawValue{Type: bson.Type(typ), Value: value.Data})
		rest = next
	}
	return len(rest) == 1 && rest[0] == 0
}

// textOf is the bytes of a string, valid UTF-8 or not.
func textOf(v bson.RawValue) ([]byte, bool) {
	if v.Type != bson.TypeString || len(v.Value) < 5 {
		return nil, false
	}
	return v.Value[4 : len(v.Value)-1], true
}

// dateOf reads a date or a timestamp; missing and null are the zero time, which says never. Years beyond 9999 can't be
// written as RFC 3339 and are no date.
func dateOf(v bson.RawValue) (time.Time, bool) {
	switch v.Type {
	case 0, bson.TypeNull, bson.TypeUndefined:
		return time.Time{}, true
	case bson.TypeDateTime:
		if len(v.Value) < 8 {
			return time.Time{}, false
		}
		ms := int64(binary.LittleEndian.Uint64(v.Value))
		if ms < minDate || ms > maxDate {
			return time.Time{}, false
		}
		return time.UnixMilli(ms).UTC(), true
	case bson.TypeTimestamp:
		if len(v.Value) < 8 {
			return time.Time{}, false
		}
		return time.Unix(int64(binary.LittleEndian.Uint32(v.Value[4:])), 0).UTC(), true
	}
	return time.Time{}, false
}

var (
	minDate = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() // Go's zero time, which other Go services write for "never"
	maxDate = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).UnixMilli()
)

// equal compares two values as a query does: numbers by value, all else by type and bytes.
func equal(a, b bson.RawValue) bool {
	if a.Type == b.Type {
		return bytes.Equal(a.Value, b.Value)
	}
	x, aok := number(a)
	y, bok := number(b)
	return aok && bok && x == y
}

func number(v bson.RawValue) (float64, bool) {
	switch {
	case v.Type == bson.TypeInt32 && len(v.Value) == 4:
		return float64(int32(binary.LittleEndian.Uint32(v.Value))), true
	case v.Type == bson.TypeInt64 && len(v.Value) == 8:
		return float64(int64(binary.LittleEndian.Uint64(v.Value))), true
	case v.Type == bson.TypeDouble && len(v.Value) == 8:
		return math.Float64frombits(binary.LittleEndian.Uint64(v.Value)), true
	}
	return 0, false
}

// clip makes at most n bytes of valid UTF-8 out of b, for logs and reports.
func clip(b []byte, n int) string {
	if len(b) > n {
		for n > 0 && !utf8.RuneStart(b[n]) {
			n--
		}
		b = b[:n]
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
