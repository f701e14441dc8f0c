package minimongo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func encode(t testing.TB, d bson.D) []byte {
	raw, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func frame(op uint32, body ...[]byte) []byte {
	b := bytes.Join(body, nil)
	out := binary.LittleEndian.AppendUint32(nil, uint32(16+len(b)))
	out = binary.LittleEndian.AppendUint32(out, 7)
	out = binary.LittleEndian.AppendUint32(out, 0)
	return append(binary.LittleEndian.AppendUint32(out, op), b...)
}

func section(kind byte, name string, docs ...[]byte) []byte {
	if kind == 0 {
		return append([]byte{0}, docs[0]...)
	}
	b := append([]byte(name), 0)
	b = append(b, bytes.Join(docs, nil)...)
	return append(binary.LittleEndian.AppendUint32([]byte{1}, uint32(4+len(b))), b...)
}

func TestReadMessage(t *testing.T) {
	ping, doc := encode(t, bson.D{{Key: "ping", Value: 1}, {Key: "$db", Value: "x"}}), encode(t, bson.D{{Key: "a", Value: 1}})
	flags := func(f byte) []byte { return []byte{f, 0, 0, 0} }
	nested := doc
	for range 250 {
		nested = encode(t, bson.D{{Key: "a", Value: bson.Raw(nested)}})
	}
	tests := []struct {
		name  string
		bytes []byte
		err   error
		docs  int // in the sequence "documents"
	}{
		{"body", frame(opMsg, flags(0), section(0, "", ping)), nil, 0},
		{"body and sequence", frame(opMsg, flags(0), section(0, "", ping), section(1, "documents", doc, doc, doc)), nil, 3},
		{"sequence before the body", frame(opMsg, flags(0), section(1, "documents", doc), section(0, "", ping)), nil, 1},
		{"empty sequence", frame(opMsg, flags(0), section(0, "", ping), section(1, "documents")), nil, 0},
		{"no answer wanted", frame(opMsg, flags(2), section(0, "", ping)), nil, 0},
		{"query", frame(opQuery, flags(0), []byte("admin.$cmd\x00"), make([]byte, 8), doc), nil, 0},
		{"nothing", nil, io.EOF, 0},
		{"half a header", frame(opMsg)[:8], io.ErrUnexpectedEOF, 0},
		{"half a body", frame(opMsg, flags(0), section(0, "", ping))[:30], io.ErrUnexpectedEOF, 0},
		{"no flags", frame(opMsg), errMalformed, 0},
		{"checksum", frame(opMsg, flags(1), section(0, "", ping)), errMalformed, 0},
		{"unknown flag", frame(opMsg, flags(4), section(0, "", ping)), errMalformed, 0},
		{"unknown operation", frame(2012, flags(0)), errMalformed, 0},
		{"no body section", frame(opMsg, flags(0)), errMalformed, 0},
		{"two bodies", frame(opMsg, flags(0), section(0, "", ping), section(0, "", ping)), errMalformed, 0},
		{"two sequences of a name", frame(opMsg, flags(0), section(0, "", ping), section(1, "d", doc), section(1, "d", doc)), errMalformed, 0},
		{"section of kind 2", frame(opMsg, flags(0), []byte{2}, doc), errMalformed, 0},
		{"sequence longer than the message", frame(opMsg, flags(0), section(0, "", ping), []byte{1, 255, 0, 0, 0, 'd', 0}), errMalformed, 0},
		{"document longer than its sequence", frame(opMsg, flags(0), section(0, "", ping), section(1, "d", doc[:8])), errMalformed, 0},
		{"too long", binary.LittleEndian.AppendUint32(nil, 1<<31-1), io.ErrUnexpectedEOF, 0},
		{"too long with a header", append(binary.LittleEndian.AppendUint32(nil, 1<<31-1), make([]byte, 12)...), errMalformed, 0},
		{"too short", append(binary.LittleEndian.AppendUint32(nil, 15), make([]byte, 12)...), errMalformed, 0},
		{"query of documents", frame(opQuery, flags(0), []byte("db.coll\x00"), make([]byte, 8), doc), errMalformed, 0},
		{"nested too deep", frame(opMsg, flags(0), section(0, "", nested)), errMalformed, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := readMessage(bytes.NewReader(tt.bytes))
			if !errors.Is(err, tt.err) {
				t.Fatalf("got %v, want %v", err, tt.err)
			}
			if err == nil && len(m.sequences["documents"]) != tt.docs {
				t.Errorf("%d documents", len(m.sequences["documents"]))
			}
		})
	}
}

// FuzzReadMessage: no bytes make the reader or a command panic, and every answer is BSON.
func FuzzReadMessage(f *testing.F) {
	for _, s := range []string{
		`{"ping":1,"$db":"x"}`, `{"hello":1,"$db":"x"}`, `{"find":"c","filter":{"a":{"$gt":1,"$in":[1,"x"]}},"sort":{"a":1},"projection":{"a.b":0},"$db":"x"}`,
		`{"update":"c","updates":[{"q":{"_id":1},"u":{"$set":{"a.b":1},"$inc":{"n":1},"$push":{"l":{"$each":[1],"$slice":-1}}},"upsert":true}],"$db":"x"}`,
		`{"insert":"c","documents":[{"a":[1,{"b":2}]}],"$db":"x"}`, `{"delete":"c","deletes":[{"q":{"a":1},"limit":0}],"$db":"x"}`,
		`{"aggregate":"c","pipeline":[{"$match":{"a":1}},{"$group":{"_id":"$a.b","n":{"$sum":1}}}],"cursor":{},"$db":"x"}`,
		`{"createIndexes":"c","indexes":[{"key":{"a":1,"b":-1},"name":"x","unique":true}],"$db":"x"}`, `{"getMore":{"$numberLong":"1"},"collection":"c","$db":"x"}`,
		`{"findAndModify":"c","query":{"a":{"$bitsAllSet":[1]}},"update":{"$max":{"a":5}},"new":true,"fields":{"a":1},"$db":"x"}`,
	} {
		f.Add(frame(opMsg, []byte{0, 0, 0, 0}, section(0, "", encode(f, parse(s)))))
	}
	f.Add(frame(opQuery, make([]byte, 4), []byte("admin.$cmd\x00"), make([]byte, 8), encode(f, bson.D{{Key: "isMaster", Value: 1}})))
	f.Add(frame(opMsg, []byte{0, 0, 0, 0}, section(0, "", encode(f, parse(`{"insert":"c","$db":"x"}`))), section(1, "documents", encode(f, bson.D{{Key: "a", Value: 1}}))))
	s := open(f, Config{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := readMessage(bytes.NewReader(b))
		if err != nil {
			return
		}
		it := elementsOf(m.body)
		name, _, _ := it.next()
		out := m.startReply(nil)
		head := len(out) - 4
		out, err = s.dispatch(&request{ctx: s.ctx, name: string(name), db: "x", body: m.body, sequences: m.sequences}, out)
		if err != nil {
			if asError(err).Code == codeInternalError {
				t.Fatal(err)
			}
			return
		}
		if err := bson.Raw(m.endReply(out, 1)[head:]).Validate(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzKey: what passes validation can be encoded, equal to itself and found again.
func FuzzKey(f *testing.F) {
	f.Add(encode(f, bson.D{{Key: "a", Value: bson.A{1, "x", bson.D{{Key: "b", Value: 1.5}}}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if validate(b, 0) != nil {
			return
		}
		for it := elementsOf(b); ; {
			_, v, ok := it.next()
			if !ok {
				return
			}
			key := appendKey(nil, v)
			if compare(v, v) != 0 || !bytes.Equal(key, appendKey(nil, v)) {
				t.Fatalf("%s is not equal to itself", v)
			}
			if next := after(key); next == nil || bytes.Compare(key, next) >= 0 {
				t.Fatalf("nothing after the key %x", key)
			}
			_ = shell(v)
		}
	})
}
