package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"postbit/internal/config"
)

// A setting that is read, checked, documented and then used by nobody is a promise that is not kept.
func TestEverySettingIsUsed(t *testing.T) {
	used := map[string]bool{}
	for _, dir := range []string{".", "../../internal/embedded"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					used[s.Sel.Name] = true
				}
				return true
			})
		}
	}
	for _, settings := range []reflect.Type{reflect.TypeFor[config.Config](), reflect.TypeFor[config.Users](), reflect.TypeFor[config.DKIMKey]()} {
		for i := range settings.NumField() {
			if f := settings.Field(i); f.IsExported() && !used[f.Name] {
				t.Errorf("nothing uses %s of %s", f.Name, settings)
			}
		}
	}
}
