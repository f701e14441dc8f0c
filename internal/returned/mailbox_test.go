package returned

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func readAll(t *testing.T, path string) (names []string, kinds []Kind) {
	t.Helper()
	box, err := OpenMailbox(path)
	if err != nil {
		t.Fatal(err)
	}
	for m, err := range box.Mails() {
		if err != nil {
			t.Fatal(err)
		}
		names, kinds = append(names, strings.TrimPrefix(m.Name, path)), append(kinds, m.Report.Kind)
		if err := box.Done(m); err != nil {
			t.Fatal(err)
		}
	}
	return names, kinds
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestAMessage(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "a.eml"), string(sample(t, "postfix-hard.eml", "AQ")))
	for range 2 {
		if names, kinds := readAll(t, path); len(names) != 1 || names[0] != "" || kinds[0] != Bounce {
			t.Errorf("%q %v", names, kinds)
		}
	}
}

func TestAnMbox(t *testing.T) {
	dir := t.TempDir()
	from := "From MAILER-DAEMON Tue Dec  1 09:00:06 2026\n"
	hard, away := string(sample(t, "postfix-hard.eml", "AQ")), string(sample(t, "sieve-vacation.eml", "AQ"))
	for _, c := range []struct {
		name, text string
		want       []Kind
	}{
		{"two mails", from + hard + "\n" + from + away, []Kind{Bounce, AutoReply}},
		{"CRLF", strings.ReplaceAll(from+hard+"\n"+from+away, "\n", "\r\n"), []Kind{Bounce, AutoReply}},
		{"a line in a mail that begins with From", from + "Subject: x\n\nhello\nFrom here on\n\n>From there on\n", []Kind{Other}},
		{"a mail that is too long", from + "Subject: x\n\n" + strings.Repeat("hello\n", 2*MaxBytes/6) + "\n" + from + hard, []Kind{Other, Bounce}},
		{"a line that is too long", from + "Subject: " + strings.Repeat("From ", MaxBytes) + "\n\n" + from + hard, []Kind{Other, Bounce}},
		{"a From in the middle of a long line", from + "X: y\n\n" + strings.Repeat(" ", 64<<10) + "From x\n\n" + from + hard, []Kind{Other, Bounce}},
		{"nothing in it", from, []Kind{Other}},
		{"no line end", "From ", []Kind{Other}},
	} {
		t.Run(c.name, func(t *testing.T) {
			names, kinds := readAll(t, write(t, filepath.Join(dir, "mbox"), c.text))
			if fmt.Sprint(kinds) != fmt.Sprint(c.want) || names[len(names)-1] != fmt.Sprintf("#%d", len(c.want)) {
				t.Errorf("%q %v", names, kinds)
			}
		})
	}
	if names, kinds := readAll(t, write(t, filepath.Join(dir, "empty"), "")); len(names) != 1 || kinds[0] != Other {
		t.Errorf("an empty file: %q %v", names, kinds)
	}
}

// However long the mails and their lines are, each comes out as it went in.
func TestAnMboxIsCutWhereItWasJoined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.Custom(func(t *rapid.T) string {
			word := rapid.SampledFrom([]string{"", "x", "From", "from x", ">From x", "Subject: y", " From z"}).Draw(t, "word")
			return word + strings.Repeat("-", rapid.SampledFrom([]int{0, 1, 15, 16, 17, 40}).Draw(t, "more"))
		})
		mails := rapid.SliceOfN(rapid.SliceOfN(line, 0, 6), 1, 5).Draw(t, "mails")
		var want []string
		var mbox strings.Builder
		for _, lines := range mails {
			text := "From a@b.example Tue Dec  1\n" + strings.Join(lines, "\n") + "\n\n"
			mbox.WriteString(text)
			want = append(want, text)
		}
		var got []string
		for mail, err := range split(bufio.NewReaderSize(strings.NewReader(mbox.String()), 16)) { // a buffer shorter than most lines
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(mail))
		}
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Fatalf("%q\nwant %q", got, want)
		}
	})
}

func TestAMaildir(t *testing.T) {
	dir := t.TempDir()
	hard := string(sample(t, "postfix-hard.eml", "AQ"))
	for _, name := range []string{"new/1796115606.a.host", "new/1796115605.b.host", "new/.hidden", "cur/1796115000.c.host:2,S", "tmp/1796115607.d.host"} {
		write(t, filepath.Join(dir, name), hard)
	}
	if err := os.Mkdir(filepath.Join(dir, "new", "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	names, _ := readAll(t, dir)
	if want := "[/new/1796115605.b.host /new/1796115606.a.host]"; fmt.Sprint(names) != want {
		t.Errorf("%v, want %s", names, want)
	}
	if names, _ := readAll(t, dir); len(names) != 0 {
		t.Errorf("read again: %v", names)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "cur", "1796115606.a.host:2,S")); err != nil || string(text) != hard {
		t.Errorf("%v", err)
	}
}

func TestNoMailbox(t *testing.T) {
	if _, err := OpenMailbox(t.TempDir()); !errors.Is(err, ErrMailbox) {
		t.Errorf("a folder that is no Maildir: %v", err)
	}
	if _, err := OpenMailbox(filepath.Join(t.TempDir(), "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing there: %v", err)
	}
}

// A mail that can't be moved stays unread, and somebody has to hear of it.
func TestDoneSaysThatCurIsGone(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"new", "cur"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "new", "1.a"), []byte("Subject: x\n\nx\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	box, err := OpenMailbox(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "cur")); err != nil {
		t.Fatal(err)
	}
	mails := 0
	for m, err := range box.Mails() {
		if mails++; err != nil {
			t.Fatal(err)
		}
		if err := box.Done(m); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("done with a mail that stays in new: %v", err)
		}
	}
	if mails != 1 {
		t.Errorf("%d mails", mails)
	}
}
