package returned

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
)

// ErrMailbox is what every path wraps that is no message, mbox or Maildir.
var ErrMailbox = errors.New("neither a message, nor an mbox, nor a Maildir")

// Mail is one mail of a mailbox.
type Mail struct {
	Name   string // for people: the file, and in an mbox the number of the mail from 1
	Report *Report
	path   string // in a Maildir
}

// Mailbox is a place that holds returned mails.
type Mailbox struct {
	path    string
	maildir bool
}

// OpenMailbox looks at what stands at a path. Errors wrap ErrMailbox or are the file system's.
func OpenMailbox(path string) (*Mailbox, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return &Mailbox{path: path}, nil
	}
	for _, sub := range []string{"new", "cur"} {
		if info, err := os.Stat(filepath.Join(path, sub)); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("%s: %w: a Maildir has the folders new and cur", path, ErrMailbox)
		}
	}
	return &Mailbox{path: path, maildir: true}, nil
}

// Mails reads one mail after the other. Of a Maildir those in new, which nobody has seen yet. An error ends it, but for a
// mail that was taken away meanwhile.
func (b *Mailbox) Mails() iter.Seq2[Mail, error] {
	if b.maildir {
		return b.unseen
	}
	return b.inFile
}

// Done says that a mail has been dealt with: in a Maildir it goes to cur, with the flag S for seen, and is not read again.
// Elsewhere nothing happens.
func (b *Mailbox) Done(m Mail) error {
	if !b.maildir {
		return nil
	}
	name, _, _ := strings.Cut(filepath.Base(m.path), ":")
	err := os.Rename(m.path, filepath.Join(b.path, "cur", name+":2,S"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, gone := os.Lstat(m.path); errors.Is(gone, fs.ErrNotExist) { // another reader was faster
			return nil
		}
	}
	return err // also where it is cur that is not there any more
}

func (b *Mailbox) unseen(yield func(Mail, error) bool) {
	dir := filepath.Join(b.path, "new")
	entries, err := os.ReadDir(dir) // in the order of names, which begin with the time of delivery
	if err != nil {
		yield(Mail{}, err)
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || !e.Type().IsRegular() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		m, err := readFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if !yield(m, err) || err != nil {
			return
		}
	}
}

func readFile(path string) (Mail, error) {
	f, err := os.Open(path)
	if err != nil {
		return Mail{}, err
	}
	defer f.Close()
	r, err := Read(f)
	return Mail{Name: path, Report: r, path: path}, err
}

func (b *Mailbox) inFile(yield func(Mail, error) bool) {
	f, err := os.Open(b.path)
	if err != nil {
		yield(Mail{}, err)
		return
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 64<<10)
	if start, err := r.Peek(5); err != nil || string(start) != "From " {
		rep, err := Read(r)
		yield(Mail{Name: b.path, Report: rep}, err)
		return
	}
	n := 0
	for data, err := range split(r) {
		if n++; err != nil {
			yield(Mail{}, fmt.Errorf("%s: %w", b.path, err))
			return
		}
		if !yield(Mail{Name: fmt.Sprintf("%s#%d", b.path, n), Report: parse(data)}, nil) {
			return
		}
	}
}

// split cuts an mbox where a line begins with "From " behind an empty one (RFC 4155), and cuts each mail off at MaxBytes. What it yields is valid until
// the next.
func split(r *bufio.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var mail []byte
		begun, empty, start := false, true, true // start: of a line
		for {
			line, err := r.ReadSlice('\n')
			if start && empty && bytes.HasPrefix(line, []byte("From ")) {
				if begun && !yield(mail, nil) {
					return
				}
				mail, begun = mail[:0], true
			}
			if start {
				empty = len(bytes.TrimRight(line, "\r\n")) == 0
			} else {
				empty = false
			}
			mail = append(mail, line[:min(len(line), MaxBytes-len(mail))]...)
			start = !errors.Is(err, bufio.ErrBufferFull)
			if err == nil || !start {
				continue
			}
			if !errors.Is(err, io.EOF) {
				yield(nil, err)
			} else if begun {
				yield(mail, nil)
			}
			return
		}
	}
}
