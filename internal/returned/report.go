// Package returned reads the mails that come back to the envelope sender: delivery status notifications (RFC 3464, RFC 6533), feedback
// reports (RFC 5965), the plain text of qmail, automatic replies (RFC 3834). It finds out whose mail each is about, and suppresses
// those users whose address does not exist and those who complained.
//
// Anybody can write such a mail. What it says is therefore bounded, cleaned, and believed only for the user whom a token of our own in
// the returned headers names; see Intake.
package returned

import (
	"bytes"
	"fmt"
	"io"

	"postbit/internal/mail"
)

// Bounds of what is read. A report stands at the beginning of the mail, before the copy of the original.
const (
	MaxBytes      = 1 << 20 // of a mail; what stands behind is not looked at
	maxDepth      = 5       // multiparts within each other
	maxParts      = 100     // of one mail, at all depths
	maxFields     = 2000    // of one block of header fields
	maxField      = 16 << 10
	maxRecipients = 100 // of one report; postbit's own mails have one
	maxTokens     = 10
	maxAddresses  = 4 // of one recipient
)

// Kind is what a mail is that came to the address for returned mail.
type Kind int

const (
	Other     Kind = iota // none of those below
	Bounce                // a mail could not be delivered, for good
	Notice                // of a delivery: delayed, done, passed on; or that somebody read it
	AutoReply             // out of office and the like
	Complaint             // feedback of the type abuse: the recipient called the mail spam
	OptOut                // feedback of the type opt-out
	Feedback              // of another type: see Report.Feedback
)

// Report is what a returned mail says. All of it is somebody's claim.
type Report struct {
	Kind       Kind
	Feedback   string      // the Feedback-Type in lower case: letters, digits and hyphens, at most 32 bytes
	Recipients []Recipient // of a Bounce or a Notice, and whom feedback names
	tokens     []string    // found in the List-Unsubscribe of the returned headers; secret
}

// Recipient is one group of a delivery status.
type Recipient struct {
	// Addresses are the final and the original one, as mail.Normalize gives them; what is no address is left out.
	Addresses []string
	Failed    bool       // the action; otherwise it was delayed, delivered, relayed or expanded
	Reply     mail.Reply // of a failure: what was said, and its class by the same table as in the dialogue
}

// Address is one of the addresses, for people to look at.
func (r *Recipient) Address() string {
	if len(r.Addresses) == 0 {
		return ""
	}
	return r.Addresses[0]
}

// Read reads one mail, of which it takes at most MaxBytes. A mail that can't be made sense of is Other; an error is always r's.
func Read(r io.Reader) (*Report, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxBytes))
	if err != nil {
		return nil, fmt.Errorf("read a mail: %w", err)
	}
	return parse(data), nil
}

func parse(data []byte) *Report {
	s := &scan{}
	var head topFields
	body := eachField(trimEnvelopeLine(data), head.take)
	s.walk(head.contentType, head.encoding, body, 0)
	rep := &Report{tokens: s.tokens}
	switch {
	case s.feedback != nil:
		s.feedback.into(rep)
	case s.status != nil:
		rep.Recipients = s.status
		rep.Kind = Notice
		for i := range s.status {
			if s.status[i].Failed {
				rep.Kind = Bounce
			}
		}
	case s.qmail != nil:
		rep.Recipients, rep.Kind = s.qmail, Bounce
	case s.disposition:
		rep.Kind = Notice
	case head.automatic:
		rep.Kind = AutoReply
	}
	return rep
}

// trimEnvelopeLine drops the line that an mbox, or a program that was piped to, has before the first field.
func trimEnvelopeLine(data []byte) []byte {
	if bytes.HasPrefix(data, []byte("From ")) {
		if _, rest, ok := bytes.Cut(data, []byte("\n")); ok {
			return rest
		}
	}
	return data
}

// topFields are what the header of the mail itself says.
type topFields struct {
	contentType, encoding string
	automatic             bool
}

func (t *topFields) take(name, value string) {
	switch name {
	case "content-type":
		if t.contentType == "" {
			t.contentType = value
		}
	case "content-transfer-encoding":
		t.encoding = value
	case "auto-submitted": // RFC 3834 section 5: anything but no
		t.automatic = t.automatic || !isWord(value, "no")
	case "x-autoreply", "x-autorespond", "x-autoresponder":
		t.automatic = t.automatic || value != "" && !isWord(value, "no")
	case "precedence":
		t.automatic = t.automatic || isWord(value, "auto_reply")
	}
}
