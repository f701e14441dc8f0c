package bitfield

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// vector is what one version of npm bitfield made of a case, see testdata/versions.mjs.
type vector struct {
	Version string
	Name    string
	Case    int
	Start   string
	Set     []int
	Clear   []int
	Bytes   string
	Indexes []int
}

// check carries out the case and compares. Versions grow their buffers by different rules, so zeros at the end don't
// count, but ours is never longer than theirs.
func (v vector) check(t *testing.T) {
	t.Helper()
	blob, err := hex.DecodeString(v.Start)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range v.Set {
		blob = With(blob, i)
	}
	for _, i := range v.Clear {
		blob = Without(blob, i)
	}
	theirs, err := hex.DecodeString(v.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if len(blob) > len(theirs) || !bytes.Equal(blob, theirs[:len(blob)]) || Any(theirs[len(blob):]) {
		t.Errorf("%s, %s: ours\n% x, theirs\n% x", v.Version, v.Name, blob, theirs)
	}
	if got := slices.Collect(Indexes(theirs)); !slices.Equal(got, v.Indexes) {
		t.Errorf("%s, %s: we read %v, they %v", v.Version, v.Name, got, v.Indexes)
	}
	for i := range MaxIndex + 1 {
		if _, want := slices.BinarySearch(v.Indexes, i); Has(theirs, i) != want {
			t.Fatalf("%s, %s: bit %d is %v to them", v.Version, v.Name, i, want)
		}
	}
}

func TestVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	majors := map[byte]int{}
	for _, v := range vectors {
		majors[v.Version[0]]++
		v.check(t)
	}
	if len(majors) != 6 {
		t.Fatalf("vectors of majors %v, want 0 to 5", majors)
	}
}

// TestNode runs the npm package itself, every major version, in both directions: it reads and goes on writing what we
// wrote, and we read what it wrote. It needs node and npm, so it is asked for by POSTBIT_TEST_NODE=1.
func TestNode(t *testing.T) {
	if os.Getenv("POSTBIT_TEST_NODE") != "1" {
		t.Skip("POSTBIT_TEST_NODE=1 runs this with node and npm")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "versions.mjs", "peer.mjs", "make-vectors.mjs"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(stdin []byte, name string, args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.Stdin = dir, bytes.NewReader(stdin)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, stderr.Bytes())
		}
		return out
	}
	run(nil, "npm", "ci", "--no-audit", "--no-fund")

	committed, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if made := run(nil, "node", "make-vectors.mjs"); !bytes.Equal(made, committed) {
		t.Error("testdata/vectors.json is not what make-vectors.mjs makes")
	}

	type peerCase struct {
		Start string `json:"start"` // a blob that we wrote
		Set   []int  `json:"set"`
		Clear []int  `json:"clear"`
		ours  []int
	}
	var cases []peerCase
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var blob []byte
		c := peerCase{Set: []int{}, Clear: []int{}}
		for range random.IntN(40) {
			blob = With(blob, random.IntN(MaxIndex+1))
		}
		c.Start, c.ours = hex.EncodeToString(blob), slices.Collect(Indexes(blob))
		if random.IntN(2) == 0 { // half of them are only read
			for range random.IntN(8) {
				c.Set = append(c.Set, random.IntN(MaxIndex+1))
			}
			for range random.IntN(8) {
				c.Clear = append(c.Clear, random.IntN(MaxIndex+1))
			}
		}
		cases = append(cases, c)
	}
	in, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	var answers []vector
	if err := json.Unmarshal(run(in, "node", "peer.mjs"), &answers); err != nil {
		t.Fatal(err)
	}
	if len(answers) != 6*len(cases) {
		t.Fatalf("%d answers to %d cases of 6 versions", len(answers), len(cases))
	}
	for _, a := range answers {
		c := cases[a.Case]
		a.Start, a.Set, a.Clear = c.Start, c.Set, c.Clear
		if len(c.Set)+len(c.Clear) == 0 && !slices.Equal(a.Indexes, c.ours) {
			t.Errorf("%s reads %v out of the blob that holds %v", a.Version, a.Indexes, c.ours)
		}
		a.check(t)
	}
}
