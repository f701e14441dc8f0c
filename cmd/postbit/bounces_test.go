package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/report"
	"postbit/internal/returned"
)

// deliveryReport is what a mail server sends that could not deliver a mail.
func deliveryReport(address, status, diagnostic, original string) string {
	return fmt.Sprintf(`Return-Path: <>
From: MAILER-DAEMON@out1.post.example (Mail Delivery System)
To: bounces@post.example
Subject: Undelivered Mail Returned to Sender
Auto-Submitted: auto-replied
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary="r"

--r
Content-Type: text/plain

It could not be delivered.
--r
Content-Type: message/delivery-status

Reporting-MTA: dns; out1.post.example

Final-Recipient: rfc822; %s
Action: failed
Status: %s
Diagnostic-Code: %s

--r
Content-Type: message/rfc822

%s
--r--
`, address, status, diagnostic, original)
}

// feedbackReport is what a provider sends whose user has called a mail spam.
func feedbackReport(original string) string {
	return fmt.Sprintf(`From: <feedback@provider.example>
To: bounces@post.example
Subject: FW: come back
MIME-Version: 1.0
Content-Type: multipart/report; report-type=feedback-report; boundary="r"

--r
Content-Type: text/plain

A report of abuse.
--r
Content-Type: message/feedback-report

Feedback-Type: abuse
User-Agent: Feedback/1.0
Version: 1

--r
Content-Type: message/rfc822

%s
--r--
`, original)
}

func outOfOffice(address string) string {
	return "From: " + address + "\nTo: bounces@post.example\nSubject: Automatic reply: come back\nAuto-Submitted: auto-replied\n\n" +
		"I am away. Your mail: 550 5.1.1 no such user\n"
}

// sentWinback has a campaign sent to users 1 to 5, whose mails it returns by the name before the @.
func (s *shell) sentWinback(t *testing.T) (coll *mongo.Collection, mails map[string]string) {
	t.Helper()
	coll = s.external(t)
	t.Setenv("POSTBIT_SMTP_URL", "outbox:mails")
	t.Setenv("POSTBIT_MAIL_BOUNCE", "bounces@post.example")
	names := []string{"ada", "bob", "cem", "dora", "egon"}
	for i, name := range names {
		doc := bson.D{{Key: "_id", Value: i + 1}, {Key: "name", Value: name}, {Key: "plan", Value: "free"}, {Key: "email", Value: name + "@post.example"}}
		if _, err := coll.InsertOne(t.Context(), doc); err != nil {
			t.Fatal(err)
		}
	}
	s.write("templates/winback.html", winbackHTML)
	s.write("campaigns/winback.yaml", strings.Replace(winbackYAML, `  window: "09:00-20:00"`+"\n", "", 1))
	s.must("templates", "push", "templates")
	s.must("campaigns", "apply", "campaigns")
	stop := s.serve()
	s.must("campaigns", "run", "winback")
	s.await("all are sent", func() bool {
		var r report.Report
		s.decode(s.must("report", "winback", "--json"), &r)
		return r.Sent == int64(len(names))
	})
	if r := stop(); r.code != 0 {
		t.Fatalf("serve: exit code %d\n%s", r.code, r.err)
	}
	files, err := filepath.Glob("mails/*/*.eml")
	if err != nil {
		t.Fatal(err)
	}
	mails = map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(data, []byte("Return-Path: <bounces@post.example>\r\n")) {
			t.Errorf("another envelope sender: %.80s", data)
		}
		_, to, _ := strings.Cut(string(data), "Delivered-To: ")
		name, _, _ := strings.Cut(to, "@")
		mails[name] = string(data)
	}
	if len(mails) != len(names) {
		t.Fatalf("%d mails", len(mails))
	}
	return coll, mails
}

// everybody is all users as they stand in the database.
func everybody(t *testing.T, coll *mongo.Collection) (docs []bson.M) {
	t.Helper()
	cur, err := coll.Find(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	if err := cur.All(t.Context(), &docs); err != nil {
		t.Fatal(err)
	}
	return docs
}

// M8: mails that were really sent come back in each of the four ways. Only the last two suppress, and twice is once.
func TestMailsThatComeBack(t *testing.T) {
	s := newShell(t)
	coll, mails := s.sentWinback(t)
	back := []struct {
		name, text, status string
		outcome            returned.Outcome
	}{
		{"ada", outOfOffice("ada@post.example"), "", returned.AutoReplied},
		{"bob", deliveryReport("bob@post.example", "5.2.2", "smtp; 552 5.2.2 mailbox full", mails["bob"]), "", returned.Soft},
		{"cem", deliveryReport("cem@post.example", "5.1.1", "smtp; 550 5.1.1 no such user", mails["cem"]), "bounced", returned.Bounced},
		{"dora", feedbackReport(mails["dora"]), "complained", returned.Complained},
	}
	var after []bson.M
	for nth := range 2 {
		for _, b := range back {
			r := s.runWith(b.text, "bounces", "--json")
			var got bouncesJSON
			s.decode(r.out, &got)
			if r.code != exitDone || got.Mails != 1 || got.Counts[b.outcome] != 1 || (got.Changed == 1) != (b.status != "" && nth == 0) {
				t.Errorf("%s, reading %d: exit code %d, %s%s", b.name, nth+1, r.code, r.out, r.err)
			}
		}
		if now := everybody(t, coll); nth == 0 {
			after = now
		} else if diff := cmp.Diff(after, now); diff != "" {
			t.Errorf("the second reading changed something: %s", diff)
		}
	}
	for i, b := range back {
		if got := s.must("users", "show", fmt.Sprint(i+1), "--json"); !strings.Contains(got, fmt.Sprintf("%q:%q", "status", b.status)) {
			t.Errorf("%s: %s", b.name, got)
		}
	}
	var r report.Report
	s.decode(s.must("report", "winback", "--json"), &r)
	if r.Sent != 5 || r.Bounced != 1 || r.Complained != 1 || r.Failed != 0 {
		t.Errorf("sent %d, bounced %d, complained %d, failed %d", r.Sent, r.Bounced, r.Complained, r.Failed)
	}
	if text := s.must("report", "winback"); !strings.Contains(text, "complained") {
		t.Errorf("nobody complained in\n%s", text)
	}
	var next struct {
		Counts struct{ Skipped map[string]int }
	}
	s.decode(s.must("campaigns", "rehearse", "winback", "--json"), &next)
	if skipped := next.Counts.Skipped; skipped["suppressed"] != 2 || skipped["already_sent"] != 3 {
		t.Errorf("the next run would skip %v", skipped)
	}
}

func TestBouncesOfAMaildirAndAnMbox(t *testing.T) {
	s := newShell(t)
	coll, mails := s.sentWinback(t)
	before := everybody(t, coll)
	hard := func(name string) string {
		return deliveryReport(name+"@post.example", "5.1.1", "smtp; 550 5.1.1 no such user", mails[name])
	}
	for _, sub := range []string{"new", "cur", "tmp"} {
		if err := os.MkdirAll(filepath.Join("box", sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.write("box/new/1.host", hard("ada"))
	s.write("box/new/2.host", outOfOffice("bob@post.example"))
	s.write("box/new/3.host", deliveryReport("\x1b[2Jcem@post.example", "5.1.1", "smtp; 550 5.1.1 no\x1b[2J such user", mails["cem"]))
	line := "From MAILER-DAEMON Tue Dec  1 09:00:06 2026\n"
	s.write("old.mbox", line+hard("dora")+"\n"+line+hard("ada")+"\n"+line+hard("nobody"))

	want := bouncesJSON{DryRun: true, Mails: 6, Changed: 3}
	r := s.run("bounces", "box", "old.mbox", "--dry-run", "--json")
	var got bouncesJSON
	s.decode(r.out, &got)
	if r.code != exitNo || got.Mails != want.Mails || got.Counts["bounced"] != 3 || got.Counts["other_address"] != 1 || got.Counts["unverified"] != 1 || got.Counts["auto_reply"] != 1 {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
	}
	if diff := cmp.Diff(before, everybody(t, coll)); diff != "" {
		t.Errorf("the dry run changed something: %s", diff)
	}
	r = s.run("bounces", "box")
	if r.code != exitNo || !strings.Contains(r.err, "3 mails: 1 bounced, 1 other_address, 1 auto_reply; 1 newly suppressed") || strings.Contains(r.out+r.err, "\x1b") {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
	}
	if left, err := os.ReadDir("box/new"); err != nil || len(left) != 0 {
		t.Errorf("%d mails left in new (%v)", len(left), err)
	}
	if r = s.run("bounces", "box"); r.code != exitDone || !strings.Contains(r.err, "no mails") {
		t.Errorf("the second time: exit code %d: %s%s", r.code, r.out, r.err)
	}
	if r = s.run("bounces", "old.mbox"); r.code != exitNo || !strings.Contains(r.err, "3 mails: 2 bounced, 1 unverified; 1 newly suppressed") {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
	}
	for id, status := range map[string]string{"1": "bounced", "2": "", "3": "", "4": "bounced", "5": ""} {
		if got := s.must("users", "show", id, "--json"); !strings.Contains(got, fmt.Sprintf("%q:%q", "status", status)) {
			t.Errorf("user %s: %s", id, got)
		}
	}
}

// A mail server that pipes a mail must keep it where anything but the mail is at fault.
func TestAPipedMailIsKept(t *testing.T) {
	s := newShell(t)
	mail := deliveryReport("gil@post.example", "5.1.1", "smtp; 550 5.1.1 no such user", "Subject: x\n")
	away := func() {
		for name, value := range map[string]string{"MONGO_URI": "mongodb://app:hunter2@127.0.0.1:1/?serverSelectionTimeoutMS=50", "REDIS_URI": "redis://127.0.0.1:1", "SMTP_URL": "smtp://127.0.0.1:1",
			"PUBLIC_URL": "http://h", "SECRET": "k:" + strings.Repeat("QUFB", 16)} {
			t.Setenv("POSTBIT_"+name, value)
		}
	}
	away()
	for _, c := range []struct {
		name, key, value string
		args             []string
		code             int
	}{
		{"the database is away", "POSTBIT_LOG_LEVEL", "warn", []string{"bounces"}, exitTempFail},
		{"named by a dash", "POSTBIT_LOG_LEVEL", "warn", []string{"bounces", "-"}, exitTempFail},
		{"a setting is wrong", "POSTBIT_RETENTION", "soon", []string{"bounces"}, exitTempFail},
		{"a setting is missing", "POSTBIT_SECRET", "", []string{"bounces"}, exitTempFail},
		{"a key is wrong", "POSTBIT_SECRET", "k:short", []string{"bounces"}, exitTempFail},
		{"a file, and the database is away", "POSTBIT_LOG_LEVEL", "warn", []string{"bounces", "a.eml"}, exitTempFail},
		{"a file, and a setting is missing", "POSTBIT_SECRET", "", []string{"bounces", "a.eml"}, exitUsage},
		{"no such file", "POSTBIT_LOG_LEVEL", "warn", []string{"bounces", "b.eml"}, exitUsage},
		{"a folder that is no Maildir", "POSTBIT_LOG_LEVEL", "warn", []string{"bounces", "."}, exitUsage},
		{"standard input and a file", "POSTBIT_LOG_LEVEL", "warn", []string{"bounces", "a.eml", "-"}, exitUsage},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(c.key, c.value)
			s.write("a.eml", mail)
			r := s.runWith(mail, c.args...)
			if r.code != c.code || r.out != "" || r.err == "" || strings.Contains(r.err, "hunter2") {
				t.Errorf("exit code %d, want %d: %s%s", r.code, c.code, r.out, r.err)
			}
		})
	}
}
