package backfill

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// memory reads what has not been spilled.
func (s *sorter) memory() *stretch {
	s.sort()
	return &stretch{s: s}
}

// sort puts the spans into the order of bytes.Compare. Nearly all of that reads the spans alone: a prefix is the eight bytes, as a number,
// that follow what all keys begin with, zeros where a key is shorter. Ids that were given one after the other begin alike.
func (s *sorter) sort() {
	if s.ordered {
		return
	}
	s.ordered = true
	s.common = s.commonPrefix()
	for i := range s.spans {
		p := &s.spans[i]
		p.prefix = prefixOf(s.key(*p)[s.common:])
	}
	s.sortBytes(s.spans, 56)
}

// fewSpans is how many are sorted by comparing them.
const fewSpans = 64

// sortBytes sorts spans whose prefixes are alike left of a byte: by that byte, in place, and then each part by the next one.
func (s *sorter) sortBytes(spans []span, shift int) {
	if len(spans) <= fewSpans || shift < 0 {
		slices.SortFunc(spans, s.compare)
		return
	}
	var next, end [256]int // of the part of each value: where the next span goes, and where the part ends
	for _, p := range spans {
		end[byte(p.prefix>>shift)]++
	}
	at := 0
	for c, n := range end {
		next[c] = at
		at += n
		end[c] = at
	}
	for c := range 256 {
		for next[c] < end[c] {
			p := spans[next[c]]
			for to := byte(p.prefix >> shift); int(to) != c; to = byte(p.prefix >> shift) {
				p, spans[next[to]] = spans[next[to]], p
				next[to]++
			}
			spans[next[c]] = p
			next[c]++
		}
	}
	from := 0
	for _, to := range end {
		if to-from > 1 {
			s.sortBytes(spans[from:to], shift-8)
		}
		from = to
	}
}

func (s *sorter) compare(a, b span) int {
	if a.prefix != b.prefix || s.short(a, b) {
		return cmp.Compare(a.prefix, b.prefix)
	}
	return bytes.Compare(s.key(a), s.key(b))
}

// short reports whether two keys are as long as each other, and nothing but their prefixes.
func (s *sorter) short(a, b span) bool { return a.key == b.key && int(a.key) <= s.common+8 }

// commonPrefix is how many bytes all keys have in common at their beginning.
func (s *sorter) commonPrefix() int {
	if len(s.spans) == 0 {
		return 0
	}
	first := s.key(s.spans[0])
	for _, p := range s.spans[1:] {
		key := s.key(p)
		if bytes.HasPrefix(key, first) {
			continue
		}
		first = first[:min(len(first), len(key))]
		for i, c := range first {
			if key[i] != c {
				first = first[:i]
				break
			}
		}
	}
	return len(first)
}

func prefixOf(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}

// alike is how many spans from i on have the key of the first of them.
func (s *sorter) alike(i int) int {
	p := s.spans[i]
	for n, o := range s.spans[i+1:] {
		if s.compare(p, o) != 0 {
			return n + 1
		}
	}
	return len(s.spans) - i
}

// combined is the value of records with one key, in a buffer that may be used again.
func (s *sorter) combined(buf []byte, alike []span) []byte {
	buf = append(buf[:0], s.value(alike[0])...)
	for _, p := range alike[1:] {
		buf = s.combine(buf, s.value(p))
	}
	return buf
}

// touch looks at the next records one right after the other, and says which: sorted records lie anywhere in memory, and a processor waits for
// many at a time as long as for one.
func (s *sorter) touch(spans []span) []span {
	spans = spans[:min(len(spans), 64)]
	for _, p := range spans {
		s.touched += s.buf[p.at+p.key]
	}
	return spans
}

// gather leaves one record for each key in memory, so that whoever reads a second time need not combine again. It ends early where that would
// take more memory than there may be, and does nothing where most is in the file.
func (s *sorter) gather() {
	if s.gathered || len(s.runs) > 0 {
		return
	}
	s.sort()
	s.gathered = true
	out := s.spans[:0]
	var value []byte
	ready := 0
	for i := 0; i < len(s.spans); {
		if i >= ready {
			ready = i + len(s.touch(s.spans[i:]))
		}
		n := s.alike(i)
		p := s.spans[i]
		if n > 1 {
			value = s.combined(value, s.spans[i:i+n])
			if !s.fits(s.key(p), value) {
				out = append(out, s.spans[i:]...)
				break
			}
			prefix := p.prefix
			p = s.put(s.key(p), value)
			p.prefix = prefix
		}
		out = append(out, p)
		i += n
	}
	s.spans = out
}
