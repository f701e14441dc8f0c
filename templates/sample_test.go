package templates

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

var testNow = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)

var testLinks = Links{
	Pixel:       "https://t.example/o/abc.gif",
	Unsubscribe: "https://t.example/u/abc",
	Browser:     "https://t.example/b/abc",
	Click:       func(to string) string { return "https://t.example/c/abc?" + to },
	Now:         testNow,
}

// bodyOf is a template of that HTML.
func bodyOf(html string) *Template {
	return &Template{Name: "mail", Subject: "A subject", HTML: html, Track: true}
}

func compile(t testing.TB, tmpl *Template) *Compiled {
	t.Helper()
	c, err := tmpl.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func document(t testing.TB, v any) bson.Raw {
	t.Helper()
	raw, err := bson.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// fromJSON is the document of an Extended JSON text.
func fromJSON(t testing.TB, s string) bson.Raw {
	t.Helper()
	var d bson.D
	if err := bson.UnmarshalExtJSON([]byte(s), false, &d); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return document(t, d)
}

func render(t testing.TB, c *Compiled, user bson.Raw) Content {
	t.Helper()
	out, err := c.Render(user, testLinks)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sampleTemplates(t testing.TB) map[string]*Template {
	t.Helper()
	all, err := ReadDir("../examples/templates")
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]*Template{}
	for _, tmpl := range all {
		m[tmpl.Name] = tmpl
	}
	return m
}
