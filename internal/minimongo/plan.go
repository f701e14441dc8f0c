package minimongo

import (
	"bytes"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// A plan says in which order which keys of one bucket are read. The filter is applied to the documents that come out, but
// for what the keys themselves have told.
type plan struct {
	coll    *collection
	ix      *index // nil: the documents themselves, in the order of _id
	spans   []span
	bounded int        // how many fields of the index the filter bounds
	lookup  bool       // all spans are single _ids
	known   *predicate // holds for all documents in the spans; nil: none is known to
	sorted  bool       // comes out in the order that was asked for
	reverse bool
}

// stage is MongoDB's name for the way of reading.
func (p *plan) stage() string {
	switch {
	case p.ix == nil && p.bounded == 0 && !p.sorted:
		return "COLLSCAN"
	case p.ix == nil && p.lookup && len(p.spans) <= 1:
		return "IDHACK"
	}
	return "IXSCAN"
}

var idFields = []indexField{{path: "_id", parts: []string{"_id"}}}

// choose picks the index for a filter and an order. Among indexes that the filter bounds, the one with the fewest
// keys in its bounds wins; if it bounds none, one that saves the sort.
func (c *collection) choose(tx *bolt.Tx, f *filter, order []sortField, hint *value) (*plan, error) {
	if hint != nil {
		return c.hinted(f, order, *hint)
	}
	primary := c.bound(nil, f, order)
	if primary.lookup && len(primary.spans) <= 1 {
		return primary, nil
	}
	var bounded []*plan
	best := primary
	for _, p := range append(c.bindings(f, order), primary) {
		switch {
		case p.bounded > 0:
			bounded = append(bounded, p)
		case p.sorted && !best.sorted && (p.ix == nil || !p.ix.sparse):
			best = p
		}
	}
	switch len(bounded) {
	case 0:
		return best, nil
	case 1:
		return bounded[0], nil
	}
	return narrowest(tx, bounded), nil
}

func (c *collection) bindings(f *filter, order []sortField) (out []*plan) {
	for _, ix := range c.indexes {
		out = append(out, c.bound(ix, f, order))
	}
	return out
}

func (c *collection) hinted(f *filter, order []sortField, hint value) (*plan, error) {
	for _, ix := range append([]*index{nil}, c.indexes...) {
		name, pattern := idIndexName, idPattern
		if ix != nil {
			name, pattern = ix.name, ix.pattern
		}
		if hint.Type == tString && string(str(hint)) == name || hint.Type == tDocument && bytes.Equal(hint.Data, pattern) {
			if ix != nil && ix.sparse {
				return nil, errorf(codeBadValue, "minimongo takes no hint of a sparse index: %s", name)
			}
			return c.bound(ix, f, order), nil
		}
	}
	return nil, errorf(codeBadValue, "error processing query: planner returned error: hint provided does not correspond to an existing index")
}

// bound works out the spans of an index (nil: _id) under a filter.
func (c *collection) bound(ix *index, f *filter, order []sortField) *plan {
	p := &plan{coll: c, ix: ix, spans: everything}
	fields, multikey := idFields, false
	if ix != nil {
		fields, multikey = ix.fields, ix.multikey
	}
	prefixes := [][]byte{nil}
	fixed := 0 // leading fields with exactly one value
	for i, fd := range fields {
		spans, points, ok := fieldSpans(f, fd.path, multikey)
		if !ok || len(spans)*len(prefixes) > maxSpans {
			break
		}
		if ix != nil && ix.sparse && p.bounded == 0 && slices.ContainsFunc(spans, func(s span) bool { return len(s.lo) == 0 || s.lo[0] <= classNull }) {
			break // what the filter looks for may not be in the index
		}
		if fd.descending {
			spans = invertSpans(spans)
		}
		p.bounded++
		p.spans = make([]span, 0, len(spans)*len(prefixes))
		for _, pre := range prefixes {
			for _, s := range spans {
				p.spans = append(p.spans, prefixed(pre, s))
			}
		}
		if !points {
			break
		}
		prefixes = prefixes[:0:0]
		for _, s := range p.spans {
			prefixes = append(prefixes, s.lo)
		}
		if len(spans) == 1 && fixed == i {
			fixed++
		}
		if ix == nil {
			p.lookup, p.known = true, onlyOn(f, fd.path)
		}
	}
	if len(order) > 0 && !multikey && (ix == nil || !ix.sparse || p.bounded > 0) {
		p.sorted, p.reverse = sortedBy(fields, fixed, order)
	}
	return p
}

// onlyOn is the one predicate on a path, or nil where there are several.
func onlyOn(f *filter, path string) (only *predicate) {
	for _, p := range f.conjuncts {
		if p.path == path {
			if only != nil {
				return nil
			}
			only = p
		}
	}
	return only
}

// read gives the documents in the spans that the filter accepts. An _id is never an array, so the documents under the keys of
// given _ids are those that have them.
func (p *plan) read(tx *bolt.Tx, f *filter) *matching {
	if p.known != nil {
		f = f.without(p.known)
	}
	return &matching{scan: newScan(tx, p), filter: f}
}

func prefixed(prefix []byte, s span) span {
	if len(prefix) == 0 {
		return s
	}
	t := span{lo: append(slices.Clip(prefix), s.lo...), hi: after(prefix)}
	if s.hi != nil {
		t.hi = append(slices.Clip(prefix), s.hi...)
	}
	return t
}

// sortedBy tells whether an index read forwards or backwards gives the order. Fields with one value
// may be left out, and every index ends with _id.
func sortedBy(fields []indexField, fixed int, order []sortField) (ok, reverse bool) {
	if fields[len(fields)-1].path != "_id" {
		fields = append(slices.Clip(fields), idFields...)
	}
	at := 0
	for i, s := range order {
		for at < fixed && fields[at].path != s.path {
			at++
		}
		if at == len(fields) || fields[at].path != s.path {
			return false, false
		}
		back := fields[at].descending != s.descending
		if i > 0 && back != reverse {
			return false, false
		}
		reverse = back
		at++
		if fields[at-1].path == "_id" {
			break // nothing after a unique field changes the order
		}
	}
	return true, reverse
}

// narrowest counts the keys in the bounds of each plan, all in step, and takes the one that is first at its end.
func narrowest(tx *bolt.Tx, plans []*plan) *plan {
	slices.SortStableFunc(plans, func(a, b *plan) int { return b.bounded - a.bounded })
	scans := make([]*scan, len(plans))
	for i, p := range plans {
		scans[i] = newScan(tx, p)
	}
	for limit := 32; limit <= 1<<15; limit *= 4 {
		for i, s := range scans {
			for s.keys < limit {
				if k, _ := s.nextKey(); k == nil {
					return plans[i]
				}
			}
		}
	}
	return plans[0]
}
