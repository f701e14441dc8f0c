package minimongo

import (
	"bytes"
	"encoding/binary"
	"math"
	"regexp"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

func equalTo(want value) func(v value, exists bool) bool {
	if want.Type == tNull {
		return func(v value, exists bool) bool { return !exists || v.Type == tNull || v.Type == tUndefined }
	}
	return func(v value, exists bool) bool { return exists && compare(v, want) == 0 }
}

// comparison holds between values of one class only, as MongoDB has it, but for MinKey and MaxKey.
func comparison(op string, want value) func(v value, exists bool) bool {
	less, orEqual := op[1] == 'l', len(op) == 4
	wantNaN := isNaN(want)
	return func(v value, exists bool) bool {
		if !exists || v.Type == tUndefined {
			v = nullValue
		}
		if class(v.Type) != class(want.Type) {
			return less && want.Type == tMaxKey || !less && want.Type == tMinKey
		}
		if nan := isNaN(v); nan || wantNaN {
			return nan && wantNaN && orEqual
		}
		switch c := compare(v, want); {
		case c == 0:
			return orEqual
		case c < 0:
			return less
		default:
			return !less
		}
	}
}

func isNaN(v value) bool {
	return v.Type == tDouble && math.IsNaN(f64(v)) || v.Type == tDecimal && decimal(v).IsNaN()
}

var typesByName = map[string]bsoncore.Type{
	"double": tDouble, "string": tString, "object": tDocument, "array": tArray, "binData": tBinary,
	"undefined": tUndefined, "objectId": tObjectID, "bool": tBool, "date": tDate, "null": tNull,
	"regex": tRegex, "dbPointer": tDBPointer, "javascript": tCode, "symbol": tSymbol,
	"javascriptWithScope": tCodeScope, "int": tInt32, "timestamp": tTimestamp, "long": tInt64,
	"decimal": tDecimal, "minKey": tMinKey, "maxKey": tMaxKey,
}

func parseType(p *predicate, v value) (expr, error) {
	list := []value{v}
	if v.Type == tArray {
		if list = values(v); len(list) == 0 {
			return nil, errorf(codeFailedToParse, "%s must match at least one type", p.path)
		}
	}
	var want [256]bool
	for _, t := range list {
		if t.Type == tString {
			name := string(str(t))
			if name == "number" {
				want[tDouble], want[tInt32], want[tInt64], want[tDecimal] = true, true, true, true
				continue
			}
			code, ok := typesByName[name]
			if !ok {
				return nil, errorf(codeBadValue, "Unknown type name alias: %s", name)
			}
			want[code] = true
			continue
		}
		n, ok := integer(t)
		if !ok {
			return nil, errorf(codeTypeMismatch, "type must be represented as a number or a string")
		}
		known := n == -1 || n == 127 || n >= 1 && n <= 19
		if !known {
			return nil, errorf(codeBadValue, "Invalid numerical type code: %d", n)
		}
		want[byte(n)] = true
	}
	p.args = nil
	p.test = func(v value, exists bool) bool { return exists && want[v.Type] }
	return p, nil
}

func regexValue(pattern, options value) (value, error) {
	if options.Type != tString {
		return value{}, errorf(codeBadValue, "$options has to be a string")
	}
	var text string
	switch pattern.Type {
	case tString:
		text = string(str(pattern))
	case tRegex:
		text, _ = pattern.Regex()
	default:
		return value{}, errorf(codeBadValue, "$regex has to be a string")
	}
	if strings.Contains(text, "\x00") {
		return value{}, errorf(codeBadValue, "Regular expression cannot contain an embedded null byte")
	}
	return value{Type: tRegex, Data: bsoncore.AppendRegex(nil, text, string(str(options)))}, nil
}

func regexPredicate(path string, parts []string, v value) (expr, error) {
	pattern, options := v.Regex()
	re, err := compileRegex(pattern, options)
	if err != nil {
		return nil, err
	}
	return &predicate{path: path, parts: parts, leaf: true, op: "$regex", test: func(f value, exists bool) bool {
		switch {
		case !exists:
			return false
		case f.Type == tString || f.Type == tSymbol:
			return re.Match(str(f))
		case f.Type == tRegex:
			return bytes.Equal(f.Data, v.Data)
		}
		return false
	}}, nil
}

// compileRegex takes the common part of PCRE and RE2; what RE2 does not have (look-around, back references) is refused.
func compileRegex(pattern, options string) (*regexp.Regexp, error) {
	flags := ""
	for _, o := range options {
		switch o {
		case 'i', 'm', 's':
			flags += string(o)
		case 'u': // always UTF-8
		case 'x':
			return nil, errorf(codeBadValue, "minimongo has no regular expression option x")
		default:
			return nil, errorf(codeBadValue, "invalid flag in regex options: %c", o)
		}
	}
	if !strings.Contains(flags, "m") {
		pattern = dollarBeforeNewline(pattern)
	}
	if flags != "" {
		pattern = "(?" + flags + ")" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, errorf(51091, "Regular expression is invalid or not in minimongo, which has RE2: %v", err)
	}
	return re, nil
}

// dollarBeforeNewline: PCRE's $ also matches before a newline at the very end, RE2's does not.
func dollarBeforeNewline(p string) string {
	var b strings.Builder
	class := false
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case c == '\\' && i+1 < len(p):
			b.WriteString(p[i : i+2])
			i++
			continue
		case c == '[':
			class = true
		case c == ']':
			class = false
		case c == '$' && !class:
			b.WriteString(`(?:\n?\z)`)
			continue
		}
		b.WriteByte(p[i])
	}
	return b.String()
}

// parseBits: positions count from the least significant bit; in a Binary, bit 0 is the lowest bit of
// the first byte. MongoDB reads the whole payload of subtype 2, its inner length included.
func parseBits(p *predicate, v value) (expr, error) {
	var positions []int
	switch {
	case v.Type == tBinary:
		for i, b := range v.Data[5:] {
			for bit := range 8 {
				if b&(1<<bit) != 0 {
					positions = append(positions, i*8+bit)
				}
			}
		}
	case v.Type == tArray:
		for i, e := range values(v) {
			n, ok := integer(e)
			if !ok || n < 0 || n > math.MaxInt32 {
				return nil, errorf(codeBadValue, "Failed to parse bit position. Expected a non-negative 32-bit number in: %d: %s", i, shell(e))
			}
			positions = append(positions, int(n))
		}
	case isNumber(v.Type):
		mask, ok := integer(v)
		if !ok {
			return nil, errorf(codeFailedToParse, "Expected an integer: %s: %s", p.path, shell(v))
		}
		if mask < 0 {
			return nil, errorf(codeFailedToParse, "Expected a non-negative number in: %s: %s", p.path, shell(v))
		}
		for bit := range 63 {
			if mask&(1<<bit) != 0 {
				positions = append(positions, bit)
			}
		}
	default:
		return nil, errorf(codeBadValue, "%s takes an Array, a number, or a BinData but received: %s", p.path, shell(v))
	}
	want := p.op == "$bitsAllSet"
	p.args = nil
	p.test = func(v value, exists bool) bool {
		if !exists {
			return false
		}
		bits, extend := []byte(nil), false
		var scratch [8]byte
		switch {
		case v.Type == tBinary:
			bits = v.Data[5:]
		case isNumber(v.Type):
			n, ok := integer(v)
			if !ok {
				return false
			}
			binary.LittleEndian.PutUint64(scratch[:], uint64(n))
			bits, extend = scratch[:], n < 0
		default:
			return false
		}
		for _, pos := range positions {
			set := extend
			if pos/8 < len(bits) {
				set = bits[pos/8]&(1<<(pos%8)) != 0
			}
			if set != want {
				return false
			}
		}
		return true
	}
	return p, nil
}
