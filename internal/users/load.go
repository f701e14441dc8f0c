package users

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

const (
	// cursorBatch is how many documents one reply of the server holds. With it the memory of a pass over millions is flat.
	cursorBatch = 500

	// LoadAtOnce is how many users one query asks for: half a batch. What a query costs by itself is then shared by so many that it
	// hardly shows, and longer lists cost some servers more for each user (secantusd-rs 9.4 µs at 250, 11.5 µs at 500). A range of _id
	// would spare the list, but not every server of the protocol bounds its scan by it: at 20,000 documents a range of 128 took
	// secantusd-rs 13 to 80 ms and $in 2.5 ms.
	LoadAtOnce = 250

	// keepBytes ends a load once the documents that are kept hold so much memory. Documents are a few hundred bytes, but nothing
	// keeps a team from writing megabytes into a field that a template shows.
	keepBytes = 1 << 20
)

// byID asks for the order of the list. Any server has that from the index on _id; secantusd-rs, which would else prepare for a long
// scan, spends a third less on each user.
var byID = bson.D{{Key: "_id", Value: 1}}

// Loader reads users of one audience by their ids, each time the same fields of them. It is safe for concurrent use.
type Loader struct {
	store      *Store
	load       *projectionOf
	projection bson.Raw // this and the audience are encoded once, not for every query
	audience   []byte   // the elements of the filter behind that on _id
}

// Loader prepares for loading users of the audience; with extra come the named fields beside those that rules read.
func (s *Store) Loader(audience bson.D, extra []string, bit int) (*Loader, error) {
	l := &Loader{store: s, load: &projectionOf{fields: s.Fields(extra), bit: bit}}
	var err error
	if l.projection, err = bson.Marshal(l.load.fields); err != nil {
		return nil, fmt.Errorf("users: projection: %w", err)
	}
	filter, err := bson.Marshal(audienceAnd(audience, nil)[1:])
	if err != nil {
		return nil, fmt.Errorf("users: audience: %w", err)
	}
	l.audience = filter[4 : len(filter)-1]
	return l, nil
}

// Load reads the users with these ids and calls f once for every place of the list, with nil for who has left the audience, or
// is gone. They come in _id order, which should be that of the list, those who have left behind the others. A user is valid until f
// returns, and for good where f returns true. Where those kept take much memory Load ends before its time: rest is the places, in
// order, that f was not called for.
func (l *Loader) Load(ctx context.Context, ids []bson.RawValue, f func(place int, u *User) (keep bool)) (rest []int, err error) {
	for from := 0; from < len(ids); from += LoadAtOnce {
		part := &finder{ids: ids[from:min(from+LoadAtOnce, len(ids))]}
		complete, err := l.loadPart(ctx, part, func(i int, u *User) bool { return f(from+i, u) })
		if err != nil {
			return nil, fmt.Errorf("users: load %d users: %w", len(ids), err)
		}
		for i := range part.ids {
			if part.taken(i) {
				continue
			}
			if complete {
				f(from+i, nil)
			} else {
				rest = append(rest, from+i)
			}
		}
		if !complete {
			for i := from + len(part.ids); i < len(ids); i++ {
				rest = append(rest, i)
			}
			break
		}
	}
	return rest, nil
}

// loadPart is one query. It reports whether all its users were seen.
func (l *Loader) loadPart(ctx context.Context, part *finder, f func(i int, u *User) (keep bool)) (complete bool, err error) {
	// A server that has sent as many as asked for can't tell whether there are more, and wants to be asked again.
	opts := options.Find().SetProjection(l.projection).SetSort(byID).SetBatchSize(int32(len(part.ids)) + 1)
	cur, err := l.store.coll.Find(ctx, listed(part.ids, l.audience), opts)
	if err != nil {
		return false, err
	}
	defer cur.Close(context.WithoutCancel(ctx))
	var docs arena
	var u User
	kept := 0
	for cur.Next(ctx) {
		i, ok := part.take(l.store.idOf(cur.Current))
		if !ok {
			continue
		}
		u = User{load: l.load}
		l.store.parse(&u, docs.copy(cur.Current), l.load.bit)
		if !f(i, &u) {
			docs.undo()
		} else if kept += len(u.Doc); kept >= keepBytes {
			return false, nil
		}
	}
	return cur.Err() == nil, cur.Err()
}

// listed is {_id: {$in: ids}, …more}, built by hand: the ids are BSON already, and a codec would look at each of them.
func listed(ids []bson.RawValue, more []byte) bson.Raw {
	size := len(more) + 32
	for _, id := range ids {
		size += len(id.Value) + 5
	}
	doc, dst := bsoncore.AppendDocumentStart(make([]byte, 0, size))
	id, dst := bsoncore.AppendDocumentElementStart(dst, "_id")
	list, dst := bsoncore.AppendArrayElementStart(dst, "$in")
	for i, v := range ids {
		dst = append(dst, byte(v.Type))
		dst = strconv.AppendInt(dst, int64(i), 10)
		dst = append(append(dst, 0), v.Value...)
	}
	dst, _ = bsoncore.AppendArrayEnd(dst, list)
	dst, _ = bsoncore.AppendDocumentEnd(dst, id)
	dst = append(dst, more...)
	dst, _ = bsoncore.AppendDocumentEnd(dst, doc)
	return bson.Raw(dst)
}

// finder looks ids up in a list, best in its order.
type finder struct {
	ids  []bson.RawValue
	next int
	seen [LoadAtOnce]bool
	all  map[string]int // made when an id comes that is not ahead
}

func (f *finder) taken(i int) bool { return f.seen[i] }

// take gives the place of an id that is on the list and was not taken before: a document that moves while a server reads may
// come twice.
func (f *finder) take(id bson.RawValue) (place int, ok bool) {
	for i := f.next; i < len(f.ids); i++ {
		if f.ids[i].Type == id.Type && bytes.Equal(f.ids[i].Value, id.Value) {
			f.next, f.seen[i] = i+1, true
			return i, true
		}
	}
	if f.all == nil {
		f.all = make(map[string]int, len(f.ids))
		for i, id := range f.ids {
			f.all[idKey(id)] = i
		}
	}
	i, ok := f.all[idKey(id)]
	if !ok || f.seen[i] {
		return 0, false
	}
	f.seen[i] = true
	return i, true
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

// arena copies documents into few pieces of memory, small ones at first: where few documents are kept, most of a large one would be
// garbage.
type arena struct {
	free, before []byte
	last         int // bytes of the last piece
}

const arenaPiece = 64 << 10

func (a *arena) copy(doc []byte) bson.Raw {
	if len(doc) > cap(a.free) {
		a.last = min(max(2*a.last, 4<<10), arenaPiece)
		a.free = make([]byte, 0, max(len(doc), a.last))
	}
	a.before = a.free
	out := append(a.free[:0:len(doc)], doc...)
	a.free = a.free[len(doc):len(doc):cap(a.free)]
	return bson.Raw(out)
}

// undo gives the room of the last copy to the next one. What was made for one large document goes, lest a small one hold all of it.
func (a *arena) undo() {
	if a.free = a.before; cap(a.free) > arenaPiece {
		a.free = nil
	}
}
