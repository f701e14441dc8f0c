package mail

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-msgauth/dkim"
	"pgregory.net/rapid"

	"postbit/internal/certtest"
)

// pemOf is a private key as openssl writes it.
func pemOf(t testing.TB, private any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// rsa2048 is made once: it takes a while.
var rsa2048 = sync.OnceValue(func() *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return k
})

func signingKey(t testing.TB, domain, selector string, private any) *SigningKey {
	t.Helper()
	k, err := NewSigningKey(domain, selector, pemOf(t, private))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func rsaKey(t testing.TB) *SigningKey { return signingKey(t, "example.com", "r1", rsa2048()) }

func edKey(t testing.TB) *SigningKey {
	return signingKey(t, "example.com", "e1", ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
}

func signer(t testing.TB, keys ...*SigningKey) *Signer {
	t.Helper()
	s, err := NewSigner(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sign(t testing.TB, s *Signer, msg []byte) []byte {
	t.Helper()
	out, err := s.Sign(msg)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// verify gives the signatures in their order, as go-msgauth finds them. It made them, too, and what it gets wrong in the same way on both sides stays unseen here:
// this is the quick look, and dkimpy is the judge (TestDKIMPy).
func verify(msg []byte, keys ...*SigningKey) ([]*dkim.Verification, error) {
	return dkim.VerifyWithOptions(bytes.NewReader(msg), &dkim.VerifyOptions{LookupTXT: func(name string) ([]string, error) {
		for _, k := range keys {
			if name == k.Name() {
				return []string{k.Record()}, nil
			}
		}
		return nil, fmt.Errorf("%s: no such name", name)
	}})
}

// verifies says why a message does not bear one good signature of each key.
func verifies(msg []byte, keys ...*SigningKey) error {
	vs, err := verify(msg, keys...)
	if err != nil {
		return err
	}
	if len(vs) != len(keys) {
		return fmt.Errorf("%d signatures, want %d", len(vs), len(keys))
	}
	for i, v := range vs {
		if v.Err != nil {
			return fmt.Errorf("%s: %w", keys[i].Name(), v.Err)
		}
	}
	return nil
}

// awkward is a mail with all that is known to trip a signature up: M6.
func awkward() *Message {
	m := message()
	m.ReplyTo = Address{"Zoë & Co.", "help@example.com"}
	m.To.Name = strings.Repeat("Zoë von und zu ", 12)
	m.Subject = "  Grüße,   🎉 " + strings.Repeat("sehr lang ", 30)
	m.UnsubscribeURL = "https://m.example.com/u/" + strings.Repeat("AQUyMDI2YQIAESIzRFVmdwcM_-", 37) + "?x=%20;b=" // the longest that there can be
	m.UnsubscribeURL += strings.Repeat("1", lineHard-3-len(m.UnsubscribeURL))
	m.Text = ".\n..\n.dot\n\nFrom me\n" + strings.Repeat("x", 5000) + "\n trailing \t \n\ttab\tand  spaces   \n\r\nCR\rLF\nDKIM-Signature: v=1; b=\n=\n\x00\xff\n" + "漢字\u2028\n--=_\n" + strings.Repeat(" ", 200) + "\n\n\n\n"
	m.HTML = "<pre>\n" + m.Text + "</pre>" // and no line end
	return m
}

// arrived is a signed mail as a server got it.
func arrived(t *testing.T, m *Message, keys ...*SigningKey) []byte {
	t.Helper()
	return arrivedAt(t, startSink(t, nil), "", m, keys...)
}

func arrivedAt(t *testing.T, server *sink, query string, m *Message, keys ...*SigningKey) []byte {
	t.Helper()
	tr, err := Open("smtp://"+server.addr+query, Options{Signer: signer(t, keys...)})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	c := connect(t, tr)
	defer c.Release()
	if reply := c.Send(t.Context(), "news@example.com", "zoe@example.org", true, encode(t, m)); reply.Class != Accepted {
		t.Fatalf("%+v", reply)
	}
	return server.received()[0].data
}

func TestASignedMailVerifies(t *testing.T) {
	r, e := rsaKey(t), edKey(t)
	for name, keys := range map[string][]*SigningKey{"RSA": {r}, "Ed25519": {e}, "both": {r, e}} {
		for kind, change := range map[string]func(*Message){
			"both parts": func(*Message) {}, "text": func(m *Message) { m.HTML = "" }, "HTML": func(m *Message) { m.Text = "" },
			"an SMTPUTF8 address": func(m *Message) { m.To.Addr = "jörg@exämple.de" },
			"nothing but lines":   func(m *Message) { m.Text, m.HTML = "\n\n\n", "" },
			"nothing but space":   func(m *Message) { m.Text, m.HTML = " ", "" },
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				m := awkward()
				change(m)
				got := arrived(t, m, keys...)
				checkLines(t, got)
				if err := verifies(got, keys...); err != nil {
					t.Errorf("%v\n%s", err, got)
				}
			})
		}
	}
}

// Under STARTTLS the SMTP client itself writes the message, another way than without.
func TestASignedMailVerifiesUnderTLS(t *testing.T) {
	cert := certtest.New(t, "127.0.0.1")
	server := startSink(t, func(s *sink) { s.TLSConfig = cert.Server })
	keys := []*SigningKey{rsaKey(t), edKey(t)}
	got := arrivedAt(t, server, "?tls=required&ca="+cert.CA, awkward(), keys...)
	if err := verifies(got, keys...); err != nil {
		t.Errorf("%v\n%s", err, got)
	}
}

// RFC 8058 section 4 asks for a signature over both headers of one-click unsubscribing; RFC 6376 section 8.15 for what keeps a second From, Subject ... out.
func TestWhatASignatureCovers(t *testing.T) {
	k := edKey(t)
	for _, tc := range []struct {
		name   string
		change func(*Message)
		times  map[string]int
	}{
		{"all of them", func(*Message) {}, map[string]int{"From": 2, "Reply-To": 2, "To": 2, "Subject": 2, "Date": 2, "Message-ID": 2, "List-Unsubscribe": 2,
			"List-Unsubscribe-Post": 2, "MIME-Version": 2, "Content-Type": 2, "Content-Transfer-Encoding": 1}},
		{"one part", func(m *Message) { m.HTML = "" }, map[string]int{"From": 2, "Reply-To": 2, "To": 2, "Subject": 2, "Date": 2, "Message-ID": 2, "List-Unsubscribe": 2,
			"List-Unsubscribe-Post": 2, "MIME-Version": 2, "Content-Type": 2, "Content-Transfer-Encoding": 2}},
		{"no Reply-To, no List-Unsubscribe", func(m *Message) { m.ReplyTo, m.UnsubscribeURL = Address{}, "" }, map[string]int{"From": 2, "Reply-To": 1, "To": 2, "Subject": 2,
			"Date": 2, "Message-ID": 2, "List-Unsubscribe": 1, "List-Unsubscribe-Post": 1, "MIME-Version": 2, "Content-Type": 2, "Content-Transfer-Encoding": 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := awkward()
			tc.change(m)
			vs, err := verify(sign(t, signer(t, k), encode(t, m)), k)
			if err != nil || len(vs) != 1 || vs[0].Err != nil {
				t.Fatalf("%v, %v", vs, err)
			}
			got := map[string]int{}
			for _, h := range vs[0].HeaderKeys {
				got[h]++
			}
			if fmt.Sprint(got) != fmt.Sprint(tc.times) {
				t.Errorf("h= names\n%v, want\n%v", got, tc.times)
			}
			if v := vs[0]; v.Domain != "example.com" || !v.Expiration.IsZero() {
				t.Errorf("%+v", v)
			}
		})
	}
}

func TestTheHeaderOfASignature(t *testing.T) {
	raw := encode(t, awkward())
	header, ok := bytes.CutSuffix(sign(t, signer(t, edKey(t)), raw), append([]byte("\r\n"), raw...))
	text, ok2 := strings.CutPrefix(string(header), "DKIM-Signature:")
	tags, err := parseTags(text)
	if !ok || !ok2 || err != nil {
		t.Fatalf("%v: it is not one header before the message as it was:\n%s", err, header)
	}
	if names := slices.Sorted(maps.Keys(tags)); !slices.Equal(names, []string{"a", "b", "bh", "c", "d", "h", "s", "t", "v"}) { // no l=: what is appended to a body is found; no x=
		t.Errorf("tags: %v", names)
	}
	for name, want := range map[string]string{"v": "1", "a": "ed25519-sha256", "c": "relaxed/relaxed", "d": "example.com", "s": "e1"} {
		if tags[name] != want {
			t.Errorf("%s=%s, want %s", name, tags[name], want)
		}
	}
}

// altered is a signed mail to which something happened.
type altered struct {
	name string
	msg  []byte
}

// tampered is a signed mail in all the ways that a signature must not survive.
func tampered(t *testing.T, good []byte) (rows []altered) {
	t.Helper()
	replace := func(name, from, to string) {
		t.Helper()
		if bytes.Count(good, []byte(from)) != 1 {
			t.Fatalf("%s: %q does not stand there once", name, from)
		}
		rows = append(rows, altered{name, bytes.Replace(good, []byte(from), []byte(to), 1)})
	}
	for _, name := range signed {
		second := name + ": <https://evil.example/>\r\n"
		replace("another "+name, "\r\n"+name+":", "\r\n"+name+": x")
		replace("no "+name, "\r\n"+name+":", "\r\nX-"+name+":")
		rows = append(rows, altered{"a second " + name + ", on top", append([]byte(second), good...)},
			altered{"a second " + name + ", below", bytes.Replace(good, []byte("\r\n\r\n"), []byte("\r\n"+second+"\r\n"), 1)})
	}
	replace("the last line of the body", "--=3D_", "--=3D_x")
	replace("a word of the body is gone", "rom me", "rom")
	return append(rows, altered{"a line is appended", append(bytes.Clone(good), "more\r\n"...)}, altered{"the body is gone", good[:bytes.Index(good, []byte("\r\n\r\n"))+4]})
}

// onePart is awkward with all headers that are signed: a mail of two parts has no Content-Transfer-Encoding.
func onePart() *Message {
	m := awkward()
	m.HTML = ""
	return m
}

func TestTamperingIsFound(t *testing.T) {
	keys := []*SigningKey{rsaKey(t), edKey(t)}
	good := sign(t, signer(t, keys...), encode(t, onePart()))
	if err := verifies(good, keys...); err != nil {
		t.Fatal(err)
	}
	for _, r := range tampered(t, good) {
		t.Run(r.name, func(t *testing.T) {
			vs, err := verify(r.msg, keys...)
			if err != nil || len(vs) != len(keys) {
				t.Fatalf("%v, %v", vs, err)
			}
			for i, v := range vs {
				if v.Err == nil {
					t.Errorf("%s still verifies:\n%s", keys[i].Name(), r.msg)
				}
			}
		})
	}
}

// travelled is a signed mail after what mail systems do on the way, which a relaxed signature survives.
func travelled(good []byte) []altered {
	return []altered{
		{"trace headers", append([]byte("Received: from a by b; Tue, 01 Dec 2026 09:00:00 +0000\r\nReturn-Path: <a@b.example>\r\n"), good...)},
		{"headers folded anew", bytes.ReplaceAll(good, []byte("\r\n "), []byte(" \r\n\t "))},
		{"headers unfolded", bytes.Replace(good, []byte("List-Unsubscribe:\r\n "), []byte("List-Unsubscribe: "), 1)},
		{"names in capitals", bytes.Replace(good, []byte("\r\nSubject:"), []byte("\r\nSUBJECT:"), 1)},
		{"empty lines behind", append(bytes.Clone(good), "\r\n\r\n"...)},
		{"no line end at all", bytes.TrimRight(good, "\r\n")},
		{"a header of theirs", bytes.Replace(good, []byte("\r\nDate:"), []byte("\r\nX-Spam: no\r\nDate:"), 1)},
	}
}

func TestAJourneyIsSurvived(t *testing.T) {
	keys := []*SigningKey{rsaKey(t), edKey(t)}
	for _, r := range travelled(sign(t, signer(t, keys...), encode(t, awkward()))) {
		if err := verifies(r.msg, keys...); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
	}
}

// anyMessage is whatever can be encoded.
func anyMessage() *rapid.Generator[*Message] {
	piece := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{" ", "\t", "  ", "\n", "\r\n", "\r", "\n\n\n", ".", "=", "From ", "漢", "\x00", "\xff", strings.Repeat("x", 80), strings.Repeat(" ", 80)}))
	text := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(piece, 0, 30).Draw(t, "pieces"), "") })
	line := rapid.Map(text, strings.NewReplacer("\r", "", "\n", "", "\x00", "").Replace)
	return rapid.Custom(func(t *rapid.T) *Message {
		m := message()
		m.Subject, m.From.Name, m.To.Name = line.Draw(t, "subject"), line.Draw(t, "sender"), line.Draw(t, "recipient")
		m.Text, m.HTML = text.Draw(t, "text"), text.Draw(t, "HTML")
		if m.Text == "" && m.HTML == "" {
			m.Text = "\n"
		}
		if rapid.Bool().Draw(t, "unsubscribe") {
			m.UnsubscribeURL = "https://m.example.com/u/" + rapid.StringMatching(`[A-Za-z0-9_=;:-]{0,900}`).Draw(t, "token")
		}
		if rapid.Bool().Draw(t, "reply to") {
			m.ReplyTo = Address{line.Draw(t, "name"), "help@example.com"}
		}
		return m
	})
}

func TestEveryMessageVerifies(t *testing.T) {
	keys := []*SigningKey{rsaKey(t), edKey(t)}
	s, messages := signer(t, keys...), anyMessage()
	rapid.Check(t, func(t *rapid.T) {
		raw, err := messages.Draw(t, "message").Encode()
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Sign(raw)
		if err == nil {
			err = verifies(out, keys...)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, raw)
		}
	})
}

// What isn't made here is signed such that others verify it, or refused.
func FuzzSign(f *testing.F) {
	k := edKey(f)
	s := signer(f, k)
	raw, err := awkward().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	for _, text := range []string{
		"From: a@example.com\r\n\r\n", "from : <a@example.com>\r\n folded\r\n \r\n\r\n\r\n\r\nx", "From: a@b.c\r\nFrom: d@e.f\r\nSubject:\r\nSubject: x  y\t\r\n\r\n x \t\r\n\r\n",
		"\r\nFrom: a@b.c\r\n\r\n", "From:@\r\n\r\n \r\n\t\r\n", "DKIM-Signature: v=1; b=x\r\nFrom: a@b.c\r\n\r\n", "a b: c\r\nFrom: a@b.c\r\n\r\n",
		"From: a@b.c\r\nFROM: d@e.f\r\nto:\r\n \r\nTo: x\r\n\r\n", "From: a@b.c\r\nFrom : d@e.f\r\n\r\n", "From: a@b.c\r\nSubject: \x00\xff\r\n\r\n", "From: a@b.c\r\n: x\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		out, err := s.Sign(msg)
		if err != nil {
			if !errors.Is(err, ErrMessage) || out != nil {
				t.Fatalf("%q, %v", out, err)
			}
			return
		}
		vs, err := verify(out, k)
		if err != nil || len(vs) == 0 || vs[0].Err != nil { // there may be others below ours
			t.Fatalf("%v, %v\n%q", vs, err, out)
		}
		for _, name := range signed {
			vs, err := verify(append([]byte(name+": another\r\n"), out...), k)
			if err != nil || len(vs) == 0 || vs[0].Err == nil {
				t.Fatalf("with another %s: %v, %v\n%q", name, vs, err, out)
			}
		}
	})
}

func TestSignRefuses(t *testing.T) {
	s := signer(t, edKey(t))
	for name, msg := range map[string]string{
		"a line feed alone":        "From: a@example.com\r\n\r\nx\ny\r\n",
		"a carriage return alone":  "From: a@example.com\r\n\r\nx\ry\r\n",
		"no sender":                "To: a@example.com\r\n\r\nx\r\n",
		"a sender without address": "From: nobody\r\n\r\nx\r\n",
		"no headers":               "\r\n\r\nx\r\n",
		"no body":                  "From: a@example.com\r\n",
		"a line that is no header": "From: a@example.com\r\nx\r\n\r\nx\r\n",
		"a name that is none":      "From: a@example.com\r\nx y: z\r\n\r\nx\r\n",
		"a space behind a name":    "From: a@example.com\r\nFrom : b@example.com\r\n\r\nx\r\n",
		"a NUL in a header":        "From: a@example.com\r\nSubject: \x00\r\n\r\nx\r\n",
		"nothing":                  "",
	} {
		if out, err := s.Sign([]byte(msg)); !errors.Is(err, ErrMessage) || out != nil {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
}

// A mail is signed for the sender's organisation; where no key is of it, by all, for something is better than nothing.
func TestWhichKeysSign(t *testing.T) {
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	com, sub, uk := signingKey(t, "example.com", "a", private), signingKey(t, "mail.example.com", "b", private), signingKey(t, "example.co.uk", "c", private)
	idn := signingKey(t, "Exämple.DE.", "d", private)
	s := signer(t, com, sub, uk, idn)
	for from, want := range map[string][]*SigningKey{
		"a@example.com": {com, sub}, "a@news.mail.example.com": {com, sub}, "a@EXAMPLE.com": {com, sub}, "a@x.example.co.uk": {uk}, "a@exämple.de": {idn},
		"a@other.co.uk": {com, sub, uk, idn}, "a@example.org": {com, sub, uk, idn},
	} {
		m := message()
		m.From = Address{`Ada <ada@example.org> "@" x`, from}
		if strings.HasPrefix(from, "a@E") {
			m.From.Name = ""
		}
		if err := verifies(sign(t, s, encode(t, m)), want...); err != nil {
			t.Errorf("%s: %v", from, err)
		}
	}
}

func TestTheOutboxHoldsSignedMails(t *testing.T) {
	dir, k := t.TempDir(), edKey(t)
	var seen []Delivery
	tr, err := Open("outbox:"+dir, Options{Signer: signer(t, k), Observe: func(d Delivery) { seen = append(seen, d) }})
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, tr)
	defer c.Release()
	if r := c.Send(t.Context(), "news@example.com", "zoe@example.org", false, encode(t, awkward())); r.Class != Accepted {
		t.Fatalf("%+v", r)
	}
	if r := c.Send(t.Context(), "news@example.com", "zoe@example.org", false, []byte("Subject: x\r\n\r\nx\r\n")); r.Class != Failed || !errors.Is(r.Err, ErrMessage) {
		t.Errorf("a message that can't be signed: %+v", r)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.eml"))
	if err != nil || len(files) != 1 || len(seen) != 1 {
		t.Fatalf("%v, %v; %d seen", files, err, len(seen))
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, msg := range [][]byte{data, seen[0].Message} {
		if err := verifies(msg, k); err != nil {
			t.Errorf("%v\n%s", err, msg)
		}
	}
}

// A server that is told the size of a message must be told that of the signed one.
func TestTheLimitOfTheServerHoldsForTheSignedMessage(t *testing.T) {
	raw := encode(t, message())
	server := startSink(t, func(s *sink) { s.MaxMessageBytes = int64(len(raw)) + 100 })
	for name, tc := range map[string]struct {
		signer *Signer
		want   Class
	}{"unsigned": {nil, Accepted}, "signed": {signer(t, edKey(t)), Failed}} {
		tr, err := Open("smtp://"+server.addr, Options{Signer: tc.signer})
		if err != nil {
			t.Fatal(err)
		}
		c := connect(t, tr)
		if r := c.Send(t.Context(), "news@example.com", "zoe@example.org", false, raw); r.Class != tc.want {
			t.Errorf("%s: %+v", name, r)
		}
		c.Release()
		tr.Close()
	}
}

func TestManySignAtOnce(t *testing.T) {
	keys := []*SigningKey{rsaKey(t), edKey(t)}
	s := signer(t, keys...)
	var wg sync.WaitGroup
	for i := range 8 {
		m := awkward()
		m.Subject += fmt.Sprint(i)
		raw := encode(t, m)
		wg.Go(func() {
			out, err := s.Sign(raw)
			if err == nil {
				err = verifies(out, keys...)
			}
			if err != nil || !bytes.HasSuffix(out, raw) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	wg.Wait()
}
