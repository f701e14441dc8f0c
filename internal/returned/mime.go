package returned

import (
	"bytes"
	"encoding/base64"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"strings"
)

// scan is what the parts of a mail were found to say. The first of each kind counts.
type scan struct {
	parts       int
	status      []Recipient // not nil: there was a delivery status
	feedback    *feedback
	disposition bool
	qmail       []Recipient
	tokens      []string
}

// walk looks through multiparts, but not into mails within the mail: a report that somebody forwards is none, and of the returned mail
// only the header is read.
func (s *scan) walk(contentType, encoding string, body []byte, depth int) {
	media, boundary := mediaType(contentType)
	if strings.HasPrefix(media, "multipart/") {
		if boundary != "" && depth < maxDepth {
			s.multipart(boundary, body, depth)
		}
		return
	}
	switch media {
	case "message/delivery-status", "message/global-delivery-status":
		if s.status == nil {
			s.status = deliveryStatus(decode(encoding, body))
		}
	case "message/feedback-report":
		if s.feedback == nil {
			s.feedback = readFeedback(decode(encoding, body))
		}
	case "message/disposition-notification", "message/global-disposition-notification":
		s.disposition = true
	case "message/rfc822", "message/global", "text/rfc822-headers", "message/global-headers":
		s.returnedHeader(decode(encoding, body))
	case "text/plain":
		if depth == 0 {
			s.plain(decode(encoding, body))
		}
	}
}

// multipart reads the parts of one multipart, also where it breaks off.
func (s *scan) multipart(boundary string, body []byte, depth int) {
	r := multipart.NewReader(bytes.NewReader(body), boundary)
	for s.parts < maxParts {
		p, err := r.NextRawPart()
		if err != nil {
			return
		}
		s.parts++
		data, err := io.ReadAll(p) // of a mail that was cut off it gives what there is, and an error
		s.walk(p.Header.Get("Content-Type"), p.Header.Get("Content-Transfer-Encoding"), data, depth+1)
		if err != nil {
			return
		}
	}
}

// mediaType is lenient with parameters: one that is wrong takes only the boundary away.
func mediaType(contentType string) (media, boundary string) {
	if contentType == "" {
		return "text/plain", ""
	}
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil && media == "" {
		media = strings.ToLower(firstWord(contentType))
	}
	return media, params["boundary"]
}

// decode undoes a transfer encoding. RFC 2046 allows none for message/rfc822, RFC 6532 does for message/global; programs use one for either.
// What can't be decoded ends the text.
func decode(encoding string, body []byte) []byte {
	switch strings.ToLower(firstWord(encoding)) {
	case "base64":
		body, _ = io.ReadAll(base64.NewDecoder(base64.StdEncoding, &alphabet{body}))
	case "quoted-printable":
		body, _ = io.ReadAll(quotedprintable.NewReader(bytes.NewReader(body)))
	}
	return body
}

// alphabet passes over what is no base64 (RFC 2045 section 6.8).
type alphabet struct{ rest []byte }

func (a *alphabet) Read(p []byte) (n int, err error) {
	for n < len(p) && len(a.rest) > 0 {
		c := a.rest[0]
		a.rest = a.rest[1:]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '+' || c == '/' || c == '=' {
			p[n] = c
			n++
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// returnedHeader looks for our tokens in the header of the mail that came back.
func (s *scan) returnedHeader(header []byte) {
	eachField(header, func(name, value string) {
		if name == "list-unsubscribe" {
			s.tokens = appendTokens(s.tokens, value)
		}
	})
}

// appendTokens takes the tokens out of a List-Unsubscribe: what follows the last /u/ of each URL. Where the URL points to does not
// matter, since the address of the web side may have changed; the token is signed.
func appendTokens(tokens []string, value string) []string {
	if strings.Contains(value, "=?") { // some servers encode long fields (RFC 2047)
		if plain, err := new(mime.WordDecoder).DecodeHeader(value); err == nil {
			value = plain
		}
	}
	for len(tokens) < maxTokens {
		_, rest, ok := strings.Cut(value, "<")
		if !ok {
			break
		}
		var url string
		if url, value, ok = strings.Cut(rest, ">"); !ok {
			break
		}
		url = strings.Join(strings.Fields(url), "") // folded in the middle
		if i := strings.LastIndex(url, "/u/"); i >= 0 && i+3 < len(url) {
			tokens = append(tokens, url[i+3:])
		}
	}
	return tokens
}
