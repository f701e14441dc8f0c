// Package analytics is the shared counter model: counter documents by day, hour and minute, the sets of increments that
// are applied to them exactly once, first opens, and the reader of reports. docs/analytics.md describes the collections for
// other services that read or write them.
package analytics

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Increment adds to the fields of one counter document. The document is made where it is missing.
type Increment struct {
	Collection string
	ID         string           // the document's _id
	Inc        map[string]int64 // dotted path -> what is added; a negative number takes away
	OnInsert   bson.D           // top-level fields written only when the document is made; may be nil
}

// Limits of what Apply takes. They keep a set far below the 16 MB of a BSON document, and an index entry of `applied` small.
const (
	MaxIDBytes   = 512 // of an Apply id, and of a document's _id twice as much
	MaxPathBytes = 512
	maxSetIDs    = 1_000
	maxSetPaths  = 50_000 // of one id alone
	maxSetBytes  = 8 << 20
	enoughPaths  = 20_000 // beyond which a set takes in no further id
	enoughBytes  = 4 << 20
)

// Errors that a caller can tell apart.
var (
	// ErrUnsafe says that an increment was refused before anything was written: a path, a key or an id that a document
	// database would read as something else.
	ErrUnsafe = errors.New("unsafe increment")
	// ErrTooLarge says that the increments of one id don't fit into one set.
	ErrTooLarge = errors.New("too many increments under one id")
)

// check refuses what cannot be applied as it is meant. Keys may come from outside (a page, a search term), and a set that
// holds one the server objects to would stay undone for ever.
func (inc Increment) check() error {
	if err := checkCollection(inc.Collection); err != nil {
		return err
	}
	if err := checkText("document id", inc.ID, 2*MaxIDBytes); err != nil {
		return err
	}
	for path := range inc.Inc {
		if err := checkPath(path); err != nil {
			return err
		}
	}
	seen := make(map[string]bool, len(inc.OnInsert))
	for _, e := range inc.OnInsert {
		if err := checkSegment(e.Key, e.Key); err != nil {
			return err
		}
		if strings.Contains(e.Key, ".") || e.Key == "_id" || e.Key == "w" || seen[e.Key] {
			return fmt.Errorf("%w: %q cannot be set on insert of %s", ErrUnsafe, e.Key, inc.ID)
		}
		seen[e.Key] = true
	}
	return nil
}

// The collections that carry postbit's own bookkeeping are not counters, however an increment got that name.
func checkCollection(name string) error {
	if err := checkText("collection", name, 120); err != nil {
		return err
	}
	first, _, _ := strings.Cut(name, ".")
	switch first {
	case "", "system", AppliedCollection, "opens", "runs", "batches", "campaigns", "templates", "limits", "users":
		return fmt.Errorf("%w: %q is not a collection of counters", ErrUnsafe, name)
	}
	if strings.Contains(name, "$") {
		return fmt.Errorf("%w: collection %q holds a $", ErrUnsafe, name)
	}
	return nil
}

func checkText(what, s string, most int) error {
	switch {
	case s == "":
		return fmt.Errorf("%w: empty %s", ErrUnsafe, what)
	case len(s) > most:
		return fmt.Errorf("%w: %s of %d bytes, at most %d: %.40q...", ErrUnsafe, what, len(s), most, s)
	case !utf8.ValidString(s):
		return fmt.Errorf("%w: %s is not UTF-8: %.40q", ErrUnsafe, what, s)
	case strings.ContainsRune(s, 0):
		return fmt.Errorf("%w: %s holds a NUL: %.40q", ErrUnsafe, what, s)
	}
	return nil
}

func checkPath(path string) error {
	if err := checkText("path", path, MaxPathBytes); err != nil {
		return err
	}
	rest, more := path, true
	for first := true; more; first = false {
		var segment string
		segment, rest, more = strings.Cut(rest, ".")
		if err := checkSegment(segment, path); err != nil {
			return err
		}
		if first && (segment == "_id" || segment == "w") {
			return fmt.Errorf("%w: path %q is kept for the document's own bookkeeping", ErrUnsafe, path)
		}
	}
	return nil
}

// checkKeys refuses keys at any depth of a document that not every server stores.
func checkKeys(doc bson.Raw) error {
	elements, err := doc.Elements()
	if err != nil {
		return err
	}
	for _, e := range elements {
		key := e.Key()
		if err := checkSegment(key, key); err != nil {
			return err
		}
		if strings.Contains(key, ".") {
			return fmt.Errorf("%w: key %.80q holds a dot", ErrUnsafe, key)
		}
		switch v := e.Value(); v.Type {
		case bson.TypeEmbeddedDocument, bson.TypeArray:
			if err := checkKeys(v.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkSegment(segment, path string) error {
	switch {
	case segment == "":
		return fmt.Errorf("%w: path %.80q has an empty part", ErrUnsafe, path)
	case segment[0] == '$':
		return fmt.Errorf("%w: path %.80q has a part that starts with $", ErrUnsafe, path)
	}
	return checkText("key", segment, MaxPathBytes)
}

// docKey names a counter document.
type docKey struct{ collection, id string }

// docIncrements is the sum of all increments of one document.
type docIncrements struct {
	inc      map[string]int64
	onInsert bson.D
	inside   map[string]bool // every proper prefix of a path: fields that must be documents
}

// sums collects increments by document. The zero value is not ready; use newSums.
type sums struct {
	docs  map[docKey]*docIncrements
	order []docKey // as met
	paths int
	bytes int // a generous estimate of the BSON
}

func newSums() *sums { return &sums{docs: map[docKey]*docIncrements{}} }

// sum merges the increments of one id and checks them.
func sum(incs []Increment) (*sums, error) {
	s := newSums()
	for _, inc := range incs {
		if err := inc.check(); err != nil {
			return nil, err
		}
		d := s.doc(docKey{inc.Collection, inc.ID})
		for path, n := range inc.Inc {
			if err := d.objection(path, n); err != nil {
				return nil, fmt.Errorf("%s %s: %w", inc.Collection, inc.ID, err)
			}
			s.add(d, path, n)
		}
		for _, e := range inc.OnInsert {
			if _, counted := d.inc[e.Key]; counted || d.inside[e.Key] {
				return nil, fmt.Errorf("%w: %s %s: %q is both counted and set on insert", ErrUnsafe, inc.Collection, inc.ID, e.Key)
			}
			raw, err := bson.Marshal(bson.D{e})
			if err == nil {
				err = checkKeys(raw)
			}
			if err != nil {
				return nil, fmt.Errorf("%w: %s %s: %q: %w", ErrUnsafe, inc.Collection, inc.ID, e.Key, err)
			}
			s.insertWith(d, e)
		}
	}
	if s.paths > maxSetPaths || s.bytes > maxSetBytes {
		return nil, fmt.Errorf("%w: %d paths, about %d bytes; at most %d and %d: use several ids", ErrTooLarge, s.paths, s.bytes, maxSetPaths, maxSetBytes)
	}
	return s, nil
}

func (s *sums) doc(key docKey) *docIncrements {
	d := s.docs[key]
	if d == nil {
		d = &docIncrements{inc: map[string]int64{}, inside: map[string]bool{}}
		s.docs[key] = d
		s.order = append(s.order, key)
		s.bytes += len(key.collection) + len(key.id) + 64
	}
	return d
}

func (s *sums) add(d *docIncrements, path string, n int64) {
	if _, there := d.inc[path]; !there {
		s.paths++
		s.bytes += len(path) + 40
	}
	d.inc[path] += n
	for i := range len(path) {
		if path[i] == '.' {
			d.inside[path[:i]] = true
		}
	}
}

// insertWith keeps the first value of a field; a document is made only once.
func (s *sums) insertWith(d *docIncrements, e bson.E) {
	if d.sets(e.Key) {
		return
	}
	if raw, err := bson.Marshal(bson.D{e}); err == nil {
		s.bytes += len(raw)
	}
	d.onInsert = append(d.onInsert, e)
}

func (d *docIncrements) sets(key string) bool {
	return slices.ContainsFunc(d.onInsert, func(e bson.E) bool { return e.Key == key })
}

// objection says why path cannot stand beside the others: the server refuses an update as a whole in which one path lies
// inside another ("a" and "a.b"), or whose number leaves 64 bits.
func (d *docIncrements) objection(path string, n int64) error {
	outer := ""
	switch old := d.inc[path]; {
	case n > 0 && old > math.MaxInt64-n, n < 0 && old < math.MinInt64-n:
		return fmt.Errorf("%w: %q: %d + %d does not fit into 64 bits", ErrUnsafe, path, old, n)
	case d.inside[path] || d.sets(path):
		outer = path
	default:
		for i := range len(path) {
			if path[i] != '.' {
				continue
			}
			if _, counted := d.inc[path[:i]]; counted || d.sets(path[:i]) {
				outer = path[:i]
			}
		}
	}
	if outer != "" {
		return fmt.Errorf("%w: path %q cannot be counted beside one that is, or lies inside, %q", ErrUnsafe, path, outer)
	}
	return nil
}

// join adds other to s, or says no and leaves s as it is: the two together are too large for one set, or their paths
// object to each other.
func (s *sums) join(other *sums) bool {
	if len(s.docs) > 0 && (s.paths+other.paths > enoughPaths || s.bytes+other.bytes > enoughBytes) {
		return false
	}
	for key, from := range other.docs {
		to := s.docs[key]
		if to == nil {
			continue
		}
		for path, n := range from.inc {
			if to.objection(path, n) != nil {
				return false
			}
		}
		for _, e := range from.onInsert {
			if _, counted := to.inc[e.Key]; counted || to.inside[e.Key] {
				return false
			}
		}
	}
	for _, key := range other.order {
		from, to := other.docs[key], s.doc(key)
		for path, n := range from.inc {
			s.add(to, path, n)
		}
		for _, e := range from.onInsert {
			s.insertWith(to, e)
		}
	}
	return true
}
