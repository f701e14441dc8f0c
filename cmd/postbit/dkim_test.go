package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/emersion/go-msgauth/dkim"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/mail"
)

// dns stands for the TXT records that are published.
type dns map[string]string

func (d dns) lookup(_ context.Context, name string) ([]string, error) {
	text, ok := d[strings.TrimSuffix(name, ".")]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return []string{text}, nil
}

// keyFile writes a private key and gives its middle, which must not be shown, and the key as postbit reads it.
func keyFile(t *testing.T, name string, private any, selector string) (secret string, k *mail.SigningKey) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if k, err = mail.NewSigningKey("post.example", selector, text); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(der)[24:], k
}

// Whatever sends signs: a worker, and `send`, which share nothing but the settings.
func TestMailsAreSigned(t *testing.T) {
	s := newShell(t)
	users := s.external(t)
	for id, name := range []string{"Ada", "Bob", "Zoë"} {
		if _, err := users.InsertOne(t.Context(), bson.M{"_id": id + 1, "email": fmt.Sprintf("u%d@post.example", id), "name": name}); err != nil {
			t.Fatal(err)
		}
	}
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	secret, r1 := keyFile(t, "r1.pem", private, "r1")
	secret2, e1 := keyFile(t, "e1.pem", ed25519.NewKeyFromSeed(bytes.Repeat([]byte("e"), 32)), "e1")
	t.Setenv("POSTBIT_SMTP_URL", "outbox:mails")
	t.Setenv("POSTBIT_MAIL_DKIM", "[{domain: post.example, selector: r1, key_file: r1.pem}, {domain: post.example, selector: e1, key_file: e1.pem}]")
	t.Setenv("POSTBIT_LOG_LEVEL", "debug")
	s.write("templates/winback.html", winbackHTML)
	s.write("campaigns/winback.yaml", "name: winback\ntemplate: winback\naudience: { _id: { $lt: 3 } }\n")
	s.must("templates", "push", "templates")
	s.must("campaigns", "apply", "campaigns")
	stop := s.serve()
	s.must("campaigns", "run", "winback")
	s.await("the run is done", func() bool {
		var shown campaignShown
		s.decode(s.must("campaigns", "show", "winback", "--json"), &shown)
		return shown.State == "done"
	})
	said := stop().err + s.must("send", "winback", "3")
	if !strings.Contains(said, `msg="mails are signed" keys="[r1._domainkey.post.example e1._domainkey.post.example]"`) {
		t.Errorf("serve does not say who signs:\n%s", said)
	}
	for _, secret := range []string{secret, secret2} {
		if strings.Contains(said, secret[:36]) {
			t.Errorf("the key is shown:\n%s", said)
		}
	}
	files, err := filepath.Glob("mails/*/*.eml")
	if err != nil || len(files) != 3 {
		t.Fatalf("%d mails, want 3: %v", len(files), err)
	}
	records := dns{r1.Name(): r1.Record(), e1.Name(): e1.Record()}
	for _, name := range files {
		msg, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		vs, err := dkim.VerifyWithOptions(bytes.NewReader(msg), &dkim.VerifyOptions{LookupTXT: func(name string) ([]string, error) { return records.lookup(t.Context(), name) }})
		if err != nil || len(vs) != 2 {
			t.Fatalf("%d signatures, %v\n%s", len(vs), err, msg)
		}
		for _, v := range vs {
			if v.Err != nil || v.Domain != "post.example" {
				t.Errorf("%+v\n%s", v, msg)
			}
		}
	}
}

func TestAKeyThatCannotSignIsUsage(t *testing.T) {
	s := newShell(t)
	s.external(t)
	s.write("short.pem", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
	for _, tc := range []struct{ setting, want string }{
		{"[{domain: post.example, selector: r1, key_file: missing.pem}]", "POSTBIT_MAIL_DKIM: not a key that mails can be signed with: open missing.pem"},
		{"[{domain: post.example, selector: r1, key_file: short.pem}]", "POSTBIT_MAIL_DKIM: short.pem: not a key that mails can be signed with: its PEM holds no key that can be read"},
		{"[{domain: post.example, selektor: r1, key_file: short.pem}]", `POSTBIT_MAIL_DKIM: "selektor" is unknown; a key has domain, selector and key_file; selector?`},
	} {
		t.Setenv("POSTBIT_MAIL_DKIM", tc.setting)
		s.refuses(exitUsage, []string{tc.want}, "send", "winback", "1")
		s.refuses(exitUsage, []string{tc.want}, "serve")
	}
}

func TestDoctorLooksAtDKIM(t *testing.T) {
	s := newShell(t)
	s.external(t)
	s.write("templates/winback.html", winbackHTML)
	s.write("templates/digest.html", strings.NewReplacer("name: winback", "name: digest", "bitIndex: 7", "bitIndex: 8", "ada@post.example", "ada@mail.post.example").Replace(winbackHTML))
	s.must("templates", "push", "templates")
	_, k := keyFile(t, "e1.pem", ed25519.NewKeyFromSeed(make([]byte, 32)), "e1")
	_, other := keyFile(t, "other.pem", ed25519.NewKeyFromSeed(bytes.Repeat([]byte("x"), 32)), "e1")
	if err := os.Chmod("other.pem", 0o644); err != nil {
		t.Fatal(err)
	}
	const setting = "[{domain: post.example, selector: e1, key_file: e1.pem}]"
	for _, tc := range []struct {
		name, setting string
		txt           lookupTXT
		want          []string // lines of the table begin with dkim, spaces left out
		not           string
	}{
		{"no keys", "", nil, []string{"ok postbit signs no mails"}, ""},
		{"published", setting, dns{k.Name(): k.Record()}.lookup, []string{"ok e1._domainkey.post.example: the key is published"}, "DMARC"},
		{"not published", setting, dns{}.lookup, []string{"fail e1._domainkey.post.example: no key is published. Publish: e1._domainkey.post.example. IN TXT ( \"v=DKIM1; k=ed25519; p="}, ""},
		{"another is", setting, dns{k.Name(): other.Record()}.lookup, []string{"fail e1._domainkey.post.example: what is published is not this key: p= is another key. Publish: "}, ""},
		{"in test", setting, dns{k.Name(): k.Record() + "; t=y"}.lookup, []string{"warn e1._domainkey.post.example: the record says t=y"}, ""},
		{"no DNS", setting, func(context.Context, string) ([]string, error) { return nil, errors.New("no servers") }, []string{"warn e1._domainkey.post.example can't be looked up: no servers. There should be: e1"}, ""},
		{"a file for everybody", strings.Replace(setting, "e1.pem", "other.pem", 1), dns{k.Name(): other.Record()}.lookup, []string{"warn other.pem has the mode 0644", "ok e1._domainkey.post.example"}, ""},
		{"another organisation", strings.Replace(setting, "post.example", "news.example", 1), dns{}.lookup,
			[]string{"warn winback: the sender is of post.example and the keys are of news.example; DMARC", "warn digest: the sender is of mail.post.example"}, ""},
		{"another organisation, by two keys", "[{domain: news.example, selector: e1, key_file: e1.pem}, {domain: news.example, selector: e2, key_file: e1.pem}]", dns{}.lookup,
			[]string{"warn winback: the sender is of post.example and the keys are of news.example; DMARC"}, ""},
		{"one is missing", setting[:len(setting)-1] + ", {domain: post.example, selector: e2, key_file: gone.pem}]", dns{k.Name(): k.Record()}.lookup,
			[]string{"fail POSTBIT_MAIL_DKIM: not a key that mails can be signed with: open gone.pem", "ok e1._domainkey.post.example"}, ""},
		{"one twice", setting[:len(setting)-1] + ", {domain: post.example, selector: e1, key_file: e1.pem}]", dns{k.Name(): k.Record()}.lookup,
			[]string{"fail POSTBIT_MAIL_DKIM: not a key that mails can be signed with: e1._domainkey.post.example stands there twice"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("POSTBIT_MAIL_DKIM", tc.setting)
			s.txt = tc.txt
			out := s.run("doctor").out
			flat := strings.Join(strings.Fields(out), " ")
			for _, want := range tc.want {
				if !strings.Contains(flat, "dkim "+want) {
					t.Errorf("%q is missing in\n%s", want, out)
				}
			}
			if tc.not != "" && strings.Contains(flat, tc.not) {
				t.Errorf("%q stands in\n%s", tc.not, out)
			}
			if !strings.Contains(flat, "takes mail") {
				t.Errorf("the SMTP server is hidden:\n%s", out)
			}
		})
	}
}

// A question that DNS never answers ends with the patience for it, which hangs on the command's context.
func TestDoctorDoesNotWaitForDNS(t *testing.T) {
	s := newShell(t)
	s.external(t)
	keyFile(t, "e1.pem", ed25519.NewKeyFromSeed(make([]byte, 32)), "e1")
	t.Setenv("POSTBIT_MAIL_DKIM", "[{domain: post.example, selector: e1, key_file: e1.pem}]")
	bounded := false
	s.txt = func(ctx context.Context, name string) ([]string, error) {
		_, bounded = ctx.Deadline()
		return nil, fmt.Errorf("%s: %w", name, context.DeadlineExceeded)
	}
	if out := s.run("doctor").out; !bounded || !strings.Contains(out, "can't be looked up") {
		t.Errorf("bounded %t:\n%s", bounded, out)
	}
}
