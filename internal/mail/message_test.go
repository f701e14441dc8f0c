package mail

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	netmail "net/mail"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	gomail "github.com/wneessen/go-mail"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"
)

var testDate = time.Date(2026, 12, 1, 9, 5, 7, 0, time.FixedZone("", 3600))

func message() *Message {
	return &Message{
		From: Address{"Postbit", "news@example.com"}, To: Address{"Zoë", "zoe@example.org"}, Subject: "Hello",
		Text: "Hello\n", HTML: "<p>Hello</p>\n", MessageID: "a1.b2@example.com", Date: testDate,
	}
}

// parsed is a mail as an independent reader sees it.
type parsed struct {
	header netmail.Header
	parts  map[string]string // by media type, decoded
}

func parse(t testing.TB, raw []byte) parsed {
	t.Helper()
	m, err := netmail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("it can't be read: %v\n%s", err, raw)
	}
	p := parsed{m.Header, map[string]string{}}
	media, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	if media != "multipart/alternative" {
		body, err := io.ReadAll(quotedprintable.NewReader(m.Body))
		if err != nil {
			t.Fatal(err)
		}
		p.parts[media] = string(body)
		return p
	}
	for r := multipart.NewReader(m.Body, params["boundary"]); ; {
		part, err := r.NextPart()
		if err == io.EOF {
			return p
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(part)
		if err != nil {
			t.Fatal(err)
		}
		media, params, err := mime.ParseMediaType(part.Header.Get("Content-Type"))
		if err != nil || params["charset"] != "utf-8" {
			t.Fatalf("%v, charset %q", err, params["charset"])
		}
		p.parts[media] = string(body)
	}
}

// checkLines holds for every message whatever is in it.
func checkLines(t testing.TB, raw []byte) {
	t.Helper()
	if !bytes.HasSuffix(raw, []byte("\r\n")) {
		t.Errorf("it does not end with CRLF")
	}
	for _, line := range strings.Split(string(raw), "\r\n") {
		if len(line) > lineHard || strings.ContainsAny(line, "\r\n\x00") {
			t.Errorf("a line that no server has to take: %d octets, %.100q", len(line), line)
		}
	}
	head, _, _ := strings.Cut(string(raw), "\r\n\r\n")
	for _, line := range strings.Split(head, "\r\n") {
		if strings.Contains(line, "=?utf-8?") && len(line) > lineSoft {
			t.Errorf("a line with an encoded-word has %d octets: %q", len(line), line)
		}
		if strings.TrimSpace(line) == "" {
			t.Errorf("a header line of nothing but space")
		}
		for _, word := range strings.Fields(line) {
			if !strings.HasPrefix(word, "=?") {
				continue
			}
			decoded, err := new(mime.WordDecoder).Decode(strings.TrimSuffix(word, ","))
			if err != nil || len(word) > wordMax || !utf8.ValidString(decoded) {
				t.Errorf("encoded-word %q: %d octets, %q, %v", word, len(word), decoded, err)
			}
		}
	}
}

func encode(t testing.TB, m *Message) []byte {
	t.Helper()
	raw, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	checkLines(t, raw)
	return raw
}

func TestEncode(t *testing.T) {
	m := message()
	m.UnsubscribeURL = "https://m.example.com/u/token"
	m.ReplyTo = Address{"", "help@example.com"}
	raw := encode(t, m)
	want := "Date: Tue, 01 Dec 2026 08:05:07 +0000\r\n" +
		"From: Postbit <news@example.com>\r\n" +
		"Reply-To: help@example.com\r\n" +
		"To: =?utf-8?q?Zo=C3=AB?= <zoe@example.org>\r\n" +
		"Subject: Hello\r\n" +
		"Message-ID: <a1.b2@example.com>\r\n" +
		"List-Unsubscribe:\r\n <https://m.example.com/u/token>\r\n" +
		"List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n" +
		"MIME-Version: 1.0\r\n" +
		"Content-Type: multipart/alternative;\r\n boundary=\"B\"\r\n\r\n" +
		"--B\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nHello\r\n\r\n" +
		"--B\r\nContent-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n<p>Hello</p>\r\n\r\n" +
		"--B--\r\n"
	if got := strings.ReplaceAll(string(raw), m.boundary(), "B"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if again := encode(t, m); !bytes.Equal(raw, again) {
		t.Error("the same message gave other bytes")
	}
}

func TestOnePartOnly(t *testing.T) {
	for media, m := range map[string]*Message{"text/plain": {Text: "Zoë"}, "text/html": {HTML: "Zoë"}} {
		full := message()
		full.Text, full.HTML = m.Text, m.HTML
		p := parse(t, encode(t, full))
		if len(p.parts) != 1 || p.parts[media] != "Zoë\r\n" {
			t.Errorf("%s: %q", media, p.parts)
		}
	}
}

var decodeHeader = new(mime.WordDecoder).DecodeHeader

func TestSubjects(t *testing.T) {
	for name, subject := range map[string]string{
		"M1: markup and quotes":         `A & B <3 O'Neil – Zoë "Z" <z@x>`,
		"M2: 400 bytes of emoji":        strings.Repeat("🎉", 100),
		"empty":                         "",
		"plain":                         "Your invoice",
		"looks like an encoded-word":    "=?utf-8?q?x?= and =?iso-8859-1?Q?=E4?=",
		"long and plain":                strings.Repeat("word ", 100) + "end",
		"one long word":                 strings.Repeat("x", 2000),
		"just too long for a line":      strings.Repeat("x", 68),
		"space at both ends":            "  x  ",
		"runs of spaces":                "a  b   c" + strings.Repeat(" ", 100) + "d",
		"nothing but spaces":            "    ",
		"tab and control characters":    "a\tb\x1b[31m\x7f",
		"mixed scripts":                 strings.Repeat("Привет 你好 مرحبا ", 20),
		"combining marks":               strings.Repeat("e\u0301\u0323", 50),
		"mostly ASCII":                  strings.Repeat("Grüße ", 30),
		"underscores, equals, question": "a_b=c?d – e_f=?g?=",
	} {
		t.Run(name, func(t *testing.T) {
			m := message()
			m.Subject = subject
			raw := encode(t, m)
			got, err := decodeHeader(unfold(t, raw, "Subject"))
			if err != nil || got != subject {
				t.Errorf("got  %q, %v\nwant %q", got, err, subject)
			}
		})
	}
}

// unfold returns a header's value as RFC 5322 says, with all of its space.
func unfold(t testing.TB, raw []byte, name string) string {
	t.Helper()
	head, _, _ := strings.Cut(string(raw), "\r\n\r\n")
	head = strings.NewReplacer("\r\n ", " ", "\r\n\t", "\t").Replace(head)
	for _, line := range strings.Split(head, "\r\n") {
		if v, ok := strings.CutPrefix(line, name+": "); ok {
			return v
		}
	}
	t.Fatalf("no %s in\n%s", name, head)
	return ""
}

func TestNames(t *testing.T) {
	for what, name := range map[string]string{
		"atoms": "Postbit News", "quotes": `Zoë "Z" <z@x>`, "quotes in ASCII": `Joe "J" \ <z@x>, Jr.`, "comma": "Doe, John", "long": strings.Repeat("John Jacob ", 30) + "x", "one long word": strings.Repeat("x", 300),
		"emoji": strings.Repeat("🎉", 60), "encoded-word": "=?utf-8?q?x?=", "spaces": "  a  b  ", "address": "z@example.com", "controls": "a\x01\x1b\tb", "parentheses": "a (b) c", "just fits": strings.Repeat("y", 60),
	} {
		t.Run(what, func(t *testing.T) {
			m := message()
			m.To.Name, m.From.Name = name, name
			p := parse(t, encode(t, m))
			for _, header := range []string{"To", "From"} {
				a, err := p.header.AddressList(header)
				if err != nil || len(a) != 1 || a[0].Name != name {
					t.Errorf("%s: %v, %v, want the name %q", header, a, err, name)
				}
			}
		})
	}
}

func TestAddressesInHeaders(t *testing.T) {
	m := message()
	m.To = Address{"Jörg", "jörg@exämple.de"}
	raw := encode(t, m)
	if !strings.Contains(string(raw), "To: =?utf-8?b?SsO2cmc=?= <jörg@xn--exmple-cua.de>\r\n") {
		t.Errorf("%s", raw)
	}
}

func TestEncodeRefuses(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Message)
		want   error
	}{
		{"M4: a name with a header in it", func(m *Message) { m.To.Name = "x\r\nBcc: evil@x" }, ErrHeader},
		{"line feed alone", func(m *Message) { m.To.Name = "x\nBcc: evil@x" }, ErrHeader},
		{"carriage return alone", func(m *Message) { m.From.Name = "x\rBcc: evil@x" }, ErrHeader},
		{"NUL", func(m *Message) { m.ReplyTo = Address{"x\x00", "a@example.com"} }, ErrHeader},
		{"subject", func(m *Message) { m.Subject = "x\r\n\r\n<script>" }, ErrHeader},
		{"subject that ends in a line break", func(m *Message) { m.Subject = "x\n" }, ErrHeader},
		{"recipient", func(m *Message) { m.To.Addr = "a@example.com>\r\nBcc: <evil@example.com" }, ErrAddress},
		{"no recipient", func(m *Message) { m.To.Addr = "" }, ErrAddress},
		{"no sender", func(m *Message) { m.From.Addr = "" }, ErrAddress},
		{"Message-ID with a break", func(m *Message) { m.MessageID = "a\r\nX: y@b" }, ErrHeader},
		{"Message-ID with >", func(m *Message) { m.MessageID = "a>@b" }, ErrHeader},
		{"Message-ID without @", func(m *Message) { m.MessageID = "ab" }, ErrHeader},
		{"no Message-ID", func(m *Message) { m.MessageID = "" }, ErrHeader},
		{"unsubscribe with a break", func(m *Message) { m.UnsubscribeURL = "https://x/\r\nBcc: evil@x" }, ErrHeader},
		{"unsubscribe with >", func(m *Message) { m.UnsubscribeURL = "https://x/>,<mailto:evil@x>" }, ErrHeader},
		{"unsubscribe by javascript", func(m *Message) { m.UnsubscribeURL = "javascript:alert(1)" }, ErrHeader},
		{"unsubscribe too long", func(m *Message) { m.UnsubscribeURL = "https://x/" + strings.Repeat("a", 1000) }, ErrHeader},
		{"no date", func(m *Message) { m.Date = time.Time{} }, ErrMessage},
		{"no body", func(m *Message) { m.Text, m.HTML = "", "" }, ErrMessage},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := message()
			tc.change(m)
			if raw, err := m.Encode(); !errors.Is(err, tc.want) || raw != nil {
				t.Errorf("Encode = %q, %v; want %v", raw, err, tc.want)
			}
		})
	}
}

func TestLongUnsubscribeURL(t *testing.T) {
	m := message()
	m.UnsubscribeURL = "https://m.example.com/u/" + strings.Repeat("a", 900)
	p := parse(t, encode(t, m))
	if got := p.header.Get("List-Unsubscribe"); got != "<"+m.UnsubscribeURL+">" {
		t.Errorf("%q", got)
	}
	if got := p.header.Get("List-Unsubscribe-Post"); got != "List-Unsubscribe=One-Click" {
		t.Errorf("%q", got)
	}
}

// M3: one line of 40,000 characters, with dots wherever a line could be wrapped.
func TestLongLine(t *testing.T) {
	var b strings.Builder
	for i := 0; b.Len() < 40000; i++ {
		b.WriteString([]string{".", "ä", ".", "x", "..", "漢", " ", "="}[i%8])
	}
	for name, html := range map[string]string{"mixed": b.String(), "nothing but dots": strings.Repeat(".", 40000), "From": strings.Repeat("From ", 8000)} {
		m := message()
		m.HTML = html
		raw := encode(t, m)
		if got := parse(t, raw).parts["text/html"]; got != html {
			t.Errorf("%s: came back in another form", name)
		}
		for _, line := range bytes.Split(raw, []byte("\r\n")) {
			if bytes.HasPrefix(line, []byte(".")) || bytes.HasPrefix(line, []byte("From ")) {
				t.Fatalf("%s: a line begins with %.10q", name, line)
			}
		}
	}
}

// canonical is text with CRLF at the end of each line, as it comes out of a mail.
func canonical(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\n", "\r\n")
}

func TestQuotedPrintableComesBack(t *testing.T) {
	piece := rapid.OneOf(
		rapid.String(),
		rapid.SampledFrom([]string{" ", "\t", "\r\n", "\n", "\r", ".", "=", "From ", " \n", "\t\r\n", "ä", "漢", "🎉", strings.Repeat("x", 74), strings.Repeat("x", 75), strings.Repeat("x", 76), strings.Repeat(" ", 80), "\x00", "\xff"}),
	)
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Join(rapid.SliceOfN(piece, 0, 30).Draw(t, "pieces"), "")
		q := appendQuoted(nil, validUTF8(s))
		got, err := io.ReadAll(quotedprintable.NewReader(bytes.NewReader(q)))
		if err != nil || string(got) != canonical(s) {
			t.Fatalf("%q became %q, read as %q, %v", s, q, got, err)
		}
		for _, line := range strings.Split(string(q), "\r\n") {
			if len(line) > 76 || !isASCII(line) || strings.HasPrefix(line, ".") || strings.HasPrefix(line, "From ") || line != strings.TrimRight(line, " \t") {
				t.Fatalf("line %q", line)
			}
		}
	})
}

// Whatever stands in a header value, the mail has the headers it should have, the value comes back, or it is refused.
func FuzzHeaders(f *testing.F) {
	for _, s := range []string{"x", "x\r\nBcc: evil@x", "=?utf-8?q?x?=", strings.Repeat("ä ", 200), "\xff\xfe", "a\u2028b", " ", "\t", `\"`, "=?utf-8?b?4pyT?=  =?utf-8?b?4pyT?="} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, subject, name string) {
		m := message()
		m.Subject, m.To.Name = subject, name
		raw, err := m.Encode()
		if err != nil {
			if !strings.ContainsAny(subject+name, "\r\n\x00") {
				t.Fatalf("refused: %v", err)
			}
			return
		}
		checkLines(t, raw)
		p := parse(t, raw)
		if len(p.header) != 7 {
			t.Fatalf("%d headers: %v", len(p.header), p.header)
		}
		if got, err := decodeHeader(unfold(t, raw, "Subject")); err != nil || got != strings.ToValidUTF8(subject, "\uFFFD") {
			t.Errorf("subject %q came back as %q, %v", subject, got, err)
		}
		to, err := p.header.AddressList("To")
		if err != nil || len(to) != 1 || to[0].Address != m.To.Addr || to[0].Name != strings.ToValidUTF8(name, "\uFFFD") {
			t.Errorf("name %q came back as %v, %v", name, to, err)
		}
	})
}

func TestMessageID(t *testing.T) {
	user := func(v any) bson.RawValue {
		typ, b, err := bson.MarshalValue(v)
		if err != nil {
			t.Fatal(err)
		}
		return bson.RawValue{Type: typ, Value: b}
	}
	run := [8]byte{1, 2, 3, 4, 5, 6, 7, 8}
	seen := map[string]string{}
	for _, v := range []any{int32(7), int64(7), "7", 7.0, bson.NewObjectID()} {
		for _, r := range [][8]byte{run, {9}} {
			id := MessageID(r, user(v), "example.com")
			if id != MessageID(r, user(v), "example.com") {
				t.Errorf("%v: not a function of run and user", v)
			}
			if _, err := messageID(id); err != nil {
				t.Error(err)
			}
			if other, ok := seen[id]; ok {
				t.Errorf("%T %v and %s share %s", v, v, other, id)
			}
			seen[id] = fmt.Sprintf("%T %v", v, v)
		}
	}
}

// benchMessage is a mail of 6 kB, a tenth of its words not ASCII.
func benchMessage() *Message {
	m := message()
	m.HTML, m.Text = "<html><body>", ""
	for len(m.HTML) < 4500 {
		m.HTML += "<p style=\"margin:0 0 12px 0\">Guten Tag Zoë, wir haben <a href=\"https://example.com/x?y=1\">etwas</a> für Sie.</p>\n"
	}
	for len(m.Text) < 1500 {
		m.Text += "Guten Tag Zoë, wir haben etwas für Sie: https://example.com/x?y=1\n"
	}
	m.Subject, m.UnsubscribeURL = "Grüße an Zoë", "https://m.example.com/u/AQ"
	return m
}

// BenchmarkEncode shows why MIME is made here: postbit's encoder beside the standard library's and go-mail's, for the same mail.
func BenchmarkEncode(b *testing.B) {
	m := benchMessage()
	b.Run("postbit", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := m.Encode(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("mime-quotedprintable", func(b *testing.B) { // the two bodies alone
		b.ReportAllocs()
		for b.Loop() {
			var buf bytes.Buffer
			for _, body := range []string{m.Text, m.HTML} {
				w := quotedprintable.NewWriter(&buf)
				io.WriteString(w, body)
				w.Close()
			}
		}
	})
	b.Run("go-mail", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			g := gomail.NewMsg()
			g.FromFormat(m.From.Name, m.From.Addr)
			g.AddToFormat(m.To.Name, m.To.Addr)
			g.Subject(m.Subject)
			g.SetDateWithValue(m.Date)
			g.SetMessageIDWithValue(m.MessageID)
			g.SetGenHeader("List-Unsubscribe", "<"+m.UnsubscribeURL+">")
			g.SetBodyString(gomail.TypeTextPlain, m.Text)
			g.AddAlternativeString(gomail.TypeTextHTML, m.HTML)
			if _, err := g.WriteTo(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
}
