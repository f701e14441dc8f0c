package backfill

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"postbit/internal/users"
)

// UserKinds are the ways in which a source may name users. "auto" is that of the command line: with an @ it is an email; 24 hex
// digits are an ObjectId, and if there is none such, a string; digits are an integer, then a string; all else a string.
var UserKinds = []string{"auto", "email", "oid", "int", "str", "uuid"}

// identity is whom a row means: an email, or a key that sorts by id.
type identity struct {
	email []byte // in lower case
	key   []byte // as keyOf makes it
	text  bool   // a text that may also be the id of another type
}

var errNoUser = errors.New("names no user")

// identify reads the user of a row. It uses buf.
func identify(v bson.RawValue, kind string, buf []byte) (identity, error) {
	switch v.Type {
	case 0, bson.TypeNull, bson.TypeUndefined:
		return identity{}, errNoUser
	case bson.TypeString:
		text, ok := v.StringValueOK()
		if !ok {
			return identity{}, fmt.Errorf("%w: the text can't be read", errNoUser)
		}
		return identifyText(strings.TrimSpace(text), kind, buf)
	case bson.TypeArray, bson.TypeRegex, bson.TypeMinKey, bson.TypeMaxKey:
		return identity{}, fmt.Errorf("%w: a value of BSON type %s", errNoUser, v.Type)
	}
	if kind == "email" {
		return identity{}, fmt.Errorf("%w: a value of BSON type %s is no email", errNoUser, v.Type)
	}
	if len(v.Value) > maxID {
		return identity{}, fmt.Errorf("%w: an id of %d bytes", errNoUser, len(v.Value))
	}
	return identity{key: appendKey(buf[:0], v)}, nil
}

// maxID bounds ids: MongoDB itself keeps longer ones out of an index.
const maxID = 1024

func identifyText(text, kind string, buf []byte) (identity, error) {
	if len(text) == 0 || len(text) > maxID {
		return identity{}, fmt.Errorf("%w: a text of %d bytes", errNoUser, len(text))
	}
	auto := kind == "auto" || kind == ""
	if auto {
		if prefix, rest, ok := strings.Cut(text, ":"); ok && slices.Contains(UserKinds[2:], prefix) {
			return identifyText(rest, prefix, buf)
		}
	}
	switch {
	case kind == "email" || auto && strings.Contains(text, "@"):
		if !strings.Contains(text, "@") {
			return identity{}, fmt.Errorf("%w: %.80q is no email", errNoUser, text)
		}
		return identity{email: append(buf[:0], strings.ToLower(text)...)}, nil
	case kind == "uuid":
		b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
		if err != nil || len(b) != 16 {
			return identity{}, fmt.Errorf("%w: %.80q is no UUID", errNoUser, text)
		}
		return identity{key: append(append(buf[:0], byte(bson.TypeBinary), 16, 0, 0, 0, bson.TypeBinaryUUID), b...)}, nil
	case kind == "oid" || auto && len(text) == 24:
		if oid, err := bson.ObjectIDFromHex(text); err == nil {
			return identity{key: append(append(buf[:0], byte(bson.TypeObjectID)), oid[:]...), text: auto && strings.ToLower(text) == text}, nil
		} else if !auto {
			return identity{}, fmt.Errorf("%w: %.80q is no ObjectId", errNoUser, text)
		}
	case kind == "int" || auto:
		n, err := strconv.ParseInt(text, 10, 64)
		if err == nil && (!auto || strconv.FormatInt(n, 10) == text) {
			return identity{key: appendNumber(buf[:0], n), text: auto}, nil
		} else if !auto {
			return identity{}, fmt.Errorf("%w: %.80q is no integer of 64 bits", errNoUser, text)
		}
	}
	return identity{key: append(append(buf[:0], byte(bson.TypeString)), text...)}, nil
}

// numberKey stands before whole numbers of every type.
const numberKey = 0x10

// appendKey writes an id so that ids of one type sort as a server sorts them, and whole numbers of all types are alike.
func appendKey(to []byte, id bson.RawValue) []byte {
	if n, ok := users.WholeID(id); ok {
		return appendNumber(to, n)
	}
	if id.Type == bson.TypeString && len(id.Value) >= 5 {
		return append(append(to, byte(bson.TypeString)), id.Value[4:len(id.Value)-1]...)
	}
	return append(append(to, byte(id.Type)), id.Value...)
}

func appendNumber(to []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(append(to, numberKey), uint64(n)^1<<63)
}

// idsOf is the reverse of appendKey: the id to look for, and for a text the one to look for after it.
func idsOf(key []byte, text bool) (id, otherwise bson.RawValue) {
	switch key[0] {
	case numberKey:
		n := int64(binary.BigEndian.Uint64(key[1:]) ^ 1<<63)
		id = bson.RawValue{Type: bson.TypeInt64, Value: bsoncore.AppendInt64(nil, n)}
		if text {
			otherwise = stringValue(strconv.FormatInt(n, 10))
		}
	case byte(bson.TypeString):
		id = stringValue(string(key[1:]))
	default:
		id = bson.RawValue{Type: bson.Type(key[0]), Value: slices.Clone(key[1:])}
		if text {
			otherwise = stringValue(hex.EncodeToString(key[1:]))
		}
	}
	return id, otherwise
}

func stringValue(s string) bson.RawValue {
	return bson.RawValue{Type: bson.TypeString, Value: bsoncore.AppendString(nil, s)}
}
