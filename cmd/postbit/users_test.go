package main

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestSuppressAFile(t *testing.T) {
	s := newShell(t)
	users := s.external(t)
	if _, err := users.InsertMany(t.Context(), []any{bson.D{{Key: "_id", Value: 1}, {Key: "email", Value: "a@x.example"}}, bson.D{{Key: "_id", Value: 2}}}); err != nil {
		t.Fatal(err)
	}
	r := s.runWith("a@x.example,complained\n2\nnobody@x.example\n", "users", "suppress", "--from", "-", "--json")
	if r.code != exitNo || strings.TrimSpace(r.out) != `{"suppressed":2,"changed":2,"refused":0,"missing":1,"not_found":["nobody@x.example"]}` {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
	}
	before := s.must("users", "show", "1", "--json")
	if !strings.Contains(before, `"status":"complained"`) {
		t.Errorf("user 1: %s", before)
	}
	s.write("bad.csv", "1,unsubscribed\n2,bored\n")
	s.must("users", "unsuppress", "1")
	s.refuses(exitUsage, []string{"bad.csv:2"}, "users", "suppress", "--from", "bad.csv")
	s.write("bad.jsonl", `{"user": "1"}`+"\n"+`{"user": 4}`+"\n")
	s.refuses(exitUsage, []string{"bad.jsonl:2: user: must be a string, not a number"}, "users", "suppress", "--from", "bad.jsonl")
	if after := s.must("users", "show", "1", "--json"); !strings.Contains(after, `"status":""`) {
		t.Errorf("something of a bad file was done: %s", after)
	}
}

func TestAnAnswerOfNo(t *testing.T) {
	s := newShell(t)
	users := s.external(t)
	if _, err := users.InsertMany(t.Context(), people(s.clk.Now())); err != nil {
		t.Fatal(err)
	}
	s.write("templates/winback.html", winbackHTML)
	s.write("templates/odd.html", strings.NewReplacer("name: winback", "name: odd", "bitIndex: 7", "bitIndex: 9", ".User.name", ".User.nmae").Replace(winbackHTML))
	s.must("templates", "push", "templates", "--adopt")
	for _, tc := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"sent", []string{"send", "winback", "1"}, exitDone, "sent"},
		{"skipped", []string{"send", "winback", "7"}, exitNo, "already_sent"},
		{"refused by the server", []string{"send", "winback", "2"}, exitFailed, "no such user here"},
		{"several by one email", []string{"users", "show", "ada@post.example"}, exitDone, "ada@post.example"},
		{"nobody", []string{"users", "show", "nobody@post.example"}, exitFailed, "no such user"},
		{"lint is content", []string{"templates", "lint", "templates"}, exitDone, ""},
		{"lint warns", []string{"templates", "lint", "templates", "--users", "5", "--strict"}, exitNo, "nmae"},
		{"doctor warns", []string{"doctor"}, exitNo, "a bitfield that can't be read"},
		{"no such campaign", []string{"campaigns", "show", "summer"}, exitFailed, "summer"},
		{"no such template", []string{"send", "summer", "1"}, exitFailed, "summer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := s.run(tc.args...)
			if r.code != tc.code || !strings.Contains(r.out+r.err, tc.says) {
				t.Errorf("exit code %d, want %d and %q\n%s%s", r.code, tc.code, tc.says, r.out, r.err)
			}
		})
	}
}
