package config

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDKIMKeys(t *testing.T) {
	der, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	secret := base64.StdEncoding.EncodeToString(der)
	inPEM := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	one, two := DKIMKey{"example.com", "s1", "/run/secrets/dkim.pem"}, DKIMKey{"example.com", "20261201", "dkim/ed.pem"}
	for _, tc := range []struct {
		name, text string
		want       []DKIMKey
		fault      string
	}{
		{"a list", "[{domain: example.com, selector: s1, key_file: /run/secrets/dkim.pem}]", []DKIMKey{one}, ""},
		{"two, over several lines", "- domain: example.com\n  selector: s1\n  key_file: /run/secrets/dkim.pem\n- {domain: example.com, selector: 20261201, key_file: dkim/ed.pem}\n", []DKIMKey{one, two}, ""},
		{"JSON, as a variable may hold it", `[{"domain":"example.com","selector":"s1","key_file":"/run/secrets/dkim.pem"}]`, []DKIMKey{one}, ""},
		{"one without a list", "{domain: example.com, selector: s1, key_file: /run/secrets/dkim.pem}", []DKIMKey{one}, ""},
		{"none", "[]", []DKIMKey{}, ""},
		{"a text", "dkim.pem", nil, "is no list of keys"},
		{"a list of texts", "[dkim.pem]", nil, "is no list of keys"},
		{"not YAML", "[{", nil, "is no list of keys"},
		{"a typo", "[{domian: example.com, selector: s1, key_file: x}]", nil, `"domian" is unknown; a key has domain, selector and key_file; domain?`},
		{"no selector", "[{domain: example.com, key_file: x}]", nil, "key 1: has no selector"},
		{"an empty file", "[{domain: example.com, selector: s1, key_file: ''}]", nil, "key 1: has no key_file"},
		{"null", "[null]", nil, "key 1: has no domain"},
		{"the key itself, in base64", "[{domain: example.com, selector: s1, key_file: " + secret + "}]", nil, "holds a key itself"},
		{"the key itself, in PEM", "[{domain: example.com, selector: s1, key_file: \"" + strings.ReplaceAll(inPEM, "\n", `\n`) + "\"}]", nil, "holds a key itself"},
		{"the key itself, under another name", "[{domain: example.com, selector: s1, key: " + secret + "}]", nil, `"key" is unknown`},
		{"the key itself, as a name", "[{" + secret + ": x}]", nil, "holds a key itself"},
		{"nothing but the key", inPEM, nil, "is no list of keys"},
		{"the key in the list", "[" + secret + "]", nil, "is no list of keys"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := Load(nil, func(name string) (string, bool) { return tc.text, name == "POSTBIT_MAIL_DKIM" }, "")
			if tc.fault != "" {
				if err == nil || !strings.Contains(err.Error(), "POSTBIT_MAIL_DKIM: "+tc.fault) || strings.Contains(err.Error(), secret[20:]) {
					t.Fatalf("%v, want %q", err, tc.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, c.DKIM); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestDKIMKeysInTheFile(t *testing.T) {
	values, err := parseFile("postbit.yaml", []byte("mail:\n  from: a@example.com\n  dkim:\n    - domain: example.com\n      selector: s1\n      key_file: k.pem\n"))
	if err != nil {
		t.Fatal(err)
	}
	var c Config
	if err := setDKIM(&c, values["mail.dkim"].text); err != nil || len(c.DKIM) != 1 || c.DKIM[0] != (DKIMKey{"example.com", "s1", "k.pem"}) {
		t.Errorf("%+v, %v", c.DKIM, err)
	}
}
