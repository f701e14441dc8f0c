package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func env(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "postbit.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestWhoWins(t *testing.T) {
	file := writeFile(t, "listen: :1\nadmin_listen: :1\ndata_dir: one\n")
	c, err := Load(map[string]string{"listen": ":3"}, env(map[string]string{"POSTBIT_LISTEN": ":2", "POSTBIT_ADMIN_LISTEN": ":2", "POSTBIT_DATA_DIR": ""}), file)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{c.Listen, c.AdminListen, c.DataDir, c.Users.Collection}
	want := []string{":3", ":2", "one", "users"} // flag, environment, file (the variable is empty), default
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheDefaultsAreGoodValues(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := Load(nil, env(nil), "")
	if err != nil {
		t.Fatal(err)
	}
	if !c.Embedded || c.DefaultZone != time.UTC || c.Users.Bits != "tpls_sent_at_least_once" || c.MisfireGrace != time.Hour || c.HitsMemory != 7*24*time.Hour || c.Concurrency == 0 {
		t.Errorf("%+v", c)
	}
}

func TestAFileSetsEverything(t *testing.T) {
	file := writeFile(t, `
mongo_uri: mongodb://h/app
users:
  collection: people
  bits: sent.bits
  fields: {first_at: mail.first, open_last_at: mail.opened}
  suppressed_when: {unsubscribed: [true], state: [deleted, banned]}
  history_before: 2026-01-31
opens:
  sign_of_life: [human, proxy]
log: {level: debug, format: json}
default_zone: Europe/Berlin
retention: 52w
`)
	c, err := Load(nil, env(nil), file)
	if err != nil {
		t.Fatal(err)
	}
	want := Users{Collection: "people", Email: "email", Timezone: "timezone", Bits: "sent.bits", State: "postbit",
		FirstAt: "mail.first", OpenLastAt: "mail.opened",
		SuppressedWhen: map[string][]any{"unsubscribed": {true}, "state": {"deleted", "banned"}},
		HistoryBefore:  time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)}
	if diff := cmp.Diff(want, c.Users); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"human", "proxy"}, c.SignOfLife); diff != "" {
		t.Error(diff)
	}
	if c.LogLevel != slog.LevelDebug || c.DefaultZone.String() != "Europe/Berlin" || c.Retention != 364*24*time.Hour || c.Embedded {
		t.Errorf("%+v", c)
	}
}

func TestFaultsOfAFile(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"typo", "listne: :1", ":1: listne: unknown; listen?"},
		{"typo below", "users:\n  fields:\n    frist_at: x", ":3: users.fields.frist_at: unknown; first_at?"},
		{"nothing near", "colour: blue", ":1: colour: unknown"},
		{"twice", "listen: :1\nlisten: :2", ":2: listen: stands here twice"},
		{"a group without keys", "users: people", ":1: users must hold keys and values"},
		{"a list", "- listen", ":1: the file must hold keys and values"},
		{"no yaml", "listen: [", "postbit.yaml: line 1"},
		{"two documents", "listen: :1\n---\nlisten: :2", "more than one document"},
		{"bad value", "\nretention: 90x", `:2: retention: "90x" is no duration`},
		{"a memory of hits that forgets within the day", "hits: {memory: 23h}", ":1: hits.memory: 23h is too short; at least 1d"},
		{"a memory of hits without end", "hits: {memory: 600w}", ":1: hits.memory: 600w is too long; at most 3650d"},
		{"bad zone", "default_zone: Mars/Base", ":1: default_zone: \"Mars/Base\" is no IANA zone"},
		{"suppressed by a text", "users: {suppressed_when: {state: banned}}", ":1: users.suppressed_when: state: is no list"},
		{"kind", "opens: {sign_of_life: [humna]}", "\"humna\" is no kind of open; human, proxy, prefetch, machine; human?"},
		{"field path", "users: {bits: $where}", `users.bits: "$where" is no field`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Load(nil, env(nil), writeFile(t, tc.text))
			var faults *Error
			if !errors.As(err, &faults) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got  %v\nwant …%s…", err, tc.want)
			}
		})
	}
}

func TestEveryFaultIsNamedAtOnce(t *testing.T) {
	_, err := Load(map[string]string{"connections": "99"}, env(map[string]string{"POSTBIT_LISTEN": "here", "POSTBIT_MAIL_EHLO": "a b"}), writeFile(t, "mail: {ehol: x}"))
	for _, want := range []string{"mail.ehol: unknown; ehlo?", `POSTBIT_MAIL_EHLO: "a b" is no name; it has a space`, `POSTBIT_LISTEN: "here" is no address to listen on`, `--connections: "99" is not a number from 1 to 32`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

func TestAFileThatIsNoneOfOursGivesAShortText(t *testing.T) {
	_, err := Load(nil, env(nil), writeFile(t, "listen: :1\n"+strings.Repeat("listen: :2\n", 10_000)))
	var faults *Error
	if !errors.As(err, &faults) || len(faults.Faults) != 10_000 {
		t.Fatalf("%.200v", err)
	}
	lines := strings.Split(err.Error(), "\n")
	if n := len(lines); n != 21 || !strings.HasSuffix(lines[0], ":2: listen: stands here twice") || lines[n-1] != "and 9,980 more" {
		t.Errorf("%d lines: %s … %s", n, lines[0], lines[n-1])
	}
}

func TestANamedFileMustBeThere(t *testing.T) {
	if _, err := Load(nil, env(nil), filepath.Join(t.TempDir(), "none.yaml")); err == nil {
		t.Error("no error")
	}
}

func TestEmbeddedIsAllOrNothing(t *testing.T) {
	const smtp = "POSTBIT_SMTP_URL is not set, but POSTBIT_MONGO_URI is: mails would be marked as sent and reach nobody. Set it, or say outbox:DIR on purpose"
	all := Needs{Mongo: true, Redis: true, SMTP: true, Links: true}
	for _, tc := range []struct {
		name  string
		vars  map[string]string
		needs Needs
		want  []string
	}{
		{"nothing set", nil, all, nil},
		{"secret and address alone change nothing", map[string]string{"POSTBIT_SECRET": "k:x", "POSTBIT_PUBLIC_URL": "http://h"}, all, nil},
		{"mongo alone", map[string]string{"POSTBIT_MONGO_URI": "mongodb://h"}, all, []string{"POSTBIT_REDIS_URI is not set, but POSTBIT_MONGO_URI is:", smtp, "POSTBIT_PUBLIC_URL is not set", "POSTBIT_SECRET is not set"}},
		{"mongo alone is enough to look", map[string]string{"POSTBIT_MONGO_URI": "mongodb://h"}, Needs{Mongo: true}, nil},
		{"redis alone", map[string]string{"POSTBIT_REDIS_URI": "redis://h"}, Needs{Mongo: true}, []string{"POSTBIT_MONGO_URI is not set, but POSTBIT_REDIS_URI is:"}},
		{"smtp alone", map[string]string{"POSTBIT_SMTP_URL": "smtp://h"}, Needs{Mongo: true, SMTP: true}, []string{"POSTBIT_MONGO_URI is not set, but POSTBIT_SMTP_URL is:"}},
		{"an outbox on purpose", map[string]string{"POSTBIT_MONGO_URI": "mongodb://h", "POSTBIT_REDIS_URI": "redis://h", "POSTBIT_SMTP_URL": "outbox:out", "POSTBIT_SECRET": "k:x", "POSTBIT_PUBLIC_URL": "http://h"}, all, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			c, err := Load(nil, env(tc.vars), "")
			if err != nil {
				t.Fatal(err)
			}
			err = c.Require(tc.needs)
			if len(tc.want) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var faults *Error
			if !errors.As(err, &faults) || len(faults.Faults) != len(tc.want) {
				t.Fatalf("got %v, want %d faults", err, len(tc.want))
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in: %v", want, err)
				}
			}
		})
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	const pw = "pa55/w@rd"
	vars := map[string]string{
		"POSTBIT_MONGO_URI":   "mongodb://app:" + pw + "@h1:27017,h2:27017/db?authSource=" + pw,
		"POSTBIT_REDIS_URI":   "redis://:" + strings.ReplaceAll(strings.ReplaceAll(pw, "/", "%2F"), "@", "%40") + "@h:6379/1",
		"POSTBIT_SMTP_URL":    "smtp://u:" + pw + "@mail:587",
		"POSTBIT_SECRET":      "k1:" + pw,
		"POSTBIT_ADMIN_TOKEN": pw,
	}
	c, err := Load(nil, env(vars), writeFile(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "mongo", c.MongoURI, "secret", c.Secret, "all", c)
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	hidden := struct{ c any }{*c} // fmt calls no methods through an unexported field
	for _, text := range []string{logged.String(), string(asJSON), fmt.Sprintf("%v %+v %#v %s %q %x", c, *c, *c, c.MongoURI, c.Secret, c.AdminToken), fmt.Sprintf("%+v %#v", hidden, hidden), fmt.Sprint(c.RedisURI)} {
		if strings.Contains(text, pw) || strings.Contains(text, fmt.Sprintf("%x", pw)) || strings.Contains(text, "pa55") {
			t.Errorf("a secret in %s", text)
		}
	}
	if got, want := c.MongoURI.String(), "mongodb://[redacted]@h1:27017,h2:27017/db?…"; got != want && !strings.HasPrefix(got, "mongodb://[redacted]@") {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := c.Scrub("dial " + vars["POSTBIT_SMTP_URL"] + ": no auth with " + pw); strings.Contains(got, pw) {
		t.Errorf("not scrubbed: %s", got)
	}
}

func TestAFaultySecretIsNotRepeated(t *testing.T) {
	vars := map[string]string{"POSTBIT_MONGO_URI": "mongo://app:hunter2@h", "POSTBIT_REDIS_URI": "redis://:hunter2@h:port", "POSTBIT_SMTP_URL": "mail://u:hunter2@h"}
	_, err := Load(nil, env(vars), writeFile(t, ""))
	var faults *Error
	if !errors.As(err, &faults) || len(faults.Faults) != 3 {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

func TestNamesOfASetting(t *testing.T) {
	s := lookup("users.state_field")
	if s.Env() != "POSTBIT_USERS_STATE_FIELD" || s.Flag() != "--users-state-field" {
		t.Error(s.Env(), s.Flag())
	}
	flags := map[string]string{}
	for i := range Settings {
		if other, ok := flags[Settings[i].Flag()]; ok {
			t.Errorf("%s and %s share a flag", other, Settings[i].Key)
		}
		flags[Settings[i].Flag()] = Settings[i].Key
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add([]byte("users: {fields: {first_at: a.b}}\nlisten: :1\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("users: &u {fields: *u}\n"))
	f.Add([]byte("? [a]\n: b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		values, err := parseFile("f", data)
		for key := range values {
			if !isSetting(key) {
				t.Errorf("%q is no setting", key)
			}
		}
		if err != nil && err.Error() == "" {
			t.Error("an error without a text")
		}
	})
}
