package users

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// cursorBatch is how many documents one reply of the server holds. With it the memory of a pass over millions is flat.
const cursorBatch = 500

// loadAtOnce is how many users one query asks for. A range of _id would do as well and spare the list, but not every server
// of the protocol bounds its scan by it: at 20,000 documents a range of 128 took secantusd-rs 13 to 80 ms and $in 2.5 ms.
const loadAtOnce = 128

// Load reads the users of the list who are (still) in the audience; who does not come back has left it, or is gone. The
// result has the order of the list; a list in _id order, as a batch is, is read best. With extra come the named fields beside
// those that rules read. The users' documents are copies.
func (s *Store) Load(ctx context.Context, audience bson.D, ids []bson.RawValue, extra []string, bit int) ([]User, error) {
	load := &projectionOf{fields: s.Fields(extra), bit: bit}
	out := make([]User, 0, len(ids))
	for part := range slices.Chunk(ids, loadAtOnce) {
		var err error
		if out, err = s.load(ctx, out, audience, part, load); err != nil {
			return nil, fmt.Errorf("users: load %d users: %w", len(ids), err)
		}
	}
	return out, nil
}

// load appends the users with these ids, in their order.
func (s *Store) load(ctx context.Context, out []User, audience bson.D, ids []bson.RawValue, load *projectionOf) ([]User, error) {
	cur, err := s.coll.Find(ctx, audienceAnd(audience, bson.D{{Key: "$in", Value: ids}}), options.Find().SetProjection(load.fields).SetBatchSize(cursorBatch))
	if err != nil {
		return nil, err
	}
	defer cur.Close(context.WithoutCancel(ctx))
	var docs arena
	places := finder{ids: ids}
	first := len(out)
	for cur.Next(ctx) {
		if !places.take(s.idOf(cur.Current)) {
			continue
		}
		out = append(out, User{load: load})
		s.parse(&out[len(out)-1], docs.copy(cur.Current), load.bit)
	}
	if !slices.IsSorted(places.taken) { // the server has chosen another index than that of _id
		sort.Sort(byPlace{places.taken, out[first:]})
	}
	return out, cur.Err()
}

// finder looks ids up in a list, best in its order.
type finder struct {
	ids   []bson.RawValue
	next  int
	taken []int          // places, in the order in which they were taken
	all   map[string]int // made when an id comes that is not ahead
}

// take reports whether the id is on the list and was not taken before: a document that moves while a server reads may come
// twice.
func (f *finder) take(id bson.RawValue) bool {
	for i := f.next; i < len(f.ids); i++ {
		if f.ids[i].Type == id.Type && bytes.Equal(f.ids[i].Value, id.Value) {
			f.next = i + 1
			f.taken = append(f.taken, i)
			return true
		}
	}
	if f.all == nil {
		f.all = make(map[string]int, len(f.ids))
		for i, id := range f.ids {
			f.all[idKey(id)] = i
		}
	}
	i, ok := f.all[idKey(id)]
	if !ok || slices.Contains(f.taken, i) {
		return false
	}
	f.taken = append(f.taken, i)
	return true
}

// idOf is the _id of a document. Servers put it first, so no more than that is read as a rule.
func (s *Store) idOf(doc bson.Raw) bson.RawValue {
	if len(doc) > 9 && string(doc[5:9]) == "_id\x00" {
		if v, _, ok := bsoncore.ReadValue(doc[9:], bsoncore.Type(doc[4])); ok {
			return bson.RawValue{Type: bson.Type(doc[4]), Value: v.Data}
		}
	}
	var f found
	s.walk(doc, s.fields, &f)
	return f.values[slotID]
}

type byPlace struct {
	places []int
	us     []User
}

func (b byPlace) Len() int           { return len(b.places) }
func (b byPlace) Less(i, j int) bool { return b.places[i] < b.places[j] }
func (b byPlace) Swap(i, j int) {
	b.places[i], b.places[j] = b.places[j], b.places[i]
	b.us[i], b.us[j] = b.us[j], b.us[i]
}

// Get reads one user, whatever audience he is in. ErrNotFound says that there is none.
func (s *Store) Get(ctx context.Context, id bson.RawValue, extra []string, bit int) (User, error) {
	load := &projectionOf{fields: s.Fields(extra), bit: bit}
	raw, err := s.coll.FindOne(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: id}}}}, options.FindOne().SetProjection(load.fields)).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return User{}, fmt.Errorf("users: %s: %w", FormatID(id), ErrNotFound)
	}
	if err != nil {
		return User{}, fmt.Errorf("users: get %s: %w", FormatID(id), err)
	}
	u := s.Parse(raw, bit)
	u.load = load
	return u, nil
}

// InAudience reports whether the user is in the audience now.
func (s *Store) InAudience(ctx context.Context, audience bson.D, id bson.RawValue) (bool, error) {
	filter := audienceAnd(audience, bson.D{{Key: "$eq", Value: id}})
	err := s.coll.FindOne(ctx, filter, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("users: is %s in the audience: %w", FormatID(id), err)
	}
	return true, nil
}

// audienceAnd narrows the audience to ids. The condition on _id stands at the top of the query, since not every server looks
// into $and for what an index could serve.
func audienceAnd(audience bson.D, id bson.D) bson.D {
	out := bson.D{{Key: "_id", Value: id}}
	for _, e := range audience {
		if e.Key == "_id" {
			return append(out[:1], bson.E{Key: "$and", Value: bson.A{audience}})
		}
		out = append(out, e)
	}
	return out
}

// arena copies documents into few large pieces of memory.
type arena struct{ free []byte }

func (a *arena) copy(doc []byte) bson.Raw {
	if len(doc) > cap(a.free) {
		a.free = make([]byte, 0, max(len(doc), 64<<10))
	}
	out := append(a.free[:0:len(doc)], doc...)
	a.free = a.free[len(doc):len(doc):cap(a.free)]
	return bson.Raw(out)
}
