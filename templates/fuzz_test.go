package templates

import (
	"bytes"
	"errors"
	htmltemplate "html/template"
	"strings"
	"testing"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// FuzzFrontMatter: a file is read or refused with its name and a line, and what --assign writes can be read again.
func FuzzFrontMatter(f *testing.F) {
	for _, s := range []string{
		"---\nname: a\nbitIndex: 1\nsubject: x\n---\n<p>{{ .User.name }}</p>",
		"---\r\nbitIndex:\r\nsubject: 'a: b'\r\n---\r\n", "---\n---\n", "---\nname: [\n---\n", "---\n&a: *a\n---\n", "---\n? a\n: b\n---\nx",
		"---\nsubject: !!binary aGVsbG8=\n---\nx", "---\nsubject: |\n  a\n  b\n---\nx", "\xef\xbb\xbf---\nsubject: \"\\x00\"\n---\nx",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		tmpl, err := parseMail("x.html", file, nil, nil)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.HasPrefix(line, "x.html") {
					t.Errorf("no file in %q", err)
				}
				break
			}
			return
		}
		if strings.ContainsAny(tmpl.From+tmpl.ReplyTo, "\r\n") {
			t.Errorf("a line break in an address: %q %q", tmpl.From, tmpl.ReplyTo)
		}
		if tmpl.BitIndex < noIndex || tmpl.BitIndex > MaxBitIndex || !validName.MatchString(tmpl.Name) {
			t.Errorf("%q with bit %d", tmpl.Name, tmpl.BitIndex)
		}
		if tmpl.BitIndex == noIndex {
			if out, err := withIndex(file, 7); err == nil {
				again, err := parseMail("x.html", out, nil, nil)
				if err != nil || again.BitIndex != 7 || again.HTML != tmpl.HTML || again.Subject != tmpl.Subject {
					t.Errorf("after --assign: %q, %v", out, err)
				}
			}
		}
	})
}

// FuzzRender: no document breaks a mail, smuggles a line into the subject or markup into the HTML, and the fast way gives
// what html/template gives.
func FuzzRender(f *testing.F) {
	c, err := bodyOf(`<html><body title="{{ .User.a }}"><p>{{ .User.a }} {{ .User.b.c }}{{ default "x" .User.d }}</p>
{{ range $i, $x := .User.l }}<li>{{ $i }}{{ .t }}{{ with .u }}{{ .v }}{{ end }}</li>{{ else }}none{{ end }}
{{ with .User.m }}{{ . }}{{ .n }}{{ end }}{{ if lt .User.a .User.d }}less{{ end }}{{ date "2006" .User.d }}{{ printf "%d %.2f %s" .User.a .User.a .User.a }}
{{ index .User.l .User.a }}{{ len .User.l }}{{ slice .User.a 1 }}<a href="https://x.example/{{ .User.a }}?q={{ .User.a }}">{{ .User.d }}</a><a href="{{ .User.a }}">x</a><a href="{{ link .User.a }}">x</a></body></html>`).Compile()
	if err != nil {
		f.Fatal(err)
	}
	reference := byReference(f, c)
	subject := bodyOf("<p>x</p>")
	subject.Subject = "{{ .User.a }}|{{ .User.l }}"
	subjects, err := subject.Compile()
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{
		`{}`, `{"a": "x\r\nBcc: y", "b": {"c": "<script>"}, "l": [{"t": 1, "u": {"v": "\""}}, 2, null, [[{"t": 3}]]]}`,
		`{"a": 5, "d": {"$date": "2026-05-03T04:05:06Z"}, "m": {"n": "'"}}`, `{"a": {"$numberDecimal": "1E+6000"}, "d": {"$numberDouble": "Infinity"}}`,
		`{"a": {"$date": {"$numberLong": "9223372036854775807"}}, "b": 1, "l": "text", "m": true}`, `{"a": "javascript:alert(1)", "a": "twice"}`,
		`{"a": {"$minKey": 1}, "b": {"$maxKey": 1}, "d": {"$code": "x", "$scope": {}}, "l": {"0": {"t": 1}}}`,
	} {
		f.Add([]byte(fromJSON(f, s)))
	}
	f.Add([]byte(document(f, bson.D{{Key: "a", Value: "\xff\xc0\x80"}})))
	f.Add([]byte{255, 255, 255, 127, 2, 'a', 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, doc []byte) {
		out, err := c.Render(doc, testLinks)
		if err != nil {
			if !errors.Is(err, ErrTooLarge) {
				t.Fatal(err)
			}
			return
		}
		for _, s := range []string{out.HTML, out.Text} {
			if !utf8.ValidString(s) {
				t.Errorf("invalid UTF-8: %q", s)
			}
		}
		if strings.Contains(out.HTML, "<script") || strings.Contains(strings.ToLower(out.HTML), `href="javascript:`) || strings.Count(out.HTML, "<body") != 1 {
			t.Errorf("markup of the document is in the mail: %s", out.HTML)
		}
		same(t, c, reference, doc)
		sub, err := subjects.Render(doc, testLinks)
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(sub.Subject, "\r\n\x00") || !utf8.ValidString(sub.Subject) || len(sub.Subject) > MaxSubject {
			t.Errorf("subject %q", sub.Subject)
		}
	})
}

// FuzzEscapers compares our escapers with those of html/template, in every context that uses them.
func FuzzEscapers(f *testing.F) {
	reference := htmltemplate.Must(htmltemplate.New("").Parse(`{{ . }}|<p title="{{ . }}">|<title>{{ . }}</title>|<a href="{{ . }}">|<a href="/x/{{ . }}">|<a href="/?q={{ . }}">`))
	c, err := bodyOf(`{{ .User.a }}|<p title="{{ .User.a }}">|<title>{{ .User.a }}</title>|<a href="{{ .User.a }}">|<a href="/x/{{ .User.a }}">|<a href="/?q={{ .User.a }}">`).Compile()
	if err != nil || c.html.program == nil {
		f.Fatal(err, c.html.program)
	}
	for _, s := range []string{"", "a b", `<>"'&+`, "javascript:alert(1)", "https://x.example/?a=b#c%20d%zz", "MAILTO:x", "a/b:c", "\x00\x01", "\xff", "ÄÖ😀", "%", "%4", "//x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var want bytes.Buffer
		if err := reference.Execute(&want, clean(s)); err != nil {
			t.Fatal(err)
		}
		out, err := c.Render(document(t, bson.D{{Key: "a", Value: s}}), Links{})
		if err != nil || out.HTML != want.String() {
			t.Errorf("%q, %v\n got %q\nwant %q", s, err, out.HTML, want.String())
		}
	})
}

// Where a tag ends, as HTML has it: a quote opens the value of an attribute, and anywhere else it is a part of a name or a value.
func TestTagLen(t *testing.T) {
	for _, c := range []struct{ tag, rest string }{
		{`<p>`, "x"}, {`<p title="a>b">`, "x"}, {`<p title='a>"'>`, `"x`}, {`<p title={{ ">" }}>`, "x"}, {`</p>`, ">"}, {`</p title=">">`, "x"}, {`<br/title=">">`, "x"}, {`<!doctype html ">`, `">x`},
		{`<p a = "b>c"d="e>f">`, "x"}, {`<p a=b"c>`, `">x`}, {`<p a"b>`, `">x`}, {`<p ="x>`, `">x`}, {`<p a/="x>`, `">x`}, {`<p a==">`, `">x`}, {`<p a=>`, `"x">`}, {`<p {{ "x" }}="a>b">`, "x"}, {`<p a={{ "x" }}">`, `">x`},
		{`</ a=">`, `">x`}, {"<a\x16=\"p://x\">", "x"},
		{`<im'g>`, `'>x`}, {"<im\x7ft=\">", `y">x`}, {`</im"g>`, `">x`}, {`<p`, ""}, {`<p title=">`, ""},
	} {
		if got, ended := tagLen(c.tag + c.rest); got != len(c.tag) || ended != (c.rest != "") {
			t.Errorf("%q ends at %d (%t), want %d", c.tag+c.rest, got, ended, len(c.tag))
		}
	}
}

// A > in a value, right before an action, does not end the tag for the text either.
func TestTextOfTagsWithActions(t *testing.T) {
	doc := document(t, bson.D{{Key: "name", Value: "N"}})
	for src, want := range map[string]string{
		`x<img alt="a>{{ .User.name }}b">y`:                       "xa>Nby",
		`x<a href="https://x.example/?a>{{ .User.name }}">y</a>z`: "xy <https://x.example/?a>N>z",
		`<p title="a>{{ .User.name }}>{{ .User.name }}">y</p>`:    "y",
		`x<img alt='>{{ .User.name }}'>`:                          "x>N",
	} {
		c := compile(t, bodyOf(src))
		out := render(t, c, doc)
		if got := strings.TrimSpace(out.Text); got != want || out.Text != textOf(out.HTML) || c.textMaker == nil {
			t.Errorf("%s: %q, want %q; of the mail it is %q", src, got, want, textOf(out.HTML))
		}
	}
}

// FuzzText: the text that is made when the template is compiled is the one that is made from the mail, whatever the HTML.
func FuzzText(f *testing.F) {
	for _, s := range []string{
		"<p>a <b>b</b>  c</p><p>d", "<ul><li>a<li>b</ul>", `<a href="https://x.example">x</a>`, `<a href='mailto:a@x.example'><img alt="y"></a>`,
		`<div style="display:none">h<br><i>i</i></div>v`, "<style>p{}</style><script>if (a<b) {}</script>x", "a &amp; b &lt;c&gt; &nbsp; d", "<pre>a\n b</pre>",
		"<table><tr><td>a</td><td>b</td></tr></table>", "a<br>b<br/>c<hr>d", "<!-- a > b --><p", "a < b <3 c", "<a href=x><a href=https://y.example>z</a></a>",
		"<p title='a>b'>c</p>", "</p></div><img alt=a><title>t</title>", "<div hidden>a</div><head>b</head>c", "a\u00a0b\u2003c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		if strings.Contains(src, "{{") || invalidAt([]byte(src)) >= 0 || strings.ContainsAny(src, "\r\uE000\uE001") || strings.TrimSpace(src) == "" {
			return
		}
		c, err := bodyOf(src).Compile()
		if err != nil || c.textMaker == nil {
			return
		}
		out, err := c.Render(emptyDocument, Links{})
		if err != nil {
			t.Fatal(err)
		}
		if want := textOf(out.HTML); out.Text != want {
			t.Errorf("%q\n got %q\nwant %q", src, out.Text, want)
		}
	})
}

// FuzzTextOfValues: the same with values in the HTML, which stand where the source has a §.
func FuzzTextOfValues(f *testing.F) {
	for _, s := range []string{
		"<p>a § b</p>§", `<a href="https://x.example/§?a=§">§</a>`, `<img alt="a>§b">y`, `<img alt=§>y`, `<p title='§>§'>§`, "<pre>§\n</pre>", `<a href="§">x</a>`, `<div style="color:§">x</div>`,
		"<style>p{color:§}</style>x", "<title>§</title>y<!-- § -->z", "<ul><li>§<li>§</ul>", `<a href='§'><img alt='§'></a>`, "<td>§<td>§", `<p hidden>§</p>§`, "<textarea>§</textarea>§", "<br§>",
	} {
		f.Add(s, "N")
		f.Add(s, "a>b \"c' <i>d</i> &amp; https://y.example")
	}
	f.Fuzz(func(t *testing.T, src, value string) {
		if strings.Contains(src, "{{") || invalidAt([]byte(src)) >= 0 || strings.ContainsAny(src+value, "\r\uE000\uE001") || strings.TrimSpace(src) == "" || len(value) > 1000 {
			return
		}
		c, err := bodyOf(strings.ReplaceAll(src, "§", "{{ .User.a }}")).Compile()
		if err != nil || c.textMaker == nil {
			return
		}
		out, err := c.Render(document(t, bson.D{{Key: "a", Value: value}}), Links{})
		if err != nil {
			t.Fatal(err)
		}
		if want := textOf(out.HTML); out.Text != want {
			t.Errorf("%q with %q: %s\n got %q\nwant %q", src, value, out.HTML, out.Text, want)
		}
	})
}
