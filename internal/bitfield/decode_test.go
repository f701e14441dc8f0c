package bitfield

import (
	"bytes"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func value(t testing.TB, v any) bson.RawValue {
	t.Helper()
	typ, data, err := bson.MarshalValue(v)
	if err != nil {
		t.Fatal(err)
	}
	return bson.RawValue{Type: typ, Value: data}
}

func TestDecode(t *testing.T) {
	binary := func(sub byte, b ...byte) bson.RawValue { return value(t, bson.Binary{Subtype: sub, Data: b}) }
	tests := []struct {
		name string
		in   bson.RawValue
		want []byte // nil with bad: unreadable
		bad  bool
	}{
		{"missing", bson.RawValue{}, nil, false},
		{"null", bson.RawValue{Type: bson.TypeNull}, nil, false},
		{"undefined", bson.RawValue{Type: bson.TypeUndefined}, nil, false},
		{"Binary subtype 0", binary(0, 0x81, 0x80), []byte{0x81, 0x80}, false},
		{"empty Binary", binary(0), nil, false},
		{"Binary subtype 2", binary(2, 0x81, 0x80), []byte{0x81, 0x80}, false},
		{"empty Binary subtype 2", binary(2), nil, false},
		{"object form", value(t, bson.D{{Key: "0", Value: 129}, {Key: "1", Value: 128}}), []byte{0x81, 0x80}, false},
		{"object form of doubles", value(t, bson.D{{Key: "0", Value: 129.0}}), []byte{0x81}, false},
		{"object form of longs, out of order, with a gap", value(t, bson.D{{Key: "3", Value: int64(1)}, {Key: "0", Value: 2}}), []byte{2, 0, 0, 1}, false},
		{"empty object", value(t, bson.D{}), nil, false},
		{"Binary of a UUID", binary(4, 1, 2), nil, true},
		{"Binary of a user-defined subtype", binary(0x80, 1), nil, true},
		{"cut Binary", bson.RawValue{Type: bson.TypeBinary, Value: []byte{9, 0, 0, 0, 0, 1}}, nil, true},
		{"no Binary at all", bson.RawValue{Type: bson.TypeBinary, Value: nil}, nil, true},
		{"subtype 2 with a wrong inner length", bson.RawValue{Type: bson.TypeBinary, Value: []byte{5, 0, 0, 0, 2, 7, 0, 0, 0, 1}}, nil, true},
		{"subtype 2 without an inner length", bson.RawValue{Type: bson.TypeBinary, Value: []byte{1, 0, 0, 0, 2, 7}}, nil, true},
		{"object with another key", value(t, bson.D{{Key: "0", Value: 1}, {Key: "length", Value: 1}}), nil, true},
		{"object with key 01", value(t, bson.D{{Key: "01", Value: 1}}), nil, true},
		{"object with a negative key", value(t, bson.D{{Key: "-1", Value: 1}}), nil, true},
		{"object with a huge key", value(t, bson.D{{Key: "2000000000", Value: 1}}), nil, true},
		{"object with 256", value(t, bson.D{{Key: "0", Value: 256}}), nil, true},
		{"object with -1", value(t, bson.D{{Key: "0", Value: int64(-1)}}), nil, true},
		{"object with a fraction", value(t, bson.D{{Key: "0", Value: 1.5}}), nil, true},
		{"object with a string", value(t, bson.D{{Key: "0", Value: "1"}}), nil, true},
		{"array", value(t, bson.A{129}), nil, true},
		{"string", value(t, "81 80"), nil, true},
		{"number", value(t, 129), nil, true},
		{"broken object", bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: []byte{1, 2}}, nil, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Decode(tt.in)
			if (err != nil) != tt.bad || (err != nil && !errors.Is(err, ErrUnreadable)) {
				t.Fatalf("error %v", err)
			}
			if !bytes.Equal(got, tt.want) {
				t.Fatalf("% x, want % x", got, tt.want)
			}
		})
	}
}

func TestSubtypeIsKept(t *testing.T) {
	for _, tt := range []struct {
		in   bson.RawValue
		want byte
	}{
		{bson.RawValue{}, 0},
		{value(t, bson.Binary{Subtype: 0}), 0},
		{value(t, bson.Binary{Subtype: 2, Data: []byte{1}}), 2},
		{value(t, bson.D{{Key: "0", Value: 1}}), 0},
	} {
		if got := Subtype(tt.in); got != tt.want {
			t.Errorf("%v: subtype %d, want %d", tt.in, got, tt.want)
		}
	}
}

// Whatever stands in the field, it is a blob or ErrUnreadable, and a blob is never longer than its source allows.
func FuzzDecode(f *testing.F) {
	f.Add(byte(bson.TypeBinary), value(f, bson.Binary{Data: []byte{0x81}}).Value)
	f.Add(byte(bson.TypeBinary), value(f, bson.Binary{Subtype: 2, Data: []byte{0x81}}).Value)
	f.Add(byte(bson.TypeEmbeddedDocument), value(f, bson.D{{Key: "0", Value: 1}}).Value)
	f.Fuzz(func(t *testing.T, typ byte, data []byte) {
		b, err := Decode(bson.RawValue{Type: bson.Type(typ), Value: data})
		if err != nil && !errors.Is(err, ErrUnreadable) {
			t.Fatal(err)
		}
		if err != nil && b != nil {
			t.Fatal("bytes beside an error")
		}
		if len(b) > max(len(data), maxObjectBytes) {
			t.Fatalf("%d bytes out of %d", len(b), len(data))
		}
	})
}
