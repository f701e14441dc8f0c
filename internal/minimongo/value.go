package minimongo

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

type (
	value    = bsoncore.Value
	document = bsoncore.Document
)

const (
	tDouble     = bsoncore.TypeDouble
	tString     = bsoncore.TypeString
	tDocument   = bsoncore.TypeEmbeddedDocument
	tArray      = bsoncore.TypeArray
	tBinary     = bsoncore.TypeBinary
	tUndefined  = bsoncore.TypeUndefined
	tObjectID   = bsoncore.TypeObjectID
	tBool       = bsoncore.TypeBoolean
	tDate       = bsoncore.TypeDateTime
	tNull       = bsoncore.TypeNull
	tRegex      = bsoncore.TypeRegex
	tDBPointer  = bsoncore.TypeDBPointer
	tCode       = bsoncore.TypeJavaScript
	tSymbol     = bsoncore.TypeSymbol
	tCodeScope  = bsoncore.TypeCodeWithScope
	tInt32      = bsoncore.TypeInt32
	tTimestamp  = bsoncore.TypeTimestamp
	tInt64      = bsoncore.TypeInt64
	tDecimal    = bsoncore.TypeDecimal128
	tMinKey     = bsoncore.TypeMinKey
	tMaxKey     = bsoncore.TypeMaxKey
	maxDocument = 16 << 20
	maxDepth    = 200
)

var nullValue = value{Type: tNull}

// elements walks the elements of a document or array that validate has accepted.
// Keys and values point into the document.
type elements struct{ rest []byte }

func elementsOf(doc []byte) elements {
	if len(doc) < 5 {
		return elements{}
	}
	return elements{rest: doc[4 : len(doc)-1]}
}

func (e *elements) next() (key []byte, v value, ok bool) {
	if len(e.rest) == 0 {
		return nil, value{}, false
	}
	t := bsoncore.Type(e.rest[0])
	end := bytes.IndexByte(e.rest[1:], 0)
	key = e.rest[1 : 1+end]
	data := e.rest[2+end:]
	n := valueLength(t, data)
	v = value{Type: t, Data: data[:n:n]}
	e.rest = data[n:]
	return key, v, true
}

// valueLength returns how many bytes a value takes, or -1 where data is too short or the type unknown.
func valueLength(t bsoncore.Type, data []byte) int {
	n := -1
	switch t {
	case tDouble, tDate, tTimestamp, tInt64:
		n = 8
	case tInt32:
		n = 4
	case tBool:
		n = 1
	case tObjectID:
		n = 12
	case tDecimal:
		n = 16
	case tNull, tUndefined, tMinKey, tMaxKey:
		return 0
	case tString, tCode, tSymbol, tBinary, tDBPointer, tDocument, tArray, tCodeScope:
		if len(data) < 4 {
			return -1
		}
		n = int(int32(binary.LittleEndian.Uint32(data)))
		if n < 0 {
			return -1
		}
		switch t {
		case tString, tCode, tSymbol:
			n += 4
		case tBinary:
			n += 5
		case tDBPointer:
			n += 4 + 12
		}
	case tRegex:
		p := bytes.IndexByte(data, 0)
		if p < 0 {
			return -1
		}
		o := bytes.IndexByte(data[p+1:], 0)
		if o < 0 {
			return -1
		}
		return p + o + 2
	}
	if n < 0 || n > len(data) {
		return -1
	}
	return n
}

// validate checks a document from outside through and through, so that nothing behind it has to.
func validate(doc []byte, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("BSON is nested more than %d levels deep", maxDepth)
	}
	if len(doc) < 5 || int(int32(binary.LittleEndian.Uint32(doc))) != len(doc) || doc[len(doc)-1] != 0 {
		return fmt.Errorf("malformed BSON document of %d bytes", len(doc))
	}
	rest := doc[4 : len(doc)-1]
	for len(rest) > 0 {
		t := bsoncore.Type(rest[0])
		end := bytes.IndexByte(rest[1:], 0)
		if end < 0 {
			return fmt.Errorf("malformed BSON: field name without end")
		}
		data := rest[2+end:]
		n := valueLength(t, data)
		if n < 0 {
			return fmt.Errorf("malformed BSON: field %q of type 0x%02x", rest[1:1+end], byte(t))
		}
		if err := validateValue(t, data[:n], depth); err != nil {
			return err
		}
		rest = data[n:]
	}
	return nil
}

func validateValue(t bsoncore.Type, data []byte, depth int) error {
	ok := true
	switch t {
	case tDocument, tArray:
		return validate(data, depth+1)
	case tString, tCode, tSymbol:
		ok = len(data) >= 5 && data[len(data)-1] == 0
	case tDBPointer:
		ok = len(data) >= 17 && data[len(data)-13] == 0
	case tBool:
		ok = data[0] <= 1
	case tBinary:
		ok = data[4] != 2 || len(data) >= 9 && int(binary.LittleEndian.Uint32(data[5:])) == len(data)-9
	case tCodeScope:
		n := -1
		if len(data) >= 8 {
			n = valueLength(tCode, data[4:])
		}
		if ok = n >= 5 && data[4+n-1] == 0; ok {
			return validate(data[4+n:], depth+1)
		}
	}
	if !ok {
		return fmt.Errorf("malformed BSON: %s", t)
	}
	return nil
}

// field finds a top-level field by its name.
func field(doc []byte, name string) (value, bool) {
	for it := elementsOf(doc); ; {
		k, v, ok := it.next()
		if !ok {
			return value{}, false
		}
		if string(k) == name {
			return v, true
		}
	}
}

// values returns the elements of an array value.
func values(v value) []value {
	var out []value
	for it := elementsOf(v.Data); ; {
		_, e, ok := it.next()
		if !ok {
			return out
		}
		out = append(out, e)
	}
}

func isNumber(t bsoncore.Type) bool {
	return t == tInt32 || t == tInt64 || t == tDouble || t == tDecimal
}

// str returns the bytes of a string, symbol or code without the NUL at the end.
func str(v value) []byte { return v.Data[4 : len(v.Data)-1] }

func i32(v value) int32   { return int32(binary.LittleEndian.Uint32(v.Data)) }
func i64(v value) int64   { return int64(binary.LittleEndian.Uint64(v.Data)) }
func f64(v value) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(v.Data)) }

func decimal(v value) bson.Decimal128 {
	return bson.NewDecimal128(binary.LittleEndian.Uint64(v.Data[8:]), binary.LittleEndian.Uint64(v.Data))
}

// integer reads a number without a fraction that fits an int64.
func integer(v value) (int64, bool) {
	switch v.Type {
	case tInt32:
		return int64(i32(v)), true
	case tInt64:
		return i64(v), true
	case tDouble:
		f := f64(v)
		if f != math.Trunc(f) || f < -1<<63 || f >= 1<<63 {
			return 0, false
		}
		return int64(f), true
	case tDecimal:
		r, ok := decimalRat(decimal(v))
		if !ok || !r.IsInt() || !r.Num().IsInt64() {
			return 0, false
		}
		return r.Num().Int64(), true
	}
	return 0, false
}

// truthy is MongoDB's reading of a number or bool where a bool is asked for (projections, options).
func truthy(v value) bool {
	switch v.Type {
	case tBool:
		return v.Data[0] != 0
	case tDouble:
		return f64(v) != 0
	case tDecimal:
		return !decimal(v).IsZero()
	case tInt32, tInt64:
		n, _ := integer(v)
		return n != 0
	case tNull, tUndefined:
		return false
	}
	return true
}

func int32Value(n int32) value {
	return value{Type: tInt32, Data: binary.LittleEndian.AppendUint32(nil, uint32(n))}
}

func int64Value(n int64) value {
	return value{Type: tInt64, Data: binary.LittleEndian.AppendUint64(nil, uint64(n))}
}

func doubleValue(f float64) value {
	return value{Type: tDouble, Data: binary.LittleEndian.AppendUint64(nil, math.Float64bits(f))}
}

func stringValue(s string) value { return value{Type: tString, Data: bsoncore.AppendString(nil, s)} }

// typeName is the name that MongoDB's messages and $type use.
func typeName(t bsoncore.Type) string {
	switch t {
	case tDocument:
		return "object"
	case tBinary:
		return "binData"
	case tObjectID:
		return "objectId"
	case tBool:
		return "bool"
	case tDate:
		return "date"
	case tInt32:
		return "int"
	case tInt64:
		return "long"
	case tDecimal:
		return "decimal"
	case tMinKey:
		return "minKey"
	case tMaxKey:
		return "maxKey"
	case tCodeScope:
		return "javascriptWithScope"
	}
	return t.String()
}

// shell prints a value the way MongoDB's error messages do.
func shell(v value) string {
	switch v.Type {
	case tDouble:
		f := f64(v)
		if f == math.Trunc(f) && math.Abs(f) < 1e15 {
			return strconv.FormatFloat(f, 'f', 1, 64)
		}
		return strconv.FormatFloat(f, 'g', -1, 64)
	case tString, tSymbol:
		return `"` + string(str(v)) + `"`
	case tDocument:
		return shellDoc(v.Data)
	case tArray:
		var parts []string
		for _, e := range values(v) {
			parts = append(parts, shell(e))
		}
		if parts == nil {
			return "[]"
		}
		return "[ " + strings.Join(parts, ", ") + " ]"
	case tBinary:
		b := v.Data[5:]
		if v.Data[4] == 4 && len(b) == 16 {
			return fmt.Sprintf(`UUID("%x-%x-%x-%x-%x")`, b[:4], b[4:6], b[6:8], b[8:10], b[10:])
		}
		return fmt.Sprintf("BinData(%d, %X)", v.Data[4], b)
	case tObjectID:
		return fmt.Sprintf("ObjectId('%x')", v.Data)
	case tBool:
		return strconv.FormatBool(v.Data[0] != 0)
	case tDate:
		return fmt.Sprintf("new Date(%d)", i64(v))
	case tNull:
		return "null"
	case tUndefined:
		return "undefined"
	case tInt32, tInt64:
		n, _ := integer(v)
		return strconv.FormatInt(n, 10)
	case tDecimal:
		return decimal(v).String()
	case tMinKey:
		return "MinKey"
	case tMaxKey:
		return "MaxKey"
	case tTimestamp:
		u := binary.LittleEndian.Uint64(v.Data)
		return fmt.Sprintf("Timestamp(%d, %d)", u>>32, uint32(u))
	}
	return v.String()
}

func shellDoc(doc []byte) string {
	var b strings.Builder
	b.WriteString("{")
	it := elementsOf(doc)
	for n := 0; ; n++ {
		k, v, ok := it.next()
		if !ok {
			if n == 0 {
				return "{}"
			}
			b.WriteString(" }")
			return b.String()
		}
		if n > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, " %s: %s", k, shell(v))
	}
}
