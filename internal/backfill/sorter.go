package backfill

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
)

// sortMemory is how many bytes of records a sorter holds before it writes them to its file.
const sortMemory = 16 << 20

// sorter puts any number of records into the order of their keys in bounded memory: what does not fit goes to a temporary file
// in sorted stretches, which are merged when it is read. Records with one key become one.
type sorter struct {
	dir      string                   // for the file; "" is the system's
	limit    int                      // of buf and spans, in bytes
	combine  func(a, b []byte) []byte // of the values of one key; may change a
	buf      []byte                   // of each record the key, the length of the value, the value
	spans    []span                   // of buf
	common   int                      // bytes at the beginning that all keys share, see sort
	touched  byte                     // keeps touch from being optimized away
	ordered  bool                     // spans are sorted
	gathered bool                     // gather has been here
	file     *os.File                 // nil: all fits
	written  int64
	runs     [][2]int64 // stretches of file: from, to
}

// span is where a record stands.
type span struct {
	prefix  uint64 // see sort
	at, key uint32 // in bytes: where it begins, how long the key is
}

// spanBytes is the size of a span.
const spanBytes = 16

func newSorter(dir string, combine func(a, b []byte) []byte) *sorter {
	return &sorter{dir: dir, limit: sortMemory, combine: combine}
}

// add takes a record. Key and value are copied.
func (s *sorter) add(key, value []byte) error {
	if len(s.spans) > 0 && !s.fits(key, value) {
		if err := s.spill(); err != nil {
			return err
		}
	}
	if len(s.spans) == cap(s.spans) { // as put does
		s.spans = slices.Grow(s.spans, max(16, min(len(s.spans), (s.limit-len(s.buf))/spanBytes-len(s.spans))))
	}
	s.spans = append(s.spans, s.put(key, value))
	s.ordered, s.gathered = false, false
	return nil
}

func (s *sorter) fits(key, value []byte) bool {
	return len(s.buf)+len(key)+binary.MaxVarintLen32+len(value)+(len(s.spans)+1)*spanBytes <= s.limit
}

// put writes a record into memory.
func (s *sorter) put(key, value []byte) span {
	need := len(key) + binary.MaxVarintLen32 + len(value)
	if cap(s.buf)-len(s.buf) < need { // twice as much, or what the limit leaves; a log of ten rows takes little
		s.buf = slices.Grow(s.buf, max(need, min(len(s.buf), s.limit-len(s.buf)), 4<<10))
	}
	p := span{at: uint32(len(s.buf)), key: uint32(len(key))}
	s.buf = append(s.buf, key...)
	s.buf = binary.AppendUvarint(s.buf, uint64(len(value)))
	s.buf = append(s.buf, value...)
	return p
}

func (s *sorter) empty() bool { return len(s.spans) == 0 && len(s.runs) == 0 }

func (s *sorter) key(p span) []byte { return s.buf[p.at : p.at+p.key] }

func (s *sorter) value(p span) []byte {
	from := s.buf[p.at+p.key:]
	n, w := binary.Uvarint(from)
	return from[w : w+int(n)]
}

// spill writes what is in memory to the file.
func (s *sorter) spill() error {
	if s.file == nil {
		f, err := os.CreateTemp(s.dir, "postbit-sort-*")
		if err != nil {
			return fmt.Errorf("sort on disk: %w", err)
		}
		s.file = f
		_ = os.Remove(f.Name()) // where that goes, the file ends with us, however we end; elsewhere close removes it
	}
	from := s.written
	w := bufio.NewWriterSize(s.file, 1<<20)
	in := s.memory()
	var head []byte
	for in.next() {
		head = binary.AppendUvarint(binary.AppendUvarint(head[:0], uint64(len(in.key))), uint64(len(in.value)))
		for _, part := range [][]byte{head, in.key, in.value} {
			n, err := w.Write(part)
			s.written += int64(n)
			if err != nil {
				return fmt.Errorf("sort on disk: %w", err)
			}
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("sort on disk: %w", err)
	}
	s.runs = append(s.runs, [2]int64{from, s.written})
	s.buf, s.spans = s.buf[:0], s.spans[:0]
	return nil
}

// each calls f for every key in ascending order, with the combined value. Both are valid until f returns, which must not change them.
// It may be called more than once.
func (s *sorter) each(f func(key, value []byte) error) error {
	if len(s.runs) > 0 {
		return s.merge(f)
	}
	for in := s.memory(); in.next(); {
		if err := f(in.key, in.value); err != nil {
			return err
		}
	}
	return nil
}

func (s *sorter) close() error {
	s.buf, s.spans, s.runs = nil, nil, nil
	if s.file == nil {
		return nil
	}
	name, err := s.file.Name(), s.file.Close()
	if gone := os.Remove(name); gone != nil && !errors.Is(gone, os.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	s.file = nil
	return err
}
