package web

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// TestEveryRouteIsDescribed holds docs/openapi.yaml to the routes; that the answers are as described is tested where there
// are real ones, in cmd/postbit.
func TestEveryRouteIsDescribed(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]any
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	var described []string
	for path, item := range doc.Paths {
		for method := range item {
			if method != "parameters" {
				described = append(described, strings.ToUpper(method)+" "+path)
			}
		}
	}
	routes := []string{"GET /healthz", "GET /metrics", "GET /readyz"} // beside the API
	(&api{}).routes(func(pattern string, _ func(http.ResponseWriter, *http.Request)) { routes = append(routes, pattern) })
	slices.Sort(described)
	slices.Sort(routes)
	if diff := cmp.Diff(routes, described); diff != "" {
		t.Errorf("routes and description differ:\n%s", diff)
	}
}
