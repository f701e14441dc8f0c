package backfill

import (
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/users"
)

func file(text string) *File {
	return &File{Name: "log", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil },
		Columns: Columns{User: "user", Template: "template"}, Optional: Columns{SentAt: "sent_at", OpenedAt: "opened_at"}}
}

// shown is a row as a test writes it down.
func shown(row *Row) string {
	var out []string
	for _, v := range []bson.RawValue{row.User, row.Template, row.SentAt, row.OpenedAt} {
		if v.Type == 0 {
			out = append(out, "-")
			continue
		}
		out = append(out, v.String())
	}
	return strings.Join(out, " ")
}

func TestFile(t *testing.T) {
	for _, c := range []struct {
		name, text string
		change     func(*File)
		want       []string
		fault      string
	}{
		{"csv", "user,template,sent_at\n7,welcome,2026-01-01\n", nil, []string{`"7" "welcome" "2026-01-01" -`}, ""},
		{"columns in any order, others beside them", "x,Template, User \nq,welcome,7\n", nil, []string{`"7" "welcome" - -`}, ""},
		{"semicolons and a mark", "\ufeffuser;template\n7;a,b\n", nil, []string{`"7" "a,b" - -`}, ""},
		{"tabs, quotes, an empty line", "user\ttemplate\n\n\"7\"\t\"a\nb\"\n", nil, []string{`"7" "a\nb" - -`}, ""},
		{"an empty field between tabs", "user\ttemplate\tsent_at\topened_at\n7\twelcome\t\t2026-01-02\n", nil, []string{`"7" "welcome" "" "2026-01-02"`}, ""},
		{"a short record", "user,template\n7\n", nil, []string{`"7" - - -`}, ""},
		{"no header", "7,welcome\n8,sale\n", func(f *File) { f.NoHeader, f.Columns, f.Optional = true, Columns{User: "1", Template: "2"}, Columns{} }, []string{`"7" "welcome" - -`, `"8" "sale" - -`}, ""},
		{"no header and no such column", "7,welcome\n", func(f *File) { f.NoHeader, f.Columns, f.Optional = true, Columns{User: "3", Template: "2"}, Columns{} }, nil, `log:1: there is no column "3"`},
		{"no such column", "user,mail\n7,welcome\n", nil, nil, `log:1: there is no column "template"; the header has user, mail`},
		{"a column that was asked for", "user,template\n7,welcome\n", func(f *File) { f.Columns.SentAt = "at" }, nil, `there is no column "at"`},
		{"a quote that does not end", "user,template\n7,\"welcome\n", nil, nil, "log:"},
		{"nothing", "", nil, nil, ""},
		{"json lines", `{"user":7,"template":"welcome","sent_at":{"$date":"2026-01-01T00:00:00Z"}}` + "\n\n" + `{"user":{"$oid":"665544332211009988776655"},"template":3}`, nil,
			[]string{`{"$numberInt":"7"} "welcome" {"$date":{"$numberLong":"1767225600000"}} -`, `{"$oid":"665544332211009988776655"} {"$numberInt":"3"} - -`}, ""},
		{"json, a path", `{"user":{"id":7},"mail":{"name":"welcome"}}`, func(f *File) { f.Columns = Columns{User: "user.id", Template: "mail.name"} }, []string{`{"$numberInt":"7"} "welcome" - -`}, ""},
		{"json that breaks off", `{"user":7,"template":"welcome"}` + "\n" + `{"user":7,`, nil, []string{`{"$numberInt":"7"} "welcome" - -`}, "log:2: not a JSON object"},
		{"an ObjectId that is none", `{"mail":1,"user":{"$oid":"zz"}}`, nil, nil, "log:1: user: not Extended JSON: the provided hex string is not a valid ObjectID"},
		{"a number that is none", `{"user":{"$numberLong":"seven"}}`, nil, nil, `log:1: user: not Extended JSON: "seven" is no number`},
		{"two objects on a line", `{"user":7}{"user":8}`, nil, nil, "log:1: not a JSON object"},
		{"a line that is no object", `{"user":7}` + "\n17\n", nil, []string{`{"$numberInt":"7"} - - -`}, "log:2: not a JSON object"},
		{"a JSON array", "[\n{}]", nil, nil, "one object on each line"},
		{"a line of megabytes", `{"user":"` + strings.Repeat("x", maxLine) + `"}`, nil, nil, "log:1: a line of more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := file(c.text)
			if c.change != nil {
				c.change(f)
			}
			var got []string
			err := f.Rows(t.Context(), func(row *Row) error {
				got = append(got, shown(row))
				return nil
			})
			var fault *SourceError
			if (err == nil) != (c.fault == "") || err != nil && (!strings.Contains(err.Error(), c.fault) || !errors.As(err, &fault)) {
				t.Fatalf("%v, want %q", err, c.fault)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func val(t testing.TB, v any) bson.RawValue {
	t.Helper()
	typ, data, err := bson.MarshalValue(v)
	if err != nil {
		t.Fatal(err)
	}
	return bson.RawValue{Type: typ, Value: data}
}

func TestDates(t *testing.T) {
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	at := time.Date(2024, 2, 29, 12, 30, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		v    any
		want time.Time // zero: none
		bad  bool
	}{
		{"a date", at, at, false},
		{"RFC 3339", "2024-02-29T13:30:00+01:00", at, false},
		{"without a zone it is UTC", "2024-02-29 12:30:00", at, false},
		{"as Go prints it", "2024-02-29 12:30:00 +0000 UTC", at, false},
		{"a day", "2024-02-29", at.Truncate(24 * time.Hour), false},
		{"of a mail", "Thu, 29 Feb 2024 12:30:00 GMT", at, false},
		{"seconds", at.Unix(), at, false},
		{"milliseconds as text", "1709209800000", at, false},
		{"a timestamp", bson.Timestamp{T: uint32(at.Unix())}, at, false},
		{"empty", " ", time.Time{}, false},
		{"null", nil, time.Time{}, false},
		{"zero", 0, time.Time{}, true},
		{"the epoch", time.Unix(0, 0), time.Time{}, true},
		{"Go's zero time", time.Time{}, time.Time{}, true},
		{"tomorrow", now.Add(24 * time.Hour), time.Time{}, true},
		{"NaN", math.NaN(), time.Time{}, true},
		{"infinite", math.Inf(1), time.Time{}, true},
		{"NaN as text", "NaN", time.Time{}, true},
		{"yesterday as text", "yesterday", time.Time{}, true},
		{"30 February", "2024-02-30", time.Time{}, true},
		{"an abbreviation of a zone", "2024-02-29 12:30:00 CET", time.Time{}, true},
		{"an array", bson.A{at}, time.Time{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := bson.RawValue{Type: bson.TypeNull}
			if c.v != nil {
				v = val(t, c.v)
			}
			ms, ok := dateOf(v, now.UnixMilli())
			if ok == c.bad || ok && (ms != 0) == c.want.IsZero() || ok && ms != 0 && ms != c.want.UnixMilli() {
				t.Errorf("%d %v", ms, ok)
			}
		})
	}
}

func TestIdentify(t *testing.T) {
	oid := "665544332211009988776655"
	for _, c := range []struct {
		name string
		v    any
		kind string
		want string // ids to look for, or an email
		bad  bool
	}{
		{"an email in any case", " Ada@Example.COM ", "auto", "email ada@example.com", false},
		{"hex is an ObjectId, then a string", oid, "auto", oid + " str:" + oid, false},
		{"upper hex has no second meaning", strings.ToUpper("a" + oid[1:]), "auto", "a" + oid[1:], false},
		{"digits are a number, then a string", "17", "auto", "17 str:17", false},
		{"zeros before them make a string", "017", "auto", "str:017", false},
		{"a string", "ada", "auto", "ada", false},
		{"forced", "str:17", "auto", "str:17", false},
		{"forced and wrong", "oid:17", "auto", "", true},
		{"by the kind", "17", "str", "str:17", false},
		{"int, and it is none", "x", "int", "", true},
		{"a uuid", "00112233-4455-6677-8899-aabbccddeeff", "uuid", "uuid:00112233-4455-6677-8899-aabbccddeeff", false},
		{"an int32", int32(17), "auto", "17", false},
		{"a double", 17.0, "auto", "17", false},
		{"negative", -17, "auto", "-17", false},
		{"an array", bson.A{1}, "auto", "", true},
		{"empty", "", "auto", "", true},
		{"huge", strings.Repeat("x", 5000), "auto", "", true},
		{"no email", "ada", "email", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			who, err := identify(val(t, c.v), c.kind, nil)
			if c.bad {
				if !errors.Is(err, errNoUser) {
					t.Errorf("%+v %v", who, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := "email " + string(who.email)
			if who.email == nil {
				id, otherwise := idsOf(who.key, who.text)
				got = strings.TrimSpace(users.FormatID(id) + " " + users.FormatID(otherwise))
			}
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestNames(t *testing.T) {
	n, err := NewNames(map[string]int{"welcome": 0, "7": 3, "sale": 7, "last": 4095})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		v    any
		want int // -1: none
	}{
		{"a name", "welcome", 0}, {"spaces around it", " welcome ", 0}, {"a name that is a number", "7", 3}, {"a number", 7, 7}, {"a double", 7.0, 7},
		{"a number as text", "4095", 4095}, {"a number nobody owns", 8, -1}, {"too big", 4096, -1}, {"negative", -1, -1}, {"a fraction", 7.5, -1},
		{"NaN", math.NaN(), -1}, {"huge", 1e300, -1}, {"an int64 that wraps", int64(1)<<32 + 7, -1}, {"another name", "Welcome", -1}, {"a document", bson.D{}, -1}, {"empty", "", -1},
	} {
		bit, ok := n.bit(val(t, c.v))
		if ok != (c.want >= 0) || ok && bit != c.want {
			t.Errorf("%s: %d %v, want %d", c.name, bit, ok, c.want)
		}
	}
	if _, err := NewNames(map[string]int{"x": 4096}); err == nil {
		t.Error("an index out of range")
	}
}

// Whatever a file holds, reading it ends with rows or with an error that says where, and never with a row that the rest can't take.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		"user,template,sent_at\n7,welcome,2026-01-01\n", "user;template\n7;\"a\nb\"\n", `{"user":7,"template":"welcome","sent_at":{"$date":"2026-01-01T00:00:00Z"}}`,
		"{\"user\":{\"$numberDouble\":\"NaN\"},\"template\":[1,2]}\n{}", "\ufeffuser\ttemplate\n\xff\t\x00\n", `{"a":{"$binary":{"base64":"AA==","subType":"02"}},"user":{"$oid":"x"}}`,
	} {
		f.Add([]byte(seed))
	}
	names, err := NewNames(map[string]int{"welcome": 0, "sale": 7})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := file(string(data))
		err := s.Rows(t.Context(), func(row *Row) error {
			_ = label(row.Template)
			_, _ = names.bit(row.Template)
			if ms, ok := dateOf(row.SentAt, 1e13); ok && ms != 0 && ms < earliest {
				t.Errorf("date %d", ms)
			}
			if who, err := identify(row.User, "auto", nil); err == nil && who.email == nil {
				id, _ := idsOf(who.key, who.text)
				if err := id.Validate(); err != nil && row.User.Validate() == nil {
					t.Errorf("%x is no id: %v", who.key, err)
				}
			}
			return nil
		})
		var fault *SourceError
		if err != nil && !errors.As(err, &fault) {
			t.Error(err)
		}
	})
}
