package users

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// AmbiguousError says that several users have the email, and who they are (the first ten).
type AmbiguousError struct {
	Email string
	IDs   []bson.RawValue
}

func (e *AmbiguousError) Error() string {
	ids := make([]string, len(e.IDs))
	for i, id := range e.IDs {
		ids[i] = FormatID(id)
	}
	return fmt.Sprintf("several users have the email %s; name one by id: %s", e.Email, strings.Join(ids, ", "))
}

const maxAmbiguous = 10

// Find reads the argument USER of the command line: with an @ it is an email; 24 hex digits are an ObjectID, and if there is
// none such, a string; digits are an integer, then a string; all else is a string. "oid:", "int:", "str:" and "uuid:" before
// it force one. It returns the id as the document has it. Errors: ErrNotFound, *AmbiguousError, or what is wrong with ref.
func (s *Store) Find(ctx context.Context, ref string) (bson.RawValue, error) {
	if kind, text, ok := forced(ref); ok {
		id, err := forcedID(kind, text)
		if err != nil {
			return bson.RawValue{}, err
		}
		return s.findID(ctx, ref, id)
	}
	if strings.Contains(ref, "@") {
		return s.findEmail(ctx, ref)
	}
	var ids []any
	if oid, err := bson.ObjectIDFromHex(ref); err == nil {
		ids = append(ids, oid)
	} else if n, err := strconv.ParseInt(ref, 10, 64); err == nil {
		ids = append(ids, n)
	}
	return s.findID(ctx, ref, append(ids, ref)...)
}

// findID returns the first of the ids that exists.
func (s *Store) findID(ctx context.Context, ref string, ids ...any) (bson.RawValue, error) {
	for _, id := range ids {
		raw, err := s.coll.FindOne(ctx, bson.D{{Key: "_id", Value: id}}, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Raw()
		if errors.Is(err, mongo.ErrNoDocuments) {
			continue
		}
		if err != nil {
			return bson.RawValue{}, fmt.Errorf("users: find %.80q: %w", ref, err)
		}
		return raw.Lookup("_id"), nil
	}
	return bson.RawValue{}, fmt.Errorf("users: %.80q: %w", ref, ErrNotFound)
}

func (s *Store) findEmail(ctx context.Context, email string) (bson.RawValue, error) {
	as := bson.A{email}
	if lower := strings.ToLower(email); lower != email {
		as = append(as, lower)
	}
	cur, err := s.coll.Find(ctx, bson.D{{Key: s.cfg.Email, Value: bson.D{{Key: "$in", Value: as}}}},
		options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}).SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(maxAmbiguous))
	if err != nil {
		return bson.RawValue{}, fmt.Errorf("users: find %.80q: %w", email, err)
	}
	var docs []bson.Raw
	if err := cur.All(ctx, &docs); err != nil {
		return bson.RawValue{}, fmt.Errorf("users: find %.80q: %w", email, err)
	}
	switch len(docs) {
	case 0:
		return bson.RawValue{}, fmt.Errorf("users: %.80q, as written or in lower case: %w", email, ErrNotFound)
	case 1:
		return docs[0].Lookup("_id"), nil
	}
	ambiguous := &AmbiguousError{Email: email}
	for _, doc := range docs {
		ambiguous.IDs = append(ambiguous.IDs, doc.Lookup("_id"))
	}
	return bson.RawValue{}, ambiguous
}

func forced(ref string) (kind, text string, ok bool) {
	kind, text, ok = strings.Cut(ref, ":")
	switch kind {
	case "oid", "int", "str", "uuid":
		return kind, text, ok
	}
	return "", "", false
}

func forcedID(kind, text string) (any, error) {
	switch kind {
	case "oid":
		id, err := bson.ObjectIDFromHex(text)
		if err != nil {
			return nil, fmt.Errorf("users: oid:%.40s: an ObjectId has 24 hex digits", text)
		}
		return id, nil
	case "int":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("users: int:%.40s: not an integer of 64 bits", text)
		}
		return n, nil
	case "uuid":
		b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
		if err != nil || len(b) != 16 {
			return nil, fmt.Errorf("users: uuid:%.60s: a UUID has 32 hex digits", text)
		}
		return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: b}, nil
	}
	return text, nil
}

// looksForced reports whether Find would not read the text as the string that it is.
func looksForced(s string) bool {
	if _, _, ok := forced(s); ok || strings.Contains(s, "@") {
		return true
	}
	if _, err := bson.ObjectIDFromHex(s); err == nil {
		return true
	}
	_, err := strconv.ParseInt(s, 10, 64)
	return err == nil
}
