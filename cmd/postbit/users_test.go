package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestReadSuppressions(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       []suppression
		fault      string
	}{
		{"csv", "user,reason\na@x.example,complained\n7\n", []suppression{{"a@x.example", "complained"}, {"7", "unsubscribed"}}, ""},
		{"csv without a header, with a mark", "\ufeffa@x.example\n# a remark\nstr:7, bounced\n", []suppression{{"a@x.example", "unsubscribed"}, {"str:7", "bounced"}}, ""},
		{"json lines", "{\"user\":\"7\",\"reason\":\"bounced\"}\n\n{\"user\":\"8\"}\n", []suppression{{"7", "bounced"}, {"8", "unsubscribed"}}, ""},
		{"nothing", "", nil, ""},
		{"an unknown reason", "a@x.example,bored\n", nil, "list:1: needs a user and a reason out of"},
		{"a line without a user", "a@x.example\n,bounced\n", nil, "list:2: needs a user"},
		{"an unknown key", `{"user":"7","why":"x"}`, nil, `list: line 1: json: unknown field "why"`},
		{"a quote that does not end", "\"a@x.example\n", nil, "list: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := readSuppressions("list", []byte(tc.text), "unsubscribed")
			if (err == nil) != (tc.fault == "") || err != nil && !strings.Contains(err.Error(), tc.fault) {
				t.Fatalf("got %v, want %q", err, tc.fault)
			}
			if diff := cmp.Diff(tc.want, got); err == nil && diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzReadSuppressions(f *testing.F) {
	f.Add([]byte("user,reason\na@x.example,complained\n"))
	f.Add([]byte(`{"user":"7","reason":"bounced"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := readSuppressions("list", data, "unsubscribed")
		for _, s := range list {
			if s.User == "" || s.Reason == "" {
				t.Errorf("%+v, %v", s, err)
			}
		}
	})
}

func TestSuppressAFile(t *testing.T) {
	s := newShell(t)
	users := s.external(t)
	if _, err := users.InsertMany(t.Context(), []any{bson.D{{Key: "_id", Value: 1}, {Key: "email", Value: "a@x.example"}}, bson.D{{Key: "_id", Value: 2}}}); err != nil {
		t.Fatal(err)
	}
	r := s.runWith("a@x.example,complained\n2\nnobody@x.example\n", "users", "suppress", "--from", "-", "--json")
	if r.code != exitNo || strings.TrimSpace(r.out) != `{"suppressed":2,"not_found":["nobody@x.example"]}` {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
	}
	before := s.must("users", "show", "1", "--json")
	if !strings.Contains(before, `"status":"complained"`) {
		t.Errorf("user 1: %s", before)
	}
	s.write("bad.csv", "1,unsubscribed\n2,bored\n")
	s.must("users", "unsuppress", "1")
	s.refuses(exitUsage, []string{"bad.csv:2"}, "users", "suppress", "--from", "bad.csv")
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
