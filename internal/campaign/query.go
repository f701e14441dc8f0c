package campaign

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// queryError says where in a query something is wrong; path begins with a dot.
type queryError struct {
	path string
	err  error
}

func (e *queryError) Error() string {
	if e.path == "" {
		return e.err.Error()
	}
	return strings.TrimPrefix(e.path, ".") + ": " + e.err.Error()
}

func (e *queryError) Unwrap() error { return e.err }

// query turns a written audience into BSON: wrappers of Extended JSON become their types, $ago becomes the date so long
// before start.
func query(written bson.D, start time.Time) (bson.D, error) {
	v, err := typed(written, "", start)
	if err != nil {
		return nil, err
	}
	doc, ok := v.(bson.D)
	if !ok {
		return nil, errors.New("must be a MongoDB query such as { plan: free }; {} means every user")
	}
	return doc, nil
}

func typed(v any, path string, start time.Time) (any, error) {
	switch v := v.(type) {
	case bson.A:
		list := make(bson.A, len(v))
		for i, item := range v {
			t, err := typed(item, path+"."+strconv.Itoa(i), start)
			if err != nil {
				return nil, err
			}
			list[i] = t
		}
		return list, nil
	case bson.D:
		if t, is, err := unwrap(v, start); is || err != nil {
			if err != nil {
				return nil, &queryError{path: path + "." + v[0].Key, err: err}
			}
			return t, nil
		}
		return typedFields(v, path, start)
	case int64:
		if v >= math.MinInt32 && v <= math.MaxInt32 {
			return int32(v), nil
		}
	}
	return v, nil
}

func typedFields(d bson.D, path string, start time.Time) (any, error) {
	doc := make(bson.D, len(d))
	for i, e := range d {
		at := path + "." + e.Key
		switch {
		case strings.ContainsRune(e.Key, 0):
			return nil, &queryError{path: path, err: errors.New("a key holds a zero byte")}
		case runsScripts[e.Key]:
			return nil, &queryError{path: at, err: errors.New("JavaScript in the database is refused: it runs on every user and cannot use an index")}
		case wrappers[e.Key] != nil:
			return nil, &queryError{path: at, err: errors.New("must be the only key of its object")}
		}
		v, err := typed(e.Value, at, start)
		if err != nil {
			return nil, err
		}
		doc[i] = bson.E{Key: e.Key, Value: v}
	}
	return doc, nil
}

var runsScripts = map[string]bool{"$where": true, "$function": true, "$accumulator": true, "$code": true, "$scope": true}

// wrappers are $ago and the types of Extended JSON (v2, and the older short forms where they are unmistakable).
var wrappers map[string]func(v any, start time.Time) (any, error)

func init() {
	wrappers = map[string]func(any, time.Time) (any, error){
		"$ago":               readAgo,
		"$date":              readDate,
		"$oid":               func(v any, _ time.Time) (any, error) { return readObjectID(v) },
		"$uuid":              func(v any, _ time.Time) (any, error) { return readUUID(v) },
		"$binary":            func(v any, _ time.Time) (any, error) { return readBinary(v) },
		"$numberInt":         func(v any, _ time.Time) (any, error) { return readInteger(v, 32) },
		"$numberLong":        func(v any, _ time.Time) (any, error) { return readInteger(v, 64) },
		"$numberDouble":      func(v any, _ time.Time) (any, error) { return readDouble(v) },
		"$numberDecimal":     func(v any, _ time.Time) (any, error) { return readDecimal(v) },
		"$regularExpression": func(v any, _ time.Time) (any, error) { return readRegex(v) },
		"$timestamp":         func(v any, _ time.Time) (any, error) { return readTimestamp(v) },
		"$minKey":            func(any, time.Time) (any, error) { return bson.MinKey{}, nil },
		"$maxKey":            func(any, time.Time) (any, error) { return bson.MaxKey{}, nil },
		"$undefined":         unsupported,
		"$symbol":            unsupported,
		"$dbPointer":         unsupported,
	}
}

func unsupported(any, time.Time) (any, error) {
	return nil, errors.New("this BSON type is not supported")
}

// unwrap reads an object that stands for a value of a BSON type; is tells whether it is one.
func unwrap(d bson.D, start time.Time) (v any, is bool, err error) {
	switch {
	case len(d) == 2 && d[0].Key == "$binary" && d[1].Key == "$type": // the older form of two keys
		v, err = readBinary(bson.D{{Key: "base64", Value: d[0].Value}, {Key: "subType", Value: d[1].Value}})
		return v, true, err
	case len(d) != 1 || wrappers[d[0].Key] == nil:
		return nil, false, nil
	}
	v, err = wrappers[d[0].Key](d[0].Value, start)
	return v, true, err
}

func readAgo(v any, start time.Time) (any, error) {
	s, ok := v.(string)
	if !ok {
		return nil, errors.New("must be a duration such as 30d")
	}
	d, err := ParseDuration(s)
	if err != nil {
		return nil, err
	}
	return bson.NewDateTimeFromTime(start.Add(-d)), nil
}

func readDate(v any, _ time.Time) (any, error) {
	switch v := v.(type) {
	case int64:
		return bson.DateTime(v), nil
	case bson.D:
		if len(v) == 1 && v[0].Key == "$numberLong" {
			ms, err := readInteger(v[0].Value, 64)
			if err != nil {
				return nil, err
			}
			return bson.DateTime(ms.(int64)), nil
		}
	case string:
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999Z0700", time.DateOnly} {
			if t, err := time.Parse(layout, v); err == nil {
				return bson.NewDateTimeFromTime(t), nil
			}
		}
		return nil, fmt.Errorf("%q is no date such as 2026-12-01T09:00:00Z", clip(v))
	}
	return nil, errors.New("must be a date such as 2026-12-01T09:00:00Z")
}

func readObjectID(v any) (any, error) {
	s, _ := v.(string)
	id, err := bson.ObjectIDFromHex(s)
	if err != nil {
		return nil, errors.New("must be 24 hex digits")
	}
	return id, nil
}

func readUUID(v any) (any, error) {
	s, _ := v.(string)
	raw, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(raw) != 16 {
		return nil, errors.New("must be a UUID of 32 hex digits")
	}
	return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: raw}, nil
}

func readBinary(v any) (any, error) {
	wrong := errors.New(`must be { base64: "…", subType: "00" }`)
	d, ok := v.(bson.D)
	if !ok || len(d) != 2 {
		return nil, wrong
	}
	var data, sub string
	for _, e := range d {
		s, _ := e.Value.(string)
		if n, isInt := e.Value.(int64); isInt { // 00 without quotes is a number in YAML
			s = strconv.FormatInt(n, 10)
		}
		switch e.Key {
		case "base64":
			data = s
		case "subType":
			sub = s
		default:
			return nil, wrong
		}
	}
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, wrong
	}
	subtype, err := strconv.ParseUint(sub, 16, 8)
	if err != nil {
		return nil, wrong
	}
	return bson.Binary{Subtype: byte(subtype), Data: raw}, nil
}

func readInteger(v any, size int) (any, error) {
	n, ok := v.(int64)
	if s, text := v.(string); text {
		parsed, err := strconv.ParseInt(s, 10, 64)
		n, ok = parsed, err == nil
	}
	if !ok || size == 32 && int64(int32(n)) != n {
		return nil, fmt.Errorf("must be a whole number of %d bits", size)
	}
	if size == 32 {
		return int32(n), nil
	}
	return n, nil
}

func readDouble(v any) (any, error) {
	switch v := v.(type) {
	case float64:
		return v, nil
	case int64:
		return float64(v), nil
	case string:
		switch v {
		case "Infinity":
			return math.Inf(1), nil
		case "-Infinity":
			return math.Inf(-1), nil
		}
		if f, err := strconv.ParseFloat(v, 64); err == nil {
			return f, nil
		}
	}
	return nil, errors.New("must be a number")
}

func readDecimal(v any) (any, error) {
	s, _ := v.(string)
	if n, ok := v.(int64); ok {
		s = strconv.FormatInt(n, 10)
	}
	d, err := bson.ParseDecimal128(s)
	if err != nil {
		return nil, errors.New("must be a decimal number in quotes")
	}
	return d, nil
}

func readRegex(v any) (any, error) {
	wrong := errors.New(`must be { pattern: "…", options: "" }`)
	d, ok := v.(bson.D)
	if !ok {
		return nil, wrong
	}
	var re bson.Regex
	for _, e := range d {
		s, isText := e.Value.(string)
		if !isText || strings.ContainsRune(s, 0) {
			return nil, wrong
		}
		switch e.Key {
		case "pattern":
			re.Pattern = s
		case "options":
			re.Options = s
		default:
			return nil, wrong
		}
	}
	return re, nil
}

func readTimestamp(v any) (any, error) {
	wrong := errors.New("must be { t: 1, i: 1 }")
	d, ok := v.(bson.D)
	if !ok {
		return nil, wrong
	}
	var ts bson.Timestamp
	for _, e := range d {
		n, isInt := e.Value.(int64)
		if !isInt || n < 0 || n > math.MaxUint32 {
			return nil, wrong
		}
		switch e.Key {
		case "t":
			ts.T = uint32(n)
		case "i":
			ts.I = uint32(n)
		default:
			return nil, wrong
		}
	}
	return ts, nil
}
