package backfill

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/minimongo/mongotest"
)

func TestReadList(t *testing.T) {
	may := time.Date(2026, 5, 31, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, text string
		want       []Listed
		fault      string
	}{
		{"csv", "user,reason\na@x.example,complained\n7\n", []Listed{{2, "a@x.example", "complained", time.Time{}}, {3, "7", "unsubscribed", time.Time{}}}, ""},
		{"csv with columns of its own", "id;date;EMAIL;Reason\n1;2026-05-31;a@x.example;bounced\n", []Listed{{2, "a@x.example", "bounced", may}}, ""},
		{"csv without a header, with a mark", "\ufeffa@x.example\n# a remark\nstr:7, bounced,2026-05-31T02:00:00+02:00\n", []Listed{{1, "a@x.example", "unsubscribed", time.Time{}}, {3, "str:7", "bounced", may}}, ""},
		{"json lines", "{\"user\":\"7\",\"reason\":\"bounced\",\"date\":\"2026-05-31\"}\n\n{\"email\":\"a@x.example\",\"date\":1780185600000}\n", []Listed{{1, "7", "bounced", may}, {3, "a@x.example", "unsubscribed", may}}, ""},
		{"nothing", "", nil, ""},
		{"an unknown reason", "a@x.example,bored\n", nil, "list:1: needs a user and a reason out of"},
		{"a line without a user", "a@x.example\n,bounced\n", nil, "list:2: needs a user"},
		{"a user that can't be", "oid:7\n", nil, "list:1: names no user"},
		{"a date that is none", "7,bounced,soon\n", nil, "list:1: soon is no date"},
		{"a date to come", "7,bounced,2126-01-01\n", nil, "list:1: 2126-01-01 is no date"},
		{"an unknown key", `{"user":"7","why":"x"}`, nil, `list:1: unknown key "why"; there are user, email, reason, date`},
		{"a number for a user", `{"user":"7"}` + "\n" + `{"user":4}`, nil, "list:2: user: must be a string, not a number"},
		{"an address that is a list", `{"email":["a@x.example"]}`, nil, "list:1: email: must be a string, not an array"},
		{"a date of another kind", `{"user":"7","date":{"$date":0}}`, nil, "list:1: date: must be a string or a number"},
		{"a date that no number holds", `{"user":"7","date":1e999}`, nil, "list:1: date: the number 1e999 is out of range"},
		{"half a line", `{"user":"7",`, nil, "list:1: not JSON"},
		{"two objects", `{"user":"7"}{"user":"8"}`, nil, "list:1: more than one JSON value"},
		{"a quote that does not end", "\"a@x.example\n", nil, "list:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ReadList("list", strings.NewReader(c.text), "unsubscribed", now)
			if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
				t.Fatalf("got %v, want %q", err, c.fault)
			}
			if diff := cmp.Diff(c.want, got); err == nil && diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzReadList(f *testing.F) {
	f.Add([]byte("user,reason\na@x.example,complained\n"))
	f.Add([]byte("id;date;email\n1;2026-05-31;a@x.example\n"))
	f.Add([]byte(`{"user":"7","reason":"bounced","date":1e300}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := ReadList("list", strings.NewReader(string(data)), "unsubscribed", now)
		var fault *SourceError
		if err != nil && !errors.As(err, &fault) {
			t.Error(err)
		}
		for _, l := range list {
			if l.User == "" || l.Reason == "" || l.At.After(now) {
				t.Errorf("%+v, %v", l, err)
			}
		}
	})
}

func TestMarkUsers(t *testing.T) {
	f := open(t, mongotest.DB(t))
	f.insert(e("_id", 1, "email", "Ada@x.example"), e("_id", 2, "email", "ada@X.example"), e("_id", "7"), e("_id", 8, "postbit", "x"), e("_id", 9))
	list, err := ReadList("list", strings.NewReader("ada@x.example,bounced,2026-01-02\nADA@x.example,complained,2026-01-03\n2,complained,2026-01-01\n7\n8\nnobody@x.example\n99\n"), "unsubscribed", now)
	if err != nil {
		t.Fatal(err)
	}
	f.o.batch = 2
	for round, want := range []Marked{{Found: 3, Changed: 3, Missing: 2, Unmarked: 1}, {Found: 3, Missing: 2, Unmarked: 1}} {
		f.missing = nil
		res, err := MarkUsers(t.Context(), list, false, f.o)
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Unwritten) != 1 || res.Unwritten[0].User != "8" {
			t.Errorf("%+v", res.Unwritten)
		}
		res.Unwritten = nil
		if diff := cmp.Diff(&want, res); diff != "" {
			t.Errorf("round %d: %s", round, diff)
		}
		if diff := cmp.Diff([]string{"nobody@x.example", "99"}, f.missing); diff != "" {
			t.Error(diff)
		}
	}
	for id, want := range map[any]string{1: "complained 2026-01-03", 2: "complained 2026-01-01", "7": "unsubscribed 2026-11-30", 9: ""} {
		var doc struct {
			State struct {
				Status string    `bson:"status"`
				At     time.Time `bson:"status_at"`
			} `bson:"postbit"`
		}
		if err := f.coll.FindOne(t.Context(), bson.D{{Key: "_id", Value: id}}).Decode(&doc); err != nil {
			t.Fatal(err)
		}
		got := doc.State.Status
		if got != "" {
			got += " " + doc.State.At.Format(time.DateOnly)
		}
		if got != want {
			t.Errorf("%v: %s, want %s", id, got, want)
		}
	}
	res, err := MarkUsers(t.Context(), list, true, f.o)
	if err != nil || res.Changed != 3 {
		t.Errorf("%+v %v", res, err)
	}
	u, err := f.o.Users.Get(t.Context(), val(t, 1), nil, 0)
	if err != nil || u.Recipient.Suppressed || u.Status != "" {
		t.Errorf("%+v %v", u, err)
	}
}
