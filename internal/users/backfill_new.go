package users

import (
	"bytes"
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"postbit/internal/bitfield"
)

// MergeNew is Merge, writing, for users who most likely have neither bits nor a state yet: it guesses so instead of reading, and writes on
// that condition. Where all of them matched, that was all, and a user costs little more than a bare update of him; otherwise it goes on as
// Merge does. Among users who say exactly what the guess would have written, those changed now can't be told from those who said it before:
// as many as have matched count as changed, the first ones, and all of them after a lost reply.
func (s *Store) MergeNew(ctx context.Context, hs []History) ([]Merged, error) {
	models := make([]mongo.WriteModel, 0, len(hs))
	for i := range hs {
		if bitfield.Any(hs[i].Bits) {
			models = append(models, s.newModel(&hs[i]))
		}
	}
	if len(models) < len(hs) {
		return s.Merge(ctx, hs, true)
	}
	matched, _, err := s.issueEach(ctx, models)
	switch {
	case err == nil && matched == len(hs):
		out := make([]Merged, len(hs))
		for i := range hs {
			out[i] = hs[i].whole()
		}
		return out, nil
	case err != nil && !worthAgain(err):
		return nil, fmt.Errorf("users: write the history of %d users: %w: %w", len(hs), ErrRefused, err)
	case err != nil:
		matched = len(hs)
	}
	return s.merge(ctx, hs, true, matched)
}

// newModel writes a history where there is nothing.
func (s *Store) newModel(h *History) mongo.WriteModel {
	missing := bson.RawValue{}
	dates := h.state()
	at, filter := bsoncore.AppendDocumentStart(make([]byte, 0, 128+len(h.ID.Value)))
	filter = appendSame(appendID(filter, h.ID), s.cfg.Bits, missing)
	if dates != nil {
		filter = appendSame(filter, s.cfg.State, missing)
	}
	filter, _ = bsoncore.AppendDocumentEnd(filter, at)
	at, update := bsoncore.AppendDocumentStart(make([]byte, 0, 128+len(h.Bits)+len(dates)))
	set, update := bsoncore.AppendDocumentElementStart(update, "$set")
	update = bsoncore.AppendBinaryElement(update, s.cfg.Bits, bson.TypeBinaryGeneric, h.Bits)
	if dates != nil {
		update = bsoncore.AppendDocumentElement(update, s.cfg.State, dates)
	}
	update, _ = bsoncore.AppendDocumentEnd(update, set)
	update, _ = bsoncore.AppendDocumentEnd(update, at)
	return mongo.NewUpdateOneModel().SetFilter(bson.Raw(filter)).SetUpdate(bson.Raw(update))
}

// state is the state of a user of whom nothing but the history is known; nil: none.
func (h *History) state() []byte {
	if !h.dated() {
		return nil
	}
	at, doc := bsoncore.AppendDocumentStart(make([]byte, 0, 96))
	for _, d := range [...]struct {
		name string
		ms   int64
		ok   bool
	}{
		{"first_at", h.FirstAt.UnixMilli(), !h.FirstAt.IsZero()}, {"last_at", h.LastAt.UnixMilli(), !h.LastAt.IsZero()},
		{"open_first_at", h.OpenFirstAt.UnixMilli(), !h.OpenFirstAt.IsZero()}, {"open_last_at", h.OpenLastAt.UnixMilli(), !h.OpenLastAt.IsZero()},
	} {
		if d.ok {
			doc = bsoncore.AppendDateTimeElement(doc, d.name, d.ms)
		}
	}
	doc, _ = bsoncore.AppendDocumentEnd(doc, at)
	return doc
}

func (h *History) dated() bool {
	return !h.FirstAt.IsZero() || !h.LastAt.IsZero() || !h.OpenFirstAt.IsZero() || !h.OpenLastAt.IsZero()
}

// whole is the outcome where all of a history was written to a user who had nothing.
func (h *History) whole() Merged {
	return Merged{State: MergeChanged, New: true, ID: h.ID, Added: h.Bits, Dates: h.dated()}
}

// saysJust reports whether a document says what newModel writes, and nothing beyond it.
func (s *Store) saysJust(u *User, h *History) bool {
	if u.was.bits.Type != bson.TypeBinary || bitfield.Subtype(u.was.bits) != bson.TypeBinaryGeneric || !bytes.Equal(u.was.blob, h.Bits) {
		return false
	}
	dates := h.state()
	if dates == nil {
		return true
	}
	var f found
	s.walk(u.Doc, s.fields, &f)
	return f.values[slotState].Type == bson.TypeEmbeddedDocument && bytes.Equal(f.values[slotState].Value, dates)
}
