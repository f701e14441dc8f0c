package backfill

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// merge is each where a part is in the file.
func (s *sorter) merge(f func(key, value []byte) error) error {
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

// stretch reads sorted records, from the file or from memory. Those of memory are combined as they come.
type stretch struct {
	key, value []byte
	err        error

	r *bufio.Reader

	s        *sorter
	i        int
	combined []byte
}

func (in *stretch) next() bool {
	if in.s == nil {
		return in.fromFile()
	}
	s := in.s
	if in.i >= len(s.spans) {
		return false
	}
	p, n := s.spans[in.i], s.alike(in.i)
	in.key, in.value = s.key(p), s.value(p)
	if n > 1 {
		in.combined = s.combined(in.combined, s.spans[in.i:in.i+n])
		in.value = in.combined
	}
	in.i += n
	return true
}

func (in *stretch) fromFile() bool {
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
