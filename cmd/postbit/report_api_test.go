package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"postbit/internal/report/reporttest"
)

// openapi is docs/openapi.yaml. Its schemas are JSON Schema 2020-12 as they stand, as OpenAPI 3.1 has it.
type openapi struct {
	doc      map[string]any
	compiler *jsonschema.Compiler
	answered map[string]bool // operations of which an answer with 200 was checked
}

const openapiURL = "file:///openapi.json"

func openOpenAPI(t *testing.T) *openapi {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource(openapiURL, asJSON); err != nil {
		t.Fatal(err)
	}
	return &openapi{doc: asJSON.(map[string]any), compiler: c, answered: map[string]bool{}}
}

// at follows keys, and references among components.
func (o *openapi) at(pointer []string) (node map[string]any, where []string) {
	node = o.doc
	for i, key := range pointer {
		next, ok := node[key].(map[string]any)
		if !ok {
			return nil, nil
		}
		node = next
		if ref, ok := node["$ref"].(string); ok {
			return o.at(append(strings.Split(strings.TrimPrefix(ref, "#/"), "/"), pointer[i+1:]...))
		}
	}
	return node, pointer
}

// check validates an answer against what the description says about it.
func (o *openapi) check(path, method string, status int, contentType string, body []byte) error {
	operation := []string{"paths", path, method}
	if node, _ := o.at(operation); node == nil {
		return fmt.Errorf("%s %s is not described", method, path)
	}
	_, where := o.at(append(operation, "responses", fmt.Sprint(status)))
	if where == nil {
		if _, where = o.at(append(operation, "responses", "default")); where == nil {
			return fmt.Errorf("%s %s: status %d is not described", method, path, status)
		}
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return err
	}
	content, _ := o.at(append(slices.Clone(where), "content", media))
	if content == nil {
		return fmt.Errorf("%s %s: an answer of %s is not described", method, path, media)
	}
	schema, err := o.compile(append(slices.Clone(where), "content", media, "schema"))
	if err != nil {
		return err
	}
	var value any = string(body)
	if media == "application/json" {
		if value, err = jsonschema.UnmarshalJSON(bytes.NewReader(body)); err != nil {
			return err
		}
	}
	if err := schema.Validate(value); err != nil {
		return fmt.Errorf("%s %s, status %d: %w in\n%s", method, path, status, err, body)
	}
	if status == http.StatusOK {
		o.answered[method+" "+path] = true
	}
	return nil
}

func (o *openapi) compile(pointer []string) (*jsonschema.Schema, error) {
	escaped := make([]string, len(pointer))
	for i, key := range pointer {
		escaped[i] = strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(key)
	}
	return o.compiler.Compile(openapiURL + "#/" + strings.Join(escaped, "/"))
}

// operations are "get /api/campaigns" and so on.
func (o *openapi) operations() []string {
	var all []string
	for path, item := range o.doc["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			if method != "parameters" {
				all = append(all, method+" "+path)
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestAnswersOfTheAPIAreWhatItsDescriptionSays asks a running server for everything that is described, and for what it has to
// refuse.
func TestAnswersOfTheAPIAreWhatItsDescriptionSays(t *testing.T) {
	api := openOpenAPI(t)
	s := newShell(t)
	users := s.external(t)
	if _, err := users.InsertMany(t.Context(), people(s.clk.Now())); err != nil {
		t.Fatal(err)
	}
	t.Setenv("POSTBIT_SITES", "{shop: [shop.example.com]}")
	s.write("owned.json", `{"welcome": 0}`)
	s.must("templates", "import", "owned.json")
	s.write("templates/winback.html", winbackHTML)
	s.must("templates", "push", "templates", "--adopt")
	s.write("campaigns/winback.yaml", strings.Replace(winbackYAML, "rules:", "schedule: { cron: \"0 9 * * MON\", timezone: Europe/Berlin }\nrules:\n  inactive_after: 90d", 1))
	s.write("campaigns/idle.yaml", strings.Replace(winbackYAML, "name: winback", "name: idle", 1))
	s.must("campaigns", "apply", "campaigns")
	reporttest.Seed(t, users.Database())
	stop := s.serve()
	defer func() {
		http.DefaultClient.CloseIdleConnections()
		if r := stop(); r.code != 0 {
			t.Errorf("serve: exit code %d\n%s", r.code, r.err)
		}
	}()
	base := "http://" + s.address("admin")
	ask := func(method, path, body string) (int, string, []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), strings.ToUpper(method), base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, res.Header.Get("Content-Type"), data
	}
	described := regexp.MustCompile(`\{[a-z]+\}`)
	for _, row := range []struct {
		name, method, path string // as described
		args               []string
		query, body        string
		status             int
	}{
		{"alive", "get", "/healthz", nil, "", "", 200},
		{"ready", "get", "/readyz", nil, "", "", 200},
		{"metrics", "get", "/metrics", nil, "", "", 200},
		{"templates", "get", "/api/templates", nil, "", "", 200},
		{"campaigns that never ran", "get", "/api/campaigns", nil, "", "", 200},
		{"a campaign that never ran", "get", "/api/campaigns/{name}", []string{"winback"}, "", "", 200},
		{"an empty report", "get", "/api/report/{name}", []string{"idle"}, "", "", 200},
		{"a run", "post", "/api/campaigns/{name}/run", []string{"winback"}, "", "", 200},
		{"a run with a key", "post", "/api/campaigns/{name}/run", []string{"winback"}, "", `{"key": "2026-12-01"}`, 200},
		{"a campaign with a run", "get", "/api/campaigns/{name}", []string{"winback"}, "", "", 200},
		{"pause", "post", "/api/campaigns/{name}/pause", []string{"winback"}, "", `{"reason": "a wrong price"}`, 200},
		{"resume", "post", "/api/campaigns/{name}/resume", []string{"winback"}, "", `{}`, 200},
		{"pause the schedule", "post", "/api/campaigns/{name}/pause", []string{"winback"}, "", `{"schedule": true}`, 200},
		{"cancel", "post", "/api/campaigns/{name}/cancel", []string{"winback"}, "", "", 200},
		{"campaigns with runs", "get", "/api/campaigns", nil, "", "", 200},
		{"send", "post", "/api/send", nil, "", `{"template": "winback", "user": "11", "key": "k1"}`, 200},
		{"send, and skip", "post", "/api/send", nil, "", `{"template": "winback", "user": "4"}`, 200},
		{"a pixel", "post", "/api/pixels", nil, "", `{"campaign": "winback", "user": "1"}`, 200},
		{"explain", "get", "/api/explain", nil, "campaign=winback&user=7", "", 200},
		{"explain a deferral", "get", "/api/explain", nil, "campaign=winback&user=10&at=2026-12-01T12:00:00Z", "", 200},
		{"a report", "get", "/api/report/{name}", []string{"winback"}, "", "", 200},
		{"a report over months", "get", "/api/report/{name}", []string{"winback"}, "from=2026-08-01&to=2026-12-24", "", 200},
		{"the report of all", "get", "/api/report/{name}", []string{"all"}, "", "", 200},
		{"the report of a site", "get", "/api/report/{name}", []string{"shop"}, "", "", 200},
		{"a list", "get", "/api/report/{name}/{list}", []string{"winback", "links"}, "n=1", "", 200},
		{"a list of hostile values", "get", "/api/report/{name}/{list}", []string{"shop", "pages"}, "to=2026-12-31", "", 200},
		{"the last page of a list", "get", "/api/report/{name}/{list}", []string{"shop", "terms"}, "after=1:shop:zzz", "", 200},

		{"no such campaign", "get", "/api/campaigns/{name}", []string{"autumn"}, "", "", 404},
		{"nothing to run", "post", "/api/campaigns/{name}/run", []string{"autumn"}, "", "", 404},
		{"no key", "post", "/api/campaigns/{name}/run", []string{"winback"}, "", `{"key": "a b"}`, 400},
		{"an unknown key of a run", "post", "/api/campaigns/{name}/run", []string{"winback"}, "", `{"at": "now"}`, 400},
		{"nothing to pause", "post", "/api/campaigns/{name}/pause", []string{"idle"}, "", "", 404},
		{"no such list", "get", "/api/report/{name}/{list}", []string{"winback", "users"}, "", "", 400},
		{"no such place", "get", "/api/report/{name}/{list}", []string{"winback", "links"}, "after=x", "", 400},
		{"no report of nobody", "get", "/api/report/{name}", []string{"autumn"}, "", "", 404},
		{"no report of a part of an _id", "get", "/api/report/{name}", []string{"winback.sent"}, "", "", 404},
		{"no date", "get", "/api/report/{name}", []string{"winback"}, "from=yesterday", "", 400},
		{"ten thousand years", "get", "/api/report/{name}", []string{"winback"}, "from=0001-01-01&to=9999-12-31", "", 400},
		{"an unknown key", "post", "/api/send", nil, "", `{"template": "winback", "user": "1", "to": "x"}`, 400},
		{"a key that was used", "post", "/api/send", nil, "", `{"template": "winback", "user": "1", "key": "k1"}`, 409},
		{"nobody to explain", "get", "/api/explain", nil, "campaign=winback&user=999", "", 404},
		{"nothing asked", "get", "/api/explain", nil, "", "", 400},
		{"no pixel for nobody", "post", "/api/pixels", nil, "", `{"campaign": "winback"}`, 400},
	} {
		t.Run(row.name, func(t *testing.T) {
			args := row.args
			path := described.ReplaceAllStringFunc(row.path, func(string) string { arg := args[0]; args = args[1:]; return arg })
			if row.query != "" {
				path += "?" + row.query
			}
			status, contentType, body := ask(row.method, path, row.body)
			if status != row.status {
				t.Errorf("status %d, want %d: %s", status, row.status, body)
			}
			if err := api.check(row.path, row.method, status, contentType, body); err != nil {
				t.Error(err)
			}
			if part := saidTwice(string(body)); row.status >= 400 && part != "" {
				t.Errorf("it says %q twice: %s", part, body)
			}
		})
	}
	for _, operation := range api.operations() {
		if !api.answered[operation] {
			t.Errorf("nobody looked at an answer of %s", operation)
		}
	}
}

// saidTwice is a part of an error that stands there twice: an error that was wrapped in one that says the same.
func saidTwice(text string) string {
	parts := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(`:"{}`+"\n", r) })
	for i := range parts {
		if parts[i] = strings.TrimSpace(parts[i]); parts[i] != "" && slices.Contains(parts[:i], parts[i]) {
			return parts[i]
		}
	}
	return ""
}

// TestTheDescriptionIsStrict makes sure that the check above can fail.
func TestTheDescriptionIsStrict(t *testing.T) {
	api := openOpenAPI(t)
	for _, row := range []struct {
		name, path, method, contentType string
		status                          int
		body                            string
	}{
		{"a key that is not described", "/api/campaigns/{name}", "get", "application/json", 404, `{"error": "no", "why": "so"}`},
		{"a key that is missing", "/api/pixels", "post", "application/json", 200, `{"campaign": "a", "user": "b", "url": "http://c"}`},
		{"another type", "/api/templates", "get", "application/json", 200, `{}`},
		{"no time", "/api/templates", "get", "application/json", 200, `[{"name": "a", "bitIndex": 1, "repeat": "never", "revision": 1, "retired_at": "yesterday"}]`},
		{"half a run", "/api/campaigns", "get", "application/json", 200, `[{"name": "a", "template": "a", "schedule": "by hand", "schedule_state": "active", "next_at": null, "run": "a@b",
			"spec": {"name": "a", "template": "a", "audience": {}, "rules": {}, "limits": {}, "expires_after": "1d", "misfire_grace": "1h"}}]`},
		{"a status that is not described", "/healthz", "get", "text/plain", 500, "ok\n"},
		{"a media type that is not described", "/api/templates", "get", "text/html", 200, "[]"},
		{"a path that is not described", "/api/users", "get", "application/json", 200, "[]"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if api.check(row.path, row.method, row.status, row.contentType, []byte(row.body)) == nil {
				t.Error("it passes")
			}
		})
	}
}
