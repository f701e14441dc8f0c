package faults_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"postbit/internal/faults"
)

func many(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("line %d is wrong", i+1)
	}
	return list
}

func errorsOf(texts []string) (list []error) {
	for _, text := range texts {
		list = append(list, errors.New(text))
	}
	return list
}

func TestTextNamesTheFirstAndCountsTheRest(t *testing.T) {
	twenty := strings.TrimSuffix(faults.Text(many(20)), "\n")
	if n := strings.Count(twenty, "\n"); n != 19 || !strings.HasSuffix(twenty, "line 20 is wrong") {
		t.Fatalf("20 faults: %s", twenty)
	}
	for _, c := range []struct {
		name string
		list []string
		want string
	}{
		{"none", nil, ""},
		{"one", many(1), "line 1 is wrong"},
		{"two", many(2), "line 1 is wrong\nline 2 is wrong"},
		{"one more than are named", many(21), twenty + "\nand 1 more"},
		{"very many", many(100_000), twenty + "\nand 99,980 more"},
		{"of a part that several files share", append(many(2), many(3)...), "line 1 is wrong\nline 2 is wrong\nline 3 is wrong"},
		{"the same, behind those that are named", append(many(22), many(22)...), twenty + "\nand 2 more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, faults.Text(c.list)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestALongFaultIsCut(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"as long as may be", strings.Repeat("x", faults.Longest), strings.Repeat("x", faults.Longest)},
		{"longer", strings.Repeat("x", 1<<20), strings.Repeat("x", faults.Longest) + "…"},
		{"between letters", "x" + strings.Repeat("ü", 1<<20), "x" + strings.Repeat("ü", (faults.Longest-1)/2) + "…"},
		{"where no letter is", strings.Repeat("\x80", 1<<20), "…"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := faults.Text([]string{c.text})
			if got != c.want || !utf8.ValidString(got) {
				t.Errorf("%d bytes: %.20q…%q", len(got), got, got[max(0, len(got)-10):])
			}
		})
	}
}

func TestJoin(t *testing.T) {
	if err := faults.Join(nil, nil); err != nil {
		t.Errorf("of nothing: %v", err)
	}
	inner := faults.Join(errorsOf(many(15))...)
	err := faults.Join(inner, nil, fmt.Errorf("a.html: %w", fs.ErrNotExist), faults.Join(errorsOf(many(30)[15:])...))
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 21 || lines[15] != "a.html: file does not exist" || lines[20] != "and 11 more" {
		t.Errorf("lists in a list are one: %v", err)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error("what was joined is not found in it")
	}
}
