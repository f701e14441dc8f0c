package mail

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/emersion/go-smtp"
)

func TestClassify(t *testing.T) {
	for _, tc := range []struct {
		name string
		at   stage
		code int
		text string // as the server sends it, enhanced code and all
		want Class
		slow bool
	}{
		{"accepted", atEnd, 250, "2.0.0 queued", Accepted, false},
		{"accepted with another 2xx", atEnd, 251, "ok", Accepted, false},
		{"busy mailbox", atRcpt, 450, "4.2.0 busy", Retry, false},
		{"greylisted", atRcpt, 451, "4.7.1 come back later", Retry, true},
		{"too many connections", atRcpt, 421, "4.3.2 too many", Retry, true},
		{"temporary at the end", atEnd, 451, "local error", Retry, false},
		{"no such user", atRcpt, 550, "5.1.1 no such user", Bounced, false},
		{"no such user, no enhanced code", atRcpt, 550, "no such user", Bounced, false},
		{"550 5.0.0", atRcpt, 550, "5.0.0 unknown", Bounced, false},
		{"550 5.5.0 of outlook.com", atRcpt, 550, "5.5.0 Requested action not taken: mailbox unavailable", Bounced, false},
		{"moved", atRcpt, 551, "user not local", Bounced, false},
		{"mailbox name", atRcpt, 553, "5.1.3 bad mailbox", Bounced, false},
		{"501 with 5.1.x", atRcpt, 501, "5.1.3 bad syntax", Bounced, false},
		{"S8: 554 without an enhanced code", atEnd, 554, "transaction failed", Bounced, false},
		{"554 with one", atEnd, 554, "5.0.0 transaction failed", Failed, false},
		{"S8b: restricted list", atRcpt, 550, "5.7.1 not allowed", Policy, false},
		{"554 5.7.x", atEnd, 554, "5.7.26 unauthenticated", Policy, false},
		{"5.7.x without a text", atRcpt, 550, "5.7.1", Policy, false},
		{"S8c: mailbox full", atRcpt, 552, "5.2.2 mailbox full", Failed, false},
		{"552 alone", atEnd, 552, "too much", Failed, false},
		{"550 5.2.1 disabled", atRcpt, 550, "5.2.1 disabled", Failed, false},
		{"too large", atEnd, 554, "5.3.4 too large", Failed, false},
		{"content refused", atEnd, 550, "5.6.0 headers", Failed, false},
		{"another 5xx", atRcpt, 503, "bad sequence", Failed, false},
		{"an enhanced code of another class isn't one", atRcpt, 550, "4.7.1 odd", Bounced, false},
		{"numbers that only look like a code", atRcpt, 550, "1.2.3 odd", Bounced, false},
		{"sender refused", atMail, 550, "5.7.1 not yours", SenderRefused, false},
		{"sender refused for now", atMail, 451, "4.7.1 later", Cut, false},
		{"354 out of place", atRcpt, 354, "go on", Cut, false},
		{"354 at the end", atEnd, 354, "go on", Unconfirmed, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, enhanced, text, ok := smtpReply(parsedReply(tc.code, tc.text))
			if !ok {
				t.Fatal("not an answer")
			}
			r := classify(tc.at, code, enhanced, text)
			if r.Class != tc.want || r.DomainSlow != tc.slow || r.Code != tc.code {
				t.Errorf("%+v, want %v", r, tc.want)
			}
		})
	}
}

// parsedReply is the error that the SMTP client makes of a reply.
func parsedReply(code int, text string) error {
	e := &smtp.SMTPError{Code: code, Message: text}
	if first, rest, ok := strings.Cut(text, " "); ok {
		var parts [3]int
		if n := strings.Count(first, "."); n == 2 {
			for i, s := range strings.Split(first, ".") {
				for _, c := range s {
					parts[i] = parts[i]*10 + int(c-'0')
				}
			}
			e.EnhancedCode, e.Message = smtp.EnhancedCode(parts), rest
		}
	}
	return e
}

func TestReplyTextIsTamed(t *testing.T) {
	for name, text := range map[string]string{
		"long": strings.Repeat("ä", 5000), "lines": "a\r\nb\nc\td", "control characters": "a\x00\x1b[31mb\u0085", "invalid UTF-8": "a\xff\xfeb" + strings.Repeat("\x80", 500),
	} {
		r := classify(atRcpt, 550, "", text)
		if len(r.Text) > maxReply || !utf8.ValidString(r.Text) || strings.ContainsAny(r.Text, "\r\n\t\x00\x1b") {
			t.Errorf("%s: %q", name, r.Text)
		}
	}
}

// Filters quote the URL that they refuse a mail for. By its token anybody could unsubscribe the user.
func TestReplyTextHasNoToken(t *testing.T) {
	token := strings.Repeat("aZ9_-", 12)
	for _, tc := range []struct{ text, want string }{
		{"5.7.1 listed: https://t.example/u/" + token + " (and https://t.example/c/" + token + ")", "5.7.1 listed: https://t.example/u/[token] (and https://t.example/c/[token])"},
		{"https://t.example/o/" + token + ".gif, https://t.example/b/" + token[:30], "https://t.example/o/[token].gif, https://t.example/b/[token]"},
		{"a control character within: /u/" + token[:10] + "\x00" + token[10:], "a control character within: /u/[token]"},
		{strings.Repeat("x", 180) + "/u/" + token, strings.Repeat("x", 180) + "/u/[token]"},
		{"see https://help.example/u/support and " + token, "see https://help.example/u/support and " + token},
	} {
		if got := classify(atEnd, 550, "5.7.1", tc.text); got.Text != tc.want {
			t.Errorf("%q\nwant %q", got.Text, tc.want)
		}
		if got := Refused(550, "5.7.1", tc.text); got.Text != tc.want {
			t.Errorf("later: %q\nwant %q", got.Text, tc.want)
		}
	}
}

// A refusal that is told of in a delivery status notification means what it would have meant in the dialogue.
func TestRefusedLaterAsInTheDialogue(t *testing.T) {
	for code := 400; code < 600; code++ {
		for _, enhanced := range []string{"", "0.0", "1.1", "1.10", "2.2", "3.4", "4.1", "6.0", "7.1"} {
			if enhanced != "" {
				enhanced = string(rune('0'+code/100)) + "." + enhanced
			}
			at := atRcpt
			if code%2 == 0 {
				at = atEnd
			}
			want, got := classify(at, code, enhanced, "no"), Refused(code, enhanced, "no")
			if got.Class != want.Class || got.Code != code || got.Enhanced != enhanced || got.Text != "no" {
				t.Errorf("%d %s: %v, want %v", code, enhanced, got, want)
			}
		}
	}
	for _, tc := range []struct {
		enhanced string
		want     Class
	}{{"5.1.1", Bounced}, {"5.2.2", Failed}, {"5.7.1", Policy}, {"5.4.4", Failed}, {"4.4.1", Retry}, {"", Failed}} {
		if got := Refused(0, tc.enhanced, ""); got.Class != tc.want {
			t.Errorf("%q without a reply: %v", tc.enhanced, got)
		}
	}
}
