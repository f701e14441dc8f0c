package mail

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func emls(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestOutbox(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "outbox")
	var mu sync.Mutex
	seen := map[string]string{} // recipient -> pixel
	tr, err := Open("outbox:"+dir, Options{Observe: func(d Delivery) {
		mu.Lock()
		defer mu.Unlock()
		seen[d.To] = d.URL("https://m.example.com/o/")
	}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	const senders, each = 4, 100
	for w := range senders {
		wg.Go(func() {
			c := connect(t, tr)
			defer c.Release()
			for i := range each {
				m := message()
				m.To.Addr = fmt.Sprintf("u%d-%d@example.org", w, i)
				m.HTML = fmt.Sprintf("<p>Zoë</p><img src=\"https://m.example.com/o/%s-%d.gif?a=1&amp;b=2\">", strings.Repeat("x", 100), w*each+i)
				raw, err := m.Encode()
				if err != nil {
					t.Error(err)
					return
				}
				if r := c.Send(t.Context(), m.From.Addr, m.To.Addr, false, raw); r.Class != Accepted {
					t.Errorf("%+v", r)
				}
			}
		})
	}
	wg.Wait()
	files := emls(t, dir)
	if len(files) != senders*each || len(seen) != senders*each {
		t.Errorf("%d files, %d recipients", len(files), len(seen))
	}
	if got, want := seen["u1-2@example.org"], fmt.Sprintf("https://m.example.com/o/%s-%d.gif?a=1&b=2", strings.Repeat("x", 100), each+2); got != want {
		t.Errorf("pixel %q, want %q", got, want)
	}
	perFolder := map[string]int{}
	for _, f := range files {
		perFolder[filepath.Dir(f)]++
		if filepath.Ext(f) != ".eml" {
			t.Errorf("left behind: %s", f)
		}
	}
	for dir, n := range perFolder {
		if n > senders*each/outboxShards+1 {
			t.Errorf("%s has %d of %d files", dir, n, len(files))
		}
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	p := parse(t, raw)
	if p.header.Get("Return-Path") != "<news@example.com>" || !strings.HasSuffix(p.header.Get("Delivered-To"), "@example.org") || p.parts["text/plain"] != "Hello\r\n" {
		t.Errorf("%s", raw)
	}
}

func TestOutboxRefuses(t *testing.T) {
	dir := t.TempDir()
	tr, err := Open("outbox:"+dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, tr)
	if r := send(t, c, "a@example.com\r\nX: y"); r.Class != Failed {
		t.Errorf("%+v", r)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if r := c.Send(ended, "a@example.com", "b@example.com", false, nil); r.Class != Cut {
		t.Errorf("%+v", r)
	}
	if files := emls(t, dir); len(files) != 0 {
		t.Errorf("%q", files)
	}
	tr.Close()
	if _, err := tr.Connect(t.Context()); err == nil {
		t.Error("it is closed")
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("outbox:"+file, Options{}); err == nil {
		t.Error("that is a file")
	}
}

func TestWhatAKilledProcessLeftInAnOutboxIsRemoved(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name string
		file string
		age  time.Duration
		goes bool
	}{
		{"of a process that was killed", "tmp/0a0a0a0a-00000007.eml.tmp", 2 * abandoned, true},
		{"of a process that may be alive", "tmp/0b0b0b0b-00000007.eml.tmp", abandoned / 2, false},
		{"of a process whose clock is ahead", "tmp/0c0c0c0c-00000007.eml.tmp", -time.Hour, false},
		{"a mail", "07/0a0a0a0a-00000006.eml", 1000 * time.Hour, false},
		{"what somebody else keeps there", "07/notes.tmp", 1000 * time.Hour, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, c.file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("Return-Path: <news@ex"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, time.Time{}, now.Add(-c.age)); err != nil {
				t.Fatal(err)
			}
			if _, err := Open("outbox:"+dir, Options{}); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) != c.goes {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestAMailThatCannotBePutInItsPlaceIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	tr, err := Open("outbox:"+dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, tr)
	o := tr.(*outbox)
	inTheWay := filepath.Join(dir, "01", o.start+"-00000001.eml")
	if err := os.MkdirAll(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	if r := send(t, c, "a@example.com"); r.Class != Retry {
		t.Errorf("%+v", r)
	}
	if files := emls(t, dir); len(files) != 0 {
		t.Errorf("left behind: %q", files)
	}
	if r := send(t, c, "a@example.com"); r.Class != Accepted {
		t.Errorf("%+v", r)
	}
}

func TestDeliveryParts(t *testing.T) {
	m := message()
	m.HTML = "<p>Zoë = .</p>"
	d := Delivery{Message: encode(t, m)}
	if html, err := d.HTML(); err != nil || html != m.HTML {
		t.Errorf("%q, %v", html, err)
	}
	if text, err := d.Text(); err != nil || text != "Hello\r\n" {
		t.Errorf("%q, %v", text, err)
	}
	m.HTML = ""
	d.Message = encode(t, m)
	if html, err := d.HTML(); err != nil || html != "" {
		t.Errorf("%q, %v", html, err)
	}
	if text, err := d.Text(); err != nil || text != "Hello\r\n" {
		t.Errorf("%q, %v", text, err)
	}
}
