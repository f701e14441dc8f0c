package bitfield

import (
	"bytes"
	"encoding/hex"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestLayoutOfTheSource(t *testing.T) {
	var b []byte
	for _, i := range []int{0, 7, 8, 147} {
		b = With(b, i)
	}
	want, _ := hex.DecodeString("81800000000000000000000000000000000010")
	if !bytes.Equal(b, want) {
		t.Fatalf("bits {0,7,8,147} are % x, want % x", b, want)
	}
	if len(b) != 19 {
		t.Fatalf("148 bits take %d bytes, want 19", len(b))
	}
	if got := slices.Collect(Indexes(b)); !slices.Equal(got, []int{0, 7, 8, 147}) {
		t.Fatalf("indexes %v", got)
	}
}

func TestEdges(t *testing.T) {
	tests := []struct {
		name string
		ok   bool
	}{
		{"nothing is set in no bytes", !Has(nil, 0)},
		{"an index beyond the end is not set", !Has([]byte{0xff}, 8)},
		{"a negative index is not set", !Has([]byte{0xff}, -1)},
		{"clearing beyond the end changes nothing", bytes.Equal(Without([]byte{0xff}, 4095), []byte{0xff})},
		{"clearing the last bit keeps the length", bytes.Equal(Without([]byte{0, 1}, 15), []byte{0, 0})},
		{"setting never makes a longer blob shorter", len(With(make([]byte, 600), 1)) == 600},
		{"no bytes hold no bit", !Any(nil) && Count(nil) == 0},
		{"zero bytes hold no bit", !Any(make([]byte, 9))},
		{"the highest index takes 512 bytes", len(With(nil, MaxIndex)) == 512},
	}
	for _, tt := range tests {
		if !tt.ok {
			t.Error(tt.name)
		}
	}
}

// The blob against the plainest model there is: a set of numbers.
func TestAgainstASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var blob []byte
		set := map[int]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				i := rapid.IntRange(0, MaxIndex).Draw(t, "i")
				before := bytes.Clone(blob)
				next := With(blob, i)
				if !bytes.Equal(before, blob) {
					t.Fatal("With wrote to its argument")
				}
				blob, set[i] = next, true
			},
			"clear": func(t *rapid.T) {
				i := rapid.IntRange(0, MaxIndex).Draw(t, "i")
				before := bytes.Clone(blob)
				next := Without(blob, i)
				if !bytes.Equal(before, blob) {
					t.Fatal("Without wrote to its argument")
				}
				if len(next) != len(blob) {
					t.Fatalf("from %d bytes to %d", len(blob), len(next))
				}
				blob = next
				delete(set, i)
			},
			"": func(t *rapid.T) {
				n := 0
				for i := range Indexes(blob) {
					if n++; !set[i] || !Has(blob, i) {
						t.Fatalf("bit %d is set and should not be", i)
					}
				}
				if n != len(set) || Count(blob) != n || Any(blob) != (n > 0) {
					t.Fatalf("%d indexes, %d counted, want %d", n, Count(blob), len(set))
				}
			},
		})
	})
}

func TestHasAllocatesNothing(t *testing.T) {
	b := With(nil, 147)
	if n := testing.AllocsPerRun(100, func() { _ = Has(b, 147) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkHas(b *testing.B) {
	blob := With(nil, 147)
	n := 0
	for b.Loop() {
		if Has(blob, 147) {
			n++
		}
	}
}
