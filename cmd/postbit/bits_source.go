package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/backfill"
)

// sourceFlags say where a team's own records are.
type sourceFlags struct {
	Array      string `placeholder:"FIELD" help:"A field of the user documents that lists templates, by name or bit index. Dotted path."`
	Collection string `placeholder:"[DB/]NAME" help:"A log of sends in MongoDB, one document for each."`
	From       string `placeholder:"FILE" help:"A log of sends as CSV with a header, or as JSON lines; - is standard input."`

	User     string `placeholder:"FIELD" help:"Of a log: the field with the user, an id or an email (user)."`
	Template string `placeholder:"FIELD" help:"… with the template, its name or bit index (template)."`
	SentAt   string `placeholder:"FIELD" help:"… with the time of the mail (sent_at)."`
	OpenedAt string `placeholder:"FIELD" help:"… with the time of the open (opened_at)."`
	UserType string `enum:"auto,email,oid,int,str,uuid" default:"auto" help:"How texts name users: ${enum}; auto as everywhere: an email, an ObjectId, an integer, a string."`
	Where    string `placeholder:"JSON" help:"Of a collection: only documents that this query matches."`
	NoHeader bool   `help:"Of CSV: there is no header; fields are numbers of columns, 1 the first."`

	SkipUnknown bool   `help:"Leave out what names no template or no user, and count it."`
	Missing     string `placeholder:"FILE" help:"Where to list users of the source who are not in the collection; - is standard output."`
	TempDir     string `placeholder:"DIR" help:"Where a big log is sorted; the system's folder for temporary files."`
}

// check finds what is wrong with the flags by themselves.
func (f *sourceFlags) check(a *app) error {
	n := 0
	for _, s := range []string{f.Array, f.Collection, f.From} {
		if s != "" {
			n++
		}
	}
	if n != 1 {
		return usage("say where the records are: one of --array, --collection and --from")
	}
	for _, c := range []struct {
		set  bool
		what string
		ok   bool
	}{
		{f.User != "", "--user", f.Array == ""}, {f.Template != "", "--template", f.Array == ""}, {f.SentAt != "", "--sent-at", f.Array == ""},
		{f.OpenedAt != "", "--opened-at", f.Array == ""}, {f.Where != "", "--where", f.Collection != ""}, {f.NoHeader, "--no-header", f.From != ""},
		{f.Missing != "", "--missing", f.Array == ""},
	} {
		if c.set && !c.ok {
			return usage("%s has no meaning for this source", c.what)
		}
	}
	if f.Missing == "-" && a.json {
		return usage("--missing - and --json both want standard output")
	}
	return nil
}

// read lets work read the records that the flags name: with a list of those who are missing, and with stages, which both end with it.
func (f *sourceFlags) read(ctx context.Context, a *app, work func(*graph, backfill.Options, *stages) error) error {
	if err := f.check(a); err != nil {
		return err
	}
	return a.withGraph(ctx, mongoOnly, func(g *graph) (err error) {
		missing, err := f.missingList(a)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, missing.close()) }()
		p := newStages(g.err)
		defer p.end()
		o, err := f.options(ctx, g, p, missing)
		if err != nil {
			return err
		}
		return work(g, o, p)
	})
}

var usualColumns = backfill.Columns{User: "user", Template: "template", SentAt: "sent_at", OpenedAt: "opened_at"}

// source is the log that the flags name.
func (f *sourceFlags) source(g *graph) (backfill.Source, error) {
	columns := backfill.Columns{User: f.User, Template: f.Template, SentAt: f.SentAt, OpenedAt: f.OpenedAt}
	if f.Collection == "" {
		file := &backfill.File{Name: f.From, Columns: columns, NoHeader: f.NoHeader, Open: func() (io.ReadCloser, error) { return os.Open(f.From) }}
		if f.From == "-" {
			file.Name, file.Open = "standard input", func() (io.ReadCloser, error) { return io.NopCloser(g.in), nil }
		}
		file.Columns.User, file.Columns.Template = orElse(columns.User, "user"), orElse(columns.Template, "template")
		if f.NoHeader {
			file.Columns.User, file.Columns.Template = orElse(columns.User, "1"), orElse(columns.Template, "2")
		} else {
			file.Optional = usualColumns
		}
		return file, nil
	}
	for _, p := range []struct{ to, usual *string }{
		{&columns.User, &usualColumns.User}, {&columns.Template, &usualColumns.Template}, {&columns.SentAt, &usualColumns.SentAt}, {&columns.OpenedAt, &usualColumns.OpenedAt},
	} {
		*p.to = orElse(*p.to, *p.usual)
	}
	db, name := g.db, f.Collection
	if other, rest, ok := strings.Cut(name, "/"); ok {
		db, name = g.client.Database(other), rest
	}
	src := &backfill.Collection{Coll: db.Collection(name), Columns: columns}
	if f.Where != "" {
		if err := bson.UnmarshalExtJSON([]byte(f.Where), false, &src.Where); err != nil {
			return nil, usage("--where: not a query in JSON: %w", err)
		}
	}
	return src, nil
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// options are what the flags and the settings say about reading.
func (f *sourceFlags) options(ctx context.Context, g *graph, p *stages, m *missingList) (backfill.Options, error) {
	owned, err := g.templates.ListMap(ctx)
	if err != nil {
		return backfill.Options{}, err
	}
	names, err := backfill.NewNames(owned)
	if err != nil {
		return backfill.Options{}, err
	}
	return backfill.Options{Users: g.users, Names: names, UserKind: f.UserType, SkipUnknown: f.SkipUnknown, Now: g.clk.Now(), TempDir: f.TempDir,
		Progress: p.show, Missing: m.add}, nil
}

// missingList takes the users of a source who are not in the collection.
type missingList struct {
	name  string
	w     io.WriteCloser
	shown int
	app   *app
}

// open makes the file, so that what can't be written is known before anything is done.
func (f *sourceFlags) missingList(a *app) (*missingList, error) { return openMissing(a, f.Missing) }

func openMissing(a *app, name string) (*missingList, error) {
	m := &missingList{name: name, app: a}
	switch name {
	case "":
	case "-":
		m.w = nopCloser{a.out}
	default:
		file, err := os.Create(name)
		if err != nil {
			return nil, usage("--missing: %w", err)
		}
		m.w = file
	}
	return m, nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// maxShown is how many of many are shown where nobody has asked for all.
const maxShown = 10

func (m *missingList) add(user string) error {
	if m.w == nil {
		if m.shown++; m.shown <= maxShown {
			m.app.say("no such user: %s", visible(user))
		} else if m.shown == maxShown+1 {
			m.app.say("no such user: … (--missing FILE lists them all)")
		}
		return nil
	}
	if _, err := fmt.Fprintln(m.w, visible(user)); err != nil {
		return fmt.Errorf("list missing users: %w", err)
	}
	return nil
}

func (m *missingList) close() error {
	if m.w == nil {
		return nil
	}
	return m.w.Close()
}

// stages shows how far a backfill is: a bar for each stage on a terminal, now and then a line elsewhere.
type stages struct {
	w     io.Writer
	on    bool // w is a terminal
	stage backfill.Stage
	bar   *progressbar.ProgressBar
	said  time.Time
}

func newStages(w io.Writer) *stages { return &stages{w: w, on: isTerminal(w), said: time.Now()} }

func (s *stages) show(stage backfill.Stage, done, total int64) {
	if !s.on {
		if time.Since(s.said) < 2*time.Second {
			return
		}
		s.said = time.Now()
		if total < 0 {
			fmt.Fprintf(s.w, "%s: %s\n", stage, count(done))
		} else {
			fmt.Fprintf(s.w, "%s: %s of %s\n", stage, count(done), count(total))
		}
		return
	}
	if stage != s.stage {
		s.end()
		s.stage, s.bar = stage, progressbar.NewOptions64(total, progressbar.OptionSetWriter(s.w), progressbar.OptionSetDescription(string(stage)),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	if total >= 0 && s.bar.GetMax64() != total {
		s.bar.ChangeMax64(total)
	}
	_ = s.bar.Set64(done)
}

func (s *stages) end() {
	if s.bar != nil {
		_ = s.bar.Finish()
		s.bar = nil
	}
}
