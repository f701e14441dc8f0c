// Package bitfield reads and writes the blob in which a user document remembers which templates were ever sent to that
// user. The layout is that of the npm package "bitfield", with which other services share the field: bit i lies in byte
// i>>3 under the mask 0x80>>(i%8), most significant bit first.
//
// Blobs may have any length: a byte that is missing is zero, so lengths carry no meaning and two blobs of different
// lengths may hold the same bits. Nothing here ever makes a blob shorter.
package bitfield

import (
	"iter"
	"math/bits"
)

// MaxIndex is the highest bit index that a template may have. Blobs of other services may hold higher ones.
const MaxIndex = 4095

// Has reports whether bit i is set. An index out of range, below or above, is not set.
func Has(b []byte, i int) bool {
	if i < 0 || i>>3 >= len(b) {
		return false
	}
	return b[i>>3]&(0x80>>(i&7)) != 0
}

// With returns a copy of b in which bit i is set, grown where b was too short. It panics where i is negative.
func With(b []byte, i int) []byte {
	out := make([]byte, max(len(b), i>>3+1))
	copy(out, b)
	out[i>>3] |= 0x80 >> (i & 7)
	return out
}

// Without returns a copy of b in which bit i is clear. The copy has the length of b, even if its end is now all zero.
func Without(b []byte, i int) []byte {
	out := make([]byte, len(b))
	copy(out, b)
	if i >= 0 && i>>3 < len(b) {
		out[i>>3] &^= 0x80 >> (i & 7)
	}
	return out
}

// Count is the number of bits that are set.
func Count(b []byte) int {
	n := 0
	for _, x := range b {
		n += bits.OnesCount8(x)
	}
	return n
}

// Any reports whether at least one bit is set.
func Any(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return true
		}
	}
	return false
}

// Indexes yields the indexes of the set bits in ascending order.
func Indexes(b []byte) iter.Seq[int] {
	return func(yield func(int) bool) {
		for at, x := range b {
			for x != 0 {
				i := bits.LeadingZeros8(x)
				x &^= 0x80 >> i
				if !yield(at<<3 + i) {
					return
				}
			}
		}
	}
}
