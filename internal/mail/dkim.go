package mail

import (
	"bufio"
	"bytes"
	"crypto"
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"github.com/emersion/go-msgauth/dkim"
)

// Signer puts DKIM signatures (RFC 6376) in front of messages. It is safe for concurrent use.
type Signer struct{ keys []*SigningKey }

// signed are the headers that a signature covers, where a message has them. Each is named once more than it occurs, so that none can be added
// afterwards: RFC 6376 section 8.15, for what a second one of could say (another sender, another subject, another place to unsubscribe). RFC 8058 section 4 asks for both
// headers of one-click unsubscribing.
var signed = []string{"From", "Reply-To", "To", "Subject", "Date", "Message-ID", "List-Unsubscribe", "List-Unsubscribe-Post",
	"MIME-Version", "Content-Type", "Content-Transfer-Encoding"}

// NewSigner makes a signer of one key or more. Two of one name are refused with ErrSigningKey.
func NewSigner(keys ...*SigningKey) (*Signer, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: there is none", ErrSigningKey)
	}
	names := map[string]bool{}
	for _, k := range keys {
		if names[k.Name()] {
			return nil, fmt.Errorf("%w: %s stands there twice; a second key needs a selector of its own", ErrSigningKey, k.Name())
		}
		names[k.Name()] = true
	}
	return &Signer{keys}, nil
}

// Sign returns the message behind its signatures. Keys that are aligned with the sender's domain sign, one signature each; where
// there are none, all do. The message is what goes over the wire before dots are stuffed, with CRLF line ends alone; one that
// isn't, or has no sender, is refused with ErrMessage.
//
// The time of a signature (t=) is the library's, from the machine's clock. It is there to inform, though a verifier may ignore what comes from the future (RFC 6376
// section 3.5), and nothing of postbit goes by it.
func (s *Signer) Sign(msg []byte) ([]byte, error) {
	if !onlyCRLF(msg) {
		return nil, fmt.Errorf("DKIM: %w: it has a CR or LF alone, which is changed on the way", ErrMessage)
	}
	headers, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(msg))).ReadMIMEHeader()
	if err != nil {
		return nil, fmt.Errorf("DKIM: %w: its headers: %s", ErrMessage, clip(err.Error(), 80))
	}
	for name := range headers {
		if strings.Contains(name, " ") { // "From :" is From for some
			return nil, fmt.Errorf("DKIM: %w: %q is no name of a header", ErrMessage, clip(name, 80))
		}
	}
	from, err := ParseAddress(headers.Get("From"))
	if err != nil {
		return nil, fmt.Errorf("DKIM: %w: its sender: %w", ErrMessage, err)
	}
	var names []string
	for _, name := range signed {
		names = append(names, slices.Repeat([]string{name}, len(headers.Values(name))+1)...)
	}
	_, domain, _ := strings.Cut(from.Addr, "@")
	for _, k := range slices.Backward(s.alignedWith(domain)) { // each goes in front of those before
		var out bytes.Buffer
		if err := dkim.Sign(&out, bytes.NewReader(msg), &dkim.SignOptions{
			Domain: k.domain, Selector: k.selector, Signer: k.private(), Hash: crypto.SHA256, HeaderKeys: names,
			HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationRelaxed,
		}); err != nil {
			return nil, fmt.Errorf("DKIM: %s: %w", k.Name(), err)
		}
		msg = out.Bytes()
	}
	return msg, nil
}

// alignedWith gives the keys for mails of a domain.
func (s *Signer) alignedWith(domain string) []*SigningKey {
	aligned := make([]*SigningKey, 0, len(s.keys))
	for _, k := range s.keys {
		if k.AlignedWith(domain) {
			aligned = append(aligned, k)
		}
	}
	if len(aligned) == 0 {
		return s.keys
	}
	return aligned
}
