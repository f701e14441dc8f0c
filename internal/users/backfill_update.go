package users

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"postbit/internal/bitfield"
)

// mergeModel is the compare-and-set that a user's document still needs, or nil. Into m goes what it is about.
func (s *Store) mergeModel(u *User, h *History, m *Merged) mongo.WriteModel {
	if u.was.bitsErr != nil || s.lost(u) {
		m.State, m.Err = MergeUnreadable, u.was.bitsErr
		return nil
	}
	var w mergeWrite
	if added := beyond(u.was.blob, h.Bits); added != nil {
		m.Added = union(m.Added, added)
		w.set(s.cfg.Bits, bson.RawValue{Type: bson.TypeBinary, Value: binaryValue(bitfield.Subtype(u.was.bits), union(u.was.blob, added))})
		w.same(s.cfg.Bits, u.was.bits)
	}
	s.mergeDates(u, h, m, &w)
	if w.empty() {
		return nil
	}
	return w.model(u.ID)
}

// lost reports whether the bits' own place can't be seen: something that is no document stands on the way to it.
func (s *Store) lost(u *User) bool {
	var f found
	return !s.walk(u.Doc, s.fields, &f) || f.unreadable
}

// mergeDates adds the dates that the history moves.
func (s *Store) mergeDates(u *User, h *History, m *Merged, w *mergeWrite) {
	if !h.dated() {
		return
	}
	if !u.was.readable {
		m.StateStays = true
		return
	}
	var f found
	s.walk(u.Doc, s.fields, &f)
	var openFirst, openLast bson.RawValue
	if u.was.state == bson.TypeEmbeddedDocument {
		eachElement(f.values[slotState].Value, func(name []byte, v bson.RawValue) {
			switch string(name) {
			case "open_first_at":
				openFirst = v
			case "open_last_at":
				openLast = v
			}
		})
	}
	d := dateWrite{w: w, null: u.was.state == bson.TypeNull, state: s.cfg.State}
	d.earlier("first_at", u.was.firstAt, h.FirstAt)
	switch {
	case h.LastAt.IsZero() || !u.was.lastTime.IsZero() && !h.LastAt.After(u.was.lastTime):
	case u.was.runs[0] != RunID{}:
		m.LastStays = true
	default:
		d.put("last_at", h.LastAt)
		w.same(s.paths.lastAt, u.was.lastAt)
	}
	d.earlier("open_first_at", openFirst, h.OpenFirstAt)
	d.later("open_last_at", openLast, h.OpenLastAt)
	m.Dates = m.Dates || d.any
	if d.any && d.null {
		w.same(s.cfg.State, bson.RawValue{Type: bson.TypeNull})
		w.conditions = withoutPath(w.conditions, s.paths.lastAt) // it can't be there
		w.set(s.cfg.State, bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: document(d.whole)})
	}
}

// dateWrite moves dates of a state. A state of null takes no fields, so the whole of it is written.
type dateWrite struct {
	w     *mergeWrite
	state string
	null  bool
	any   bool
	whole []element
}

func (d *dateWrite) put(name string, at time.Time) {
	d.any = true
	if d.null {
		d.whole = append(d.whole, element{name, dateValue(at)})
		return
	}
	d.w.set(d.state+"."+name, dateValue(at))
}

// earlier and later move a date by $min and $max, which hold whatever others write meanwhile. A null and Go's zero time, which
// stand for "never", would win against any date, so these are replaced as they were read.
func (d *dateWrite) earlier(name string, was bson.RawValue, at time.Time) {
	d.move(name, was, at, &d.w.min, func(old time.Time) bool { return at.Before(old) })
}

func (d *dateWrite) later(name string, was bson.RawValue, at time.Time) {
	d.move(name, was, at, &d.w.max, func(old time.Time) bool { return at.After(old) })
}

func (d *dateWrite) move(name string, was bson.RawValue, at time.Time, by *[]element, moves func(old time.Time) bool) {
	old, _ := dateOf(was)
	switch {
	case at.IsZero() || !old.IsZero() && !moves(old):
	case d.null || was.Type != 0 && (old.IsZero() || was.Type != bson.TypeDateTime):
		d.put(name, at)
		if !d.null {
			d.w.same(d.state+"."+name, was)
		}
	default:
		d.any = true
		*by = append(*by, element{d.state + "." + name, dateValue(at)})
	}
}

type element struct {
	name  string
	value bson.RawValue
}

// mergeWrite is one update with its conditions.
type mergeWrite struct {
	conditions     []element // type 0: missing
	sets, min, max []element
	unset          []string
}

func (w *mergeWrite) set(path string, v bson.RawValue) { w.sets = append(w.sets, element{path, v}) }
func (w *mergeWrite) same(path string, v bson.RawValue) {
	w.conditions = append(w.conditions, element{path, v})
}
func (w *mergeWrite) empty() bool { return len(w.sets)+len(w.min)+len(w.max) == 0 }

func (w *mergeWrite) model(id bson.RawValue) mongo.WriteModel {
	at, filter := bsoncore.AppendDocumentStart(make([]byte, 0, 256))
	filter = appendID(filter, id)
	for _, c := range w.conditions {
		filter = appendSame(filter, c.name, c.value)
	}
	filter, _ = bsoncore.AppendDocumentEnd(filter, at)
	at, update := bsoncore.AppendDocumentStart(make([]byte, 0, 256))
	for _, part := range [...]struct {
		operator string
		elements []element
	}{{"$set", w.sets}, {"$min", w.min}, {"$max", w.max}} {
		if len(part.elements) == 0 {
			continue
		}
		update = bsoncore.AppendDocumentElement(update, part.operator, document(part.elements))
	}
	if len(w.unset) > 0 {
		inner, doc := bsoncore.AppendDocumentElementStart(update, "$unset")
		for _, path := range w.unset {
			doc = bsoncore.AppendStringElement(doc, path, "")
		}
		update, _ = bsoncore.AppendDocumentEnd(doc, inner)
	}
	update, _ = bsoncore.AppendDocumentEnd(update, at)
	return mongo.NewUpdateOneModel().SetFilter(bson.Raw(filter)).SetUpdate(bson.Raw(update))
}

func document(elements []element) []byte {
	at, doc := bsoncore.AppendDocumentStart(make([]byte, 0, 128))
	for _, e := range elements {
		doc = bsoncore.AppendValueElement(doc, e.name, bsoncore.Value{Type: bsoncore.Type(e.value.Type), Data: e.value.Value})
	}
	doc, _ = bsoncore.AppendDocumentEnd(doc, at)
	return doc
}

func withoutPath(es []element, path string) []element {
	out := es[:0]
	for _, e := range es {
		if e.name != path {
			out = append(out, e)
		}
	}
	return out
}

func dateValue(t time.Time) bson.RawValue {
	return bson.RawValue{Type: bson.TypeDateTime, Value: bsoncore.AppendDateTime(nil, t.UnixMilli())}
}

func stringValue(s string) bson.RawValue {
	return bson.RawValue{Type: bson.TypeString, Value: bsoncore.AppendString(nil, s)}
}

func binaryValue(subtype byte, b []byte) []byte { return bsoncore.AppendBinary(nil, subtype, b) }
