package main

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/quantity"
	"postbit/internal/users"
	"postbit/templates"
)

type templatesLintCmd struct {
	Dir    string `arg:"" help:"Folder of *.html files."`
	Users  int    `placeholder:"N" help:"Render for this many users of the collection, and name fields that they lack."`
	Strict bool   `help:"Exit code 3 where there are warnings."`
}

func (templatesLintCmd) Help() string {
	return `Examples:

    postbit templates lint ./templates --strict
    postbit templates lint ./templates --users 100`
}

type lintJSON struct {
	Templates int                 `json:"templates"`
	Warnings  []templates.Warning `json:"warnings"`
}

func (c templatesLintCmd) Run(ctx context.Context, a *app) error {
	list, err := templates.ReadDir(c.Dir)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	out := lintJSON{Templates: len(list), Warnings: []templates.Warning{}}
	lint := func(sample func(fields []string) ([]bson.Raw, error)) error {
		for _, t := range list {
			compiled, err := t.Compile()
			if err != nil {
				return &exitError{exitUsage, err}
			}
			docs, err := sample(compiled.Fields())
			if err != nil {
				return err
			}
			out.Warnings = append(out.Warnings, compiled.Lint(docs, a.clk.Now())...)
		}
		return nil
	}
	if c.Users > 0 {
		err = a.withGraph(ctx, mongoOnly, func(g *graph) error {
			return lint(func(fields []string) ([]bson.Raw, error) { return g.someUsers(ctx, fields, c.Users) })
		})
	} else {
		err = lint(func([]string) ([]bson.Raw, error) { return nil, nil })
	}
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(out)
	} else {
		for _, w := range out.Warnings {
			fmt.Fprintln(a.out, visible(w.String()))
		}
		a.say("%s, %s", quantity.Of(out.Templates, "template"), quantity.Of(len(out.Warnings), "warning"))
	}
	if err == nil && c.Strict && len(out.Warnings) > 0 {
		return errNo
	}
	return err
}

// someUsers loads the fields of up to n users.
func (g *graph) someUsers(ctx context.Context, fields []string, n int) ([]bson.Raw, error) {
	cur, err := g.usersColl.Find(ctx, bson.D{}, options.Find().SetProjection(g.users.Fields(fields)).SetLimit(int64(n)))
	if err != nil {
		return nil, fmt.Errorf("users: %w", err)
	}
	var docs []bson.Raw
	if err := cur.All(ctx, &docs); err != nil {
		return nil, fmt.Errorf("users: %w", err)
	}
	return docs, nil
}

type templatesPreviewCmd struct {
	Name string `arg:"" help:"Name of the template."`
	User string `placeholder:"U" help:"Render for this user; for a made-up one otherwise."`
	Dir  string `placeholder:"DIR" help:"Take the template from this folder instead of the registry."`
	Text bool   `help:"Print the text part instead of the HTML."`
}

func (templatesPreviewCmd) Help() string {
	return `Links of a preview lead nowhere, and nothing counts.

Examples:

    postbit templates preview winback > winback.html
    postbit templates preview winback --dir ./templates \
        --user ada@example.com --text`
}

type previewJSON struct {
	Name      string `json:"name"`
	User      string `json:"user"` // "": made up
	Subject   string `json:"subject"`
	Preheader string `json:"preheader"`
	HTML      string `json:"html"`
	Text      string `json:"text"`
}

func (c templatesPreviewCmd) Run(ctx context.Context, a *app) error {
	if c.Dir != "" && c.User == "" { // nothing of the database is needed
		t, err := c.fromDir()
		if err != nil {
			return err
		}
		return c.show(ctx, a, nil, t)
	}
	return a.withGraph(ctx, mongoOnly, func(g *graph) (err error) {
		var t *templates.Template
		if c.Dir != "" {
			t, err = c.fromDir()
		} else {
			t, err = g.templates.Get(ctx, c.Name)
		}
		if err != nil {
			return err
		}
		return c.show(ctx, a, g, t)
	})
}

func (c templatesPreviewCmd) fromDir() (*templates.Template, error) {
	list, err := templates.ReadDir(c.Dir)
	for _, t := range list {
		if t.Name == c.Name {
			return t, nil
		}
	}
	if err == nil {
		err = errors.New("no such template")
	}
	return nil, &exitError{exitUsage, fmt.Errorf("%s in %s: %w", c.Name, c.Dir, err)}
}

// show renders t; g is nil where the user is made up and nothing of the database is needed.
func (c templatesPreviewCmd) show(ctx context.Context, a *app, g *graph, t *templates.Template) error {
	compiled, err := t.Compile()
	if err != nil {
		return err
	}
	now, zone := a.clk.Now(), a.cfg.DefaultZone
	doc := templates.SampleUser(compiled.Fields(), now)
	out := previewJSON{Name: t.Name}
	if c.User != "" {
		id, err := g.users.Find(ctx, c.User)
		if err != nil {
			return err
		}
		u, err := g.users.Get(ctx, id, compiled.Fields(), t.BitIndex)
		if err != nil {
			return err
		}
		doc, zone, out.User = u.Doc, u.Recipient.Zone, users.FormatID(id)
	}
	content, err := compiled.Render(doc, templates.PreviewLinks(now, zone))
	if err != nil {
		return err
	}
	out.Subject, out.Preheader, out.HTML, out.Text = content.Subject, content.Preheader, content.HTML, content.Text
	switch {
	case a.json:
		return a.printJSON(out)
	case c.Text:
		_, err = fmt.Fprintf(a.out, "Subject: %s\n\n%s\n", visible(out.Subject), visibleLines(out.Text))
		return err
	}
	a.say("Subject: %s", visible(out.Subject))
	_, err = fmt.Fprintln(a.out, out.HTML)
	return err
}
