package returned

import (
	"regexp"
	"strconv"
	"strings"

	"postbit/internal/mail"
)

// group is one block of fields of a delivery status.
type group struct {
	action, status, diagnostic string
	addresses                  []string
	isRecipient                bool
}

// deliveryStatus reads message/delivery-status (RFC 3464 section 2) and its UTF-8 variant (RFC 6533 section 3): blocks of fields, the
// first of which is about the message. Some programs write one block for both, so a block counts that has a field of a recipient.
func deliveryStatus(data []byte) []Recipient {
	out := []Recipient{}
	for len(data) > 0 && len(out) < maxRecipients {
		var g group
		data = eachField(data, g.take)
		if g.isRecipient {
			out = append(out, g.recipient())
		}
	}
	return out
}

func (g *group) take(name, value string) {
	switch name {
	case "final-recipient", "original-recipient":
		g.isRecipient = true
		kind, address, ok := strings.Cut(value, ";")
		if !ok {
			kind, address = "rfc822", value
		}
		g.addresses = appendAddress(g.addresses, strings.TrimSpace(kind), address)
	case "action":
		g.isRecipient = true
		g.action = strings.ToLower(firstWord(value))
	case "status":
		g.status = statusCode.FindString(value)
	case "diagnostic-code":
		if g.diagnostic == "" {
			g.diagnostic = value
		}
	}
}

func (g *group) recipient() Recipient {
	r := Recipient{Addresses: g.addresses, Failed: g.action == "failed"}
	if r.Failed {
		r.Reply = refusal(g.status, g.diagnostic)
	}
	return r
}

var (
	statusCode = regexp.MustCompile(`^[245]\.\d{1,3}\.\d{1,3}\b`)
	// replyCodes are three digits and an enhanced code, as a server's reply begins; of several lines the first.
	replyCodes = regexp.MustCompile(`^([2-5]\d\d)(?:[ -]+#?([245]\.\d{1,3}\.\d{1,3})\b)?`)
)

// refusal is what Status and Diagnostic-Code mean together. The remote server's own enhanced code says more than the Status that
// another one made of it, but for a Status of 4.x.x: who reports that gave up waiting. X.0.0 says nothing (RFC 3463 section 3.1).
func refusal(status, diagnostic string) mail.Reply {
	kind, text, ok := strings.Cut(diagnostic, ";")
	if !ok {
		kind, text = "", diagnostic
	}
	text = strings.TrimSpace(text)
	code, enhanced := 0, ""
	if isWord(kind, "smtp") {
		code, enhanced, text = replyOf(text)
	}
	switch {
	case strings.HasPrefix(status, "4."):
		if code >= 500 {
			code = 0
		}
		if !strings.HasPrefix(enhanced, "4.") {
			enhanced = status
		}
	case enhanced == "" && !strings.HasSuffix(status, ".0.0"):
		enhanced = status
	}
	return mail.Refused(code, enhanced, text)
}

// replyOf takes a reply apart. An enhanced code of another class than the three digits only looks like one, as in the dialogue.
func replyOf(s string) (code int, enhanced, text string) {
	m := replyCodes.FindStringSubmatch(s)
	if m == nil {
		return 0, "", s
	}
	code, _ = strconv.Atoi(m[1])
	if m[2] != "" && m[2][0] == m[1][0] {
		return code, m[2], strings.TrimSpace(s[len(m[0]):])
	}
	return code, "", strings.TrimLeft(s[3:], " -")
}

// appendAddress adds an address of a report. Of type utf-8 it may be written in ASCII, with \x{20AC} for a character (RFC 6533 section 3);
// an original recipient should have had its xtext undone (RFC 3461 section 4.2), and sometimes has not.
func appendAddress(list []string, kind, address string) []string {
	address = strings.TrimSpace(address)
	if open := strings.IndexByte(address, '<'); open >= 0 {
		if end := strings.IndexByte(address[open:], '>'); end > 0 {
			address = address[open+1 : open+end]
		}
	}
	forms := []string{address}
	switch strings.ToLower(kind) {
	case "rfc822":
		if plain := unhex(xtextHex, address); plain != address {
			forms = append(forms, plain)
		}
	case "utf-8":
		forms[0] = unhex(utf8Hex, address)
	default:
		return list
	}
	for _, form := range forms {
		addr, _, _, err := mail.Normalize(form)
		if err == nil && len(list) < maxAddresses {
			list = append(list, addr)
		}
	}
	return list
}

var (
	xtextHex = regexp.MustCompile(`\+([0-9A-F]{2})`)
	utf8Hex  = regexp.MustCompile(`\\x\{([0-9A-Fa-f]{2,6})\}`)
)

// unhex undoes escapes that name a character by its number.
func unhex(escape *regexp.Regexp, s string) string {
	if len(s) > 4<<10 {
		return s
	}
	return escape.ReplaceAllStringFunc(s, func(e string) string {
		n, err := strconv.ParseUint(escape.FindStringSubmatch(e)[1], 16, 32)
		if err != nil || n < 0x20 {
			return e
		}
		return string(rune(n))
	})
}

// sameAddress compares normalised addresses. The letter case of the local part is passed over, though RFC 5321 lets it matter: servers
// write what they report in their own way, and no two mailboxes are told apart by it.
func sameAddress(a, b string) bool { return strings.EqualFold(a, b) }
