package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// What explain says to a user of every outcome stands in examples/explain: as a table and as JSON. POSTBIT_WRITE_DOCS=1 writes
// the files.
func TestExplainOfEveryOutcome(t *testing.T) {
	dir, err := filepath.Abs("../../examples/explain")
	if err != nil {
		t.Fatal(err)
	}
	s := newShell(t)
	users := s.external(t)
	stranger := bson.D{{Key: "_id", Value: 12}, {Key: "email", Value: "lea@post.example"}, {Key: "plan", Value: "pro"}}
	if _, err := users.InsertMany(t.Context(), append(people(s.clk.Now()), stranger)); err != nil {
		t.Fatal(err)
	}
	s.write("templates/winback.html", winbackHTML)
	s.must("templates", "push", "templates", "--adopt")
	yaml := strings.Replace(winbackYAML, "rules:", "rules:\n  inactive_after: 90d", 1)
	s.write("campaigns/winback.yaml", yaml)
	s.write("campaigns/flash.yaml", strings.Replace(yaml, "name: winback", "name: flash", 1)+"expires_after: 2h\n")
	s.must("campaigns", "apply", "campaigns")

	for _, tc := range []struct {
		name     string
		user     int
		campaign string
		decision string
		rule     string
	}{
		{"send", 1, "winback", "send", ""},
		{"address", 3, "winback", "skip", "address"},
		{"suppressed", 4, "winback", "skip", "suppressed"},
		{"suppressed-by-your-own-field", 5, "winback", "skip", "suppressed"},
		{"unreadable", 6, "winback", "skip", "unreadable"},
		{"already_sent", 7, "winback", "skip", "already_sent"},
		{"inactive", 8, "winback", "skip", "inactive"},
		{"min_gap", 9, "winback", "skip", "min_gap"},
		{"time_of_day", 10, "winback", "defer", "time_of_day"},
		{"expired", 10, "flash", "skip", "expired"},
		{"unknown-zone", 11, "winback", "send", ""},
		{"left", 12, "winback", "skip", "left"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := []string{"explain", "--campaign", tc.campaign, "--user", strconv.Itoa(tc.user)}
			asTable, asJSON := s.run(args...), s.run(append(args, "--json")...)
			var got struct {
				Decision string
				Rule     *string
			}
			s.decode(asJSON.out, &got)
			rule, code := "", exitDone
			if got.Rule != nil {
				rule = *got.Rule
			}
			if tc.decision != "send" {
				code = exitNo
			}
			if got.Decision != tc.decision || rule != tc.rule || asTable.code != code || asJSON.code != code {
				t.Errorf("got %s by %q with exit codes %d, %d; want %s by %q with %d", got.Decision, rule, asTable.code, asJSON.code, tc.decision, tc.rule, code)
			}
			var pretty bytes.Buffer
			if err := json.Indent(&pretty, []byte(asJSON.out), "", "  "); err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join(dir, tc.name+".txt"), asTable.out)
			golden(t, filepath.Join(dir, tc.name+".json"), pretty.String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if os.Getenv("POSTBIT_WRITE_DOCS") != "" {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is no longer what explain says (run with POSTBIT_WRITE_DOCS=1 to take it over):\n%s", filepath.Base(name), diff)
	}
}
