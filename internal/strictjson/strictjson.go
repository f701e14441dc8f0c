// Package strictjson reads JSON that people and programs elsewhere write: one value, with known keys alone, whose faults are told in the
// words of JSON, since whoever has to mend it knows nothing of the types it is read into.
package strictjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Decode reads the one value that r holds into v. The error is io.EOF where r holds nothing; one of reading is wrapped; every other
// says which key is at fault and what it should be.
func Decode(r io.Reader, v any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fault(err, v)
	}
	if d.More() {
		return errors.New("more than one JSON value")
	}
	return nil
}

func fault(err error, v any) error {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("not JSON: it ends in the middle: %w", err)
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON: byte %d: %s", syntax.Offset, syntax)
	case errors.As(err, &kind):
		return wrongKind(kind)
	}
	if key, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok { // it has no type of its own
		return fmt.Errorf("unknown key %s; there are %s", key, strings.Join(keys(v), ", "))
	}
	return err
}

func wrongKind(e *json.UnmarshalTypeError) error {
	at := ""
	if e.Field != "" {
		at = e.Field + ": "
	}
	if _, number, ok := strings.Cut(e.Value, "number "); ok {
		if want := wanted(e.Type.Kind()); want != aWholeNumber {
			return fmt.Errorf("%sthe number %s is out of range", at, number)
		}
		return fmt.Errorf("%smust be %s, not %s", at, aWholeNumber, number)
	}
	return fmt.Errorf("%smust be %s, not %s", at, wanted(e.Type.Kind()), found[e.Value])
}

const aWholeNumber = "a whole number"

// found are the kinds of values as package json names them.
var found = map[string]string{"string": "a string", "number": "a number", "bool": "true or false", "object": "an object", "array": "an array"}

func wanted(k reflect.Kind) string {
	switch k {
	case reflect.String:
		return found["string"]
	case reflect.Bool:
		return found["bool"]
	case reflect.Float32, reflect.Float64, reflect.Interface: // any takes a number as a float64
		return found["number"]
	case reflect.Slice, reflect.Array:
		return found["array"]
	case reflect.Struct, reflect.Map:
		return found["object"]
	}
	return aWholeNumber
}

// keys are those that v has a place for, in the order of its fields.
func keys(v any) (names []string) {
	t := reflect.TypeOf(v)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "" {
			name = t.Field(i).Name
		}
		names = append(names, name)
	}
	return names
}
