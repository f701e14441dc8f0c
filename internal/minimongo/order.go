package minimongo

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"math/big"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// Every value has one order-preserving encoding: bytes.Compare of two encodings is MongoDB's
// comparison of the two values, equal encodings are equal values (1, 1.0 and decimal 1 alike), and no
// encoding is a prefix of another. Index keys are these encodings one after the other; in a
// descending field all bytes are inverted.
//
// The first byte is the class of the type, in the order of MongoDB's comparison. 0x00 is free: it ends
// documents and arrays.
const (
	classMinKey    = 0x08
	classUndefined = 0x10 // also the key of an empty array in an index
	classNull      = 0x18
	classNumber    = 0x20
	classString    = 0x28
	classObject    = 0x30
	classArray     = 0x38
	classBinary    = 0x40
	classObjectID  = 0x48
	classBool      = 0x50
	classDate      = 0x58
	classTimestamp = 0x60
	classRegex     = 0x68
	classDBPointer = 0x70
	classCode      = 0x78
	classCodeScope = 0x80
	classMaxKey    = 0xf0
)

func class(t bsoncore.Type) byte {
	switch t {
	case tMinKey:
		return classMinKey
	case tUndefined:
		return classUndefined
	case tNull:
		return classNull
	case tInt32, tInt64, tDouble, tDecimal:
		return classNumber
	case tString, tSymbol:
		return classString
	case tDocument:
		return classObject
	case tArray:
		return classArray
	case tBinary:
		return classBinary
	case tObjectID:
		return classObjectID
	case tBool:
		return classBool
	case tDate:
		return classDate
	case tTimestamp:
		return classTimestamp
	case tRegex:
		return classRegex
	case tDBPointer:
		return classDBPointer
	case tCode:
		return classCode
	case tCodeScope:
		return classCodeScope
	}
	return classMaxKey
}

// appendKey appends the encoding of v.
func appendKey(dst []byte, v value) []byte {
	dst = append(dst, class(v.Type))
	switch v.Type {
	case tInt32, tInt64, tDouble, tDecimal:
		return appendNumber(dst, v)
	case tString, tSymbol, tCode:
		return appendEscaped(dst, str(v))
	case tDocument:
		for it := elementsOf(v.Data); ; {
			k, e, ok := it.next()
			if !ok {
				return append(dst, 0)
			}
			// MongoDB compares the class of the value, then the name, then the value.
			dst = append(dst, class(e.Type))
			dst = appendEscaped(dst, k)
			dst = appendKey(dst, e)
		}
	case tArray:
		for it := elementsOf(v.Data); ; {
			_, e, ok := it.next()
			if !ok {
				return append(dst, 0)
			}
			dst = appendKey(dst, e)
		}
	case tBinary:
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(v.Data)-5))
		return append(dst, v.Data[4:]...)
	case tObjectID, tBool:
		return append(dst, v.Data...)
	case tDate:
		return binary.BigEndian.AppendUint64(dst, uint64(i64(v))^1<<63)
	case tTimestamp:
		return binary.BigEndian.AppendUint64(dst, uint64(i64(v)))
	case tRegex: // two C strings
		return append(dst, v.Data...)
	case tDBPointer:
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(v.Data)))
		return append(dst, v.Data[4:]...)
	case tCodeScope:
		n := valueLength(tCode, v.Data[4:])
		dst = appendEscaped(dst, v.Data[8:4+n-1])
		return appendKey(dst, value{Type: tDocument, Data: v.Data[4+n:]})
	}
	return dst
}

// appendEscaped writes 00 as 00 ff and ends with 00 01.
func appendEscaped(dst, s []byte) []byte {
	for {
		i := bytes.IndexByte(s, 0)
		if i < 0 {
			dst = append(dst, s...)
			return append(dst, 0, 1)
		}
		dst = append(dst, s[:i]...)
		dst = append(dst, 0, 0xff)
		s = s[i+1:]
	}
}

const (
	numberNaN = iota + 1
	numberNegative
	numberZero
	numberPositive
)

// appendNumber writes a sign, the magnitude cut to a double, and, where that was not all of it, the
// exact rest in decimal. Negative numbers have all bytes behind the sign inverted.
func appendNumber(dst []byte, v value) []byte {
	switch v.Type {
	case tDouble:
		f := f64(v)
		if f != f {
			return append(dst, numberNaN)
		}
		return appendMagnitude(dst, f < 0, math.Abs(f), 0, "")
	case tDecimal:
		return appendDecimal(dst, decimal(v))
	}
	n, _ := integer(v)
	m := uint64(n)
	if n < 0 {
		m = -m
	}
	f := float64(m)
	if m <= 1<<53 {
		return appendMagnitude(dst, n < 0, f, 0, "")
	}
	if f >= 1<<64 || uint64(f) > m {
		f = math.Nextafter(f, 0)
	}
	rest := ""
	if r := m - uint64(f); r > 0 {
		rest = strconv.FormatUint(r, 10)
	}
	return appendMagnitude(dst, n < 0, f, len(rest), strings.TrimRight(rest, "0"))
}

// appendMagnitude: the rest is 0.digits times 10^exp.
func appendMagnitude(dst []byte, negative bool, f float64, exp int, digits string) []byte {
	if f == 0 && digits == "" {
		return append(dst, numberZero)
	}
	if negative {
		dst = append(dst, numberNegative)
	} else {
		dst = append(dst, numberPositive)
	}
	start := len(dst)
	dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(f))
	if digits == "" {
		dst = append(dst, 0)
	} else {
		dst = append(dst, 1)
		dst = binary.BigEndian.AppendUint16(dst, uint16(exp+1<<15))
		dst = append(dst, digits...)
		dst = append(dst, 0)
	}
	if negative {
		invert(dst[start:])
	}
	return dst
}

func appendDecimal(dst []byte, d bson.Decimal128) []byte {
	if d.IsNaN() {
		return append(dst, numberNaN)
	}
	if s := d.IsInf(); s != 0 {
		return appendMagnitude(dst, s < 0, math.Inf(1), 0, "")
	}
	r, _ := decimalRat(d)
	negative := r.Sign() < 0
	m := r.Abs(r)
	f, _ := m.Float64()
	if math.IsInf(f, 1) {
		f = math.MaxFloat64
	}
	cut := new(big.Rat).SetFloat64(f)
	if cut.Cmp(m) > 0 {
		f = math.Nextafter(f, 0)
		cut.SetFloat64(f)
	}
	exp, digits := decimalDigits(m.Sub(m, cut))
	return appendMagnitude(dst, negative, f, exp, digits)
}

// decimalDigits writes a non-negative fraction with a denominator of twos and fives as 0.digits times 10^exp.
func decimalDigits(r *big.Rat) (exp int, digits string) {
	if r.Sign() == 0 {
		return 0, ""
	}
	scale := 0
	ten := big.NewRat(10, 1)
	if !r.IsInt() {
		// A denominator of b bits divides 10^b.
		scale = r.Denom().BitLen()
		p := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)
		r = new(big.Rat).Mul(r, ten.SetInt(p))
	}
	s := r.Num().String()
	return len(s) - scale, strings.TrimRight(s, "0")
}

// decimalRat is the exact value; false for NaN and the infinities.
func decimalRat(d bson.Decimal128) (*big.Rat, bool) {
	coefficient, exp, err := d.BigInt()
	if err != nil {
		return nil, false
	}
	p := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exp, -exp))), nil)
	if exp < 0 {
		return new(big.Rat).SetFrac(coefficient, p), true
	}
	return new(big.Rat).SetInt(p.Mul(p, coefficient)), true
}

func invert(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}

// compare orders two values across all types.
func compare(a, b value) int {
	ca, cb := class(a.Type), class(b.Type)
	if ca != cb {
		return cmp.Compare(ca, cb)
	}
	switch ca {
	case classNumber:
		return compareNumbers(a, b)
	case classString, classCode:
		return bytes.Compare(str(a), str(b))
	case classDate:
		return cmp.Compare(i64(a), i64(b))
	case classObjectID, classBool:
		return bytes.Compare(a.Data, b.Data)
	case classBinary:
		if len(a.Data) != len(b.Data) {
			return cmp.Compare(len(a.Data), len(b.Data))
		}
		return bytes.Compare(a.Data[4:], b.Data[4:])
	case classMinKey, classMaxKey, classNull, classUndefined:
		return 0
	case classObject, classArray:
		if bytes.Equal(a.Data, b.Data) {
			return 0
		}
	}
	return bytes.Compare(appendKey(nil, a), appendKey(nil, b))
}

func compareNumbers(a, b value) int {
	if a.Type == tDouble && b.Type == tDouble {
		return cmp.Compare(f64(a), f64(b)) // NaN is equal to NaN and less than all others, as in MongoDB
	}
	if a.Type != tDecimal && b.Type != tDecimal {
		x, okx := integer(a)
		y, oky := integer(b)
		if okx && oky {
			return cmp.Compare(x, y)
		}
	}
	var ka, kb [32]byte
	return bytes.Compare(appendNumber(ka[:0], a), appendNumber(kb[:0], b))
}
