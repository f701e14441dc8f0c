package minimongo

import (
	"bytes"
	"slices"
)

// A span is a range of keys: lo <= key < hi; a nil hi is the end.
type span struct{ lo, hi []byte }

var everything = []span{{}}

// maxSpans bounds what $in lists on several fields of one index multiply to.
const maxSpans = 20_000

// after is the first key that does not begin with p.
func after(p []byte) []byte { return increment(bytes.Clone(p)) }

// increment turns p into what is after it.
func increment(p []byte) []byte {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] != 0xff {
			p[i]++
			return p[:i+1]
		}
	}
	return nil
}

func pointSpan(key []byte) span { return span{lo: key, hi: after(key)} }

// predicateSpans says where in an ascending index on its path the matches of a predicate lie. points is
// set if each span is one value. ok is false if the predicate says nothing about the index.
func predicateSpans(p *predicate, multikey bool) (spans []span, points, ok bool) {
	switch p.op {
	case "$eq", "$in":
		if multikey && slices.ContainsFunc(p.args, func(v value) bool { return v.Type == tArray }) {
			return nil, false, false // the index holds its elements
		}
		return normalize(pointSpans(p.args)), true, true
	case "$gt", "$gte", "$lt", "$lte":
		v := p.args[0]
		switch v.Type {
		case tArray, tMinKey, tMaxKey, tNull:
			return nil, false, false
		}
		key := appendKey(nil, v)
		s := pointSpan(key[:1])
		switch p.op {
		case "$gt":
			s.lo = after(key)
		case "$gte":
			s.lo = key
		case "$lt":
			s.hi = key
		case "$lte":
			s.hi = after(key)
		}
		if bytes.Compare(s.lo, s.hi) >= 0 {
			return nil, false, true
		}
		return []span{s}, false, true
	}
	return nil, false, false
}

// pointSpans is a span for each value. A list may have thousands, so their keys share memory.
func pointSpans(vals []value) []span {
	spans := make([]span, 0, len(vals)+1)
	buf := make([]byte, 0, 32*len(vals))
	for _, v := range vals {
		at := len(buf)
		buf = appendKey(buf, v)
		lo := buf[at:len(buf):len(buf)]
		at = len(buf)
		buf = append(buf, lo...)
		spans = append(spans, span{lo: lo, hi: increment(buf[at:len(buf):len(buf)])})
		if v.Type == tNull { // undefined counts as null, but an empty array has the same key: the filter tells them apart
			spans = append(spans, pointSpan([]byte{classUndefined}))
		}
	}
	return spans
}

// normalize sorts spans and joins those that overlap.
func normalize(spans []span) []span {
	byStart := func(a, b span) int { return bytes.Compare(a.lo, b.lo) }
	if !slices.IsSortedFunc(spans, byStart) {
		slices.SortFunc(spans, byStart)
	}
	out := spans[:0]
	for _, s := range spans {
		if n := len(out); n > 0 && (out[n-1].hi == nil || bytes.Compare(s.lo, out[n-1].hi) < 0) {
			if out[n-1].hi != nil && (s.hi == nil || bytes.Compare(s.hi, out[n-1].hi) > 0) {
				out[n-1].hi = s.hi
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// intersect takes two normalized lists.
func intersect(a, b []span) []span {
	var out []span
	for i, j := 0, 0; i < len(a) && j < len(b); {
		s := span{lo: a[i].lo, hi: a[i].hi}
		if bytes.Compare(b[j].lo, s.lo) > 0 {
			s.lo = b[j].lo
		}
		if s.hi == nil || b[j].hi != nil && bytes.Compare(b[j].hi, s.hi) < 0 {
			s.hi = b[j].hi
		}
		if s.hi == nil || bytes.Compare(s.lo, s.hi) < 0 {
			out = append(out, s)
		}
		if a[i].hi != nil && (b[j].hi == nil || bytes.Compare(a[i].hi, b[j].hi) < 0) {
			i++
		} else {
			j++
		}
	}
	return out
}

// invertSpans turns spans of ascending keys into those of the same keys with all bytes inverted.
func invertSpans(spans []span) []span {
	out := make([]span, 0, len(spans))
	for _, s := range slices.Backward(spans) {
		var t span
		if s.hi != nil {
			t.lo = invertedAfter(s.hi)
		}
		if len(s.lo) > 0 {
			t.hi = invertedAfter(s.lo)
		}
		out = append(out, t)
	}
	return out
}

func invertedAfter(k []byte) []byte {
	k = bytes.Clone(k)
	invert(k)
	return after(k)
}

// fieldSpans joins all that a filter says about one field. In a multikey index two predicates may be
// met by different elements, so only one of them counts.
func fieldSpans(f *filter, path string, multikey bool) (spans []span, points, ok bool) {
	for _, p := range f.conjuncts {
		if p.path != path {
			continue
		}
		s, pts, found := predicateSpans(p, multikey)
		switch {
		case !found:
		case !ok:
			spans, points, ok = s, pts, true
		case multikey:
			if pts && !points {
				spans, points = s, pts
			}
		default:
			spans, points = intersect(spans, s), points || pts
		}
	}
	return spans, points, ok
}
