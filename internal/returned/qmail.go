package returned

import (
	"bytes"
	"regexp"
	"strings"

	"postbit/internal/mail"
)

// plain reads the bounces of qmail and its kin, which are plain text in a fixed form (QSBMF): a paragraph that begins with
// "Hi. This is the", paragraphs of one recipient each that begin with "<address>:", and behind a line of dashes the mail that came back.
func (s *scan) plain(text []byte) {
	text = bytes.TrimLeft(text, "\r\n")
	if !bytes.HasPrefix(text, []byte("Hi. This is the")) {
		return
	}
	recipients := []Recipient{}
	for len(text) > 0 {
		var paragraph []string
		if paragraph, text = cutParagraph(text); len(paragraph) == 0 {
			continue
		}
		first := paragraph[0]
		switch {
		case strings.HasPrefix(first, "-"): // the break: behind it, after an empty line, the mail
			s.returnedHeader(bytes.TrimLeft(text, "\r\n"))
			text = nil
		case strings.HasPrefix(first, "<") && strings.HasSuffix(first, ">:") && len(recipients) < maxRecipients:
			recipients = append(recipients, qmailRecipient(first[:len(first)-1], paragraph[1:]))
		}
	}
	if len(recipients) > 0 {
		s.qmail = recipients
	}
}

// cutParagraph cuts off the lines up to an empty one, of which it keeps as many as a reason has.
func cutParagraph(text []byte) (lines []string, rest []byte) {
	for len(text) > 0 {
		var line []byte
		if line, text = cutLine(text); len(line) == 0 {
			break
		}
		if len(lines) < 20 {
			lines = append(lines, string(line[:min(len(line), 1000)]))
		}
	}
	return lines, text
}

var (
	hashCode   = regexp.MustCompile(`\(#([245]\.\d{1,3}\.\d{1,3})\)`)
	remoteSaid = regexp.MustCompile(`^Remote host said: *(.*)`)
)

// qmailRecipient reads a reason: what the remote server said, or qmail's own words with a code in brackets at their end.
func qmailRecipient(address string, reason []string) Recipient {
	r := Recipient{Addresses: appendAddress(nil, "rfc822", address), Failed: true}
	for _, line := range reason {
		if m := remoteSaid.FindStringSubmatch(line); m != nil {
			r.Reply = mail.Refused(replyOf(m[1]))
			return r
		}
	}
	text, enhanced := strings.Join(reason, " "), ""
	if m := hashCode.FindStringSubmatch(text); m != nil {
		enhanced = m[1]
	}
	r.Reply = mail.Refused(0, enhanced, text)
	return r
}
