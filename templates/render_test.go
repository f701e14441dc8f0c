package templates

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Every row is a piece of a body, a user, and what comes out of it as HTML and as text.
func TestRender(t *testing.T) {
	for _, c := range []struct {
		name, body, user, want, text string
	}{
		{"a field", `<p>{{ .User.name }}</p>`, `{"name": "Zoë"}`, `<p>Zoë</p>`, "Zoë"},
		{"a nested one", `<p>{{ .User.address.city }}</p>`, `{"address": {"city": "Lisbon"}}`, `<p>Lisbon</p>`, "Lisbon"},
		{"missing", `<p>[{{ .User.name }}]</p>`, `{}`, `<p>[]</p>`, "[]"},
		{"missing below a missing one", `<p>[{{ .User.a.b.c }}]</p>`, `{}`, `<p>[]</p>`, "[]"},
		{"below null", `<p>[{{ .User.a.b }}]</p>`, `{"a": null}`, `<p>[]</p>`, "[]"},
		{"below text", `<p>[{{ .User.a.b }}]</p>`, `{"a": "x"}`, `<p>[]</p>`, "[]"},
		{"below a list", `<p>[{{ .User.a.b }}]</p>`, `{"a": [{"b": 1}]}`, `<p>[]</p>`, "[]"},
		{"null", `<p>[{{ .User.a }}]</p>`, `{"a": null}`, `<p>[]</p>`, "[]"},
		{"a whole number", `<p>{{ .User.n }}</p>`, `{"n": 42}`, `<p>42</p>`, "42"},
		{"a large one that Node.js wrote as a double", `<p>{{ .User.n }}</p>`, `{"n": 12345678901.0}`, `<p>12345678901</p>`, "12345678901"},
		{"a fraction", `<p>{{ .User.n }}</p>`, `{"n": 1234567.25}`, `<p>1234567.25</p>`, "1234567.25"},
		{"a decimal", `<p>{{ .User.n }}</p>`, `{"n": {"$numberDecimal": "12.50"}}`, `<p>12.50</p>`, "12.50"},
		{"NaN", `<p>[{{ .User.n }}]</p>`, `{"n": {"$numberDouble": "NaN"}}`, `<p>[]</p>`, "[]"},
		{"a truth", `<p>{{ .User.b }}</p>`, `{"b": true}`, `<p>true</p>`, "true"},
		{"an ObjectID", `<p>{{ .User.o }}</p>`, `{"o": {"$oid": "507f1f77bcf86cd799439011"}}`, `<p>507f1f77bcf86cd799439011</p>`, "507f1f77bcf86cd799439011"},
		{"a UUID", `<p>{{ .User.u }}</p>`, `{"u": {"$uuid": "c8edabc3-f738-4ca3-b68d-ab92a91478a3"}}`, `<p>c8edabc3-f738-4ca3-b68d-ab92a91478a3</p>`, "c8edabc3-f738-4ca3-b68d-ab92a91478a3"},
		{"other bytes", `<p>[{{ .User.u }}]</p>`, `{"u": {"$binary": {"base64": "AAEC", "subType": "00"}}}`, `<p>[]</p>`, "[]"},
		{"a regular expression", `<p>[{{ .User.u }}]</p>`, `{"u": {"$regularExpression": {"pattern": "x", "options": ""}}}`, `<p>[]</p>`, "[]"},
		{"a list", `<p>{{ .User.l }}</p>`, `{"l": ["a", 2, null, "c"]}`, `<p>a, 2, c</p>`, "a, 2, c"},
		{"a document", `<p>[{{ .User.d }}]</p>`, `{"d": {"a": 1}}`, `<p>[]</p>`, "[]"},
		{"a day", `<p>{{ .User.d }}</p>`, `{"d": {"$date": "2026-05-03T00:00:00Z"}}`, `<p>2026-05-03</p>`, "2026-05-03"},
		{"a time", `<p>{{ .User.d }}</p>`, `{"d": {"$date": "2026-05-03T04:05:06Z"}}`, `<p>2026-05-03 04:05</p>`, "2026-05-03 04:05"},

		{"markup in a value", `<p>{{ .User.name }}</p>`, `{"name": "<script>alert(1)</script>"}`, `<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>`, "<script>alert(1)</script>"},
		{"quotes in an attribute", `<img alt="{{ .User.name }}" src="x">`, `{"name": "\" onerror=\"x"}`, `<img alt="&#34; onerror=&#34;x" src="x">`, `" onerror="x`},
		{"a script as a link", `<a href="{{ .User.url }}">go</a>`, `{"url": "javascript:alert(1)"}`, `<a href="#ZgotmplZ">go</a>`, "go"},
		{"a value within a link", `<a href="https://x.example/?q={{ .User.q }}">go</a>`, `{"q": "a&b=c d"}`, `<a href="https://x.example/?q=a%26b%3dc%20d">go</a>`, "go <https://x.example/?q=a%26b%3dc%20d>"},
		{"invalid UTF-8 and control characters", `<p>{{ .User.name }}</p>`, "", "<p>a\uFFFDbc</p>", "a\uFFFDbc"},

		{"default, missing", `<p>{{ .User.name | default "friend" }}</p>`, `{}`, `<p>friend</p>`, "friend"},
		{"default, blank", `<p>{{ default "friend" .User.name }}</p>`, `{"name": "  "}`, `<p>friend</p>`, "friend"},
		{"default, there", `<p>{{ default "friend" .User.name }}</p>`, `{"name": "Zoë"}`, `<p>Zoë</p>`, "Zoë"},
		{"default, zero is a value", `<p>{{ default "none" .User.n }}</p>`, `{"n": 0}`, `<p>0</p>`, "0"},
		{"default of a default", `<p>{{ .User.a | default .User.b | default "c" }}</p>`, `{"b": "B"}`, `<p>B</p>`, "B"},
		{"default, escaped", `<p>{{ .User.a | default "<b>" }}</p>`, `{}`, `<p>&lt;b&gt;</p>`, "<b>"},

		{"if", `<p>{{ if .User.vip }}yes{{ else }}no{{ end }}</p>`, `{"vip": true}`, `<p>yes</p>`, "yes"},
		{"if, missing", `<p>{{ if .User.vip }}yes{{ else }}no{{ end }}</p>`, `{}`, `<p>no</p>`, "no"},
		{"if, a decimal zero", `<p>{{ if .User.n }}yes{{ else }}no{{ end }}</p>`, `{"n": {"$numberDecimal": "0.00"}}`, `<p>no</p>`, "no"},
		{"else if", `<p>{{ if eq .User.plan "a" }}A{{ else if eq .User.plan "b" "c" }}BC{{ else }}?{{ end }}</p>`, `{"plan": "c"}`, `<p>BC</p>`, "BC"},
		{"eq of other kinds", `<p>{{ if eq .User.n 3 }}yes{{ else }}no{{ end }}</p>`, `{"n": "3"}`, `<p>no</p>`, "no"},
		{"eq of numbers", `<p>{{ if eq .User.n 3 }}yes{{ else }}no{{ end }}</p>`, `{"n": 3.0}`, `<p>yes</p>`, "yes"},
		{"lt of a missing one", `<p>{{ if lt .User.n 3 }}yes{{ else }}no{{ end }}</p>`, `{}`, `<p>no</p>`, "no"},
		{"gt of a decimal", `<p>{{ if gt .User.n 12.4 }}yes{{ else }}no{{ end }}</p>`, `{"n": {"$numberDecimal": "12.50"}}`, `<p>yes</p>`, "yes"},
		{"dates in order", `<p>{{ if lt .User.a .User.b }}yes{{ end }}</p>`, `{"a": {"$date": "2026-01-01T00:00:00Z"}, "b": {"$date": "2026-01-02T00:00:01Z"}}`, `<p>yes</p>`, "yes"},
		{"and, or, not", `<p>{{ if and .User.a (or .User.b (not .User.c)) }}yes{{ end }}</p>`, `{"a": 1}`, `<p>yes</p>`, "yes"},
		{"with", `<p>{{ with .User.address }}{{ .city }}, {{ .zip }}{{ end }}</p>`, `{"address": {"city": "Lisbon", "zip": 1100}}`, `<p>Lisbon, 1100</p>`, "Lisbon, 1100"},
		{"with, none of the fields", `<p>{{ with .User.address }}[{{ .city }}]{{ else }}none{{ end }}</p>`, `{"address": {"zip": 1100}}`, `<p>[]</p>`, "[]"},
		{"with, missing", `<p>{{ with .User.address }}[{{ .city }}]{{ else }}none{{ end }}</p>`, `{}`, `<p>none</p>`, "none"},
		{"with a value", `<p>{{ with .User.name }}Hi {{ . }}{{ end }}</p>`, `{"name": "Zoë"}`, `<p>Hi Zoë</p>`, "Hi Zoë"},
		{"with the user", `<p>{{ with .User }}{{ .name }}{{ end }}</p>`, `{"name": "Zoë"}`, `<p>Zoë</p>`, "Zoë"},
		{"range", `<p>{{ range $i, $x := .User.items }}{{ if $i }}, {{ end }}{{ $x.title }}{{ end }}</p>`, `{"items": [{"title": "a"}, {"title": "b", "z": 1}]}`, `<p>a, b</p>`, "a, b"},
		{"range over values", `<p>{{ range .User.tags }}#{{ . }} {{ end }}</p>`, `{"tags": ["a", "b"]}`, `<p>#a #b </p>`, "#a #b"},
		{"range, else", `<p>{{ range .User.tags }}x{{ else }}none{{ end }}</p>`, `{"tags": []}`, `<p>none</p>`, "none"},
		{"range over a number", `<p>{{ range .User.n }}x{{ else }}none{{ end }}</p>`, `{"n": 1000000000}`, `<p>none</p>`, "none"},
		{"range over text", `<p>{{ range .User.n }}x{{ else }}none{{ end }}</p>`, `{"n": "abc"}`, `<p>none</p>`, "none"},
		{"range over a document", `<p>{{ range $k, $v := .User.d }}{{ $k }}={{ $v }};{{ end }}</p>`, `{"d": {"b": 2, "a": 1}}`, `<p>a=1;b=2;</p>`, "a=1;b=2;"},
		{"range, of all kinds", `<p>{{ range .User.items }}[{{ .title }}]{{ end }}</p>`, `{"items": [{"title": "a"}, "x", null, 3, {"title": {"b": 1}}]}`, `<p>[a][]</p>`, "[a][]"},
		{"break and continue", `<p>{{ range .User.l }}{{ if eq . 2 }}{{ continue }}{{ end }}{{ if eq . 4 }}{{ break }}{{ end }}{{ . }}{{ end }}</p>`, `{"l": [1, 2, 3, 4, 5]}`, `<p>13</p>`, "13"},
		{"a range within a range", `<p>{{ range .User.a }}{{ range .b }}{{ . }}{{ end }};{{ end }}</p>`, `{"a": [{"b": [1, 2]}, {"b": [3]}]}`, `<p>12;3;</p>`, "12;3;"},
		{"a variable that changes", `<p>{{ $x := .User.a }}{{ range .User.l }}{{ $x }}{{ $x = . }}{{ end }}{{ $x }}</p>`, `{"a": "A", "l": [1, 2]}`, `<p>A12</p>`, "A12"},
		{"a variable in a block only", `<p>{{ $x := "out" }}{{ if .User.a }}{{ $x := "in" }}{{ $x }}{{ end }}{{ $x }}</p>`, `{"a": 1}`, `<p>inout</p>`, "inout"},
		{"$ within a range", `<p>{{ range .User.l }}{{ $.User.name }}{{ . }} {{ end }}</p>`, `{"l": [1, 2], "name": "Z"}`, `<p>Z1 Z2 </p>`, "Z1 Z2"},

		{"index by name", `<p>{{ index .User "first-name" }}</p>`, `{"first-name": "Zoë"}`, `<p>Zoë</p>`, "Zoë"},
		{"index by number", `<p>{{ index .User.l 1 }}[{{ index .User.l 9 }}]</p>`, `{"l": ["a", "b"]}`, `<p>b[]</p>`, "b[]"},
		{"a field of an element", `<p>{{ (index .User.l 0).title }}</p>`, `{"l": [{"title": "a"}]}`, `<p>a</p>`, "a"},
		{"len", `<p>{{ len .User.l }} {{ len .User.name }} {{ len .User.x }}</p>`, `{"l": [1, 2], "name": "Zoë"}`, `<p>2 3 0</p>`, "2 3 0"},
		{"slice", `<p>{{ slice .User.name 0 2 }}{{ slice .User.name 9 }}</p>`, `{"name": "Zoë"}`, `<p>Zo</p>`, "Zo"},
		{"printf", `<p>{{ printf "%.2f %03d %s" .User.price .User.n .User.name }}</p>`, `{"price": 9, "n": 7.0, "name": "x"}`, `<p>9.00 007 x</p>`, "9.00 007 x"},
		{"printf of what is not there", `<p>{{ printf "%.2f|%d|%s" .User.a .User.b .User.c }}</p>`, `{"b": "x"}`, `<p>0.00|0|</p>`, "0.00|0|"},
		{"print", `<p>{{ print .User.a "-" 3 }}</p>`, `{"a": 1.5}`, `<p>1.5-3</p>`, "1.5-3"},

		{"date", `<p>{{ date "2 January 2006" .User.d }}</p>`, `{"d": {"$date": "2026-05-03T04:05:06Z"}}`, `<p>3 May 2026</p>`, "3 May 2026"},
		{"date of text", `<p>{{ date "2.1." "2026-05-03" }}</p>`, `{}`, `<p>3.5.</p>`, "3.5."},
		{"date of milliseconds", `<p>{{ date "2006" .User.d }}</p>`, `{"d": 1767225600000.0}`, `<p>2026</p>`, "2026"},
		{"date of anything else", `<p>[{{ date "2006" .User.d }}{{ date "2006" .User.e }}]</p>`, `{"d": true, "e": "soon"}`, `<p>[]</p>`, "[]"},
		{"date of now", `<p>{{ date "2006-01-02" }}</p>`, `{}`, `<p>2026-12-01</p>`, "2026-12-01"},
		{"a year that no calendar shows", `<p>[{{ date "2006" .User.d }}]</p>`, `{"d": {"$date": {"$numberLong": "-99999999999999"}}}`, `<p>[]</p>`, "[]"},

		{"unsubscribe and browser", `<a href="{{ unsubscribe }}">bye</a> <a href="{{ browser }}">see</a>`, `{}`, `<a href="https://t.example/u/abc">bye</a> <a href="https://t.example/b/abc">see</a>`, "bye <https://t.example/u/abc> see <https://t.example/b/abc>"},
		{"link", `<a href="{{ link "https://x.example/a?b=1&c=2" }}">go</a>`, `{}`, `<a href="https://t.example/c/abc?https://x.example/a?b=1&amp;c=2">go</a>`, "go <https://t.example/c/abc?https://x.example/a?b=1&c=2>"},
		{"a link to a value", `<a href="{{ link .User.url }}">go</a>`, `{"url": "javascript:x"}`, `<a href="">go</a>`, "go"},
		{"a comment", `<p>a<!-- b {{ .User.name }} -->c</p>`, `{"name": "x"}`, `<p>ac</p>`, "ac"},
		{"a condition for Outlook", `<!--[if mso]><b>{{ .User.name }}</b><![endif]--><!--[if !mso]><!--><i>else</i><!--<![endif]-->`, `{"name": "--><x>"}`, `<!--[if mso]><b>--&gt;&lt;x&gt;</b><![endif]--><!--[if !mso]><!--><i>else</i><!--<![endif]-->`, "else"},
		{"a partial", `{{ define "p" }}[{{ .User.name }}]{{ end }}<p>{{ template "p" . }}</p>`, `{"name": "x"}`, `<p>[x]</p>`, "[x]"},
		{"a partial of a document", `{{ define "p" }}{{ .city }}/{{ $.zip }}{{ end }}<p>{{ template "p" .User.address }}</p>`, `{"address": {"city": "Lisbon", "zip": 1}}`, `<p>Lisbon/1</p>`, "Lisbon/1"},
		{"a partial of an element", `{{ define "p" }}<li>{{ .title }}</li>{{ end }}<ul>{{ range .User.l }}{{ template "p" . }}{{ end }}</ul>`, `{"l": [{"title": "a"}, {"title": "b"}]}`, `<ul><li>a</li><li>b</li></ul>`, "- a\n- b"},
		{"a partial of nothing", `{{ define "p" }}[{{ . }}]{{ end }}<p>{{ template "p" }}</p>`, `{}`, `<p>[]</p>`, "[]"},
		{"variables of partials", `{{ define "p" }}{{ $x := .User.b }}{{ $x }}{{ end }}<p>{{ $x := .User.a }}{{ template "p" . }}{{ $x }}</p>`, `{"a": 1, "b": 2}`, `<p>21</p>`, "21"},
		{"urlquery", `<p>{{ .User.q | urlquery }}</p>`, `{"q": "a b&c"}`, `<p>a&#43;b%26c</p>`, "a+b%26c"},
		{"a value in a style", `<p style="color: {{ .User.color }}">x</p>`, `{"color": "red;} expression(1)"}`, `<p style="color: ZgotmplZ">x</p>`, "x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			comp := compile(t, bodyOf(c.body))
			var user bson.Raw
			if c.user == "" {
				user = document(t, bson.D{{Key: "name", Value: "a\xffb\x00\x07c"}})
			} else {
				user = fromJSON(t, c.user)
			}
			out := render(t, comp, user)
			pixel := `<img src="https://t.example/o/abc.gif" width="1" height="1" alt="" style="display:block;border:0">`
			if got := strings.TrimSuffix(out.HTML, pixel); got != c.want || got == out.HTML {
				t.Errorf("HTML\n got %s\nwant %s", got, c.want)
			}
			if got := strings.TrimSpace(out.Text); got != c.text {
				t.Errorf("text\n got %q\nwant %q", got, c.text)
			}
			same(t, comp, byReference(t, comp), user)
		})
	}
}

// byReference is the same template, executed by Go's template packages; its text is made from the rendered HTML.
func byReference(t testing.TB, c *Compiled) *Compiled {
	t.Helper()
	r := compile(t, c.template)
	for _, p := range []*part{&r.html, &r.text, &r.subject, &r.preheader} {
		p.program = nil
	}
	r.textMaker = nil
	return r
}

// same renders both ways and compares byte for byte.
func same(t testing.TB, c, reference *Compiled, user bson.Raw) {
	t.Helper()
	got, gotErr := c.Render(user, testLinks)
	want, wantErr := reference.Render(user, testLinks)
	if errors.Is(gotErr, ErrTooLarge) != errors.Is(wantErr, ErrTooLarge) || (gotErr == nil) != (wantErr == nil) {
		t.Fatalf("error %v, html/template has %v", gotErr, wantErr)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("not what html/template and textOf give (-want +got):\n%s", diff)
	}
}

// M1 and M4: what stands in a name stays in the subject, as it is and on one line.
func TestSubject(t *testing.T) {
	for _, c := range []struct{ subject, name, want string }{
		{`A & B <3 O'Neil – {{ .User.name }}`, `Zoë "Z" <z@x>`, `A & B <3 O'Neil – Zoë "Z" <z@x>`},
		{`Hello {{ .User.name }}!`, "x\r\nBcc: evil@x", "Hello x Bcc: evil@x!"},
		{`Hello {{ .User.name }}!`, "x\nBcc: evil@x", "Hello x Bcc: evil@x!"},
		{`Hello {{ .User.name }}!`, "x\rBcc: evil@x", "Hello x Bcc: evil@x!"},
		{`Hello {{ .User.name }}!`, "x\u2028Bcc: evil@x\u2029\u0085", "Hello x Bcc: evil@x  !"},
		{`Hello {{ .User.name }}!`, "a\x00b\x1bc\x7f", "Hello abc!"},
		{`Hello {{ .User.name }}!`, "\xff\xfe", "Hello \uFFFD!"},
		{`{{ .User.name }}`, "  \n ", ""},
		{"two\n lines", "", "two  lines"},
	} {
		tmpl := bodyOf("<p>x</p>")
		tmpl.Subject, tmpl.Preheader = c.subject, c.subject
		out := render(t, compile(t, tmpl), document(t, bson.D{{Key: "name", Value: c.name}}))
		if out.Subject != c.want || out.Preheader != c.want {
			t.Errorf("%q of %q: subject %q, preheader %q, want %q", c.subject, c.name, out.Subject, out.Preheader, c.want)
		}
	}
}

func TestSubjectIsCut(t *testing.T) {
	tmpl := bodyOf("<p>x</p>")
	tmpl.Subject = "{{ .User.name }}"
	out := render(t, compile(t, tmpl), document(t, bson.D{{Key: "name", Value: strings.Repeat("😀", 100_000)}}))
	if len(out.Subject) > MaxSubject || len(out.Subject) < MaxSubject-8 || !utf8.ValidString(out.Subject) || !strings.HasSuffix(out.Subject, "😀…") {
		t.Errorf("%d bytes, ends with %q", len(out.Subject), out.Subject[len(out.Subject)-12:])
	}
}

func TestDatesAreInTheUsersZone(t *testing.T) {
	kolkata, err := time.LoadLocation("Asia/Kolkata")
	if err != nil {
		t.Fatal(err)
	}
	c := compile(t, bodyOf(`{{ date "2006-01-02 15:04" .User.at }} {{ date "2006-01-02 15:04" }} {{ .User.born }} {{ date "2 Jan" .User.born }}`))
	l := testLinks
	l.Now, l.Zone, l.Pixel = time.Date(2026, 12, 1, 20, 0, 0, 0, time.UTC), kolkata, ""
	out, err := c.Render(document(t, bson.D{
		{Key: "at", Value: time.Date(2026, 5, 3, 22, 0, 0, 0, time.UTC)},
		{Key: "born", Value: time.Date(1990, 5, 3, 0, 0, 0, 0, time.UTC)},
	}), l)
	if want := "2026-05-04 03:30 2026-12-02 01:30 1990-05-03 3 May"; err != nil || out.HTML != want {
		t.Errorf("%q, %v; want %q", out.HTML, err, want)
	}
}

func TestPixel(t *testing.T) {
	const img = `<img src="https://t.example/o/abc.gif" width="1" height="1" alt="" style="display:block;border:0">`
	for _, c := range []struct {
		name, body, want string
		untracked        bool
	}{
		{name: "before </body>", body: `<body><p>x</p></body></html>`, want: `<body><p>x</p>` + img + `</body></html>`},
		{name: "in any case", body: `<BODY>x</BODY >`, want: `<BODY>x` + img + `</BODY >`},
		{name: "the last one", body: `<body>a</body><body>b</body>`, want: `<body>a</body><body>b` + img + `</body>`},
		{name: "not in a comment", body: `<body>a</body><!-- </body> -->`, want: `<body>a` + img + `</body>`},
		{name: "not in a style", body: `<body>a</body><style>x{content:"</body>"}</style>`, want: `<body>a` + img + `</body><style>x{content:"</body>"}</style>`},
		{name: "not in an attribute", body: `<body>a</body><p title="</body>">b</p>`, want: `<body>a` + img + `</body><p title="</body>">b</p>`},
		{name: "nor in an action", body: `<body>a</body>{{ "</body>" }}`, want: `<body>a` + img + `</body>&lt;/body&gt;`},
		{name: "at the end without one", body: `<p>x</p>`, want: `<p>x</p>` + img},
		{name: "where it stands", body: `<body>{{ pixel }}<p>x</p></body>`, want: `<body>` + img + `<p>x</p></body>`},
		{name: "where it stands in a partial", body: `{{ define "p" }}{{ pixel }}{{ end }}<body>{{ template "p" }}<p>x</p></body>`, want: `<body>` + img + `<p>x</p></body>`},
		{name: "track: false", body: `<body>x</body>`, untracked: true, want: `<body>x</body>`},
		{name: "track: false, and asked for", body: `<body>{{ pixel }}x</body>`, untracked: true, want: `<body>x</body>`},
		{name: "track: false, and links go straight", body: `<a href="{{ link "https://x.example" }}">x</a>`, untracked: true, want: `<a href="https://x.example">x</a>`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tmpl := bodyOf(c.body)
			tmpl.Track = !c.untracked
			if got := render(t, compile(t, tmpl), emptyDocument).HTML; got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestPixelIsNotInTheText(t *testing.T) {
	tmpl := bodyOf("<p>x</p>{{ pixel }}")
	tmpl.Text = "x {{ pixel }}{{ unsubscribe }}"
	if got := render(t, compile(t, tmpl), emptyDocument).Text; got != "x https://t.example/u/abc" {
		t.Errorf("%q", got)
	}
}

func TestPreheader(t *testing.T) {
	tmpl := bodyOf(`<html><body class="a>b"><p>x</p></body></html>`)
	tmpl.Preheader = "For {{ .User.name }}"
	out := render(t, compile(t, tmpl), document(t, bson.D{{Key: "name", Value: "<Zoë>"}}))
	if want := `<html><body class="a>b">` + hidden + `For &lt;Zoë&gt;</div><p>x</p>`; !strings.HasPrefix(out.HTML, want) {
		t.Errorf("got  %s\nwant %s", out.HTML, want)
	}
	if strings.TrimSpace(out.Text) != "x" {
		t.Errorf("the preheader is in the text: %q", out.Text)
	}
}

func TestLayoutAndPartials(t *testing.T) {
	tmpl := bodyOf(`{{ define "title" }}Mine{{ end }}<p>{{ .User.name }}</p>`)
	tmpl.Text = "Hello {{ .User.name }}"
	tmpl.Parts = []Part{
		{"_footer.html", `<i>{{ .User.plan }}</i>`},
		{"_layout.html", `<html><title>{{ block "title" . }}Ours{{ end }}</title><body>{{ template "content" . }}{{ template "footer" . }}</body></html>`},
		{"_layout.txt", "{{ template \"content\" . }}\n--\n{{ template \"footer\" . }}"},
		{"_footer.txt", "bye {{ .User.name }}"},
		{"_unused.html", `{{ .User.secret }}`},
	}
	c := compile(t, tmpl)
	l := testLinks
	l.Pixel = ""
	out, err := c.Render(fromJSON(t, `{"name": "Z", "plan": "free"}`), l)
	if err != nil {
		t.Fatal(err)
	}
	if want := `<html><title>Mine</title><body><p>Z</p><i>free</i></body></html>`; out.HTML != want {
		t.Errorf("%s", out.HTML)
	}
	if want := "Hello Z\n--\nbye Z"; out.Text != want {
		t.Errorf("%q", out.Text)
	}
	if diff := cmp.Diff([]string{"name", "plan"}, c.Fields()); diff != "" {
		t.Error(diff)
	}
	if len(c.parts) != 4 {
		t.Errorf("a partial that is not used is kept: %v", c.parts)
	}
}

func TestHugeMailsAreRefused(t *testing.T) {
	big := strings.Repeat("<", MaxOutput/4)
	for name, c := range map[string]struct {
		body string
		user any
	}{
		"a value that grows when it is escaped": {`{{ .User.a }}`, bson.D{{Key: "a", Value: big}}},
		"a value again and again":               {`{{ range .User.l }}{{ $.User.a }}{{ end }}`, bson.D{{Key: "l", Value: make([]int32, 100)}, {Key: "a", Value: big}}},
		"a range within a range":                {`{{ range .User.l }}{{ range $.User.l }}{{ end }}{{ end }}`, bson.D{{Key: "l", Value: make([]int32, 1000)}}},
		"a text that doubles":                   {`{{ $x := "x" }}{{ range .User.l }}{{ $x = print $x $x }}{{ end }}`, bson.D{{Key: "l", Value: make([]int32, 100)}}},
	} {
		t.Run(name, func(t *testing.T) {
			comp := compile(t, bodyOf(c.body))
			if _, err := comp.Render(document(t, c.user), testLinks); !errors.Is(err, ErrTooLarge) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestALinkIsSignedOncePerMail(t *testing.T) {
	c := compile(t, bodyOf(`<a href="{{ link "https://x.example/a" }}">a</a><a href="{{ link "https://x.example/b" }}">b</a>`))
	l, signed := testLinks, 0
	l.Click = func(to string) string { signed++; return fmt.Sprint(to, "#", signed) }
	for mail := range 3 {
		out, err := c.Render(emptyDocument, l)
		want := fmt.Sprintf("a <https://x.example/a#%d>b <https://x.example/b#%d>\n", 2*mail+1, 2*mail+2)
		if err != nil || out.Text != want || !strings.Contains(out.HTML, fmt.Sprintf(`"https://x.example/a#%d"`, 2*mail+1)) {
			t.Errorf("%s%s, %v", out.HTML, out.Text, err)
		}
	}
}

func TestConcurrentRendering(t *testing.T) {
	c := compile(t, bodyOf(`<p>{{ .User.name }}{{ with .User.a }}{{ .b }}{{ end }}{{ unsubscribe }}</p>`))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			name := fmt.Sprintf("user%d", i)
			user := document(t, bson.D{{Key: "name", Value: name}})
			l := testLinks
			l.Unsubscribe = "/" + name
			for range 200 {
				out, err := c.Render(user, l)
				if err != nil || !strings.Contains(out.HTML, "<p>"+name+"/"+name+"</p>") {
					t.Errorf("%s, %v", out.HTML, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestSnapshotNeedsNothingElse(t *testing.T) {
	for name, tmpl := range sampleTemplates(t) {
		again, err := FromSnapshot(Snapshot(tmpl))
		if err != nil {
			t.Fatal(err)
		}
		user := SampleUser(compile(t, tmpl).Fields(), testNow)
		if diff := cmp.Diff(render(t, compile(t, tmpl), user), render(t, compile(t, again), user)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		var cache Cache
		first, err := cache.Compiled(Snapshot(tmpl))
		if err != nil {
			t.Fatal(err)
		}
		if second, _ := cache.Compiled(Snapshot(tmpl)); second != first {
			t.Errorf("%s: compiled twice", name)
		}
	}
}

func TestCacheForgets(t *testing.T) {
	var cache Cache
	for i := range cacheSize + 10 {
		tmpl := bodyOf("<p>x</p>")
		tmpl.Revision = i
		if _, err := cache.Compiled(Snapshot(tmpl)); err != nil {
			t.Fatal(err)
		}
	}
	if len(cache.entries) != cacheSize {
		t.Errorf("%d templates are kept", len(cache.entries))
	}
	if _, err := cache.Compiled(bson.Raw("nonsense")); err == nil {
		t.Error("nonsense compiles")
	}
}

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden renders the sample templates for a user who has everything, and for one who has nothing.
func TestGolden(t *testing.T) {
	full := fromJSON(t, `{"name": "Zoë \"Z\" <z@x>", "plan": "free", "city": "Lisbon & around", "created_at": {"$date": "2024-05-03T04:05:06Z"},
		"offer_ends_at": {"$date": "2026-12-24T00:00:00Z"},
		"tasks": [{"title": "Mulch the <roses>", "due": {"$date": "2026-12-04T00:00:00Z"}}, {"title": "Sharpen the spade"}]}`)
	for name, tmpl := range sampleTemplates(t) {
		c := compile(t, tmpl)
		if c.html.program == nil || c.subject.program == nil || c.textMaker == nil && tmpl.Text == "" {
			t.Errorf("%s is rendered the slow way", name)
		}
		for who, user := range map[string]bson.Raw{"full": full, "empty": emptyDocument} {
			out := render(t, c, user)
			golden(t, fmt.Sprintf("%s.%s.html", name, who), out.HTML)
			golden(t, fmt.Sprintf("%s.%s.txt", name, who), "Subject: "+out.Subject+"\nPreheader: "+out.Preheader+"\n\n"+out.Text)
			same(t, c, byReference(t, c), user)
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func BenchmarkRender(b *testing.B) {
	for _, name := range []string{"winback", "digest"} {
		b.Run(name, func(b *testing.B) {
			c := compile(b, sampleTemplates(b)[name])
			user := SampleUser(c.Fields(), testNow)
			out := render(b, c, user)
			b.SetBytes(int64(len(out.HTML)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Render(user, testLinks); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
