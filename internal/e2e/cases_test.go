package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCasesHaveTheirTests: every test that docs/cases.md names is there, and every end-to-end test is named.
func TestCasesHaveTheirTests(t *testing.T) {
	page, err := os.ReadFile("../../docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]map[string]bool{}
	tests := func(dir string) map[string]bool {
		if declared[dir] != nil {
			return declared[dir]
		}
		declared[dir] = map[string]bool{}
		files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllSubmatch(source, -1) {
				declared[dir][string(m[1])] = true
			}
		}
		return declared[dir]
	}
	named := regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(page), -1)
	if len(named) < 50 {
		t.Fatalf("only %d tests are named", len(named))
	}
	for _, m := range named {
		if !tests(m[1])[m[2]] {
			t.Errorf("docs/cases.md: there is no %s in %s", m[2], m[1])
		}
	}
	for _, id := range []string{"S1", "S8b", "S11e", "S15", "C1", "C7", "M1", "M7", "O1", "O2b", "O6"} {
		if !strings.Contains(string(page), "\n| "+id+" |") {
			t.Errorf("docs/cases.md has no row %s", id)
		}
	}
}
