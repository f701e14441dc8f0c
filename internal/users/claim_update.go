package users

import (
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"postbit/internal/bitfield"
)

// Claims are written as BSON by hand: a worker makes thousands in a second.

// claimModel is the compare-and-set of a claim.
func (s *Store) claimModel(u *User, c *Claim) mongo.WriteModel {
	return mongo.NewUpdateOneModel().SetFilter(s.claimFilter(u)).SetUpdate(s.claimUpdate(u, c))
}

// claimFilter matches the document as it was read, as far as claims go.
func (s *Store) claimFilter(u *User) bson.Raw {
	at, doc := bsoncore.AppendDocumentStart(make([]byte, 0, 192+len(u.was.bits.Value)))
	doc = appendID(doc, u.ID)
	doc = appendSame(doc, s.cfg.Bits, u.was.bits)
	if u.was.state == bson.TypeEmbeddedDocument {
		doc = appendSame(doc, s.paths.lastAt, u.was.lastAt)
		doc = appendSame(doc, s.paths.status, u.was.status)
	} else {
		doc = appendSame(doc, s.cfg.State, bson.RawValue{Type: u.was.state})
	}
	doc, _ = bsoncore.AppendDocumentEnd(doc, at)
	return doc
}

// claimUpdate sets the bit and names the claim. Where the state is null, a dotted name could not be set in it, so the whole
// of it is written.
func (s *Store) claimUpdate(u *User, c *Claim) bson.Raw {
	at, doc := bsoncore.AppendDocumentStart(make([]byte, 0, 192+len(u.was.blob)))
	set, doc := bsoncore.AppendDocumentElementStart(doc, "$set")
	if !u.Recipient.HasBit {
		doc = bsoncore.AppendBinaryElement(doc, s.cfg.Bits, bitfield.Subtype(u.was.bits), bitfield.With(u.was.blob, c.Bit))
	}
	first, last, runs := s.paths.firstAt, s.paths.lastAt, s.paths.runs
	var inner int32
	if u.was.state == bson.TypeNull {
		inner, doc = bsoncore.AppendDocumentElementStart(doc, s.cfg.State)
		first, last, runs = "first_at", "last_at", "runs"
	}
	if t := u.was.firstAt.Type; t == 0 || t == bson.TypeNull || t == bson.TypeUndefined {
		doc = bsoncore.AppendDateTimeElement(doc, first, c.LastAt.UnixMilli())
	}
	doc = bsoncore.AppendDateTimeElement(doc, last, c.LastAt.UnixMilli())
	doc = bsoncore.AppendBinaryElement(doc, runs, bson.TypeBinaryGeneric, append(c.Run[:], u.was.runs[0][:]...))
	if u.was.state == bson.TypeNull {
		doc, _ = bsoncore.AppendDocumentEnd(doc, inner)
	}
	doc, _ = bsoncore.AppendDocumentEnd(doc, set)
	doc, _ = bsoncore.AppendDocumentEnd(doc, at)
	return doc
}

// appendID matches an _id. A document needs $eq, lest a key of it be taken for an operator.
func appendID(doc []byte, id bson.RawValue) []byte {
	if id.Type == bson.TypeEmbeddedDocument {
		return appendOperator(doc, "_id", "$eq", id)
	}
	return bsoncore.AppendValueElement(doc, "_id", bsoncore.Value{Type: bsoncore.Type(id.Type), Data: id.Value})
}

// appendSame matches a field that still has the very value that was read, missing and null told apart.
func appendSame(doc []byte, path string, v bson.RawValue) []byte {
	switch v.Type {
	case 0:
		return appendOperator(doc, path, "$exists", bson.RawValue{Type: bson.TypeBoolean, Value: []byte{0}})
	case bson.TypeNull, bson.TypeUndefined:
		return appendOperator(doc, path, "$type", bson.RawValue{Type: bson.TypeInt32, Value: []byte{byte(v.Type), 0, 0, 0}})
	}
	return appendOperator(doc, path, "$eq", v)
}

func appendOperator(doc []byte, path, operator string, v bson.RawValue) []byte {
	at, doc := bsoncore.AppendDocumentElementStart(doc, path)
	doc = bsoncore.AppendValueElement(doc, operator, bsoncore.Value{Type: bsoncore.Type(v.Type), Data: v.Value})
	doc, _ = bsoncore.AppendDocumentEnd(doc, at)
	return doc
}
