package backfill

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"postbit/internal/bitfield"
)

// facts are what the rows of one user say together.
type facts struct {
	about
	bits []byte
}

// about is what facts hold beside the bits. Times are milliseconds since 1970; 0 is not known.
type about struct {
	text bool // the user was named by a text, which may stand for an id of two types
	first, last,
	openFirst, openLast int64
}

// add takes in what another row says: the earliest and the latest of the times.
func (a *about) add(o *about) {
	a.text = a.text || o.text
	a.first, a.last = earlier(a.first, o.first), max(a.last, o.last)
	a.openFirst, a.openLast = earlier(a.openFirst, o.openFirst), max(a.openLast, o.openLast)
}

func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// append begins facts for a sorter: a flag, the times as their difference to the one before, and how many bits follow.
func (a *about) append(to []byte, bits int) []byte {
	flag := byte(0)
	if a.text {
		flag = 1
	}
	to = append(to, flag)
	to = binary.AppendVarint(to, a.first)
	to = binary.AppendVarint(to, a.last-a.first)
	to = binary.AppendVarint(to, a.openFirst-a.last)
	to = binary.AppendVarint(to, a.openLast-a.openFirst)
	return binary.AppendUvarint(to, uint64(bits))
}

// read is the reverse of append. It returns the bits. What it reads was written by this process.
func (a *about) read(from []byte) distances {
	a.text = from[0] == 1
	from = from[1:]
	before := int64(0)
	for _, t := range [...]*int64{&a.first, &a.last, &a.openFirst, &a.openLast} {
		d, n := binary.Varint(from)
		*t = before + d
		before, from = *t, from[n:]
	}
	count, n := binary.Uvarint(from)
	return distances{from: from[n:], left: int(count)}
}

// append writes facts for a sorter: what they say about the bits, and the distances between these.
func (f *facts) append(to []byte) []byte {
	to = f.about.append(to, bitfield.Count(f.bits))
	last := 0
	for i := range bitfield.Indexes(f.bits) {
		to = binary.AppendUvarint(to, uint64(i-last))
		last = i
	}
	return to
}

// appendRow is append for the facts of a single row, which have one bit.
func (a *about) appendRow(to []byte, bit int) []byte {
	return binary.AppendUvarint(a.append(to, 1), uint64(bit))
}

// read is the reverse of append.
func (f *facts) read(from []byte) {
	bits := f.about.read(from)
	f.bits = f.bits[:0]
	for bits.next() {
		f.set(bits.at)
	}
}

// distances reads the bits of written facts in ascending order.
type distances struct {
	from []byte
	left int
	at   int // the bit that next has found
}

func (d *distances) next() bool {
	if d.left == 0 {
		return false
	}
	distance, n := binary.Uvarint(d.from)
	d.from, d.left, d.at = d.from[n:], d.left-1, d.at+int(distance)
	return true
}

func (f *facts) set(bit int) {
	for len(f.bits) <= bit>>3 {
		f.bits = append(f.bits, 0)
	}
	f.bits[bit>>3] |= 0x80 >> (bit & 7)
}

// combineFacts is for sorters. It merges what is written, without making bitfields of it: nearly always one of the two is a single row.
func combineFacts(a, b []byte) []byte {
	if bytes.Equal(a, b) {
		return a
	}
	var x, y about
	out, bits := mergeDistances(a, x.read(a), y.read(b))
	x.add(&y)
	var room [5*binary.MaxVarintLen64 + 1]byte
	return slices.Replace(out, 0, len(a), x.append(room[:0], bits)...)
}

// mergeDistances appends the bits that are in a or b, and counts them.
func mergeDistances(to []byte, a, b distances) (_ []byte, count int) {
	last := 0
	moreA, moreB := a.next(), b.next()
	for ; moreA || moreB; count++ {
		bit := a.at
		if !moreA || moreB && b.at < a.at {
			bit = b.at
		}
		if moreA && a.at == bit {
			moreA = a.next()
		}
		if moreB && b.at == bit {
			moreB = b.next()
		}
		to = binary.AppendUvarint(to, uint64(bit-last))
		last = bit
	}
	return to, count
}

func at(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
