package backfill

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// sortMemory is how many bytes of records a sorter holds before it writes them to its file.
const sortMemory = 16 << 20

// sorter puts any number of records into the order of their keys in bounded memory: what does not fit goes to a temporary file
// in sorted stretches, which are merged when it is read. Records with one key become one.
type sorter struct {
	dir     string                   // for the file; "" is the system's
	limit   int                      // of buf, in bytes
	combine func(a, b []byte) []byte // of the values of one key; may change a
	buf     []byte                   // keys and values
	spans   []span                   // of buf
	ordered bool                     // spans are sorted
	file    *os.File                 // nil: all fits
	written int64
	runs    [][2]int64 // stretches of file: from, to
}

// span is one record: its key and its value lie one behind the other.
type span struct{ at, key, value uint32 }

func newSorter(dir string, combine func(a, b []byte) []byte) *sorter {
	return &sorter{dir: dir, limit: sortMemory, combine: combine}
}

// add takes a record. Key and value are copied.
func (s *sorter) add(key, value []byte) error {
	if len(s.spans) > 0 && len(s.buf)+len(key)+len(value)+len(s.spans)*12 > s.limit {
		if err := s.spill(); err != nil {
			return err
		}
	}
	if need := len(key) + len(value); cap(s.buf)-len(s.buf) < need { // twice as much: append would copy megabytes for each quarter more
		s.buf = slices.Grow(s.buf, max(need, min(len(s.buf), s.limit-len(s.buf)), 4<<10))
	}
	s.spans = append(s.spans, span{uint32(len(s.buf)), uint32(len(key)), uint32(len(value))})
	s.buf = append(append(s.buf, key...), value...)
	s.ordered = false
	return nil
}

func (s *sorter) empty() bool { return len(s.spans) == 0 && len(s.runs) == 0 }

func (s *sorter) key(p span) []byte   { return s.buf[p.at : p.at+p.key] }
func (s *sorter) value(p span) []byte { return s.buf[p.at+p.key : p.at+p.key+p.value] }

func (s *sorter) sort() {
	if !s.ordered {
		slices.SortFunc(s.spans, func(a, b span) int { return bytes.Compare(s.key(a), s.key(b)) })
		s.ordered = true
	}
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
	for in.next() {
		head := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(len(in.key))), uint64(len(in.value)))
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

// each calls f for every key in ascending order, with the combined value. Both are valid until f returns. It may be called
// more than once.
func (s *sorter) each(f func(key, value []byte) error) error {
	var from stretches
	for _, run := range s.runs {
		from = append(from, &stretch{r: bufio.NewReaderSize(io.NewSectionReader(s.file, run[0], run[1]-run[0]), 64<<10)})
	}
	from = append(from, s.memory())
	live := from[:0]
	for _, in := range from {
		if in.next() {
			live = append(live, in)
		} else if in.err != nil {
			return in.err
		}
	}
	heap.Init(&live)
	var key, value []byte
	have := false
	for len(live) > 0 {
		in := live[0]
		switch {
		case have && bytes.Equal(in.key, key):
			value = s.combine(value, in.value)
		default:
			if have {
				if err := f(key, value); err != nil {
					return err
				}
			}
			key, value, have = append(key[:0], in.key...), append(value[:0], in.value...), true
		}
		if in.next() {
			heap.Fix(&live, 0)
			continue
		}
		if in.err != nil {
			return in.err
		}
		heap.Pop(&live)
	}
	if have {
		return f(key, value)
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

// memory reads what has not been spilled.
func (s *sorter) memory() *stretch {
	s.sort()
	return &stretch{s: s}
}

// stretch reads sorted records, from the file or from memory. Those of memory are combined as they come.
type stretch struct {
	key, value []byte
	err        error

	r *bufio.Reader
	s *sorter
	i int
}

func (in *stretch) next() bool {
	if in.s != nil {
		if in.i >= len(in.s.spans) {
			return false
		}
		p := in.s.spans[in.i]
		in.i++
		in.key = in.s.key(p)
		in.value = append(in.value[:0], in.s.value(p)...)
		for ; in.i < len(in.s.spans) && bytes.Equal(in.s.key(in.s.spans[in.i]), in.key); in.i++ {
			in.value = in.s.combine(in.value, in.s.value(in.s.spans[in.i]))
		}
		return true
	}
	keyLen, err := binary.ReadUvarint(in.r)
	if errors.Is(err, io.EOF) {
		return false
	}
	valueLen, err2 := binary.ReadUvarint(in.r)
	if err = errors.Join(err, err2); err == nil {
		in.key = slices.Grow(in.key[:0], int(keyLen))[:keyLen]
		in.value = slices.Grow(in.value[:0], int(valueLen))[:valueLen]
		if _, err = io.ReadFull(in.r, in.key); err == nil {
			_, err = io.ReadFull(in.r, in.value)
		}
	}
	if err != nil {
		in.err = fmt.Errorf("sort on disk: %w", err)
		return false
	}
	return true
}

type stretches []*stretch

func (h stretches) Len() int           { return len(h) }
func (h stretches) Less(i, j int) bool { return bytes.Compare(h[i].key, h[j].key) < 0 }
func (h stretches) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *stretches) Push(x any)        { *h = append(*h, x.(*stretch)) }
func (h *stretches) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
