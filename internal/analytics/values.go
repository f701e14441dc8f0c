package analytics

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/clock"
)

// DefaultValues is how many values a campaign or site may have of one kind in a month.
const DefaultValues = 100_000

// OtherValues is the value under which counts what came when there was no room for another one. Its document is
// "sid:other", which no hash gives.
const OtherValues = "(other)"

// Seen is a value that was seen: a page with its title, a referrer, a search term, or the target of a link.
type Seen struct {
	Kind  ValueKind
	SID   string // campaign or site
	Value string // normalised already, see NormaliseURL and NormaliseText; an empty one counts nothing
	Title string // of a page; the first that was seen stays
	At    time.Time
}

// Values turns what was seen into increments. Of each value it makes the document before anything is counted in it, since
// only a document that is there says which value its hash belongs to.
type Values struct {
	db    *mongo.Database
	clock *clock.Clock
	limit int64
	days  bool
	hash  func(string) uint64

	mu      sync.Mutex
	known   map[[sha256.Size]byte]string // collection, sid and value -> _id
	full    map[docKey]time.Time         // until when nobody need ask for room again
	indexed map[string]bool              // collections
}

// ValuesOption changes Values.
type ValuesOption func(*Values)

// WithValueLimit sets how many values a campaign or site may have of one kind in a month; what is new beyond it counts under OtherValues.
func WithValueLimit(n int) ValuesOption { return func(v *Values) { v.limit = int64(n) } }

// WithDays says whether values are counted by day, too.
func WithDays(on bool) ValuesOption { return func(v *Values) { v.days = on } }

// NewValues returns the values in db.
func NewValues(db *mongo.Database, clk *clock.Clock, opts ...ValuesOption) *Values {
	v := &Values{
		db: db, clock: clk, limit: DefaultValues, days: true, hash: xxhash.Sum64String,
		known: map[[sha256.Size]byte]string{}, full: map[docKey]time.Time{}, indexed: map[string]bool{},
	}
	for _, o := range opts {
		o(v)
	}
	return v
}

// topIndexKeys is the one index that a collection of values has for reading.
var topIndexKeys = bson.D{{Key: "sid", Value: 1}, {Key: "v", Value: -1}}

// wanted is a value for which a document is looked for.
type wanted struct {
	sid, value, title string
	key               [sha256.Size]byte
	id                string // found, or made
}

// Increments finds or makes the documents of all that was seen, and returns what is to be added to them. It may be asked
// again for the same: what it makes counts nothing yet.
func (v *Values) Increments(ctx context.Context, seen []Seen) ([]Increment, error) {
	byCollection := map[string]map[[sha256.Size]byte]*wanted{}
	for i := range seen {
		s := &seen[i]
		if s.Value == "" {
			continue
		}
		collection := ValuesCollection(s.Kind, Month(s.At))
		if byCollection[collection] == nil {
			byCollection[collection] = map[[sha256.Size]byte]*wanted{}
		}
		key := valueKey(collection, s.SID, s.Value)
		if w := byCollection[collection][key]; w == nil {
			byCollection[collection][key] = &wanted{sid: s.SID, value: s.Value, title: s.Title, key: key}
		} else {
			w.title = cmp.Or(w.title, s.Title)
		}
	}
	for collection, ws := range byCollection {
		if err := v.settle(ctx, collection, ws); err != nil {
			return nil, fmt.Errorf("values in %s: %w", collection, err)
		}
	}
	counts := map[docKey]*Increment{}
	var order []docKey
	for i := range seen {
		s := &seen[i]
		if s.Value == "" {
			continue
		}
		collection := ValuesCollection(s.Kind, Month(s.At))
		w := byCollection[collection][valueKey(collection, s.SID, s.Value)]
		key := docKey{collection, w.id}
		inc := counts[key]
		if inc == nil {
			inc = &Increment{Collection: collection, ID: w.id, Inc: map[string]int64{}, OnInsert: w.fields()}
			counts[key] = inc
			order = append(order, key)
		}
		inc.Inc["v"]++
		if v.days {
			inc.Inc["d."+strconv.Itoa(s.At.UTC().Day())]++
		}
	}
	incs := make([]Increment, len(order))
	for i, key := range order {
		incs[i] = *counts[key]
	}
	return incs, nil
}

func valueKey(collection, sid, value string) [sha256.Size]byte {
	return sha256.Sum256([]byte(collection + "\x00" + sid + "\x00" + value))
}

func otherID(sid string) string { return sid + ":other" }

// fields are those that a document has from the beginning, beside its counts.
func (w *wanted) fields() bson.D {
	if w.id == otherID(w.sid) {
		return bson.D{{Key: "sid", Value: w.sid}, {Key: "k", Value: OtherValues}}
	}
	d := bson.D{{Key: "sid", Value: w.sid}, {Key: "k", Value: w.value}}
	if w.title != "" {
		d = append(d, bson.E{Key: "t", Value: w.title})
	}
	return d
}

// maxSameHash is how many values of one campaign or site may have the same hash; more of them than somebody makes on
// purpose, one by one, count under OtherValues.
const maxSameHash = 8

// sameHash are the _ids that values of one hash may have: "sid:0123456789abcdef", and then with ~2 … behind it.
func sameHash(base string) []string {
	ids := []string{base}
	for n := 2; n <= maxSameHash; n++ {
		ids = append(ids, base+"~"+strconv.Itoa(n))
	}
	return ids
}

func (v *Values) base(w *wanted) string { return fmt.Sprintf("%s:%016x", w.sid, v.hash(w.value)) }

// settle gives each of the values its document. The values of one hash are tried one _id after the other, until one is
// theirs, or free and there is room: then it is made, and whoever was faster in making it decides whose it is.
func (v *Values) settle(ctx context.Context, collection string, ws map[[sha256.Size]byte]*wanted) error {
	open := v.unknown(ws)
	if len(open) == 0 {
		return nil
	}
	coll := durable(v.db, collection)
	if err := v.ensureIndex(ctx, coll); err != nil {
		return err
	}
	for n := 1; len(open) > 0; n++ {
		if n > maxSameHash {
			other(open)
			return nil
		}
		var err error
		if open, err = v.try(ctx, coll, open, n); err != nil {
			return err
		}
	}
	return nil
}

// unknown are the values that this process has not met, in a fixed order.
func (v *Values) unknown(ws map[[sha256.Size]byte]*wanted) []*wanted {
	v.mu.Lock()
	defer v.mu.Unlock()
	var open []*wanted
	for key, w := range ws {
		if w.id = v.known[key]; w.id == "" {
			open = append(open, w)
		}
	}
	slices.SortFunc(open, func(a, b *wanted) int { return cmp.Or(cmp.Compare(a.sid, b.sid), cmp.Compare(a.value, b.value)) })
	return open
}

func (v *Values) remember(w *wanted, id string) {
	w.id = id
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.known) >= maxKnown {
		clear(v.known)
	}
	v.known[w.key] = id
}

func other(ws []*wanted) {
	for _, w := range ws {
		w.id = otherID(w.sid)
	}
}

// try looks at the nth _id of each value's hash. It returns those whose _id belongs to another value.
func (v *Values) try(ctx context.Context, coll *mongo.Collection, open []*wanted, n int) (left []*wanted, err error) {
	var free []*wanted
	owner, err := v.owners(ctx, coll, open, n)
	if err != nil {
		return nil, err
	}
	for _, w := range open {
		switch id := v.nth(w, n); {
		case owner[id] == nil:
			free = append(free, w)
		case owner[id].is(w):
			v.remember(w, id)
		default:
			left = append(left, w)
		}
	}
	if len(free) == 0 {
		return left, nil
	}
	bySID := map[string][]*wanted{}
	for _, w := range free {
		bySID[w.sid] = append(bySID[w.sid], w)
	}
	for sid, ws := range bySID {
		lost, err := v.make(ctx, coll, sid, ws, n)
		if err != nil {
			return nil, err
		}
		left = append(left, lost...)
	}
	return left, nil
}

func (v *Values) nth(w *wanted, n int) string {
	if n == 1 {
		return v.base(w)
	}
	return v.base(w) + "~" + strconv.Itoa(n)
}

func (d *valueDoc) is(w *wanted) bool { return d.Value == w.value }

// owners are the documents that stand under the nth _ids.
func (v *Values) owners(ctx context.Context, coll *mongo.Collection, ws []*wanted, n int) (map[string]*valueDoc, error) {
	owners := make(map[string]*valueDoc, len(ws))
	for part := range slices.Chunk(ws, 1000) {
		ids := make([]string, len(part))
		for i, w := range part {
			ids[i] = v.nth(w, n)
		}
		cur, err := coll.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, projectValue)
		if err != nil {
			return nil, err
		}
		for cur.Next(ctx) {
			// Whatever stands there that is no value of ours is somebody else's.
			d := new(valueDoc)
			d.ID, _ = cur.Current.Lookup("_id").StringValueOK()
			d.Value, _ = cur.Current.Lookup("k").StringValueOK()
			owners[d.ID] = d
		}
		if err := cur.Err(); err != nil {
			return nil, err
		}
		_ = cur.Close(ctx)
	}
	return owners, nil
}
