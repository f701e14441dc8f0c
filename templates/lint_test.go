package templates

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
)

const goodBody = `<p>x</p><a href="{{ unsubscribe }}">bye</a>`

func TestLint(t *testing.T) {
	for _, c := range []struct {
		name  string
		edit  func(*Template)
		users []string
		want  []string
	}{
		{name: "nothing wrong"},
		{name: "no way out", edit: func(t *Template) { t.HTML = "<p>x</p>" }, want: []string{"there is no {{ unsubscribe }} link"}},
		{name: "no sender", edit: func(t *Template) { t.From = "" }, want: []string{"from is missing"}},
		{name: "a misspelt field", edit: func(t *Template) { t.HTML += "{{ .User.nmae }}" }, users: []string{`{"name": "a"}`, `{"name": "b"}`},
			want: []string{".User.nmae: none of 2 users has it; name?"}},
		{name: "a misspelt nested field", edit: func(t *Template) { t.HTML += "{{ .User.a.ctiy }}" }, users: []string{`{"a": {"city": "a"}}`},
			want: []string{".User.a.ctiy: none of 1 user has it; city?"}},
		{name: "a field that some lack", edit: func(t *Template) { t.HTML += "{{ .User.city }}" }, users: []string{`{"city": "a"}`, `{}`, `{"city": null}`},
			want: []string{".User.city: missing for 2 of 3 users"}},
		{name: "a field with a default", edit: func(t *Template) { t.HTML += `{{ .User.city | default "x" }}` }, users: []string{`{"city": "a"}`, `{}`}},
		{name: "a field of elements", edit: func(t *Template) { t.HTML += `{{ range .User.l }}{{ .t }}{{ end }}` }, users: []string{`{"l": [{"t": 1}]}`}},
		{name: "a long subject", edit: func(t *Template) { t.Subject = strings.Repeat("ü", 79) }, want: []string{"the subject has 79 characters"}},
		{name: "a subject that is empty for some", edit: func(t *Template) { t.Subject = "{{ with .User.x }}{{ . }}{{ end }}" }, users: []string{`{"x": "a"}`, `{}`},
			want: []string{"the subject is empty for some users"}},
		{name: "no words", edit: func(t *Template) {
			t.HTML = `<a href="{{ unsubscribe }}"><img src="https://x.example/a.png" alt=""></a><style>p{}</style>`
			t.HTML = strings.Replace(t.HTML, "{{ unsubscribe }}", "{{ if false }}{{ unsubscribe }}{{ end }}", 1)
		},
			want: []string{"there is no text part", "a link leads nowhere"}},
		{name: "clipped", edit: func(t *Template) { t.HTML += strings.Repeat("<p>0123456789</p>", 6001) }, want: []string{"bytes of HTML; Gmail cuts at 102000"}},
		{name: "images", edit: func(t *Template) {
			t.HTML += `<img src="http://x.example/a.png"><img src="https://x.example/b.png" alt="b"><img src="c.png" alt="">`
		},
			want: []string{`image "http://x.example/a.png" has no alt`, `image "http://x.example/a.png" is loaded over http`, `image "c.png" has no full address`}},
		{name: "links", edit: func(t *Template) {
			t.HTML += `<a href="http://x.example">x</a><a href="/y">y</a><a href="mailto:a@x.example">m</a><a href="#top">t</a><a name="n">n</a>`
		},
			want: []string{`link to "http://x.example" is http; use https`, `link to "/y" has no full address`}},
		{name: "a link that is a script", edit: func(t *Template) { t.HTML += `<a href="{{ .User.u }}">x</a>` }, users: []string{`{"u": "javascript:x"}`},
			want: []string{"a link is not of the web or of mail"}},
		{name: "what mail programs leave out", edit: func(t *Template) {
			t.HTML += `<script>x</script><form></form><link rel="stylesheet" href="https://x.example">`
		},
			want: []string{"<script>: mail programs leave it out", "<form>: mail programs leave it out", "<link>: mail programs load no style sheets"}},
		{name: "not tracked", edit: func(t *Template) { t.Track = false; t.HTML += `{{ pixel }}{{ link "https://x.example" }}` },
			want: []string{"{{ pixel }} is empty: track is false", "{{ link }} leads straight to its target"}},
		{name: "a huge user", edit: func(t *Template) { t.HTML += `{{ range .User.l }}{{ range $.User.l }}{{ . }}{{ end }}{{ end }}` }, users: []string{hugeUser()},
			want: []string{"the mail grows too large for some users"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tmpl := bodyOf(goodBody)
			tmpl.From = "Ada <a@x.example>"
			if c.edit != nil {
				c.edit(tmpl)
			}
			var users []bson.Raw
			for _, u := range c.users {
				users = append(users, fromJSON(t, u))
			}
			found := compile(t, tmpl).Lint(users, testNow)
			for i, w := range found {
				if w.Template != "mail" || i >= len(c.want) || !strings.Contains(w.What, c.want[i]) {
					t.Errorf("warning %d: %s", i, w)
				}
			}
			if len(found) < len(c.want) {
				t.Errorf("%d warnings, want %d: %v", len(found), len(c.want), found)
			}
		})
	}
}

func hugeUser() string { return `{"l": [` + strings.Repeat("1,", 999) + `1]}` }

func TestSampleTemplatesHaveNoWarnings(t *testing.T) {
	for _, tmpl := range sampleTemplates(t) {
		for _, w := range compile(t, tmpl).Lint(nil, testNow) {
			t.Error(w)
		}
	}
}

func TestSampleTemplatesDiffer(t *testing.T) {
	bits, repeats := map[int]string{}, map[string]bool{}
	for name, tmpl := range sampleTemplates(t) {
		bits[tmpl.BitIndex] = name
		repeats[tmpl.Repeat.String()] = true
	}
	want := map[int]string{0: "welcome", 1: "winback", 2: "digest", 3: "product-news", 4: "last-call"}
	if diff := cmp.Diff(want, bits); diff != "" || len(repeats) != 3 {
		t.Errorf("%s %v", diff, repeats)
	}
}

func TestPreview(t *testing.T) {
	c := compile(t, bodyOf(`<p>{{ .User.first_name }} {{ .User.address.city }} {{ range .User.tags }}{{ . }};{{ end }} {{ date "2006" .User.created_at }}
{{ unsubscribe }} {{ browser }} {{ link "https://x.example/?a=b" }}</p>`))
	out, err := c.Preview(nil, testNow, time.UTC)
	want := "<p>Zoë Lisbon one tag;another tag; 2026\nhttps://preview.invalid/unsubscribe https://preview.invalid/browser https://preview.invalid/click?to=https%3A%2F%2Fx.example%2F%3Fa%3Db</p>"
	if err != nil || out.HTML != want {
		t.Errorf("%s, %v", out.HTML, err)
	}
	out, err = c.Preview(fromJSON(t, `{"first_name": "Real"}`), testNow, nil)
	if err != nil || !strings.HasPrefix(out.HTML, "<p>Real ") || strings.Contains(out.HTML, "<img") {
		t.Errorf("%s, %v", out.HTML, err)
	}
}

func TestSampleUserHasEveryField(t *testing.T) {
	fields := []string{"a.b.c", "a.b.d", "a.e", "name", "tags", "x"}
	raw := SampleUser(fields, testNow)
	for _, f := range fields {
		if !has(raw, strings.Split(f, ".")) {
			t.Errorf("%s is missing in %s", f, raw)
		}
	}
}
