package mail

import (
	"testing"
	"time"
)

func BenchmarkEncode(b *testing.B) {
	m := sample()
	b.ReportAllocs()
	b.SetBytes(int64(len(m.HTML) + len(m.Text)))
	for b.Loop() {
		if _, err := m.Encode(); err != nil {
			b.Fatal(err)
		}
	}
}

func sample() *Message {
	html := "<html><body>"
	text := ""
	for len(html) < 4500 {
		html += "<p style=\"margin:0 0 12px 0\">Guten Tag Zoë, wir haben <a href=\"https://example.com/x?y=1\">etwas</a> für Sie.</p>\n"
	}
	for len(text) < 1400 {
		text += "Guten Tag Zoë, wir haben etwas für Sie: https://example.com/x?y=1\n"
	}
	return &Message{From: Address{"Postbit – News", "news@example.com"}, To: Address{"Zoë", "zoe@example.org"}, Subject: "Grüße an Zoë", HTML: html + "</body></html>", Text: text,
		MessageID: "a.b@example.com", Date: time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC), UnsubscribeURL: "https://example.com/u/abc"}
}
