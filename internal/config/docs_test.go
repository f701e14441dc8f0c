package config

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const docs = "../../docs/settings.md"

// The page lists every setting as it is; POSTBIT_WRITE_DOCS=1 brings its table up to date.
func TestTheDocsListEverySetting(t *testing.T) {
	page, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	const head = "| key | default | what it is |\n|---|---|---|\n"
	before, rest, ok := strings.Cut(string(page), head)
	if !ok {
		t.Fatal("the table is gone")
	}
	end := 0
	for _, line := range strings.SplitAfter(rest, "\n") {
		if !strings.HasPrefix(line, "|") {
			break
		}
		end += len(line)
	}
	var table strings.Builder
	for i := range Settings {
		s := &Settings[i]
		def := ""
		if s.Default != "" {
			def = "`" + s.Default + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", s.Key, def, strings.ReplaceAll(s.Help, "|", `\|`))
	}
	want := before + head + table.String() + rest[end:]
	if want == string(page) {
		return
	}
	if os.Getenv("POSTBIT_WRITE_DOCS") == "" {
		t.Fatal("docs/settings.md is not up to date; run this test with POSTBIT_WRITE_DOCS=1")
	}
	if err := os.WriteFile(docs, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
