package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestBackfillFlags(t *testing.T) {
	s := newShell(t)
	s.external(t)
	s.write("sends.csv", "user,template\n1,welcome\n")
	for _, c := range []struct {
		name  string
		args  []string
		fault string
	}{
		{"no source", []string{"backfill"}, "say where the records are"},
		{"two sources", []string{"check", "--from", "sends.csv", "--array", "sent"}, "say where the records are"},
		{"columns of an array", []string{"backfill", "--array", "sent", "--user", "id"}, "--user has no meaning"},
		{"a query for a file", []string{"backfill", "--from", "sends.csv", "--where", "{}"}, "--where has no meaning"},
		{"a query that is none", []string{"backfill", "--collection", "sends", "--where", "{"}, "--where: not a query"},
		{"a file that is not there", []string{"backfill", "--from", "other.csv"}, "postbit: other.csv: no such file"},
		{"the bitfield as a source", []string{"backfill", "--array", "tpls_sent_at_least_once"}, "bits convert"},
		{"a column that is not there", []string{"backfill", "--from", "sends.csv", "--sent-at", "when"}, `sends.csv:1: there is no column "when"`},
		{"a template that is not there", []string{"backfill", "--from", "sends.csv", "--apply"}, "welcome (1)"},
		{"a list nobody can write", []string{"backfill", "--from", "sends.csv", "--missing", "no/such/dir"}, "--missing"},
		{"two things on standard output", []string{"backfill", "--from", "sends.csv", "--missing", "-", "--json"}, "standard output"},
		{"a negative limit", []string{"check", "--from", "sends.csv", "--limit=-1"}, "--limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.refuses(exitUsage, []string{c.fault}, append([]string{"bits"}, c.args...)...)
		})
	}
}

// From a collection, an array and a file, one after the other, as a team would.
func TestBackfillAndCheck(t *testing.T) {
	s := newShell(t)
	users := s.external(t)
	var docs []any
	for i := range 20 {
		docs = append(docs, bson.D{{Key: "_id", Value: i}, {Key: "email", Value: fmt.Sprintf("U%d@x.example", i)}, {Key: "mails", Value: bson.A{"welcome", 7}}})
	}
	if _, err := users.InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
	var log []any
	var csv strings.Builder
	csv.WriteString("who,template\nnobody@x.example,spring\n")
	for i := range 20 {
		log = append(log, bson.D{{Key: "u", Value: i}, {Key: "t", Value: "spring"}, {Key: "at", Value: s.clk.Now().AddDate(0, 0, -40)}})
		for _, name := range []string{"welcome", "spring", "7"} {
			fmt.Fprintf(&csv, "u%d@x.example,%s\n", i, name)
		}
	}
	if _, err := users.Database().Collection("sends").InsertMany(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	s.write("owned.json", `{"welcome": 0, "sale": 7, "spring": 12}`)
	s.write("sends.csv", csv.String())
	s.must("templates", "import", "owned.json")

	if out := s.must("bits", "backfill", "--array", "mails"); !strings.Contains(out, "to be changed") {
		t.Error(out)
	}
	if r := s.run("bits", "check", "--array", "mails"); r.code != exitNo || strings.Count(r.out, "lacks welcome, sale") != 20 {
		t.Errorf("a plan has written: %d %s", r.code, r.out)
	}
	s.must("bits", "backfill", "--array", "mails", "--apply")
	s.must("bits", "check", "--array", "mails")
	s.must("bits", "backfill", "--collection", "sends", "--user", "u", "--template", "t", "--sent-at", "at", "--apply")
	s.must("bits", "check", "--from", "sends.csv", "--user", "who", "--missing", "missing.txt")
	if text, err := os.ReadFile("missing.txt"); err != nil || string(text) != "nobody@x.example\n" {
		t.Errorf("%s %v", text, err)
	}
	if out := s.must("users", "show", "3", "--json"); !strings.Contains(out, `"last_at":"2026-10-`) {
		t.Error(out)
	}
	if _, err := users.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: 4}}, bson.D{{Key: "$set", Value: bson.D{{Key: "tpls_sent_at_least_once", Value: bson.Binary{Data: []byte{0xc1, 0}}}}}}); err != nil {
		t.Fatal(err)
	}
	r := s.run("bits", "check", "--from", "sends.csv", "--user", "who")
	if r.code != exitNo || r.out != "4: lacks spring; has beyond the source bit 1\n" {
		t.Errorf("%d %s", r.code, r.out)
	}
}
