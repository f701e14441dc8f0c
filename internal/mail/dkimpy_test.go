package mail

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDKIMPy has dkimpy, which shares no code with go-msgauth, verify mails as a server got them, and mails that were tampered with. POSTBIT_TEST_DKIMPY
// names a Python that has dkimpy and PyNaCl.
func TestDKIMPy(t *testing.T) {
	python := os.Getenv("POSTBIT_TEST_DKIMPY")
	if python == "" {
		t.Skip("needs Python with dkimpy and PyNaCl; POSTBIT_TEST_DKIMPY=/path/to/python runs it")
	}
	script, err := filepath.Abs("testdata/dkim/verify.py")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, e := rsaKey(t), edKey(t)
	records, err := json.Marshal(map[string]string{r.Name(): r.Record(), e.Name(): e.Record()})
	if err != nil {
		t.Fatal(err)
	}
	write("records.json", records)
	type row struct {
		name       string
		good       bool
		algorithms []string
	}
	var rows []row
	add := func(name string, good bool, msg []byte, algorithms ...string) {
		write(fmt.Sprintf("%03d.eml", len(rows)), msg)
		rows = append(rows, row{name, good, algorithms})
	}
	add("RSA", true, arrived(t, awkward(), r), "rsa-sha256")
	add("Ed25519", true, arrived(t, awkward(), e), "ed25519-sha256")
	both := arrived(t, awkward(), r, e)
	add("both", true, both, "rsa-sha256", "ed25519-sha256")
	one := arrived(t, onePart(), r, e)
	add("one part", true, one, "rsa-sha256", "ed25519-sha256")
	for i, messages := 0, anyMessage(); i < 40; i++ {
		add(fmt.Sprintf("message %d", i), true, sign(t, signer(t, r, e), encode(t, messages.Example(i))), "rsa-sha256", "ed25519-sha256")
	}
	for _, a := range travelled(both) {
		add(a.name, true, a.msg, "rsa-sha256", "ed25519-sha256")
	}
	for _, a := range tampered(t, one) {
		add(a.name, false, a.msg, "rsa-sha256", "ed25519-sha256")
	}

	cmd := exec.CommandContext(t.Context(), python, script, dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var found map[string][]struct {
		Good           bool
		Why, Algorithm string
		Signed         []string
	}
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	good, bad := 0, 0
	for i, row := range rows {
		signatures := found[fmt.Sprintf("%03d.eml", i)]
		if len(signatures) != len(row.algorithms) {
			t.Errorf("%s: %d signatures, want %v", row.name, len(signatures), row.algorithms)
			continue
		}
		for n, s := range signatures {
			if s.Good != row.good || s.Algorithm != row.algorithms[n] {
				t.Errorf("%s: %+v", row.name, s)
			}
			if s.Good {
				good++
			} else {
				bad++
			}
			for _, h := range signed {
				if !slices.Contains(s.Signed, strings.ToLower(h)) {
					t.Errorf("%s: %s is not signed: %v", row.name, h, s.Signed)
				}
			}
		}
	}
	t.Logf("dkimpy verified %d signatures, and refused %d of mails that were tampered with", good, bad)
}
