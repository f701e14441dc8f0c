package templates

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What a template reads of the user document, and so what is loaded of it.
func TestFields(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"none", `<p>x {{ unsubscribe }}</p>`, ""},
		{"printed", `{{ .User.name }} {{ .User.address.city }}`, "address.city name"},
		{"as an argument", `{{ default .User.a .User.b }} {{ printf "%s" .User.c }} {{ date "2006" .User.d }} {{ link .User.e }}`, "a b c d e"},
		{"piped", `{{ .User.a | default "x" | printf "%s%s" .User.b }}`, "a b"},
		{"in brackets", `{{ default (index .User.a 0) (print (.User.b)) }}`, "a b"},
		{"in an attribute", `<a href="{{ .User.url }}" title='{{ .User.t }}'>x</a>`, "t url"},
		{"a condition", `{{ if and .User.a (not .User.b) }}{{ else if eq .User.c 1 }}{{ .User.d }}{{ end }}`, "a b c d"},
		{"with", `{{ with .User.address }}{{ .city }}{{ .geo.lat }}{{ end }}`, "address.city address.geo.lat"},
		{"with, else", `{{ with .User.a }}{{ .b }}{{ else }}{{ .User.c }}{{ end }}`, "a.b c"},
		{"else with", `{{ with .User.a }}{{ .x }}{{ else with .User.b }}{{ .y }}{{ end }}`, "a.x b.y"},
		{"with, printed itself", `{{ with .User.a }}{{ . }}{{ .b }}{{ end }}`, "a"},
		{"with, not looked at", `{{ with .User.a }}x{{ end }}`, "a"},
		{"with the user", `{{ with .User }}{{ .a }}{{ with .b }}{{ .c }}{{ end }}{{ end }}`, "a b.c"},
		{"range", `{{ range .User.items }}{{ .title }}{{ .price.amount }}{{ end }}`, "items.price.amount items.title"},
		{"range over values", `{{ range .User.tags }}{{ . }}{{ end }}`, "tags"},
		{"range, not looked at", `{{ range .User.tags }}x{{ end }}`, "tags"},
		{"range with variables", `{{ range $i, $x := .User.items }}{{ $i }}{{ $x.title }}{{ end }}`, "items.title"},
		{"range within range", `{{ range .User.a }}{{ range .b }}{{ .c }}{{ $.User.d }}{{ end }}{{ end }}`, "a.b.c d"},
		{"a variable", `{{ $a := .User.address }}{{ $a.city }}{{ with $a }}{{ .zip }}{{ end }}`, "address.city address.zip"},
		{"a variable of the user", `{{ $u := .User }}{{ $u.name }}`, "name"},
		{"a variable that is never used", `{{ $a := .User.address }}x`, "address"},
		{"a variable that changes", `{{ $a := .User.a }}{{ if .User.x }}{{ $a = .User.b }}{{ end }}{{ $a.c }}`, "a b x"},
		{"a variable that changes in a loop", `{{ $x := .User.a }}{{ range .User.l }}{{ $x.n }}{{ $x = .next }}{{ end }}`, "a l.next"},
		{"a partial", `{{ define "p" }}{{ .User.a }}{{ end }}{{ template "p" . }}`, "a"},
		{"a partial of a document", `{{ define "p" }}{{ .city }}{{ end }}{{ template "p" .User.home }}{{ template "p" .User.work }}`, "home.city work.city"},
		{"a partial of the user", `{{ define "p" }}{{ .city }}{{ end }}{{ template "p" .User }}`, "city"},
		{"a partial of an element", `{{ define "p" }}{{ .a.b }}{{ end }}{{ range .User.l }}{{ template "p" . }}{{ end }}`, "l.a.b"},
		{"a partial that is not called", `{{ define "p" }}{{ .User.a }}{{ end }}x`, ""},
		{"a block", `{{ block "b" .User.a }}{{ .c }}{{ end }}`, "a.c"},
		{"index by names", `{{ index .User "first-name" }}{{ index .User.a "b" "c" }}`, "a.b.c first-name"},
		{"index by a value", `{{ index .User.map .User.key }}`, "key map"},
		{"index by a number, then a field", `{{ (index .User.l 0).title }}`, "l"},
		{"a name that MongoDB can't project", `{{ index .User.a "b.c" }}`, "a"},
		{"one within another", `{{ .User.a.b }}{{ .User.a }}{{ .User.a.c.d }}`, "a"},
		{"or of documents", `{{ with or .User.a .User.b }}{{ .c }}{{ end }}`, "a b"},
		{"a comment", `{{/* .User.a */}}<!-- {{ .User.b }} -->`, "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Join(compile(t, bodyOf("<p>x</p>"+c.body)).Fields(), " ")
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestFieldsOfAllParts(t *testing.T) {
	tmpl := bodyOf("{{ .User.html }}")
	tmpl.Subject, tmpl.Preheader, tmpl.Text = "{{ .User.subject }}", "{{ .User.pre.header }}", "{{ range .User.text }}{{ .a }}{{ end }}"
	if diff := cmp.Diff([]string{"html", "pre.header", "subject", "text.a"}, compile(t, tmpl).Fields()); diff != "" {
		t.Error(diff)
	}
}

// A projected document gives the same mail as the whole one: what is not loaded is not seen either.
func TestProjectionMakesNoDifference(t *testing.T) {
	whole := `{"a": {"b": 1, "z": [1, 2]}, "l": [{"t": "x", "z": 1}, "y", {"z": 2}], "s": "text", "z": 9}`
	projected := `{"a": {"b": 1}, "l": [{"t": "x"}, {}]}`
	for _, body := range []string{
		`{{ with .User.a }}{{ .b }}{{ end }}`,
		`{{ range .User.l }}[{{ .t }}]{{ end }}`,
		`{{ with .User.s }}{{ .x }}yes{{ else }}no{{ end }}`,
		`{{ with .User.l }}{{ .t }}yes{{ else }}no{{ end }}`,
	} {
		c := compile(t, bodyOf(body))
		if diff := cmp.Diff(render(t, c, fromJSON(t, whole)), render(t, c, fromJSON(t, projected))); diff != "" {
			t.Errorf("%s (-whole +projected):\n%s", body, diff)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"the whole user", "<p>\n{{ .User }}", "mail.html:2: this takes the whole user document; name the fields, as in .User.name"},
		{"a field by a value", `{{ index .User .User.key }}`, "mail.html:1: this takes the whole user document"},
		{"a range over the user", `{{ range .User }}{{ . }}{{ end }}`, "mail.html:1: range over the whole user document: name the field"},
		{"everything", `{{ . }}`, "mail.html:1: this takes the whole user document"},
		{"a misspelt user", "a\nb\n{{ .Usr.name }}", "mail.html:3: .Usr: unknown; fields of the user document are .User.name; User?"},
		{"a bare field", `{{ .name }}`, "mail.html:1: .name: unknown; fields of the user document are .User.name"},
		{"a misspelt function", `{{ unsubscibe }}`, "mail.html:1: unsubscibe: unknown function; unsubscribe?"},
		{"an unknown function", `{{ exec "rm" }}`, "mail.html:1: exec: unknown function"},
		{"html", `{{ .User.a | html }}`, "mail.html:1: html: not here, values are escaped where they stand"},
		{"call", `{{ call .User.a }}`, "mail.html:1: call: not here"},
		{"a function of ours", `{{ postbit_raw "<script>" }}`, "mail.html:1: postbit_raw: unknown function"},
		{"a method", `{{ .User.d.Format "2006" }}`, "mail.html:1: .User.d.Format is no function and takes no arguments"},
		{"a field of text", `{{ (print "a").b }}`, "mail.html:1: (print \"a\").b: this is no document, it has no fields"},
		{"too few arguments", `{{ if .User.x }}{{ date }}{{ end }}`, "mail.html:1: date: wrong number of arguments"},
		{"too many arguments", `{{ unsubscribe .User.a }}`, "mail.html:1: unsubscribe: wrong number of arguments"},
		{"a format that is a value", `{{ printf .User.f .User.a }}`, "mail.html:1: printf: the format must stand there as a string"},
		{"a format that asks for a megabyte", `{{ printf "%999999d" .User.a }}`, `mail.html:1: printf "%999999d": only`},
		{"a format with too few values", `{{ printf "%s %s" .User.a }}`, "the number of values does not fit"},
		{"an unknown partial", `{{ template "fotter" . }}{{ define "footer" }}{{ end }}`, `mail.html:1: template "fotter": unknown; footer?`},
		{"a partial that calls itself", `{{ define "a" }}{{ template "b" . }}{{ end }}{{ define "b" }}{{ template "a" . }}{{ end }}{{ template "a" . }}`, `calls itself, which might never end`},
		{"partials without end", partialsThatDouble(12), "the partials of this mail come to more than 500"},
		{"a branch that is never taken", "{{ if false }}\n{{ .Nope }}{{ end }}", "mail.html:2: .Nope: unknown"},
		{"no end", "<p>\n{{ if .User.a }}", "mail.html:2: unexpected EOF"},
		{"half an attribute", "<p>\n<a href=\"{{ if .User.a }}\">x{{ end }}</a>", "mail.html:2: {{if}} branches end in different contexts"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := bodyOf(c.body).Compile()
			if err == nil || !strings.HasPrefix(err.Error(), c.want) && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// partialsThatDouble is n partials each of which calls the next one twice.
func partialsThatDouble(n int) string {
	var b strings.Builder
	for i := range n {
		name, next := string(rune('a'+i)), string(rune('b'+i))
		b.WriteString(`{{ define "` + name + `" }}{{ template "` + next + `" }}{{ template "` + next + `" }}{{ end }}`)
	}
	return b.String() + `{{ define "` + string(rune('a'+n)) + `" }}x{{ end }}{{ template "a" }}`
}

func TestFaultsOfAllPartsAreReported(t *testing.T) {
	tmpl := bodyOf("\n{{ .a }}\n{{ .b }}")
	tmpl.Line = 10
	tmpl.Subject, tmpl.Text = "{{ .c }}", "\n\n{{ .d }}"
	_, err := tmpl.Compile()
	if err == nil {
		t.Fatal("compiles")
	}
	for _, want := range []string{"mail.html:12: .a", "mail.html:13: .b", "mail.html (subject):1: .c", "mail.txt:3: .d"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%s", want, err)
		}
	}
}

func TestImportedTemplatesHaveNoBody(t *testing.T) {
	_, err := (&Template{Name: "theirs"}).Compile()
	if want := "template theirs: owned by another service, it has no body here"; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}
