// Package templates reads mail templates, keeps them and their bit indexes in MongoDB, and renders them for one user.
package templates

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/rules"
)

// MaxBitIndex is the largest bit index a template may have.
const MaxBitIndex = 4095

// MaxSource is the most that one template file, layout or partial may hold, in bytes.
const MaxSource = 1 << 20

var (
	// ErrNotFound is returned for a name that no template has.
	ErrNotFound = errors.New("no such template")
	// ErrNoBody is returned by Compile for a name that another service owns.
	ErrNoBody = errors.New("owned by another service, it has no body here")
)

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// Template is a message with a name and a bit index. One that another service owns has the index alone (see Imported).
type Template struct {
	Name      string
	BitIndex  int
	Subject   string // text/template
	HTML      string // html/template, without the front matter
	Text      string // text/template; empty: made from the HTML
	From      string // empty: the sender of the settings
	ReplyTo   string
	Preheader string // text/template
	Repeat    rules.Repeat
	Track     bool
	Revision  int       // counts the edits, from 1; 0: imported
	RetiredAt time.Time // zero: in use
	Parts     []Part    // the layout and the partials it uses, so that it needs nothing else to be rendered
	Line      int       // lines of front matter before HTML, for error messages

	file string // the file's name without its extension, while it is read from a folder
}

// label is what messages call the template's file.
func (t *Template) label() string {
	if t.file != "" {
		return t.file
	}
	return t.Name
}

// Part is a file whose name begins with _: _layout.html, _footer.html, _footer.txt.
type Part struct {
	File   string `bson:"file"`
	Source string `bson:"source"`
}

// Imported reports whether another service owns the template: postbit knows its name and bit, and can't send it.
func (t *Template) Imported() bool { return t.HTML == "" }

// Retired reports whether the template may not be sent any more.
func (t *Template) Retired() bool { return !t.RetiredAt.IsZero() }

// record is a Template as it stands in MongoDB, in the templates collection and in the snapshot of a run.
type record struct {
	Name      string     `bson:"_id"`
	BitIndex  int        `bson:"bitIndex"`
	Subject   string     `bson:"subject,omitempty"`
	HTML      string     `bson:"html,omitempty"`
	Text      string     `bson:"text,omitempty"`
	From      string     `bson:"from,omitempty"`
	ReplyTo   string     `bson:"reply_to,omitempty"`
	Preheader string     `bson:"preheader,omitempty"`
	Repeat    string     `bson:"repeat,omitempty"`
	Track     bool       `bson:"track"`
	Revision  int        `bson:"revision"`
	RetiredAt *time.Time `bson:"retired_at,omitempty"`
	Parts     []Part     `bson:"parts,omitempty"`
	Line      int        `bson:"line,omitempty"`

	// While a push is under way (journal.go):
	Push    string   `bson:"push,omitempty"`    // the push that has staged Next
	Pending bool     `bson:"pending,omitempty"` // the push makes this template: there is nothing yet but the reserved index
	Next    bson.Raw `bson:"next,omitempty"`    // the record that replaces this one when the push is committed
}

func (t *Template) record() record {
	r := record{
		Name: t.Name, BitIndex: t.BitIndex, Subject: t.Subject, HTML: t.HTML, Text: t.Text, From: t.From, ReplyTo: t.ReplyTo,
		Preheader: t.Preheader, Track: t.Track, Revision: t.Revision, Parts: t.Parts, Line: t.Line,
	}
	if !t.Imported() {
		r.Repeat = t.Repeat.String()
	}
	if t.Retired() {
		at := t.RetiredAt.UTC().Truncate(time.Millisecond)
		r.RetiredAt = &at
	}
	return r
}

func (r record) template() (*Template, error) {
	t := &Template{
		Name: r.Name, BitIndex: r.BitIndex, Subject: r.Subject, HTML: r.HTML, Text: r.Text, From: r.From, ReplyTo: r.ReplyTo,
		Preheader: r.Preheader, Track: r.Track, Revision: r.Revision, Parts: r.Parts, Line: r.Line,
	}
	if r.Repeat != "" {
		repeat, err := rules.ParseRepeat(r.Repeat)
		if err != nil {
			return nil, fmt.Errorf("template %s in the database: %w", r.Name, err)
		}
		t.Repeat = repeat
	}
	if r.RetiredAt != nil {
		t.RetiredAt = r.RetiredAt.UTC()
	}
	return t, nil
}

// Snapshot is the template as a run keeps it: whole, layout and partials included.
func Snapshot(t *Template) bson.Raw {
	raw, err := bson.Marshal(t.record())
	if err != nil {
		panic(fmt.Sprintf("templates: a record of strings and numbers does not marshal: %v", err))
	}
	return raw
}

// FromSnapshot reads what Snapshot wrote.
func FromSnapshot(raw bson.Raw) (*Template, error) {
	var r record
	if err := bson.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("snapshot of a template: %w", err)
	}
	return r.template()
}
