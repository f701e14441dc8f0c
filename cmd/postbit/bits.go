package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/bitfield"
	"postbit/internal/quantity"
	"postbit/internal/users"
)

type bitsCmd struct {
	Show     bitsShowCmd     `cmd:"" help:"Show a user's bits and whose they are."`
	Backfill bitsBackfillCmd `cmd:"" help:"Fill the field from what you have today: lists in the user documents, a log of sends."`
	Convert  bitsConvertCmd  `cmd:"" help:"Turn bitfields that are arrays into blobs."`
	Check    bitsCheckCmd    `cmd:"" help:"Compare the field with your records and name who differs."`
}

type bitsShowCmd struct {
	User string `arg:"" help:"User: an email, or an id; oid: int: str: uuid: force a type."`
}

func (bitsShowCmd) Help() string {
	return `Example:

    postbit bits show ada@example.com`
}

type bitsJSON struct {
	User  string    `json:"user"`
	Form  string    `json:"form"`  // binary, object, missing or unreadable
	Bytes int       `json:"bytes"` // of the blob
	Bits  []bitJSON `json:"bits"`
}

type bitJSON struct {
	BitIndex int    `json:"bitIndex"`
	Name     string `json:"name"` // "": no template owns it
}

func (c bitsShowCmd) Run(ctx context.Context, a *app) error {
	return a.withGraph(ctx, mongoOnly, func(g *graph) error {
		id, err := g.users.Find(ctx, c.User)
		if err != nil {
			return err
		}
		u, err := g.users.Get(ctx, id, nil, -1)
		if err != nil {
			return err
		}
		shown, err := g.bitsOf(ctx, u.Doc)
		if err != nil {
			return err
		}
		shown.User = users.FormatID(id)
		if g.json {
			return g.printJSON(shown)
		}
		fmt.Fprintf(g.out, "%s: %s, %s, %s\n", visible(shown.User), shown.Form, quantity.Of(shown.Bytes, "byte"), quantity.Of(len(shown.Bits), "bit"))
		t := table{header: []string{"BIT", "TEMPLATE"}}
		for _, b := range shown.Bits {
			name := b.Name
			if name == "" {
				name = "(no template owns it)"
			}
			t.add(strconv.Itoa(b.BitIndex), name)
		}
		return t.print(g.out)
	})
}

// bitsOf reads the blob of a user document.
func (g *graph) bitsOf(ctx context.Context, doc bson.Raw) (*bitsJSON, error) {
	owners, err := g.templates.List(ctx)
	if err != nil {
		return nil, err
	}
	names := map[int]string{}
	for _, e := range owners {
		names[e.BitIndex] = e.Name
	}
	v, err := doc.LookupErr(strings.Split(g.cfg.Users.Bits, ".")...)
	shown := &bitsJSON{Form: "missing", Bits: []bitJSON{}}
	switch {
	case err != nil || v.Type == bson.TypeNull:
	case v.Type == bson.TypeBinary:
		shown.Form = "binary"
	default:
		shown.Form = "object"
	}
	blob, err := bitfield.Decode(v)
	if err != nil {
		shown.Form = "unreadable"
		return shown, nil
	}
	shown.Bytes = len(blob)
	for i := range bitfield.Indexes(blob) {
		shown.Bits = append(shown.Bits, bitJSON{BitIndex: i, Name: names[i]})
	}
	return shown, nil
}
