package mail

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestSigningKeys(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	large, err := os.ReadFile("testdata/dkim/rsa-4104.pem") // takes seconds to make
	if err != nil {
		t.Fatal(err)
	}
	ed := pemOf(t, ed25519.NewKeyFromSeed(make([]byte, 32)))
	block := func(kind string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	public, err := x509.MarshalPKIXPublicKey(&rsa2048().PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	locked := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}, Bytes: []byte("x")})
	for _, tc := range []struct {
		name             string
		domain, selector string
		key              []byte
		want             string // in the error; "": taken
	}{
		{"RSA, PKCS #8", "example.com", "s1", pemOf(t, rsa2048()), ""},
		{"RSA, PKCS #1", "example.com", "s1", block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsa2048())), ""},
		{"Ed25519", "example.com", "s1", ed, ""},
		{"text before the PEM", "example.com", "s1", append([]byte("my key\n"), ed...), ""},
		{"selector of digits", "example.com", "20261201", ed, ""},
		{"selector of labels", "example.com", "a.b-c", ed, ""},
		{"an international domain", "exämple.de", "s1", ed, ""},
		{"1024 bits", "example.com", "s1", pemOf(t, small), "an RSA key of 1024 bits; 2048 to 4096 are asked for (RFC 8301)"},
		{"4104 bits", "example.com", "s1", large, "an RSA key of 4104 bits"},
		{"another kind", "example.com", "s1", pemOf(t, curve), "RSA and Ed25519 alone"},
		{"the public half", "example.com", "s1", block("PUBLIC KEY", public), "it is the public half"},
		{"encrypted, PKCS #8", "example.com", "s1", block("ENCRYPTED PRIVATE KEY", []byte("x")), "it is encrypted"},
		{"encrypted, as before", "example.com", "s1", locked, "it is encrypted"},
		{"a certificate", "example.com", "s1", block("CERTIFICATE", []byte("x")), "its PEM holds a CERTIFICATE"},
		{"cut off", "example.com", "s1", block("PRIVATE KEY", []byte("topsecret")), "no key that can be read"},
		{"no PEM", "example.com", "s1", []byte("topsecret"), "there is no PEM in it"},
		{"nothing", "example.com", "s1", nil, "there is no PEM in it"},
		{"no domain", "", "s1", ed, "is no domain"},
		{"a domain with a break", "example.com\r\nX: y", "s1", ed, "is no domain"},
		{"no selector", "example.com", "", ed, "is no selector"},
		{"a selector with a semicolon", "example.com", "s1; d=evil.example", ed, "is no selector"},
		{"a selector with an underscore", "example.com", "s_1", ed, "is no selector"},
		{"a name too long for DNS", strings.Repeat("abcdefghi.", 24) + "com", "s1", ed, "is no selector"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k, err := NewSigningKey(tc.domain, tc.selector, tc.key)
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if err := verifies(sign(t, signer(t, k), encode(t, message())), k); err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, ErrSigningKey) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "topsecret") || k != nil {
				t.Errorf("%v, %v; want %q", k, err, tc.want)
			}
		})
	}
}

func TestNoSignerWithoutAKeyOrWithOneTwice(t *testing.T) {
	if _, err := NewSigner(); !errors.Is(err, ErrSigningKey) {
		t.Error(err)
	}
	if _, err := NewSigner(edKey(t), rsaKey(t), edKey(t)); !errors.Is(err, ErrSigningKey) || !strings.Contains(err.Error(), "e1._domainkey.example.com stands there twice") {
		t.Error(err)
	}
}

func TestSigningKeyFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	good := file("good.pem", pemOf(t, rsa2048()))
	if k, err := ReadSigningKey("example.com", "s1", good); err != nil || k.Name() != "s1._domainkey.example.com" {
		t.Errorf("%v, %v", k, err)
	}
	pipe := filepath.Join(dir, "pipe.pem") // nobody writes to it
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Join(dir, "missing.pem"), dir, pipe, os.DevNull, file("bad.pem", []byte("topsecret")), file("huge", bytes.Repeat([]byte("topsecret\n"), 1<<17))} {
		k, err := ReadSigningKey("example.com", "s1", name)
		if k != nil || !errors.Is(err, ErrSigningKey) || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: %v, %v", name, k, err)
		}
	}
}

// Whatever prints a key, or what holds one, shows no part of its private half.
func TestAPrivateKeyIsNeverShown(t *testing.T) {
	private := ed25519.NewKeyFromSeed([]byte("topsecret topsecret topsecret to"))
	k := signingKey(t, "example.com", "s1", private)
	s := signer(t, k, rsaKey(t))
	var log bytes.Buffer
	l := slog.New(slog.NewJSONHandler(&log, nil))
	l.Info("x", "key", k, "signer", s, "options", Options{Signer: s})
	j, _ := json.Marshal(s)
	shown := log.String() + string(j) + fmt.Sprintf("%v %+v %#v %s %v %+v %#v %+v %#v", k, k, k, k, *k, s, s, Options{Signer: s}, struct{ k SigningKey }{*k})
	for _, secret := range []string{"topsecret", fmt.Sprintf("%d %d %d", 't', 'o', 'p'), "0x74, 0x6f", "746f70", base64.StdEncoding.EncodeToString([]byte("topsecret ")[:9]), rsa2048().D.String()[:20]} {
		if strings.Contains(shown, secret) {
			t.Errorf("%q is shown:\n%s", secret, shown)
		}
	}
	if k.String() != "s1._domainkey.example.com" || fmt.Sprintf("%#v", k) != k.Name() {
		t.Errorf("%v, %#v", k, k)
	}
}

func TestRecords(t *testing.T) {
	r, e := rsaKey(t), edKey(t)
	spki := base64.StdEncoding.EncodeToString
	pkcs1 := spki(x509.MarshalPKCS1PublicKey(&rsa2048().PublicKey))
	edDER, err := x509.MarshalPKIXPublicKey(ed25519.PublicKey(e.public))
	if err != nil {
		t.Fatal(err)
	}
	p := spki(r.public)
	for _, tc := range []struct {
		name    string
		key     *SigningKey
		records []string
		is      error
		want    string
	}{
		{"as we say it", r, []string{r.Record()}, nil, ""},
		{"as we say it, Ed25519", e, []string{e.Record()}, nil, ""},
		{"p= alone", r, []string{"p=" + p}, nil, ""},
		{"spaces, folds and tags of others", r, []string{" v = DKIM1 ;\tk=rsa ; n=hello; x=y; h=sha1 : sha256; s=email:x; t=s; p=" + p[:100] + " \r\n " + p[100:] + " ;"}, nil, ""},
		{"without the ASN.1 header", r, []string{"v=DKIM1; p=" + pkcs1}, nil, ""},
		{"nothing", r, nil, ErrRecordMissing, ""},
		{"two", r, []string{r.Record(), r.Record()}, ErrRecord, "2 TXT records"},
		{"SPF at this name", r, []string{"v=spf1 -all"}, ErrRecord, "v=spf1"},
		{"not a record", r, []string{"hello"}, ErrRecord, "no list of tags"},
		{"a tag twice", r, []string{"p=x; p=y"}, ErrRecord, "no list of tags"},
		{"revoked", r, []string{"v=DKIM1; p="}, ErrRecord, "revoked"},
		{"no p=", r, []string{"v=DKIM1"}, ErrRecord, "no p="},
		{"not base64", r, []string{"v=DKIM1; p=@"}, ErrRecord, "not base64"},
		{"another key", r, []string{"v=DKIM1; p=" + spki([]byte("another"))}, ErrRecord, "another key"},
		{"cut at 255", r, []string{r.Record()[:255]}, ErrRecord, ""},
		{"of the other algorithm", r, []string{e.Record()}, ErrRecord, `for "ed25519"`},
		{"Ed25519 without k=", e, []string{"v=DKIM1; p=" + spki(e.public)}, ErrRecord, "this key is for ed25519"},
		{"Ed25519 with the ASN.1 header", e, []string{"v=DKIM1; k=ed25519; p=" + spki(edDER)}, ErrRecord, "32 octets alone"},
		{"another Ed25519 key", e, []string{"v=DKIM1; k=ed25519; p=" + spki(make([]byte, 32))}, ErrRecord, "another key"},
		{"SHA-1 alone", r, []string{r.Record() + "; h=sha1"}, ErrRecord, "leaves out sha256"},
		{"not for mail", r, []string{r.Record() + "; s=other"}, ErrRecord, "leaves out email"},
		{"in test", r, []string{r.Record() + "; t=y:s"}, ErrRecordTesting, ""},
		{"in test, and another key", r, []string{"v=DKIM1; t=y; p=" + spki([]byte("x"))}, ErrRecord, "another key"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.key.CheckRecord(tc.records)
			if !errors.Is(err, tc.is) || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v; want %v, %q", err, tc.is, tc.want)
			}
		})
	}
}

// A record of RSA is longer than a string of a TXT record may be.
func TestZoneLine(t *testing.T) {
	for _, k := range []*SigningKey{rsaKey(t), edKey(t)} {
		line := k.ZoneLine()
		text, ok := strings.CutPrefix(line, k.Name()+". IN TXT ( ")
		text, ok2 := strings.CutSuffix(text, " )")
		if !ok || !ok2 {
			t.Fatal(line)
		}
		whole := ""
		for _, piece := range strings.Split(text, `" "`) {
			if piece = strings.Trim(piece, `"`); len(piece) > 255 {
				t.Errorf("a string of %d octets", len(piece))
			}
			whole += piece
		}
		if whole != k.Record() {
			t.Errorf("%s\nis not\n%s", whole, k.Record())
		}
	}
}

func FuzzCheckRecord(f *testing.F) {
	k := edKey(f)
	for _, s := range []string{k.Record(), "", "v=DKIM1; p=", "p==;=;;", "v=DKIM1; k=ed25519; t=y; p=AAAA", "h=::; p=x", "p=\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, record string) {
		err := k.CheckRecord([]string{record})
		good := strings.Contains(strings.Join(strings.Fields(record), ""), base64.StdEncoding.EncodeToString(k.public))
		if err == nil && !good || err != nil && !errors.Is(err, ErrRecord) && !errors.Is(err, ErrRecordTesting) {
			t.Errorf("%v", err)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("an error of %d octets", len(err.Error()))
		}
	})
}
