package users

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"postbit/internal/bitfield"
)

// EachBits calls f for every user with his bitfield; err says that it can't be read. Both are valid until f returns. With extra
// the document in u has these fields, too.
func (s *Store) EachBits(ctx context.Context, extra []string, f func(u *User, blob []byte, err error) error) error {
	load := &projectionOf{fields: projection(append([]string{s.cfg.Bits}, extra...)), bit: -1}
	return s.each(ctx, bson.D{}, load, func(u *User) error {
		err := u.was.bitsErr
		if err == nil && s.lost(u) {
			err = bitfield.ErrUnreadable
		}
		return f(u, u.was.blob, err)
	})
}

// EachAddress calls f for every user who has an email, with the text as it stands in the document, valid until f returns.
func (s *Store) EachAddress(ctx context.Context, f func(id bson.RawValue, email []byte) error) error {
	load := &projectionOf{fields: projection([]string{s.cfg.Email}), bit: -1}
	return s.each(ctx, bson.D{}, load, func(u *User) error {
		var found found
		s.walk(u.Doc, s.fields, &found)
		if text, ok := textOf(found.values[slotEmail]); ok && len(text) > 0 {
			return f(u.ID, text)
		}
		return nil
	})
}

// BitsValue is the bitfield as it stands in a document that EachBits gave; type 0: missing.
func (s *Store) BitsValue(u *User) bson.RawValue {
	var f found
	s.walk(u.Doc, s.fields, &f)
	return f.values[slotBits]
}

// BitsField is the path of the bitfield.
func (s *Store) BitsField() string { return s.cfg.Bits }

// Convert turns bitfields that are arrays into Binary, in place. blob makes the bits of an array; not ok leaves the user as he
// is, MergeUnreadable. Who has no array is MergeSame. Written is by compare-and-set on the array, so what others add to it
// meanwhile is in the blob.
func (s *Store) Convert(ctx context.Context, ids []bson.RawValue, blob func(array bson.RawValue) (bits []byte, ok bool)) ([]Merged, error) {
	load := &projectionOf{fields: projection([]string{s.cfg.Bits}), bit: -1}
	hs := make([]History, len(ids))
	out := make([]Merged, len(ids))
	us := make([]User, len(ids))
	for i := range hs {
		hs[i].ID = ids[i]
	}
	if err := s.retry(ctx, func() error { return s.loadHistories(ctx, hs, us, load) }); err != nil {
		return nil, fmt.Errorf("users: read %d users: %w", len(ids), err)
	}
	var todo []int
	for i := range us {
		if us[i].ID.Type != 0 {
			todo = append(todo, i)
			out[i].ID, out[i].State = us[i].ID, MergeSame
		}
	}
	plan := func(i int) mongo.WriteModel {
		array := s.BitsValue(&us[i])
		if array.Type != bson.TypeArray {
			return nil
		}
		bits, ok := blob(array)
		if !ok {
			out[i].State = MergeUnreadable
			return nil
		}
		out[i].Added = bits
		return s.convertModel(us[i].ID, array, bits)
	}
	if err := s.compareAndSet(ctx, us, todo, load, true, plan, out); err != nil {
		return nil, fmt.Errorf("users: convert %d users: %w", len(ids), err)
	}
	return out, nil
}

func (s *Store) convertModel(id, array bson.RawValue, bits []byte) mongo.WriteModel {
	var w mergeWrite
	w.same(s.cfg.Bits, array)
	w.set(s.cfg.Bits, bson.RawValue{Type: bson.TypeBinary, Value: bsoncore.AppendBinary(nil, bson.TypeBinaryGeneric, bits)})
	return w.model(id)
}

// EachElement calls f for the elements of an array or of a document and reports whether it could be read to its end.
func EachElement(v bson.RawValue, f func(bson.RawValue)) bool {
	return eachElement(v.Value, func(_ []byte, e bson.RawValue) { f(e) })
}
