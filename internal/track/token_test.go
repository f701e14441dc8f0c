package track

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"
)

func same(a, b Token) bool {
	return a.Kind == b.Kind && a.Run == b.Run && a.User.Equal(b.User) && a.SentAt.Equal(b.SentAt) && a.URL == b.URL
}

func TestTokenComesBack(t *testing.T) {
	ks := testKeys(t)
	for name, id := range map[string]any{
		"ObjectID": bson.ObjectID{1, 2, 3}, "string": "zoë", "empty string": "", "int32": int32(7), "int64": int64(-7), "double": 7.5, "UUID": bson.Binary{Subtype: 4, Data: make([]byte, 16)},
		"document": bson.D{{Key: "a", Value: 1}, {Key: "b", Value: "x"}}, "bool": true, "date": bson.NewDateTimeFromTime(noon), "long": strings.Repeat("x", maxUser-5), "decimal": bson.NewDecimal128(1, 2),
	} {
		for _, kind := range []Kind{Open, Click, Unsubscribe, Browser} {
			want := Token{Kind: kind, Run: testRun, User: userID(t, id), SentAt: noon.Add(123 * time.Millisecond)}
			if kind == Click {
				want.URL = "https://example.com/ä?x=1&y=%20#top"
			}
			s := ks.Sign(want)
			got, err := ks.Verify(s)
			if err != nil || !same(got, want) || len(s) > MaxToken {
				t.Errorf("%s, %v: %+v, %v", name, kind, got, err)
			}
		}
	}
}

func TestLongestToken(t *testing.T) {
	ks, err := ParseKeys(strings.Repeat("k", maxKeyID) + ":" + secret("s"))
	if err != nil {
		t.Fatal(err)
	}
	url := "https://example.com/"
	tok := Token{Kind: Click, User: userID(t, strings.Repeat("x", maxUser-5)), SentAt: time.UnixMilli(1<<48 - 1), URL: url + strings.Repeat("x", maxURL-len(url))}
	s := ks.Sign(tok)
	if got, err := ks.Verify(s); err != nil || !same(got, tok) || len(s) != MaxToken {
		t.Errorf("%d characters of %d: %v", len(s), MaxToken, err)
	}
}

func TestSignRefuses(t *testing.T) {
	ks := testKeys(t)
	ok := Token{Kind: Open, Run: testRun, User: userID(t, 1), SentAt: noon}
	for name, change := range map[string]func(*Token){
		"no user":               func(t *Token) { t.User = bson.RawValue{} },
		"user too long":         func(tok *Token) { tok.User = userID(t, strings.Repeat("x", maxUser)) },
		"before 1970":           func(t *Token) { t.SentAt = time.Unix(-1, 0) },
		"no time":               func(t *Token) { t.SentAt = time.Time{} },
		"click without a URL":   func(t *Token) { t.Kind = Click },
		"URL without a click":   func(t *Token) { t.URL = "https://example.com" },
		"click to javascript":   func(t *Token) { t.Kind, t.URL = Click, "javascript:alert(1)" },
		"click to a path":       func(t *Token) { t.Kind, t.URL = Click, "//example.com/x" },
		"click with line break": func(t *Token) { t.Kind, t.URL = Click, "https://example.com/\r\nSet-Cookie: a=b" },
		"URL too long":          func(t *Token) { t.Kind, t.URL = Click, "https://example.com/"+strings.Repeat("x", maxURL) },
	} {
		tok := ok
		change(&tok)
		if s := ks.Sign(tok); s != "" {
			t.Errorf("%s: %q", name, s)
		}
	}
}

func TestVerifyRefuses(t *testing.T) {
	ks := testKeys(t)
	good := ks.Sign(Token{Kind: Open, Run: testRun, User: userID(t, "zoe"), SentAt: noon})
	if _, err := ks.Verify(good); err != nil {
		t.Fatal(err)
	}
	other, err := ParseKeys("k1:" + secret("x"))
	if err != nil {
		t.Fatal(err)
	}
	bad := map[string]string{
		"empty": "", "one character": "A", "not base64": "!!!!", "padded": good + "==", "with a space": good[:10] + " " + good[10:], "with a line feed": good[:10] + "\n" + good[10:], "with carriage returns": good[:20] + "\r\r\r" + good[20:], "with a line break at its end": good + "\r\n", "10 kB": strings.Repeat("A", 10<<10), "standard alphabet": "++//" + good,
		"signed with another secret": other.Sign(Token{Kind: Open, Run: testRun, User: userID(t, "zoe"), SentAt: noon}),
		"something behind it":        good + "AAAA",
	}
	for n := range len(good) {
		bad[fmt.Sprintf("cut to %d", n)] = good[:n]
	}
	raw, _ := base64.RawURLEncoding.DecodeString(good)
	for i := range raw {
		for bit := range 8 {
			b := append([]byte(nil), raw...)
			b[i] ^= 1 << bit
			bad[fmt.Sprintf("byte %d, bit %d", i, bit)] = base64.RawURLEncoding.EncodeToString(b)
		}
	}
	for name, s := range bad {
		if tok, err := ks.Verify(s); !errors.Is(err, ErrToken) {
			t.Errorf("%s: %+v, %v", name, tok, err)
		}
	}
}

// A last character with other unused bits would be a second spelling of the same token.
func TestOneSpelling(t *testing.T) {
	ks := testKeys(t)
	for _, id := range []string{"a", "ab", "abc"} {
		good := ks.Sign(Token{Kind: Open, Run: testRun, User: userID(t, id), SentAt: noon})
		for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
			s := good[:len(good)-1] + string(c)
			if _, err := ks.Verify(s); (err == nil) != (s == good) {
				t.Errorf("%q: %v; made was %q", s, err, good)
			}
		}
	}
}

func TestKeysRotate(t *testing.T) {
	old, err := ParseKeys("old:" + secret("o"))
	if err != nil {
		t.Fatal(err)
	}
	both, err := ParseKeys("new:" + secret("n") + ", old:" + secret("o"))
	if err != nil {
		t.Fatal(err)
	}
	tok := Token{Kind: Open, Run: testRun, User: userID(t, 1), SentAt: noon}
	if _, err := both.Verify(old.Sign(tok)); err != nil {
		t.Error("what the old key signed doesn't verify any more")
	}
	if _, err := old.Verify(both.Sign(tok)); err == nil {
		t.Error("the first key should sign")
	}
}

func TestParseKeys(t *testing.T) {
	for name, s := range map[string]string{
		"standard base64": "k:" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\xff", 32))), "URL base64": "k:" + base64.URLEncoding.EncodeToString([]byte(strings.Repeat("\xff", 40))),
		"without padding": "k:" + strings.TrimRight(secret("a"), "="), "id": "2026-12_a:" + secret("a"),
	} {
		if _, err := ParseKeys(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	hush := "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3" // 31 bytes
	for name, s := range map[string]string{
		"empty": "", "a secret alone": secret("a"), "no id": ":" + secret("a"), "id in capitals": "K:" + secret("a"), "id too long": strings.Repeat("k", 17) + ":" + secret("a"), "31 bytes": "k:" + hush, "not base64": "k:" + hush + "!!" + hush,
		"a comma at the end": "k:" + secret("a") + ",", "twice": "k:" + secret("a") + ",k:" + secret("b"), "no secret": "k:", "the secret as id": hush + ":k",
	} {
		ks, err := ParseKeys(s)
		if !errors.Is(err, ErrKeys) || ks != nil || strings.Contains(err.Error(), hush[:8]) || strings.Contains(err.Error(), secret("a")[:8]) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The vectors of docs/pixel.md are what other services are built by.
func TestVectorsInTheDocs(t *testing.T) {
	doc, err := os.ReadFile("../../docs/pixel.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(name string) []string {
		_, rest, ok := strings.Cut(string(doc), "```"+name+"\n")
		if !ok {
			t.Fatalf("docs/pixel.md has no block %s", name)
		}
		text, _, _ := strings.Cut(rest, "```")
		return strings.Split(strings.TrimSpace(text), "\n")
	}
	ks, err := ParseKeys(block("secret")[0])
	if err != nil {
		t.Fatal(err)
	}
	lines := block("vectors")
	if len(lines) < 6 {
		t.Fatalf("%d vectors", len(lines))
	}
	kinds := map[string]Kind{"open": Open, "click": Click, "unsubscribe": Unsubscribe, "browser": Browser}
	for _, line := range lines {
		// kind, run (hex), user (type and value in hex), time sent, URL or -, token
		f := strings.Fields(line)
		if len(f) != 7 {
			t.Fatalf("%q has %d fields", line, len(f))
		}
		tok := Token{Kind: kinds[f[0]], User: bson.RawValue{Type: bson.Type(unhex(t, f[2])[0]), Value: unhex(t, f[3])}}
		copy(tok.Run[:], unhex(t, f[1]))
		if tok.SentAt, err = time.Parse(time.RFC3339Nano, f[4]); err != nil {
			t.Fatal(err)
		}
		if f[5] != "-" {
			tok.URL = f[5]
		}
		if got := ks.Sign(tok); got != f[6] {
			t.Errorf("%s\nis signed as\n%s", line, got)
		}
		if got, err := ks.Verify(f[6]); err != nil || !same(got, tok) {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
	}
}

// The Node.js code of the docs is a second implementation: it has to make the same tokens.
func TestNodeSnippetInTheDocs(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node here")
	}
	doc, err := os.ReadFile("../../docs/pixel.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "```js\n")
	code, _, _ := strings.Cut(rest, "```")
	code += `
const ids = { open: 1, click: 2, unsubscribe: 3, browser: 4 }
const doc = require('fs').readFileSync(process.argv[1], 'utf8')
const block = name => doc.split('\x60\x60\x60' + name + '\n')[1].split('\x60\x60\x60')[0].trim().split('\n')
const [keyId, secret] = block('secret')[0].split(':')
for (const line of block('vectors')) {
  const [kind, run, type, value, at, url, token] = line.split(' ')
  const got = sign({ keyId, secret: Buffer.from(secret, 'base64'), kind: ids[kind], run: Buffer.from(run, 'hex'),
    user: { type: parseInt(type, 16), value: Buffer.from(value, 'hex') }, sentAt: Date.parse(at), url: url === '-' ? '' : url })
  if (got !== token) { console.log(line + '\n' + got); process.exitCode = 1 }
}
`
	cmd := exec.Command(node, "-e", code, "../../docs/pixel.md")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func unhex(t *testing.T, s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTokenProperty(t *testing.T) {
	ks := testKeys(t)
	rapid.Check(t, func(rt *rapid.T) {
		tok := Token{
			Kind: Kind(rapid.SampledFrom([]Kind{Open, Unsubscribe, Browser}).Draw(rt, "kind")), Run: [8]byte(rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(rt, "run")),
			User: userID(t, rapid.StringN(0, 200, 800).Draw(rt, "user")), SentAt: time.UnixMilli(rapid.Int64Range(0, 1<<48-1).Draw(rt, "ms")),
		}
		if got, err := ks.Verify(ks.Sign(tok)); err != nil || !same(got, tok) {
			rt.Fatalf("%+v, %v", got, err)
		}
	})
}

// Nothing that we didn't sign is taken, and nothing makes Verify panic.
func FuzzVerify(f *testing.F) {
	ks, err := ParseKeys("k1:" + secret("s"))
	if err != nil {
		f.Fatal(err)
	}
	good := ks.Sign(Token{Kind: Open, Run: testRun, User: userID(f, "zoe"), SentAt: noon})
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add("")
	f.Add("AQJrMQ")
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := ks.Verify(s)
		if err == nil && ks.Sign(tok) != s {
			t.Errorf("%q verifies as %+v", s, tok)
		}
	})
}

// What is signed may come from a later version of the program: it is read with the same care.
func FuzzParseToken(f *testing.F) {
	f.Add([]byte("\x01\x01\x02\x03\x04\x05\x06\x07\x08\x10\x04\x07\x00\x00\x00\x01\x8f\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		tok, err := parseToken(b)
		if err == nil && (tok.User.Validate() != nil || tok.Kind < Open || tok.Kind > Browser) {
			t.Errorf("%+v", tok)
		}
	})
}

func TestURLs(t *testing.T) {
	ks := testKeys(t)
	u, err := NewURLs("https://m.example.com/mail/", ks)
	if err != nil {
		t.Fatal(err)
	}
	user := userID(t, 7)
	for url, want := range map[string]struct {
		prefix, suffix string
		kind           Kind
	}{
		u.Pixel(testRun, user, noon):                          {"https://m.example.com/mail/o/", ".gif", Open},
		u.Unsubscribe(testRun, user, noon):                    {"https://m.example.com/mail/u/", "", Unsubscribe},
		u.Browser(testRun, user, noon):                        {"https://m.example.com/mail/b/", "", Browser},
		u.Click(testRun, user, noon, "https://example.com/x"): {"https://m.example.com/mail/c/", "", Click},
	} {
		rest, ok := strings.CutPrefix(url, want.prefix)
		tok, err := ks.Verify(strings.TrimSuffix(rest, want.suffix))
		if !ok || !strings.HasSuffix(url, want.suffix) || err != nil || tok.Kind != want.kind {
			t.Errorf("%s: %+v, %v", url, tok, err)
		}
	}
	for _, target := range []string{"mailto:a@example.com", "tel:+49", "#top", "/x", "javascript:alert(1)", ""} {
		if got := u.Click(testRun, user, noon, target); got != target {
			t.Errorf("%q became %q", target, got)
		}
	}
	for _, base := range []string{"", "m.example.com", "ftp://m.example.com", "https://", "https://m.example.com/?x", "https://m.example.com/#x", "https://u:p@m.example.com", "https://m.example.com/\"x"} {
		if _, err := NewURLs(base, ks); !errors.Is(err, ErrBase) {
			t.Errorf("%q: %v", base, err)
		}
	}
}

func BenchmarkSign(b *testing.B) {
	ks := testKeys(b)
	tok := Token{Kind: Open, Run: testRun, User: userID(b, bson.NewObjectID()), SentAt: noon}
	b.ReportAllocs()
	for b.Loop() {
		ks.Sign(tok)
	}
}

func BenchmarkVerify(b *testing.B) {
	ks := testKeys(b)
	s := ks.Sign(Token{Kind: Open, Run: testRun, User: userID(b, bson.NewObjectID()), SentAt: noon})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ks.Verify(s); err != nil {
			b.Fatal(err)
		}
	}
}
