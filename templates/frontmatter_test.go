package templates

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"postbit/internal/spelling"
	"postbit/rules"
)

func TestFrontMatter(t *testing.T) {
	file := "---\nname: sale\nbitIndex: 12\nsubject: 'Hi: {{ .User.name }}'\nfrom: \"Ada <a@x.example>\"\nreply_to: b@x.example\n" +
		"repeat: never\npreheader: Soon # a comment\ntrack: false\n---\n<p>x</p>\n"
	want := &Template{Name: "sale", BitIndex: 12, Subject: "Hi: {{ .User.name }}", HTML: "<p>x</p>\n", From: "Ada <a@x.example>",
		ReplyTo: "b@x.example", Repeat: rules.Never, Preheader: "Soon", Track: false, Line: 10}
	for name, src := range map[string]string{
		"as it is":      file,
		"with a BOM":    "\xef\xbb\xbf" + file,
		"with spaces":   strings.Replace(file, "---\n", "---  \n", 1),
		"of an old Mac": strings.ReplaceAll(file, "\n", "\r\n"),
	} {
		got, err := parseMail("sale.html", []byte(src), nil, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got.HTML, got.file = strings.ReplaceAll(got.HTML, "\r\n", "\n"), ""
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Template{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestFrontMatterDefaults(t *testing.T) {
	got, err := parseMail("win-back.html", []byte("---\nsubject: x\nbitIndex: 0\n---\n<p>x</p>"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "win-back" || got.Repeat != rules.UntilFirstOpen || !got.Track || got.BitIndex != 0 {
		t.Errorf("%+v", got)
	}
}

func TestFrontMatterFaults(t *testing.T) {
	head := "---\nname: winback\nbitIndex: 7\n"
	for _, c := range []struct{ name, file, want string }{
		{"a misspelt key", head + "subjct: x\nsubject: y\n---\n<p>", "winback.html:4: subjct: unknown; subject?"},
		{"an unknown key", head + "subject: y\ncolour: red\n---\n<p>", "winback.html:5: colour: unknown"},
		{"two faults", head + "subjct: x\nrepeat: often\n---\n<p>", "winback.html:4: subjct: unknown; subject?\nwinback.html:5: repeat: repeat: \"often\" is not one of until_first_open, never, always\nwinback.html:2: subject is missing"},
		{"a key twice", head + "subject: x\nsubject: y\n---\n<p>", "winback.html:5: subject: stands there twice"},
		{"no subject", head + "---\n<p>", "winback.html:2: subject is missing"},
		{"an empty subject", head + "subject: ''\n---\n<p>", "winback.html:4: subject: is empty"},
		{"an index that is none", "---\nsubject: x\nbitIndex: seven\n---\n<p>", `winback.html:3: bitIndex: "seven" is not a whole number`},
		{"a fraction", "---\nsubject: x\nbitIndex: 1.5\n---\n<p>", `winback.html:3: bitIndex: "1.5" is not a whole number`},
		{"a text", "---\nsubject: x\nbitIndex: '7'\n---\n<p>", `winback.html:3: bitIndex: "7" is not a whole number`},
		{"a large index", "---\nsubject: x\nbitIndex: 4096\n---\n<p>", "winback.html:3: bitIndex: 4096 is outside 0 to 4095"},
		{"a negative one", "---\nsubject: x\nbitIndex: -1\n---\n<p>", "winback.html:3: bitIndex: -1 is outside 0 to 4095"},
		{"a bad name", "---\nname: Win Back\nsubject: x\n---\n<p>", `winback.html:2: name: "Win Back" is no name`},
		{"a sender with a field", head + "subject: x\nfrom: '{{ .User.a }} <a@x.example>'\n---\n<p>", "winback.html:5: from: is the same for everybody"},
		{"a sender with a header in it", head + "subject: x\nfrom: \"a@x.example\\r\\nBcc: b@x.example\"\n---\n<p>", "winback.html:5: from: "},
		{"a list", head + "subject: [a, b]\n---\n<p>", "winback.html:4: subject: takes a single value"},
		{"track", head + "subject: x\ntrack: maybe\n---\n<p>", `winback.html:5: track: "maybe" is neither true nor false`},
		{"no YAML", "---\nname: x\n\t- y\n---\n<p>", "winback.html:3: "},
		{"a scalar", "---\nhello\n---\n<p>", "winback.html:2: the front matter is not a list of key: value"},
		{"empty", "---\n---\n<p>", "winback.html:1: the front matter is empty"},
		{"none", "<p>x</p>", "winback.html:1: no front matter; begin with a line of ---"},
		{"no end", head + "subject: x\n<p>", "winback.html:1: the front matter has no end"},
		{"an empty file", "", "winback.html:1: the file is empty"},
		{"no mail", head + "subject: x\n---\n \n", "winback.html:5: there is no mail below the front matter"},
		{"a fault in the body", head + "subject: x\n---\n<p>\n{{ .Usr }}", "winback.html:7: .Usr: unknown"},
		{"a fault in the subject", head + "subject: '{{ .Usr }}'\n---\n<p>", "winback.html (subject):1: .Usr: unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseMail("winback.html", []byte(c.file), nil, nil)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestWithIndex(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"after the name", "---\nname: a\nsubject: x\n---\n<p>", "---\nname: a\nbitIndex: 7\nsubject: x\n---\n<p>"},
		{"first", "---\nsubject: x # y\n---\n<p>", "---\nbitIndex: 7\nsubject: x # y\n---\n<p>"},
		{"where it is left empty", "---\nsubject: x\nbitIndex:   # later\nname: a\n---\n<p>bitIndex:", "---\nsubject: x\nbitIndex: 7   # later\nname: a\n---\n<p>bitIndex:"},
		{"null", "---\nbitIndex: null\nsubject: x\n---\n<p>", "---\nbitIndex: 7\nsubject: x\n---\n<p>"},
		{"with CR LF", "---\r\nname: a\r\nsubject: x\r\n---\r\n<p>\r\n", "---\r\nname: a\r\nbitIndex: 7\r\nsubject: x\r\n---\r\n<p>\r\n"},
		{"with a BOM", "\xef\xbb\xbf---\nsubject: x\n---\n", "\xef\xbb\xbf---\nbitIndex: 7\nsubject: x\n---\n"},
	} {
		got, err := withIndex([]byte(c.file), 7)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
	for name, file := range map[string]string{
		"a name over two lines": "---\nname: >-\n  a\nsubject: x\n---\n",
		"braces":                "---\n{name: a, subject: x}\n---\n",
		"another index":         "---\nbitIndex: 3\nsubject: x\n---\n",
	} {
		if got, err := withIndex([]byte(file), 7); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Whatever surrounds it, the index is what is added and nothing else.
func TestWithIndexKeepsTheRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		eol := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "eol")
		lines := rapid.Permutation([]string{"name: a", "subject: 'x # y'", "# a comment", "repeat: never", ""}).Draw(t, "lines")
		body := rapid.String().Draw(t, "body")
		file := "---" + eol + strings.Join(lines, eol) + eol + "---" + eol + body
		n := rapid.IntRange(0, MaxBitIndex).Draw(t, "index")
		out, err := withIndex([]byte(file), n)
		if err != nil {
			t.Fatal(err)
		}
		s, err := split(out)
		if err != nil {
			t.Fatal(err)
		}
		if h, err := parseHeader("a.html", s.front); err != nil || h.bitIndex != n {
			t.Fatalf("%q: %d, %v", out, h.bitIndex, err)
		}
		at := bytes.Index(out, []byte("bitIndex: "))
		end := at + bytes.IndexByte(out[at:], '\n') + 1
		if rest := string(out[:at]) + string(out[end:]); rest != file {
			t.Fatalf("%q became %q", file, rest)
		}
	})
}

func TestSuggest(t *testing.T) {
	for word, want := range map[string]string{"subjct": "; subject?", "bitindex": "; bitIndex?", "Subject": "; subject?", "replyto": "; reply_to?", "colour": "", "x": "", "": ""} {
		if got := spelling.Hint(word, headerKeys); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}

func TestReadDir(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.html", "---\nname: a\nbitIndex: 1\nsubject: x\n---\n<p>{{ template \"footer\" . }}</p>")
	write(t, dir, "a.txt", "text")
	write(t, dir, "alone.html", "---\nbitIndex: 2\nsubject: x\n---\n<!doctype html><html><body>x</body></html>")
	write(t, dir, "_layout.html", "<html>{{ template \"content\" . }}</html>")
	write(t, dir, "_footer.html", "f")
	write(t, dir, "README.md", "not a template")
	write(t, dir, ".hidden.html", "nor this")
	got, err := ReadDir(dir)
	if err != nil || len(got) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	if got[0].Text != "text" || len(got[0].Parts) != 2 {
		t.Errorf("a: %+v", got[0])
	}
	if len(got[1].Parts) != 0 {
		t.Errorf("a whole document gets no layout: %+v", got[1])
	}
}

func TestReadDirFaults(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.html", "---\nname: same\nbitIndex: 1\nsubject: x\n---\n<p>")
	write(t, dir, "b.html", "---\nname: same\nbitIndex: 2\nsubject: x\n---\n<p>")
	write(t, dir, "c.txt", "alone")
	write(t, dir, "d.html", "---\nsubject: x\n---\n<p>\n\xff</p>")
	write(t, dir, "e.html", "---\nsubject: x\n---\n{{ template \"foo\" . }}")
	_, err := ReadDir(dir)
	if err == nil {
		t.Fatal("no fault")
	}
	for _, want := range []string{"b.html: name same is that of a.html, too", "c.txt: there is no c.html beside it", "d.html: line 5 is not valid UTF-8", `e.html:4: template "foo": unknown`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%s", want, err)
		}
	}
	if _, err := ReadDir(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no templates there") {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := ReadDir(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("no folder")
	}
	write(t, dir, "alone.html", "---\n")
	if _, err := ReadDir(filepath.Join(dir, "alone.html")); err == nil || !strings.Contains(err.Error(), "alone.html: that is a file; name its folder") {
		t.Errorf("a file: %v", err)
	}
}

// What is wrong with what all mails share is told once, and of many faults the first.
func TestManyFaultsAreNoLongText(t *testing.T) {
	t.Run("a layout of many mails", func(t *testing.T) {
		dir := folder(t, "a 1 x", "b 2 x", "c 3 x")
		write(t, dir, "_layout.html", "<body>{{ .oops }}{{ template \"content\" . }}</body>")
		_, err := ReadDir(dir)
		if err == nil || strings.Count(err.Error(), "\n") != 0 || !strings.HasPrefix(err.Error(), "_layout.html:1: .oops") {
			t.Errorf("%v", err)
		}
	})
	t.Run("one mail", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, "a.html", "---\nname: a\nbitIndex: 1\nsubject: x\n---\n"+strings.Repeat("{{ .oops }}\n", 10_000))
		_, err := ReadDir(dir)
		if err == nil || strings.Count(err.Error(), "\n") != 20 || !strings.HasPrefix(err.Error(), "a.html:6: .oops") || !strings.HasSuffix(err.Error(), "\nand 9,980 more") {
			t.Errorf("%.2000v", err)
		}
	})
	t.Run("front matter", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, "a.html", "---\n"+strings.Repeat("subject: x\n", 10_001)+"---\n<p>")
		_, err := ReadDir(dir)
		if err == nil || strings.Count(err.Error(), "\n") != 20 || !strings.HasPrefix(err.Error(), "a.html:3: subject: stands there twice") || !strings.HasSuffix(err.Error(), "\nand 9,980 more") {
			t.Errorf("%.2000v", err)
		}
	})
	t.Run("many mails", func(t *testing.T) {
		dir := t.TempDir()
		for i := range 30 {
			write(t, dir, fmt.Sprintf("m%02d.html", i), "---\nsubject: x\nsubjct: y\nfrm: z\n---\n<p>")
		}
		_, err := ReadDir(dir)
		if err == nil || strings.Count(err.Error(), "\n") != 20 || !strings.HasPrefix(err.Error(), "m00.html:3: subjct: unknown") || !strings.HasSuffix(err.Error(), "\nand 40 more") {
			t.Errorf("%v", err)
		}
	})
}

func write(t testing.TB, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
