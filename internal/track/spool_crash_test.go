package track

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"postbit/internal/clock"
)

// A kill tears the last write at any byte: what was whole is kept, the rest was never answered.
func TestTornAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	s := openSpool(t, dir, SpoolOptions{})
	ends := []int{} // of the whole hits
	for n := range 3 {
		appendHit(t, s, n)
		info, err := os.Stat(files(t, dir, openSuffix)[0])
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, int(info.Size()))
	}
	name := filepath.Base(files(t, dir, openSuffix)[0])
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, torn []byte, whole int) {
		t.Helper()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), torn, 0o600); err != nil {
			t.Fatal(err)
		}
		again := openSpool(t, dir, SpoolOptions{})
		appendHit(t, again, 100)
		again.Close()
		seen := stored(t, dir)
		for n := range 3 {
			if want := map[bool]int{true: 1}[n < whole]; seen[n] != want {
				t.Errorf("%s: hit %d is there %d times, want %d", what, n, seen[n], want)
			}
		}
		if seen[100] != 1 || len(files(t, dir, openSuffix)) != 0 {
			t.Errorf("%s: %v, open: %v", what, seen, files(t, dir, openSuffix))
		}
	}
	whole := func(size int) int {
		n := 0
		for n < len(ends) && ends[n] <= size {
			n++
		}
		return n
	}
	for size := range len(data) + 1 {
		if ends[0] < size && size < ends[1] && size%8 != 0 { // one hit is like the other
			continue
		}
		check(fmt.Sprintf("cut at %d", size), data[:size], whole(size))
	}
	for size := ends[1]; size < len(data); size += 2 { // a crash of the machine may leave zeros, or another file's bytes
		torn := append([]byte(nil), data...)
		for i := size; i < len(torn); i++ {
			torn[i] = 0
		}
		if !bytes.Equal(torn, data) {
			check(fmt.Sprintf("zeros from %d", size), torn, 2)
		}
		torn = append([]byte(nil), data...)
		torn[size] ^= 0x20
		check(fmt.Sprintf("flipped at %d", size), torn, 2)
	}
}

// Whatever happens between, what Append has acknowledged is in exactly one chunk after a start on the files as they are now.
func TestAcknowledgedIsStored(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		s := openSpool(t, dir, SpoolOptions{ChunkBytes: rapid.SampledFrom([]int{1, 200, 5000}).Draw(rt, "chunk")})
		defer func() { s.Close() }()
		acknowledged := 0
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"append", "append", "many", "flush", "reopen", "killed"}).Draw(rt, "step") {
			case "append":
				appendHit(t, s, acknowledged)
				acknowledged++
			case "many":
				var wg sync.WaitGroup
				for i := range 10 {
					wg.Go(func() { appendHit(t, s, acknowledged+i) })
				}
				wg.Wait()
				acknowledged += 10
			case "flush":
				flush(t, s)
			case "reopen":
				s.Close()
				s = openSpool(t, dir, SpoolOptions{})
			case "killed":
				left := t.TempDir()
				copyFiles(t, dir, left)
				again := openSpool(t, left, SpoolOptions{})
				if seen := stored(t, left); len(seen) != acknowledged {
					rt.Fatalf("%d of %d are there: %v", len(seen), acknowledged, seen)
				}
				again.Close()
			}
		}
		s.Close()
		for n, times := range stored(t, dir) {
			if times != 1 || n >= acknowledged {
				rt.Fatalf("hit %d is there %d times", n, times)
			}
		}
		if seen := stored(t, dir); len(seen) != acknowledged {
			rt.Fatalf("%d of %d", len(seen), acknowledged)
		}
	})
}

// copyFiles takes what is there now, as a kill would leave it. The sealer may rename a file in the meantime; then it is looked at again.
func copyFiles(t testing.TB, from, to string) {
	t.Helper()
	for _, suffix := range []string{openSuffix, chunkSuffix} {
		for _, path := range files(t, from, suffix) {
			data, err := os.ReadFile(path)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			id := strings.TrimSuffix(filepath.Base(path), suffix)
			os.Remove(filepath.Join(to, id+openSuffix))
			if err := os.WriteFile(filepath.Join(to, filepath.Base(path)), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

const childVar = "POSTBIT_TEST_SPOOL_CHILD"

// TestSpoolChild is the process that TestKill kills: it appends, and says what was acknowledged.
func TestSpoolChild(t *testing.T) {
	dir := os.Getenv(childVar)
	if dir == "" {
		t.Skip("started by TestKill")
	}
	s := openSpool(t, dir, SpoolOptions{SealAfter: 3 * time.Millisecond, ChunkBytes: 2000, Clock: clock.New()})
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 1 << 20 {
				n := os.Getpid()<<24 | w<<20 | i
				if s.Append(t.Context(), testHit(t, n)) != nil {
					return
				}
				mu.Lock()
				fmt.Println("ack", n)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestKill(t *testing.T) {
	dir := t.TempDir()
	acknowledged := map[int]bool{}
	for _, after := range []int{1, 50, 333, 1000} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSpoolChild$")
		cmd.Env = append(os.Environ(), childVar+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); {
			var id int
			if k, _ := fmt.Sscanf(lines.Text(), "ack %d", &id); k != 1 {
				continue
			}
			acknowledged[id] = true
			if n++; n == after {
				cmd.Process.Kill()
			}
		}
		cmd.Wait()
	}
	openSpool(t, dir, SpoolOptions{}).Close()
	seen := stored(t, dir)
	for id := range acknowledged {
		if seen[id] != 1 {
			t.Errorf("hit %d was acknowledged and is there %d times", id, seen[id])
		}
	}
	for id, times := range seen {
		if times != 1 {
			t.Errorf("hit %d is there %d times", id, times)
		}
	}
	if len(acknowledged) < 1384 {
		t.Errorf("only %d hits", len(acknowledged))
	}
}
