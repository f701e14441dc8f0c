package returned

import "strings"

// feedback is a message/feedback-report (RFC 5965 section 3).
type feedback struct {
	kind      string
	addresses []string
}

func readFeedback(data []byte) *feedback {
	f := &feedback{}
	for len(data) > 0 && f.kind == "" { // one block; an empty line before it is passed over
		data = eachField(data, func(name, value string) {
			switch name {
			case "feedback-type":
				if f.kind == "" {
					f.kind = feedbackType(value)
				}
			case "original-rcpt-to": // may be there several times, or hidden
				f.addresses = appendAddress(f.addresses, "rfc822", value)
			}
		})
	}
	return f
}

// feedbackType keeps what a type may hold (a token, section 3.1); anything else is none that we know.
func feedbackType(value string) string {
	kind := strings.ToLower(firstWord(value))
	for i := 0; i < len(kind); i++ {
		if c := kind[i]; !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-') {
			return "unknown"
		}
	}
	if kind == "" || len(kind) > 32 {
		return "unknown"
	}
	return kind
}

func (f *feedback) into(rep *Report) {
	rep.Feedback = f.kind
	if rep.Feedback == "" {
		rep.Feedback = "unknown"
	}
	if len(f.addresses) > 0 {
		rep.Recipients = []Recipient{{Addresses: f.addresses}}
	}
	switch f.kind {
	case "abuse":
		rep.Kind = Complaint
	case "opt-out", "opt-out-list": // of drafts before the RFC, still sent
		rep.Kind = OptOut
	default:
		rep.Kind = Feedback
	}
}
