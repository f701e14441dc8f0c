package users

import (
	"encoding/hex"
	"math"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// idKey is an id as a key of a map.
func idKey(id bson.RawValue) string {
	return string(append([]byte{byte(id.Type)}, id.Value...))
}

// FormatID writes an id for people, in the way in which Find reads it again: hex for an ObjectID, digits for an integer, the
// text of a string, "uuid:…" for a UUID, with "str:" before a string that would be read as something else. Ids of other
// types are Extended JSON, which Find does not read.
func FormatID(id bson.RawValue) string {
	switch id.Type {
	case bson.TypeObjectID:
		if oid, ok := id.ObjectIDOK(); ok {
			return oid.Hex()
		}
	case bson.TypeInt32:
		if n, ok := id.Int32OK(); ok {
			return strconv.FormatInt(int64(n), 10)
		}
	case bson.TypeInt64:
		if n, ok := id.Int64OK(); ok {
			return strconv.FormatInt(n, 10)
		}
	case bson.TypeDouble: // JavaScript's whole numbers; servers compare numbers by value
		if f, ok := id.DoubleOK(); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return strconv.FormatInt(int64(f), 10)
		}
	case bson.TypeString:
		if text, ok := textOf(id); ok {
			s := clip(text, 1024)
			if looksForced(s) {
				return "str:" + s
			}
			return s
		}
	case bson.TypeBinary:
		if len(id.Value) == 5+16 && id.Value[4] == bson.TypeBinaryUUID {
			return "uuid:" + formatUUID(id.Value[5:])
		}
	}
	if id.Type == 0 {
		return ""
	}
	if id.Validate() != nil {
		return "(broken id)"
	}
	return id.String()
}

func formatUUID(b []byte) string {
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
