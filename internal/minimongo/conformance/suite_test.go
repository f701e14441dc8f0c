package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/minimongo/mongotest"
)

// differs names the servers that a row is known to fail on, with the reason.
type differs map[string]string

const secantus = "secantus"

// serverOf tells by buildInfo who answers: minimongo, secantus, or mongodb.
func serverOf(t *testing.T, db *mongo.Database) string {
	t.Helper()
	info, err := db.RunCommand(context.Background(), bson.D{{Key: "buildInfo", Value: 1}}).Raw()
	if err != nil {
		t.Fatal(err)
	}
	if git, ok := info.Lookup("gitVersion").StringValueOK(); ok && git == "minimongo" {
		return "minimongo"
	}
	if _, err := info.LookupErr("secantusVersion"); err == nil {
		return secantus
	}
	return "mongodb"
}

// check runs one row as a subtest. The row returns what is wrong.
func check(t *testing.T, db *mongo.Database, name string, d differs, row func(c *mongo.Collection) error) {
	t.Run(name, func(t *testing.T) {
		server := serverOf(t, db)
		c := db.Collection("c" + strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return '_'
		}, strings.ToLower(name)))
		if err := c.Drop(context.Background()); err != nil {
			t.Fatal(err)
		}
		err := row(c)
		reason, known := d[server]
		switch {
		case err != nil && known:
			t.Skipf("%s is known to differ here: %s\n%v", server, reason, err)
		case err != nil:
			t.Error(err)
		case known:
			t.Errorf("%s does not differ here any more (%s): take the mark off", server, reason)
		}
	})
}

// doc reads Extended JSON.
func doc(s string) bson.D {
	var d bson.D
	if err := bson.UnmarshalExtJSON([]byte(s), false, &d); err != nil {
		panic(fmt.Sprintf("%s: %v", s, err))
	}
	return d
}

// load inserts documents; who has no _id gets his number in the list.
func load(c *mongo.Collection, docs ...string) error {
	var all []any
	for i, s := range docs {
		d := doc(s)
		if len(d) == 0 || d[0].Key != "_id" {
			d = append(bson.D{{Key: "_id", Value: i}}, d...)
		}
		all = append(all, d)
	}
	if len(all) == 0 {
		return nil
	}
	_, err := c.InsertMany(context.Background(), all)
	return err
}

// text prints a document as canonical Extended JSON, in which every type can be told from the others.
func text(raw any) string {
	b, err := bson.MarshalExtJSON(raw, true, false)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// same compares a document with Extended JSON, types, order of fields and all.
func same(got bson.Raw, want string) error {
	if d := cmp.Diff(text(doc(want)), text(got)); d != "" {
		return fmt.Errorf("document (-want +got):\n%s", d)
	}
	return nil
}

// codeOf is the code of a command's or a write's error; 0 for nil.
func codeOf(err error) int {
	if err == nil {
		return 0
	}
	var se mongo.ServerError
	if errors.As(err, &se) {
		if codes := se.ErrorCodes(); len(codes) > 0 {
			return codes[0]
		}
	}
	return -1
}

func wantCode(err error, code int, fragment string) error {
	if codeOf(err) != code {
		return fmt.Errorf("code %d, want %d: %w", codeOf(err), code, orNil(err))
	}
	if err != nil && !strings.Contains(err.Error(), fragment) {
		return fmt.Errorf("%q not in: %w", fragment, err)
	}
	return nil
}

func orNil(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

func all(c *mongo.Collection) ([]bson.Raw, error) {
	cur, err := c.Find(context.Background(), bson.D{})
	if err != nil {
		return nil, err
	}
	var out []bson.Raw
	return out, cur.All(context.Background(), &out)
}

func testDB(t *testing.T) *mongo.Database { return mongotest.DB(t) }

// TestDifferencesAreDocumented: docs/minimongo.md lists every mark in its own words.
func TestDifferencesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/minimongo.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, mark := range regexp.MustCompile(`secantus: "([a-z][^"]+)"`).FindAllStringSubmatch(string(source), -1) {
			if !strings.Contains(string(page), "- "+mark[1]+"\n") {
				t.Errorf("%s: %q is not in docs/minimongo.md", file, mark[1])
			}
		}
	}
}
