package mail

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// ErrSigningKey is what every refused key for DKIM wraps. Its texts never hold a part of the key.
var ErrSigningKey = errors.New("not a key that mails can be signed with")

// Sizes of RSA keys in bits. RFC 8301 section 3.2: signers should use 2048 or more, and verifiers need not take more than 4096.
const (
	minRSA = 2048
	maxRSA = 4096
)

// SigningKey is one key of DKIM, with the place where its public half is published. Printed, it shows that place alone.
type SigningKey struct {
	domain, selector string
	organisation     string               // what alignment goes by
	algorithm        string               // rsa, ed25519
	public           []byte               // as p= holds it
	private          func() crypto.Signer // not the key itself: what prints a struct would show it
}

// maxKeyFile is far above the size of any key, and below that of a file named by mistake.
const maxKeyFile = 64 << 10

// ReadSigningKey is NewSigningKey with the key in a file, a regular one: a pipe would give the key to the first who reads it, and whoever comes later would wait for ever.
func ReadSigningKey(domain, selector, file string) (*SigningKey, error) {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is no regular file", ErrSigningKey, file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSigningKey, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSigningKey, err)
	}
	k, err := NewSigningKey(domain, selector, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return k, nil
}

// NewSigningKey takes a private key in PEM, as openssl genpkey writes it: RSA of 2048 to 4096 bits (rsa-sha256) or Ed25519 (ed25519-sha256, RFC 8463).
// domain is what signs (d=), and selector names the key below it (s=).
func NewSigningKey(domain, selector string, key []byte) (*SigningKey, error) {
	d, err := normalizeDomain(strings.TrimSuffix(domain, "."))
	if err != nil {
		return nil, fmt.Errorf("%w: %q is no domain", ErrSigningKey, clip(domain, 80))
	}
	selector = strings.ToLower(selector)
	if name := selector + "._domainkey." + d; !plainLabels(selector+".x") || len(name) > 253 {
		return nil, fmt.Errorf("%w: %q is no selector: letters, digits and hyphens, in labels of at most 63", ErrSigningKey, clip(selector, 80))
	}
	private, err := parsePrivate(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSigningKey, err)
	}
	k := &SigningKey{domain: d, selector: selector, organisation: organisation(d)}
	switch private := private.(type) {
	case *rsa.PrivateKey:
		if bits := private.N.BitLen(); bits < minRSA || bits > maxRSA {
			return nil, fmt.Errorf("%w: an RSA key of %d bits; %d to %d are asked for (RFC 8301)", ErrSigningKey, bits, minRSA, maxRSA)
		}
		k.algorithm, k.private = "rsa", func() crypto.Signer { return private }
		if _, err := private.Sign(rand.Reader, make([]byte, 32), crypto.SHA256); err != nil { // now rather than at the first mail
			return nil, fmt.Errorf("%w: it signs nothing: %w", ErrSigningKey, err)
		}
		if k.public, err = x509.MarshalPKIXPublicKey(&private.PublicKey); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSigningKey, err)
		}
	case ed25519.PrivateKey:
		k.algorithm, k.public = "ed25519", private.Public().(ed25519.PublicKey)
		k.private = func() crypto.Signer { return private }
	default:
		return nil, fmt.Errorf("%w: DKIM knows RSA and Ed25519 alone, and this is another kind", ErrSigningKey)
	}
	return k, nil
}

func parsePrivate(key []byte) (any, error) {
	block, _ := pem.Decode(key)
	switch {
	case block == nil:
		return nil, errors.New("there is no PEM in it (-----BEGIN PRIVATE KEY-----)")
	case block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
		return nil, errors.New("it is encrypted, and nobody is there to type the passphrase; openssl pkey -in FILE -out PLAIN takes it off")
	}
	var private any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		private, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		private, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "PUBLIC KEY", "RSA PUBLIC KEY":
		return nil, errors.New("it is the public half; the private one signs")
	default:
		return nil, fmt.Errorf("its PEM holds a %s, not a PRIVATE KEY", clip(block.Type, 40))
	}
	if err != nil {
		return nil, errors.New("its PEM holds no key that can be read; was it cut off?") // the parser's own error is left out: nobody vouches that it quotes nothing
	}
	return private, nil
}

// Name is where the public half is published: the name of a TXT record.
func (k *SigningKey) Name() string { return k.selector + "._domainkey." + k.domain }

// String is the name.
func (k *SigningKey) String() string { return k.Name() }

// GoString is the name, too.
func (k *SigningKey) GoString() string { return k.Name() }

// Domain is what signs (d=).
func (k *SigningKey) Domain() string { return k.domain }

// AlignedWith reports whether a signature of this key speaks for a sender of that domain, as DMARC's relaxed alignment has it (RFC 7489 section 3.1.1): both are of one
// organisation.
func (k *SigningKey) AlignedWith(domain string) bool {
	return domain == k.domain || organisation(domain) == k.organisation
}

// organisation is the domain that somebody registered, such as example.co.uk for mail.example.co.uk.
func organisation(domain string) string {
	if o, err := publicsuffix.EffectiveTLDPlusOne(domain); err == nil {
		return o
	}
	return domain
}

// Record is the text of the TXT record to publish under Name.
func (k *SigningKey) Record() string {
	return "v=DKIM1; k=" + k.algorithm + "; p=" + base64.StdEncoding.EncodeToString(k.public)
}

// ZoneLine is the record as a line of a zone file. A string of a TXT record holds 255 octets (RFC 1035 section 3.3), so a long one comes in pieces, which are put together
// again without a space.
func (k *SigningKey) ZoneLine() string {
	var b strings.Builder
	b.WriteString(k.Name() + ". IN TXT (")
	for piece := range slices.Chunk([]byte(k.Record()), 255) {
		fmt.Fprintf(&b, " %q", piece)
	}
	return b.String() + " )"
}

// What CheckRecord wraps.
var (
	ErrRecordMissing = errors.New("no key is published")
	ErrRecord        = errors.New("what is published is not this key")
	ErrRecordTesting = errors.New("the record says t=y: the domain is testing DKIM, and signatures count for nothing")
)

// CheckRecord says whether verifiers find this key in the TXT records under its name, each with its strings put together: nil, or an error that wraps ErrRecordMissing,
// ErrRecord or ErrRecordTesting.
func (k *SigningKey) CheckRecord(records []string) error {
	switch len(records) {
	case 0:
		return ErrRecordMissing
	case 1:
	default: // RFC 6376 section 3.6.2.2: undefined
		return fmt.Errorf("%w: there are %d TXT records under its name, and there must be one", ErrRecord, len(records))
	}
	tags, err := parseTags(records[0])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRecord, err)
	}
	if v, ok := tags["v"]; ok && v != "DKIM1" {
		return fmt.Errorf("%w: v=%s, where DKIM1 should be", ErrRecord, clip(v, 20))
	}
	if kind := tags["k"]; kind != k.algorithm && (kind != "" || k.algorithm != "rsa") {
		return fmt.Errorf("%w: it is for %q, and this key is for %s", ErrRecord, clip(kind, 20), k.algorithm)
	}
	if h, ok := tags["h"]; ok && !listed(h, "sha256") {
		return fmt.Errorf("%w: h=%s leaves out sha256", ErrRecord, clip(h, 40))
	}
	if s, ok := tags["s"]; ok && !listed(s, "*") && !listed(s, "email") {
		return fmt.Errorf("%w: s=%s leaves out email", ErrRecord, clip(s, 40))
	}
	if err := k.checkPublic(tags); err != nil {
		return err
	}
	if listed(tags["t"], "y") {
		return ErrRecordTesting
	}
	return nil
}

func (k *SigningKey) checkPublic(tags map[string]string) error {
	p, ok := tags["p"]
	switch {
	case !ok:
		return fmt.Errorf("%w: it has no p=", ErrRecord)
	case p == "":
		return fmt.Errorf("%w: p= is empty, so the key of this selector was revoked", ErrRecord)
	}
	public, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(p), ""))
	if err != nil {
		return fmt.Errorf("%w: p= is not base64", ErrRecord)
	}
	if bytes.Equal(public, k.public) {
		return nil
	}
	switch k.algorithm {
	case "ed25519":
		if len(public) > len(k.public) && bytes.HasSuffix(public, k.public) {
			return fmt.Errorf("%w: p= holds it with an ASN.1 header, and must hold its 32 octets alone (RFC 8463)", ErrRecord)
		}
	case "rsa": // some publish it without the header, and verifiers take that
		if key, err := x509.ParsePKCS1PublicKey(public); err == nil {
			if der, err := x509.MarshalPKIXPublicKey(key); err == nil && bytes.Equal(der, k.public) {
				return nil
			}
		}
	}
	return fmt.Errorf("%w: p= is another key", ErrRecord)
}

// parseTags reads a tag list (RFC 6376 section 3.2).
func parseTags(s string) (map[string]string, error) {
	tags := map[string]string{}
	for _, part := range strings.Split(s, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		if _, again := tags[name]; !ok || again {
			return nil, fmt.Errorf("%q is no list of tags", clip(s, 80))
		}
		tags[name] = strings.TrimSpace(value)
	}
	return tags, nil
}

func listed(list, want string) bool {
	for _, one := range strings.Split(list, ":") {
		if strings.TrimSpace(one) == want {
			return true
		}
	}
	return false
}
