package backfill

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
)

func TestSorter(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit int
		files int
	}{
		{"all in memory", 1 << 20, 0},
		{"spilled in many stretches", 600, 1},
		{"a record is bigger than the memory", 10, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSorter(t.TempDir(), combineFacts)
			s.limit = c.limit
			defer s.close()
			r := rand.New(rand.NewPCG(1, 2))
			want := map[string]*facts{}
			for range 2000 {
				key := fmt.Sprintf("user%03d", r.IntN(300))
				f := &facts{first: 1 + r.Int64N(1e12)}
				f.last = f.first
				f.set(r.IntN(200))
				if err := s.add([]byte(key), f.append(nil)); err != nil {
					t.Fatal(err)
				}
				if want[key] == nil {
					want[key] = &facts{}
				}
				want[key].add(f)
			}
			if (s.file != nil) != (c.files == 1) {
				t.Errorf("file: %v", s.file)
			}
			for range 2 { // it can be read again
				before, n := "", 0
				err := s.each(func(key, value []byte) error {
					if string(key) <= before {
						t.Fatalf("%s after %s", key, before)
					}
					before = string(key)
					n++
					if got := string(want[before].append(nil)); got != string(value) {
						t.Fatalf("%s: %x, want %x", key, value, got)
					}
					return nil
				})
				if err != nil || n != len(want) {
					t.Fatalf("%d keys, want %d: %v", n, len(want), err)
				}
			}
		})
	}
}

func TestSorterLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	s := newSorter(dir, combineFacts)
	s.limit = 10
	for i := range 10 {
		if err := s.add([]byte{byte(i)}, (&facts{}).append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Fatalf("left behind: %v %v", left, err)
	}
}
