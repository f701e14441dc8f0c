package main

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is postbit without one of its guards. The patch is made in a copy of the source in the lab: nothing of it stands in the
// program itself. The text must be there exactly once, so that a mutant that has lost its place says so.
type mutant struct{ file, old, new string }

var mutants = map[string]mutant{
	// Claims that don't look at what the document holds now.
	"no-compare-and-set": {"internal/users/claim_update.go",
		"\tdoc = appendSame(doc, s.cfg.Bits, u.was.bits)\n",
		"\tif true {\n\t\tdoc, _ = bsoncore.AppendDocumentEnd(doc, at)\n\t\treturn doc\n\t}\n\tdoc = appendSame(doc, s.cfg.Bits, u.was.bits)\n"},
	// Writes to a batch that don't ask whether it still belongs to the writer. The number of writes stands for the epoch where that
	// alone is taken out, so both go.
	"no-epoch": {"internal/campaign/batch_write.go",
		`{Key: "_id", Value: o.id}, {Key: "epoch", Value: o.Epoch}, {Key: "rev", Value: o.Rev}}`,
		`{Key: "_id", Value: o.id}}`},
}

func mutantNames() []string { return slices.Sorted(maps.Keys(mutants)) }

// buildMutant copies the source into dir, patches the copy and builds postbit from it.
func buildMutant(ctx context.Context, name, dir string) (string, error) {
	m, ok := mutants[name]
	if !ok {
		return "", fmt.Errorf("--mutant %s: unknown; %s", name, strings.Join(mutantNames(), ", "))
	}
	src := filepath.Join(dir, "mutant")
	if err := copySource(".", src); err != nil {
		return "", fmt.Errorf("copy the source (run this from the root of the project): %w", err)
	}
	path := filepath.Join(src, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return "", fmt.Errorf("mutant %s: its place is %d times in %s, want once", name, n, m.file)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o644); err != nil {
		return "", err
	}
	out := filepath.Join(dir, "postbit-"+name)
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, "./cmd/postbit")
	cmd.Dir = src
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build mutant %s: %w\n%s", name, err, b)
	}
	return out, nil
}

// copySource copies what the program is built from.
func copySource(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != from && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata" || path == "bench" || path == "docs") {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, "_test.go") || !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dst := filepath.Join(to, path)
		if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
			return err
		}
		return os.WriteFile(dst, b, 0o644)
	})
}
