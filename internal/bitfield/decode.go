package bitfield

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// ErrUnreadable says that a field holds something that is not known to be a blob. What was sent to such a user can't be
// known, so nothing may be sent.
var ErrUnreadable = errors.New("not a readable bitfield")

// maxObjectBytes bounds the object form: a key is a byte's position, and a hostile one must not make us allocate it.
// Binary forms need no bound, they can't claim more bytes than they have.
const maxObjectBytes = 1 << 16

// Decode reads the field of a user document. Missing (the zero RawValue), null and undefined are an empty blob. Accepted
// are Binary of subtype 0 and of the old subtype 2, and the form {"0": 129, "1": 128} that bson 1.x made of a
// Uint8Array. All else is an error that wraps ErrUnreadable. The result may alias v.
func Decode(v bson.RawValue) ([]byte, error) {
	switch v.Type {
	case 0, bson.TypeNull, bson.TypeUndefined:
		return nil, nil
	case bson.TypeBinary:
		return decodeBinary(v.Value)
	case bson.TypeEmbeddedDocument:
		return decodeObject(bson.Raw(v.Value))
	}
	return nil, fmt.Errorf("%w: BSON type %s", ErrUnreadable, v.Type)
}

// Subtype is the Binary subtype in which a changed blob is written back: that of v if it is a Binary, else 0.
func Subtype(v bson.RawValue) byte {
	if v.Type == bson.TypeBinary && len(v.Value) >= 5 {
		return v.Value[4]
	}
	return bson.TypeBinaryGeneric
}

// decodeBinary reads the value of a BSON Binary: int32 length, subtype, bytes. Subtype 2 repeats the length inside, and
// a blob whose two lengths disagree could be read in two ways, so it is read in none.
func decodeBinary(v []byte) ([]byte, error) {
	if len(v) < 5 || uint64(binary.LittleEndian.Uint32(v)) != uint64(len(v)-5) {
		return nil, fmt.Errorf("%w: cut Binary", ErrUnreadable)
	}
	subtype, data := v[4], v[5:]
	switch subtype {
	case bson.TypeBinaryGeneric:
		return data, nil
	case bson.TypeBinaryBinaryOld:
		if len(data) < 4 || uint64(binary.LittleEndian.Uint32(data)) != uint64(len(data)-4) {
			return nil, fmt.Errorf("%w: Binary of subtype 2 with a wrong inner length", ErrUnreadable)
		}
		return data[4:], nil
	}
	return nil, fmt.Errorf("%w: Binary of subtype %d", ErrUnreadable, subtype)
}

// decodeObject reads the object form. Every key must be the position of a byte and every value a number from 0 to 255;
// one stranger among them, and the field is something else.
func decodeObject(doc bson.Raw) ([]byte, error) {
	elems, err := doc.Elements()
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrUnreadable, err)
	}
	var out []byte
	for _, e := range elems {
		key, err := e.KeyErr()
		if err != nil {
			return nil, fmt.Errorf("%w: %v", ErrUnreadable, err)
		}
		at, err := strconv.Atoi(key)
		if err != nil || at < 0 || at >= maxObjectBytes || strconv.Itoa(at) != key {
			return nil, fmt.Errorf("%w: an object with key %.20q", ErrUnreadable, key)
		}
		value, err := e.ValueErr()
		if err != nil {
			return nil, fmt.Errorf("%w: %v", ErrUnreadable, err)
		}
		b, ok := byteValue(value)
		if !ok {
			return nil, fmt.Errorf("%w: an object whose value at %q is no byte", ErrUnreadable, key)
		}
		if at >= len(out) {
			out = append(out, make([]byte, at+1-len(out))...)
		}
		out[at] |= b // a key that stands twice: rather too many bits than too few
	}
	return out, nil
}

func byteValue(v bson.RawValue) (byte, bool) {
	var n int64
	switch v.Type {
	case bson.TypeInt32:
		i, ok := v.Int32OK()
		if !ok {
			return 0, false
		}
		n = int64(i)
	case bson.TypeInt64:
		i, ok := v.Int64OK()
		if !ok {
			return 0, false
		}
		n = i
	case bson.TypeDouble:
		f, ok := v.DoubleOK()
		if !ok || f != math.Trunc(f) || f < 0 || f > 255 {
			return 0, false
		}
		n = int64(f)
	default:
		return 0, false
	}
	return byte(n), n >= 0 && n <= 255
}
