package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"postbit/internal/config"
	"postbit/templates"
)

type templatesCmd struct {
	Push    templatesPushCmd    `cmd:"" help:"Register a folder of templates: all of it or nothing."`
	Import  templatesImportCmd  `cmd:"" help:"Register names and bits that other services own."`
	List    templatesListCmd    `cmd:"" help:"List who owns which bit."`
	Show    templatesShowCmd    `cmd:"" help:"Show one template."`
	Lint    templatesLintCmd    `cmd:"" help:"Check a folder of templates."`
	Preview templatesPreviewCmd `cmd:"" help:"Render a template for a user, or for a made-up one."`
	Retire  templatesRetireCmd  `cmd:"" help:"Take a template out of use; its bit stays its own for good."`
}

var mongoOnly = config.Needs{Mongo: true}

type templatesPushCmd struct {
	Dir    string `arg:"" help:"Folder of *.html files."`
	Assign bool   `help:"Give files without a bitIndex the lowest one that is free and unused, and write it into the file."`
	Adopt  bool   `help:"Take over bits that are set on users but that no template owns."`
	Plan   bool   `name:"plan" help:"Print the plan and change nothing."`
}

func (templatesPushCmd) Help() string {
	return `Example:

    postbit templates push ./templates --assign`
}

type planJSON struct {
	Applied bool               `json:"applied"`
	Changes []templates.Change `json:"changes"`
}

func (c templatesPushCmd) Run(ctx context.Context, a *app) error {
	return a.withGraph(ctx, mongoOnly, func(g *graph) error {
		if err := g.templates.EnsureIndexes(ctx); err != nil {
			return err
		}
		plan, err := g.templates.PlanPush(ctx, c.Dir, templates.PushOptions{Assign: c.Assign, Adopt: c.Adopt, BitsInUse: g.users.BitsInUse})
		if err != nil {
			return refused(err)
		}
		return g.apply(ctx, plan, c.Plan)
	})
}

// refused gives what was refused before anything was changed its exit code.
func refused(err error) error {
	var r *templates.Refusal
	if errors.As(err, &r) {
		return &exitError{exitUsage, fmt.Errorf("nothing was changed:\n%w", err)}
	}
	return err
}

// apply prints a plan and carries it out, unless that is all that was asked for.
func (g *graph) apply(ctx context.Context, plan *templates.Plan, planOnly bool) error {
	if !planOnly && !plan.Empty() {
		if err := g.templates.Apply(ctx, plan); err != nil {
			return err
		}
	}
	if g.json {
		changes := plan.Changes
		if changes == nil {
			changes = []templates.Change{}
		}
		return g.printJSON(planJSON{Applied: !planOnly, Changes: changes})
	}
	for _, c := range plan.Changes {
		if _, err := fmt.Fprintln(g.out, c); err != nil {
			return err
		}
	}
	switch {
	case plan.Empty():
		g.say("nothing to change")
	case planOnly:
		g.say("nothing was changed: this is the plan")
	}
	return nil
}

type templatesImportCmd struct {
	File string `arg:"" help:"JSON file, or - for standard input."`
}

func (templatesImportCmd) Help() string {
	return `The file holds names and bit indexes: {"welcome": 0, "digest": 3}

Example:

    postbit templates import owned.json`
}

func (c templatesImportCmd) Run(ctx context.Context, a *app) error {
	data, err := a.readInput(c.File)
	if err != nil {
		return usage("%w", err)
	}
	return a.withGraph(ctx, mongoOnly, func(g *graph) error {
		if err := g.templates.EnsureIndexes(ctx); err != nil {
			return err
		}
		plan, err := g.templates.PlanImport(ctx, data)
		if err != nil {
			return refused(err)
		}
		return g.apply(ctx, plan, false)
	})
}

// readInput reads a file, or standard input for "-".
func (a *app) readInput(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(a.in)
	}
	return os.ReadFile(name)
}

type templatesListCmd struct {
	Used bool `help:"Count the users with each bit; reads one field of all users."`
	Map  bool `help:"Print the map of names and bits that import reads."`
}

func (templatesListCmd) Help() string {
	return `Examples:

    postbit templates list
    postbit templates list --map > owned.json`
}

func (c templatesListCmd) Run(ctx context.Context, a *app) error {
	return a.withGraph(ctx, mongoOnly, func(g *graph) error {
		if c.Map {
			m, err := g.templates.ListMap(ctx)
			if err != nil {
				return err
			}
			return g.printJSON(m)
		}
		list := g.templates.List
		if c.Used {
			list = func(ctx context.Context) ([]templates.Entry, error) {
				return g.templates.ListUsed(ctx, g.users.BitsInUse)
			}
		}
		entries, err := list(ctx)
		if err != nil {
			return err
		}
		if g.json {
			return g.printJSON(entries)
		}
		t := table{header: []string{"BIT", "NAME", "REPEAT", "REVISION", "RETIRED"}}
		if c.Used {
			t.header = append(t.header, "USERS")
		}
		for _, e := range entries {
			row := []string{strconv.Itoa(e.BitIndex), e.Name, orDash(e.Repeat), strconv.Itoa(e.Revision), "-"}
			if e.Revision == 0 {
				row[3] = "-" // owned by another service
			}
			if e.RetiredAt != nil {
				row[4] = stamp(*e.RetiredAt)
			}
			if c.Used {
				row = append(row, count(*e.Used))
			}
			t.add(row...)
		}
		return t.print(g.out)
	})
}

type templatesShowCmd struct {
	Name string `arg:"" help:"Name of the template."`
}

func (templatesShowCmd) Help() string {
	return `Example:

    postbit templates show winback`
}

type templateJSON struct {
	Name      string   `json:"name"`
	BitIndex  int      `json:"bitIndex"`
	Repeat    string   `json:"repeat"`
	Revision  int      `json:"revision"`
	RetiredAt any      `json:"retired_at"`
	Subject   string   `json:"subject"`
	From      string   `json:"from"`
	ReplyTo   string   `json:"reply_to"`
	Preheader string   `json:"preheader"`
	Track     bool     `json:"track"`
	Fields    []string `json:"fields"`
	HTML      string   `json:"html"`
	Text      string   `json:"text"`
}

func (c templatesShowCmd) Run(ctx context.Context, a *app) error {
	return a.withGraph(ctx, mongoOnly, func(g *graph) error {
		t, err := g.templates.Get(ctx, c.Name)
		if err != nil {
			return err
		}
		out := templateJSON{Name: t.Name, BitIndex: t.BitIndex, Repeat: t.Repeat.String(), Revision: t.Revision, RetiredAt: optionalTime(t.RetiredAt),
			Subject: t.Subject, From: t.From, ReplyTo: t.ReplyTo, Preheader: t.Preheader, Track: t.Track, Fields: []string{}, HTML: t.HTML, Text: t.Text}
		if t.Imported() {
			out.Repeat = ""
		} else {
			compiled, err := t.Compile()
			if err != nil {
				return err
			}
			out.Fields = append(out.Fields, compiled.Fields()...)
		}
		if g.json {
			return g.printJSON(out)
		}
		view := table{header: []string{"NAME", t.Name}}
		view.add("bit", strconv.Itoa(t.BitIndex))
		if t.Imported() {
			view.add("owner", "another service; it has no body here")
		} else {
			view.add("revision", strconv.Itoa(t.Revision))
			view.add("repeat", out.Repeat)
			view.add("subject", t.Subject)
			view.add("from", orDash(t.From))
			view.add("reply_to", orDash(t.ReplyTo))
			view.add("track", strconv.FormatBool(t.Track))
			view.add("fields", orDash(strings.Join(out.Fields, ", ")))
		}
		view.add("retired", stamp(t.RetiredAt))
		if err := view.print(g.out); err != nil || t.Imported() {
			return err
		}
		_, err = fmt.Fprintf(g.out, "\n%s\n", visibleLines(t.HTML))
		return err
	})
}

type templatesRetireCmd struct {
	Names []string `arg:"" name:"name" help:"Names of the templates."`
}

func (templatesRetireCmd) Help() string {
	return `Example:

    postbit templates retire sale2024`
}

func (c templatesRetireCmd) Run(ctx context.Context, a *app) error {
	return a.withGraph(ctx, mongoOnly, func(g *graph) error {
		plan, err := g.templates.PlanRetire(ctx, g.clk.Now(), c.Names...)
		if err != nil {
			return refused(err)
		}
		return g.apply(ctx, plan, false)
	})
}
