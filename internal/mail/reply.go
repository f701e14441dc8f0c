package mail

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/emersion/go-smtp"
)

// Class is what became of a mail, as far as the next step depends on it.
type Class int

const (
	// Accepted: the server has taken responsibility.
	Accepted Class = iota + 1
	// Retry: refused for now (4xx at RCPT or DATA). Look again later.
	Retry
	// Bounced: there is no such mailbox. Refused for good, and the recipient is to be suppressed.
	Bounced
	// Failed: refused for good for a reason that says nothing about the next mail (mailbox full, message too large).
	Failed
	// Policy: refused by a rule of the recipient's side (5.7.x). Many in a row mean the sender has a problem.
	Policy
	// Cut: it went wrong before the end of DATA was sent, so the server can't have accepted the mail. Look again. Also a temporary refusal of MAIL FROM.
	Cut
	// Unconfirmed: the end of DATA was sent and no reply came. The server may have accepted the mail or not; nobody can know.
	Unconfirmed
	// SenderRefused: MAIL FROM was refused for good; it will be for everybody else, too.
	SenderRefused
)

var classNames = [...]string{"", "accepted", "retry", "bounced", "failed", "policy", "cut", "unconfirmed", "sender_refused"}

func (c Class) String() string {
	if c < 1 || int(c) >= len(classNames) {
		return "Class(" + strconv.Itoa(int(c)) + ")"
	}
	return classNames[c]
}

// maxReply is how much of a server's text is kept, in bytes.
const maxReply = 200

// Reply is what became of one mail.
type Reply struct {
	Class    Class
	Code     int    // of RFC 5321, e.g. 550; 0 where no reply came
	Enhanced string // of RFC 3463, e.g. "5.1.1"; empty where the server gave none
	Text     string // the server's own words, or the error's: one line of valid UTF-8, at most 200 bytes
	Err      error  // what broke, for Cut and Unconfirmed without a reply
	// DomainSlow: the recipient's domain wants fewer mails or connections (421, 4.7.x).
	DomainSlow bool
}

func (r Reply) String() string {
	s := r.Class.String()
	if r.Code != 0 {
		s += " " + strconv.Itoa(r.Code)
	}
	for _, part := range []string{r.Enhanced, r.Text} {
		if part != "" {
			s += " " + part
		}
	}
	return s
}

// stage is the step of the dialogue that a reply answers.
type stage int

const (
	atMail stage = iota
	atRcpt
	atData // the DATA command
	atEnd  // after the end of the message
)

// classify tells what a server's answer at a stage means; see docs/operations.md for the table.
func classify(at stage, code int, enhanced, text string) Reply {
	r := Reply{Code: code, Enhanced: enhanced, Text: oneLine(text, maxReply)}
	switch {
	case code >= 200 && code < 300 && at == atEnd:
		r.Class = Accepted
	case code >= 400 && code < 500:
		r.Class = Retry
		r.DomainSlow = code == 421 || strings.HasPrefix(enhanced, "4.7.")
		if at == atMail {
			// The server takes nothing from us at the moment, whoever the recipient is.
			r.Class, r.DomainSlow = Cut, false
		}
	case code >= 500 && code < 600 && at == atMail:
		r.Class = SenderRefused
	case code >= 500 && code < 600:
		r.Class = refusal(code, enhanced)
	default: // a reply that has no meaning here: we and the server don't agree where we are
		r.Class = Cut
		if at == atEnd {
			r.Class = Unconfirmed
		}
		r.Err = fmt.Errorf("unexpected reply %d %s", code, r.Text)
	}
	return r
}

// refusal divides the 5xx of RCPT and DATA. An enhanced code knows better than the three digits. 550 5.6.x is about the message's content, so
// it doesn't suppress the recipient as other 550s do.
func refusal(code int, enhanced string) Class {
	switch {
	case strings.HasPrefix(enhanced, "5.1."):
		return Bounced
	case strings.HasPrefix(enhanced, "5.7."):
		return Policy
	case strings.HasPrefix(enhanced, "5.2."), strings.HasPrefix(enhanced, "5.6."), enhanced == "5.3.4":
		return Failed
	case code == 550 || code == 551 || code == 553:
		return Bounced
	case code == 554 && enhanced == "":
		return Bounced
	}
	return Failed
}

// Refused is what a refusal means that is told of later, in a delivery status notification (RFC 3464): the same as in the dialogue, after
// MAIL FROM. code is 0 where the report names no reply of RFC 5321, enhanced is empty where it names no code of RFC 3463; what is
// neither 4xx nor 5xx is Failed. Text is made one short line of valid UTF-8.
func Refused(code int, enhanced, text string) Reply {
	r := Reply{Code: code, Enhanced: enhanced, Text: oneLine(text, maxReply)}
	if code >= 400 && code < 500 || code == 0 && strings.HasPrefix(enhanced, "4.") {
		r.Class = Retry
	} else {
		r.Class = refusal(code, enhanced)
	}
	return r
}

// smtpReply takes an answer of the server out of an error of the SMTP client.
func smtpReply(err error) (code int, enhanced, text string, ok bool) {
	var se *smtp.SMTPError
	if !errors.As(err, &se) {
		return 0, "", "", false
	}
	code, text = se.Code, se.Message
	e := se.EnhancedCode
	if e == (smtp.EnhancedCode{}) { // the client doesn't see a code without a text behind it
		if n, _ := fmt.Sscanf(text, "%d.%d.%d", &e[0], &e[1], &e[2]); n != 3 || fmt.Sprintf("%d.%d.%d", e[0], e[1], e[2]) != strings.TrimSpace(text) {
			e = smtp.EnhancedCode{}
		} else {
			text = ""
		}
	}
	if e[0] != code/100 {
		if e != (smtp.EnhancedCode{}) {
			text = fmt.Sprintf("%d.%d.%d %s", e[0], e[1], e[2], text) // it only looked like one
		}
		return code, "", text, true
	}
	return code, fmt.Sprintf("%d.%d.%d", e[0], e[1], e[2]), text, true
}

// tokenURL is the path of a URL of postbit's own (docs/pixel.md), with the token in it. The shortest token has 40 characters; half of one is left out, too.
var tokenURL = regexp.MustCompile(`(/[obcu]/)[A-Za-z0-9_-]{20,}`)

// oneLine makes a line of at most n bytes of valid UTF-8 without control characters out of whatever a server said. Who refuses a mail for a URL in it
// may quote that: its token, by which anybody could unsubscribe the user, is left out.
func oneLine(s string, n int) string {
	if len(s) > 4*n {
		s = s[:4*n]
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\r' || r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	s = tokenURL.ReplaceAllString(s, "$1[token]")
	return clip(strings.TrimSpace(s), n)
}
