package backfill

import (
	"encoding/binary"
	"slices"
	"time"

	"postbit/internal/bitfield"
)

// facts are what the rows of one user say together. Times are milliseconds since 1970; 0 is not known.
type facts struct {
	text bool // the user was named by a text, which may stand for an id of two types
	bits []byte
	first, last,
	openFirst, openLast int64
}

// add takes in what another row says: all bits, the earliest and the latest of the times.
func (f *facts) add(o *facts) {
	f.text = f.text || o.text
	if len(f.bits) < len(o.bits) {
		f.bits = append(f.bits, make([]byte, len(o.bits)-len(f.bits))...)
	}
	for i, b := range o.bits {
		f.bits[i] |= b
	}
	f.first, f.last = earlier(f.first, o.first), max(f.last, o.last)
	f.openFirst, f.openLast = earlier(f.openFirst, o.openFirst), max(f.openLast, o.openLast)
}

func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// append writes facts for a sorter: a flag, the times as their difference to the one before, the distances between the bits.
func (f *facts) append(to []byte) []byte {
	flag := byte(0)
	if f.text {
		flag = 1
	}
	to = append(to, flag)
	before := int64(0)
	for _, t := range [...]int64{f.first, f.last, f.openFirst, f.openLast} {
		to = binary.AppendVarint(to, t-before)
		before = t
	}
	to = binary.AppendUvarint(to, uint64(bitfield.Count(f.bits)))
	last := 0
	for i := range bitfield.Indexes(f.bits) {
		to = binary.AppendUvarint(to, uint64(i-last))
		last = i
	}
	return to
}

// read is the reverse of append. It returns what follows. What it reads was written by this process.
func (f *facts) read(from []byte) []byte {
	f.text = from[0] == 1
	from = from[1:]
	before := int64(0)
	for _, t := range [...]*int64{&f.first, &f.last, &f.openFirst, &f.openLast} {
		d, n := binary.Varint(from)
		*t = before + d
		before, from = *t, from[n:]
	}
	count, n := binary.Uvarint(from)
	from = from[n:]
	f.bits = f.bits[:0]
	at := 0
	for range count {
		d, n := binary.Uvarint(from)
		from = from[n:]
		at += int(d)
		f.set(at)
	}
	return from
}

func (f *facts) set(bit int) {
	if more := bit>>3 + 1 - len(f.bits); more > 0 {
		f.bits = append(f.bits, make([]byte, more)...)
	}
	f.bits[bit>>3] |= 0x80 >> (bit & 7)
}

// combineFacts is for sorters.
func combineFacts(a, b []byte) []byte {
	if slices.Equal(a, b) {
		return a
	}
	var x, y facts
	x.read(a)
	y.read(b)
	x.add(&y)
	return x.append(a[:0])
}

func at(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
