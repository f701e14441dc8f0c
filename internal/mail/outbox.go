package mail

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	netmail "net/mail"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Delivery is a mail as it arrived in an outbox.
type Delivery struct {
	From, To string // the envelope
	Message  []byte
}

// HTML returns the decoded HTML part, empty if there is none.
func (d Delivery) HTML() (string, error) { return d.part("text/html") }

// Text returns the decoded plain text part, empty if there is none.
func (d Delivery) Text() (string, error) { return d.part("text/plain") }

func (d Delivery) part(kind string) (string, error) {
	m, err := netmail.ReadMessage(bytes.NewReader(d.Message))
	if err != nil {
		return "", err
	}
	media, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		return "", err
	}
	if media == kind {
		b, err := io.ReadAll(quotedprintable.NewReader(m.Body))
		return string(b), err
	}
	if media != "multipart/alternative" {
		return "", nil
	}
	for r := multipart.NewReader(m.Body, params["boundary"]); ; {
		p, err := r.NextPart() // decodes quoted-printable
		if err == io.EOF {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(p.Header.Get("Content-Type"), kind) {
			b, err := io.ReadAll(p)
			return string(b), err
		}
	}
}

// URL returns the first URL in the HTML part that begins with prefix, such as a pixel's; empty if there is none.
func (d Delivery) URL(prefix string) string {
	html, err := d.HTML()
	if err != nil {
		return ""
	}
	_, rest, ok := strings.Cut(html, prefix)
	if !ok {
		return ""
	}
	if end := strings.IndexAny(rest, "\"'<> \r\n"); end >= 0 {
		rest = rest[:end]
	}
	return prefix + strings.ReplaceAll(rest, "&amp;", "&")
}

// outbox writes each mail into a file instead of sending it, for development and the demo.
type outbox struct {
	dir     string
	start   string // of this process, so that names never meet
	observe func(Delivery)
	count   atomic.Uint64
	closed  atomic.Bool

	mu   sync.Mutex
	made map[string]bool // folders
}

// unfinished is the folder of files that are being written, all in one place, so that looking for those a killed process has left does not mean
// looking through all mails. Writing one takes milliseconds: one that is older than abandoned has no writer. Should it have one all the
// same (a process that was stopped), that writer finds it gone and its mail is a Retry, never one that is taken as sent.
const (
	unfinished = "tmp"
	abandoned  = time.Minute
)

// outboxShards spreads files over folders, so that a run of a million mails can still be listed.
const outboxShards = 256

func openOutbox(dir string, o Options) (*outbox, error) {
	dir = strings.TrimPrefix(dir, "//")
	if dir == "" {
		return nil, fmt.Errorf("%w: outbox: names no folder; say outbox:DIR", ErrURL)
	}
	if err := os.MkdirAll(filepath.Join(dir, unfinished), 0o700); err != nil {
		return nil, fmt.Errorf("%w: outbox: %v", ErrURL, err)
	}
	if err := removeAbandoned(filepath.Join(dir, unfinished), time.Now().Add(-abandoned)); err != nil {
		return nil, fmt.Errorf("%w: outbox: %v", ErrURL, err)
	}
	return &outbox{dir: dir, start: randomHex(4), observe: o.Observe, made: map[string]bool{}}, nil
}

// removeAbandoned removes the files of dir that nobody has written to since.
func removeAbandoned(dir string, since time.Time) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		info, err := f.Info()
		if err == nil && info.Mode().IsRegular() && info.ModTime().Before(since) {
			err = os.Remove(filepath.Join(dir, f.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it may have been finished, or another process is opening the outbox, too
			return err
		}
	}
	return nil
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func (o *outbox) Connect(ctx context.Context) (Conn, error) {
	if o.closed.Load() {
		return nil, ErrClosed
	}
	return outboxConn{o}, ctx.Err()
}

func (o *outbox) Close() error {
	o.closed.Store(true)
	return nil
}

type outboxConn struct{ o *outbox }

func (outboxConn) SupportsUTF8() bool { return true }
func (outboxConn) Usable() bool       { return true }
func (outboxConn) Release()           {}

func (c outboxConn) Send(ctx context.Context, from, to string, utf8 bool, msg []byte) Reply {
	if ctx.Err() != nil {
		return Reply{Class: Cut, Err: ctx.Err(), Text: "stopped before it was begun"}
	}
	if strings.ContainsAny(from+to, "\r\n\x00") {
		return Reply{Class: Failed, Code: 501, Enhanced: "5.1.3", Text: "a line break in an address"}
	}
	name, err := c.o.write(from, to, msg)
	if err != nil {
		return Reply{Class: Retry, Code: 452, Enhanced: "4.3.1", Text: oneLine(err.Error(), maxReply), Err: err}
	}
	if c.o.observe != nil {
		c.o.observe(Delivery{From: from, To: to, Message: msg})
	}
	return Reply{Class: Accepted, Code: 250, Enhanced: "2.0.0", Text: "written as " + name}
}

// write makes the file under another name first, so that a .eml is always a whole mail.
func (o *outbox) write(from, to string, msg []byte) (string, error) {
	n := o.count.Add(1)
	shard := fmt.Sprintf("%02x", n%outboxShards)
	if err := o.folder(shard); err != nil {
		return "", err
	}
	file := fmt.Sprintf("%s-%08d.eml", o.start, n)
	name := filepath.Join(shard, file)
	tmp := filepath.Join(o.dir, unfinished, file+".tmp")
	b := make([]byte, 0, len(msg)+len(from)+len(to)+40)
	b = append(b, "Return-Path: <"+from+">\r\nDelivered-To: "+to+"\r\n"...)
	b = append(b, msg...)
	err := os.WriteFile(tmp, b, 0o600)
	if err == nil {
		err = os.Rename(tmp, filepath.Join(o.dir, name))
	}
	if err != nil {
		os.Remove(tmp)
		return "", err
	}
	return name, nil
}

func (o *outbox) folder(shard string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.made[shard] {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(o.dir, shard), 0o700); err != nil {
		return err
	}
	o.made[shard] = true
	return nil
}
