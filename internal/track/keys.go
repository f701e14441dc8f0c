// Package track is the public side of a mail: signed tokens, the pixel, links, one-click unsubscribe, the browser version, and
// the spool that holds every answered hit until it is counted.
package track

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strings"
	"sync"
)

// ErrKeys is what every refused list of keys wraps.
var ErrKeys = errors.New("not a usable secret")

const (
	minSecret = 32 // bytes
	maxKeyID  = 16
	macLen    = 16
)

// Keys are the secrets that sign tokens. They are safe for concurrent use.
type Keys struct {
	first *key
	byID  map[string]*key
}

type key struct {
	id   string
	macs sync.Pool // of hash.Hash, so that the padded key is hashed once
}

// macDomain keeps these signatures apart from any other use of the same secret.
const macDomain = "postbit token\n"

// ParseKeys reads `id:base64[,id:base64]`. An id is 1 to 16 of a-z, 0-9, - and _; a secret has 32 bytes or more, in standard or URL
// base64 with or without padding. The first signs, all verify. Errors wrap ErrKeys and never show a part of a secret.
func ParseKeys(s string) (*Keys, error) {
	ks := &Keys{byID: map[string]*key{}}
	for i, part := range strings.Split(s, ",") {
		id, secret, ok := strings.Cut(strings.TrimSpace(part), ":")
		if !ok || !keyID(id) { // without the colon it may be the secret itself that stands here
			return nil, fmt.Errorf("%w: key %d must have the form id:base64, the id 1 to %d of a-z, 0-9, - and _", ErrKeys, i+1, maxKeyID)
		}
		b, err := decodeSecret(secret)
		if err != nil {
			return nil, fmt.Errorf("%w: key %q is not base64", ErrKeys, id)
		}
		if len(b) < minSecret {
			return nil, fmt.Errorf("%w: key %q has %d bytes, it needs %d or more; `openssl rand -base64 32` makes one", ErrKeys, id, len(b), minSecret)
		}
		if ks.byID[id] != nil {
			return nil, fmt.Errorf("%w: key %q is there twice", ErrKeys, id)
		}
		k := &key{id: id}
		k.macs.New = func() any { return hmac.New(sha256.New, b) }
		ks.byID[id] = k
		if ks.first == nil {
			ks.first = k
		}
	}
	return ks, nil
}

func keyID(s string) bool {
	if s == "" || len(s) > maxKeyID {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

func decodeSecret(s string) ([]byte, error) {
	s = strings.TrimRight(strings.TrimSpace(s), "=")
	return base64.RawStdEncoding.DecodeString(strings.NewReplacer("-", "+", "_", "/").Replace(s))
}

// appendMAC appends the truncated HMAC-SHA256 of b.
func (k *key) appendMAC(dst, b []byte) []byte {
	m := k.macs.Get().(hash.Hash)
	m.Reset()
	m.Write([]byte(macDomain))
	m.Write(b)
	var sum [sha256.Size]byte
	dst = append(dst, m.Sum(sum[:0])[:macLen]...)
	k.macs.Put(m)
	return dst
}
