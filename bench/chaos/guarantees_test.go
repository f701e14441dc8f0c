package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	ofPackage = regexp.MustCompile("`([a-z0-9/]+)` (Test\\w+(?:, Test\\w+)*)")
	aTest     = regexp.MustCompile(`\bTest[A-Z]\w+`)
)

// docs/guarantees.md names tests; each must be where it says.
func TestGuaranteesNameTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range ofPackage.FindAllSubmatch(page, -1) {
		files, err := filepath.Glob(filepath.Join("../..", string(m[1]), "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s has no tests: %v", m[1], err)
		}
		var text strings.Builder
		for _, name := range files {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(b)
		}
		for _, name := range aTest.FindAllString(string(m[2]), -1) {
			found++
			if !strings.Contains(text.String(), "func "+name+"(") {
				t.Errorf("%s has no %s", m[1], name)
			}
		}
	}
	if all := len(aTest.FindAll(page, -1)); found == 0 || all-found != 1 { // one is named as an example of how to run it
		t.Errorf("%d tests are named, %d of them with their package", all, found)
	}
}
