package returned

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/mail"
	"postbit/internal/track"
)

var (
	start  = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	runID  = [8]byte{'w', 'i', 'n', 'b', 'a', 'c', 'k', 1}
	secret = base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))
)

func keys(t testing.TB) *track.Keys {
	t.Helper()
	k, err := track.ParseKeys("a:" + secret)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func id(t testing.TB, v any) bson.RawValue {
	t.Helper()
	kind, data, err := bson.MarshalValue(v)
	if err != nil {
		t.Fatal(err)
	}
	return bson.RawValue{Type: kind, Value: data}
}

func token(t testing.TB, user any) string {
	return keys(t).Sign(track.Token{Kind: track.Unsubscribe, Run: runID, User: id(t, user), SentAt: start})
}

// sample is a mail of testdata with a token in the place of TOKEN.
func sample(t testing.TB, name, token string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	header := "Subject: Gil, come back\r\nList-Unsubscribe: <https://m.example.com/u/" + token + ">\r\n\r\nHello\r\n"
	return []byte(strings.NewReplacer("QTOKEN", strings.ReplaceAll(token, "_", "=5F"), "TOKEN", token,
		"BASE64", base64.StdEncoding.EncodeToString([]byte(header))).Replace(string(data)))
}

func readSample(t testing.TB, name, token string) *Report {
	t.Helper()
	r, err := Read(bytes.NewReader(sample(t, name, token)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const gil = "gil@post.example"

// samples are mails as the programs send them that they are named after, and what each of them says.
var samples = []struct {
	file     string
	kind     Kind
	class    mail.Class
	code     int
	enhanced string
	address  string
	token    bool
	feedback string
}{
	{"postfix-hard.eml", Bounce, mail.Bounced, 550, "5.1.1", gil, true, ""},
	{"postfix-full.eml", Bounce, mail.Failed, 552, "5.2.2", gil, true, ""},
	{"postfix-policy.eml", Bounce, mail.Policy, 550, "5.7.1", gil, true, ""},
	{"postfix-delayed.eml", Notice, 0, 0, "", gil, true, ""},
	{"postfix-expired.eml", Bounce, mail.Retry, 0, "4.4.1", gil, true, ""},
	{"postfix-local.eml", Bounce, mail.Bounced, 0, "5.1.1", gil, true, ""},
	{"postfix-no-host.eml", Bounce, mail.Failed, 0, "5.4.4", gil, true, ""},
	{"exim-hard.eml", Bounce, mail.Bounced, 550, "", gil, true, ""},
	{"exim-policy.eml", Bounce, mail.Policy, 550, "5.7.1", gil, true, ""},
	{"exim-greylisted.eml", Bounce, mail.Retry, 451, "", gil, true, ""},
	{"exchange-hard.eml", Bounce, mail.Bounced, 550, "5.1.10", "Gil@post.example", true, ""},
	{"outlook365-unknown.eml", Bounce, mail.Bounced, 550, "5.4.1", gil, true, ""},
	{"gmail-hard.eml", Bounce, mail.Bounced, 550, "5.1.1", gil, true, ""},
	{"gmail-full.eml", Bounce, mail.Retry, 452, "4.2.2", gil, true, ""},
	{"ses-hard.eml", Bounce, mail.Bounced, 550, "5.1.1", gil, true, ""},
	{"qmail-hard.eml", Bounce, mail.Bounced, 550, "5.1.1", gil, true, ""},
	{"qmail-local.eml", Bounce, mail.Bounced, 0, "5.1.1", gil, true, ""},
	{"qmail-full.eml", Bounce, mail.Failed, 0, "5.2.2", gil, true, ""},
	{"qmail-no-connection.eml", Bounce, mail.Retry, 0, "4.4.1", gil, true, ""},
	{"smtputf8-hard.eml", Bounce, mail.Bounced, 550, "5.1.1", "zoë@xn--kln-sna.example", true, ""},
	{"alias-partly.eml", Bounce, mail.Bounced, 550, "5.1.1", gil, true, ""},
	{"forwarded-elsewhere.eml", Bounce, mail.Bounced, 550, "5.1.1", "gil@elsewhere.example", true, ""},
	{"list-footer.eml", Bounce, mail.Bounced, 0, "5.1.1", gil, true, ""},
	{"cut-off.eml", Bounce, mail.Bounced, 550, "5.1.1", gil, true, ""},
	{"yahoo-complaint.eml", Complaint, 0, 0, "", gil, true, "abuse"},
	{"outlook-complaint-redacted.eml", Complaint, 0, 0, "", "", true, "abuse"},
	{"opt-out.eml", OptOut, 0, 0, "", gil, true, "opt-out"},
	{"not-spam.eml", Feedback, 0, 0, "", gil, true, "not-spam"},
	{"fraud.eml", Feedback, 0, 0, "", gil, true, "fraud"},
	{"outlook-out-of-office.eml", AutoReply, 0, 0, "", "", false, ""},
	{"sieve-vacation.eml", AutoReply, 0, 0, "", "", false, ""},
	{"read-receipt.eml", Notice, 0, 0, "", "", true, ""},
	{"forwarded-report.eml", Other, 0, 0, "", "", true, ""}, // the token is that of a forwarded header and is used for nothing
	{"ordinary.eml", Other, 0, 0, "", "", false, ""},
}

func TestSamples(t *testing.T) {
	tok := token(t, 7)
	for _, s := range samples {
		t.Run(s.file, func(t *testing.T) {
			r := readSample(t, s.file, tok)
			if r.Kind != s.kind || r.Feedback != s.feedback {
				t.Errorf("kind %d, feedback %q", r.Kind, r.Feedback)
			}
			var who Recipient
			if len(r.Recipients) > 0 {
				who = r.Recipients[0]
			}
			if who.Address() != s.address || who.Failed != (s.kind == Bounce) {
				t.Errorf("%+v", who)
			}
			if got := who.Reply; got.Class != s.class || got.Code != s.code || got.Enhanced != s.enhanced {
				t.Errorf("%+v", got)
			}
			if s.kind == Bounce && s.file != "list-footer.eml" && who.Reply.Text == "" {
				t.Error("nothing of what the server said")
			}
			if found := len(r.tokens) > 0 && r.tokens[0] == tok; found != s.token && s.kind != Other {
				t.Errorf("tokens %q", r.tokens)
			}
		})
	}
	files, err := filepath.Glob("testdata/*.eml")
	if err != nil || len(files) != len(samples) {
		t.Errorf("%d samples, %d rows (%v)", len(files), len(samples), err)
	}
}

// Mails come with line ends of either kind, behind the line of an mbox or not, and in pieces.
func TestSamplesInOtherClothes(t *testing.T) {
	tok := token(t, 7)
	same := cmp.AllowUnexported(Report{})
	for _, s := range samples {
		data := sample(t, s.file, tok)
		want, crlf := parse(data), bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n"))
		for name, dressed := range map[string][]byte{"CRLF": crlf, "an mbox line": append([]byte("From MAILER-DAEMON Tue Dec  1 09:00:06 2026\n"), data...)} {
			if diff := cmp.Diff(want, parse(dressed), same); diff != "" {
				t.Errorf("%s with %s: %s", s.file, name, diff)
			}
		}
		got, err := Read(iotest.OneByteReader(bytes.NewReader(data)))
		if diff := cmp.Diff(want, got, same); diff != "" || err != nil {
			t.Errorf("%s in pieces: %v %s", s.file, err, diff)
		}
	}
}

func TestReplyOfAStatus(t *testing.T) {
	for _, c := range []struct {
		name, status, diagnostic string
		class                    mail.Class
		code                     int
		enhanced, text           string
	}{
		{"both agree", "5.1.1", "smtp; 550 5.1.1 nobody", mail.Bounced, 550, "5.1.1", "nobody"},
		{"the server's own code says more", "5.0.0", "smtp; 550 5.2.2 full", mail.Failed, 550, "5.2.2", "full"},
		{"the server gave none", "5.7.1", "smtp; 550 go away", mail.Policy, 550, "5.7.1", "go away"},
		{"x.0.0 says nothing: 550", "5.0.0", "smtp; 550 nobody", mail.Bounced, 550, "", "nobody"},
		{"x.0.0 says nothing: 554", "5.0.0", "smtp; 554 nobody", mail.Bounced, 554, "", "nobody"},
		{"x.0.0 alone", "5.0.0", "", mail.Failed, 0, "", ""},
		{"nothing at all", "", "", mail.Failed, 0, "", ""},
		{"gave up waiting", "4.7.0", "smtp; 450 4.7.0 slow down", mail.Retry, 450, "4.7.0", "slow down"},
		{"gave up waiting, whatever was said last", "4.4.7", "smtp; 550 5.1.1 nobody", mail.Retry, 0, "4.4.7", "nobody"},
		{"a 4xx under a status of 5", "5.0.0", "smtp; 421 busy", mail.Retry, 421, "", "busy"},
		{"a code of another class is none", "5.0.0", "smtp; 550 4.1.1 nobody", mail.Bounced, 550, "", "4.1.1 nobody"},
		{"no SMTP", "5.1.2", "X-Postfix; 550 5.2.2 looks like one", mail.Bounced, 0, "5.1.2", "550 5.2.2 looks like one"},
		{"no type", "5.2.2", "550 5.1.1 nobody", mail.Failed, 0, "5.2.2", "550 5.1.1 nobody"},
		{"a code with a number sign", "", "smtp;550 #5.1.1 nobody", mail.Bounced, 550, "5.1.1", "nobody"},
		{"too large", "5.3.4", "smtp; 552 5.3.4 too large", mail.Failed, 552, "5.3.4", "too large"},
		{"what it contains", "5.6.0", "smtp; 550 5.6.0 a bad word", mail.Failed, 550, "5.6.0", "a bad word"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := mail.Reply{Class: c.class, Code: c.code, Enhanced: c.enhanced, Text: c.text}
			if diff := cmp.Diff(want, refusal(c.status, c.diagnostic)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAddressesOfAReport(t *testing.T) {
	for _, c := range []struct {
		name, kind, text string
		want             []string
	}{
		{"plain", "rfc822", " gil@post.example", []string{gil}},
		{"in brackets, with a name", "RFC822", "Gil <gil@POST.example>", []string{gil}},
		{"xtext that was not undone", "rfc822", "gil+2Bnews@post.example", []string{"gil+2Bnews@post.example", "gil+news@post.example"}},
		{"UTF-8", "utf-8", "zoë@köln.example", []string{"zoë@xn--kln-sna.example"}},
		{"UTF-8 in ASCII", "utf-8", `zo\x{EB}@k\x{F6}ln.example`, []string{"zoë@xn--kln-sna.example"}},
		{"no character", "utf-8", `a\x{110000}b\x{D800}@post.example`, nil},
		{"a line break", "utf-8", `gil\x{0A}Bcc@post.example`, nil},
		{"another kind of address", "x400", "gil@post.example", nil},
		{"none", "rfc822", "undisclosed", nil},
		{"two", "rfc822", "a@b.example, c@d.example", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, appendAddress(nil, c.kind, c.text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTokensOfAField(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        []string
	}{
		{"one", "<https://m.example.com/u/AQ-_>", []string{"AQ-_"}},
		{"below a path that has a /u/ of its own", "<https://m.example.com/u/x/u/AQ>", []string{"AQ"}},
		{"folded in the middle", "<https://m.example.com/u/ AQ\tBQ>", []string{"AQBQ"}},
		{"beside a mailto", "<mailto:leave@m.example.com>, <https://m.example.com/u/AQ>", []string{"AQ"}},
		{"encoded", "=?utf-8?q?=3Chttps=3A//m.example.com/u/AQ=5FBQ=3E?=", []string{"AQ_BQ"}},
		{"encoded in a way that nobody knows", "=?x-klingon?q?=3C?= <https://m.example.com/u/AQ>", []string{"AQ"}},
		{"not closed", "<https://m.example.com/u/AQ", nil},
		{"empty", "<https://m.example.com/u/>", nil},
		{"another list's", "<https://lists.example/leave?x=1>", nil},
		{"very many", strings.Repeat("<https://m.example.com/u/AQ>,", 5000), strings.Split(strings.Repeat("AQ ", maxTokens-1)+"AQ", " ")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, appendTokens(nil, c.value)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHostileMails(t *testing.T) {
	group := "Final-Recipient: rfc822; gil@post.example\nAction: failed\nStatus: 5.1.1\n\n"
	report := func(status string) string {
		return "Content-Type: multipart/report; boundary=b\n\n--b\nContent-Type: message/delivery-status\n\n" + status + "--b--\n"
	}
	nested := func(depth int, inside string) string {
		for i := range depth {
			inside = fmt.Sprintf("Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n%s\n--b%d--\n", i, i, inside, i)
		}
		return inside
	}
	status := "Content-Type: message/delivery-status\n\n" + group
	for _, c := range []struct {
		name, text string
		check      func(*Report) bool
	}{
		{"nothing", "", func(r *Report) bool { return r.Kind == Other }},
		{"no line end", "Subject", func(r *Report) bool { return r.Kind == Other }},
		{"10,000 recipients", report(strings.Repeat(group, 10000)), func(r *Report) bool { return r.Kind == Bounce && len(r.Recipients) == maxRecipients }},
		{"a report in five multiparts", nested(5, status), func(r *Report) bool { return r.Kind == Bounce }},
		{"a report in six", nested(6, status), func(r *Report) bool { return r.Kind == Other }},
		{"multiparts without end", nested(2000, status), func(r *Report) bool { return r.Kind == Other }},
		{"a multipart that holds itself", strings.Repeat("Content-Type: multipart/mixed; boundary=b\n\n--b\n", 20000), func(r *Report) bool { return r.Kind == Other }},
		{"20,000 parts before the report", "Content-Type: multipart/mixed; boundary=b\n\n" + strings.Repeat("--b\n\n\n", 20000) + "--b\n" + status + "--b--\n",
			func(r *Report) bool { return r.Kind == Other }},
		{"a megabyte of fields", strings.Repeat("X: y\n", 200000) + "Auto-Submitted: auto-replied\n\n", func(r *Report) bool { return r.Kind == Other }},
		{"one field of a megabyte", "X: " + strings.Repeat("y", MaxBytes) + "\nAuto-Submitted: auto-replied\n\n", func(r *Report) bool { return r.Kind == Other }},
		{"one folded field of a megabyte", "Auto-Submitted: auto-replied\nX: y\n" + strings.Repeat(" y\n", 300000), func(r *Report) bool { return r.Kind == AutoReply }},
		{"a field name of a megabyte", strings.Repeat("y", MaxBytes/2) + ": x\nAuto-Submitted: auto-replied\n\n", func(r *Report) bool { return r.Kind == AutoReply }},
		{"broken base64", "Content-Type: multipart/report; boundary=b\n\n--b\nContent-Type: message/delivery-status\nContent-Transfer-Encoding: base64\n\n!!!=\xff=A\n--b--\n",
			func(r *Report) bool { return r.Kind == Notice && len(r.Recipients) == 0 }},
		{"no boundary", "Content-Type: multipart/report; report-type=delivery-status\n\n" + group, func(r *Report) bool { return r.Kind == Other }},
		{"a boundary of a megabyte", "Content-Type: multipart/report; boundary=" + strings.Repeat("b", MaxBytes) + "\n\n", func(r *Report) bool { return r.Kind == Other }},
		{"a status that is a mail of its own", "Content-Type: message/delivery-status\n\n" + group, func(r *Report) bool { return r.Kind == Bounce && len(r.tokens) == 0 }},
		{"escapes and line breaks in what the server said", report("Final-Recipient: rfc822; gil@post.example\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 550 5.1.1 a\x1b[31mb\r c\x00d\xffe\u0085f\n\n"),
			func(r *Report) bool { return r.Recipients[0].Reply.Text == "a[31mb  cd\uFFFDef" }},
		{"an address with an escape", report("Final-Recipient: rfc822; gil\x1b@post.example\nAction: failed\nStatus: 5.1.1\n\n"), func(r *Report) bool { return len(r.Recipients[0].Addresses) == 0 }},
		{"a type of feedback that is none", "Content-Type: message/feedback-report\n\nFeedback-Type: abuse\x1b[2J\n\n", func(r *Report) bool { return r.Kind == Feedback && r.Feedback == "unknown" }},
		{"a qmail bounce without recipients", "\nHi. This is the end\n\n<>:\n", func(r *Report) bool { return true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Read(strings.NewReader(c.text))
			if err != nil || !c.check(r) {
				t.Errorf("%v: kind %d, %d recipients, %d tokens, %.300v", err, r.Kind, len(r.Recipients), len(r.tokens), r.Recipients)
			}
			bounded(t, r)
		})
	}
}

// bounded checks what holds for every report, whoever wrote it.
func bounded(t *testing.T, r *Report) {
	t.Helper()
	harmless := func(what, s string, most int) {
		if len(s) > most || !utf8.ValidString(s) || strings.IndexFunc(s, unicode.IsControl) >= 0 {
			t.Errorf("%s is %.300q", what, s)
		}
	}
	harmless("feedback", r.Feedback, 32)
	if len(r.Recipients) > maxRecipients || len(r.tokens) > maxTokens {
		t.Errorf("%d recipients, %d tokens", len(r.Recipients), len(r.tokens))
	}
	for _, who := range r.Recipients {
		harmless("text", who.Reply.Text, 200)
		harmless("enhanced", who.Reply.Enhanced, 9)
		if len(who.Addresses) > maxAddresses || who.Failed != (who.Reply.Class != 0) || who.Reply.Code < 0 || who.Reply.Code > 599 {
			t.Errorf("%+v", who)
		}
		for _, a := range who.Addresses {
			harmless("address", a, 254)
			if again, _, _, err := mail.Normalize(a); err != nil || again != a {
				t.Errorf("address %q: %v", a, err)
			}
		}
	}
	if r.Kind == Bounce && len(r.Recipients) == 0 {
		t.Error("a bounce of nobody")
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range samples {
		f.Add(sample(f, s.file, "AQ"))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Read(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		bounded(t, r)
	})
}
