package worker

import (
	"bytes"
	"encoding/base64"
	"math"
	"mime"
	netmail "net/mail"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/track"
	"postbit/rules"
	"postbit/templates"
)

// FuzzUserDocument takes a document the whole way from the database to DATA. Whatever stands in it, the rules keep him out with a reason, or his mail
// fails by itself, or it is whole: to one recipient, with our headers alone, and with a link that unsubscribes him and nobody else.
func FuzzUserDocument(f *testing.F) {
	h := newHouse(f)
	w := h.idleWorker()
	tmpl := template(testBit)
	tmpl.Subject = "{{ .User.name }}, {{ .User.plan.name }}"
	tmpl.HTML = `<html><body><p title="{{ .User.name }}">{{ .User.name }} {{ .User.tags }}{{ range .User.tags }}<b>{{ . }}</b>{{ end }}</p><a href="{{ link "https://x.example/" }}">x</a> <a href="{{ unsubscribe }}">no more</a></body></html>`
	a, err := w.prepare(h.run("fuzz", 0, func(r *campaign.Run) { r.Template = templates.Snapshot(tmpl) }))
	if err != nil {
		f.Fatal(err)
	}
	keys, err := track.ParseKeys("a:" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))) // the house's
	if err != nil {
		f.Fatal(err)
	}
	for _, change := range []bson.D{
		{}, {{Key: "name", Value: "x\r\nBcc: evil@x.example\r\n\r\n"}}, {{Key: "email", Value: "a@x.example\r\nBcc: b@x.example"}}, {{Key: "email", Value: "jörg@exämple.example"}},
		{{Key: "email", Value: "a@x.example,b@x.example"}}, {{Key: "email", Value: `"a b"@x.example`}}, {{Key: "email", Value: "<a@x.example>"}}, {{Key: "email", Value: bson.A{"a@x.example"}}},
		{{Key: "name", Value: "\xff\xfe\x00"}}, {{Key: "name", Value: strings.Repeat("é", 1000)}}, {{Key: "name", Value: bson.D{{Key: "a", Value: bson.A{nil, bson.MinKey{}}}}}}, {{Key: "name", Value: "=?utf-8?q?x?="}},
		{{Key: "plan", Value: bson.D{{Key: "name", Value: math.Inf(-1)}}}}, {{Key: "plan", Value: "no document"}}, {{Key: "tags", Value: bson.A{1, "<script>", bson.A{bson.A{}}}}}, {{Key: "tags", Value: bson.Regex{Pattern: "("}}},
		{{Key: "timezone", Value: 7}}, {{Key: "timezone", Value: "../../etc/passwd"}}, {{Key: "postbit", Value: bson.D{{Key: "last_at", Value: "x"}}}}, {{Key: "tpls_sent_at_least_once", Value: 3.5}},
		{{Key: "_id", Value: strings.Repeat("x", 1100)}}, {{Key: "_id", Value: bson.D{{Key: "a", Value: bson.D{}}}}}, {{Key: "_id", Value: bson.MaxKey{}}}, {{Key: "_id", Value: nil}}, {{Key: "_id", Value: "\xff"}},
	} {
		fields := map[string]any{"_id": int32(1), "email": "ann@x.example", "name": "Ann", "timezone": "Asia/Kolkata", "plan": bson.D{{Key: "name", Value: "free"}}, "tags": bson.A{"a"}}
		for _, e := range change {
			fields[e.Key] = e.Value
		}
		doc := bson.D{}
		for _, key := range []string{"_id", "email", "name", "timezone", "plan", "tags", "postbit", "tpls_sent_at_least_once"} {
			if v, ok := fields[key]; ok {
				doc = append(doc, bson.E{Key: key, Value: v})
			}
		}
		raw, err := bson.Marshal(doc)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	ours := map[string]bool{"From": true, "To": true, "Subject": true, "Date": true, "Message-Id": true, "Mime-Version": true, "Content-Type": true,
		"Content-Transfer-Encoding": true, "List-Unsubscribe": true, "List-Unsubscribe-Post": true}
	f.Fuzz(func(t *testing.T, doc []byte) {
		u := h.users.Parse(doc, testBit)
		if d := a.rules.Decide(&u, false, testStart); d.Outcome != rules.Send {
			if d.Rule.String() == "" {
				t.Errorf("kept out for no reason: %+v", d)
			}
			return
		}
		p := &pass{w: w, a: a}
		msg, err := p.compose(&job{candidate: candidate{user: u}})
		if err != nil {
			return // his mail fails, and nobody else's
		}
		m, err := netmail.ReadMessage(bytes.NewReader(msg))
		if err != nil {
			t.Fatalf("no mail: %v\n%q", err, msg)
		}
		for name, values := range m.Header {
			if !ours[name] || len(values) != 1 {
				t.Errorf("%s stands in the mail %d times: %q", name, len(values), values)
			}
		}
		if to, err := netmail.ParseAddressList(m.Header.Get("To")); err == nil && len(to) != 1 {
			t.Errorf("to %q", m.Header.Get("To"))
		}
		if s, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject")); err != nil || strings.ContainsAny(s, "\r\n\x00") {
			t.Errorf("subject %q, %v", s, err)
		}
		link := strings.Trim(m.Header.Get("List-Unsubscribe"), "<>")
		token, err := keys.Verify(link[strings.LastIndexByte(link, '/')+1:])
		if err != nil || token.Kind != track.Unsubscribe || token.User.Type != u.ID.Type || !bytes.Equal(token.User.Value, u.ID.Value) || token.Run != a.run.Short {
			t.Errorf("the link %q is for %+v, %v; the user is %s", link, token, err, u.ID)
		}
	})
}
