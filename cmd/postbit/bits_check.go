package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"postbit/internal/backfill"
	"postbit/internal/bitfield"
	"postbit/internal/quantity"
)

type bitsCheckCmd struct {
	sourceFlags `embed:""`
	AllowExtra  bool `help:"Bits that the source does not have are fine; otherwise they are a difference, too."`
	Limit       int  `default:"1000" help:"How many users to list; 0 lists all."`
}

func (bitsCheckCmd) Help() string {
	return `Compares the bits of all users with your records and lists who differs. Writes nothing. Exit code 3: somebody does.

Examples:

    postbit bits check --from sends.csv
    postbit bits check --collection sends --user user_id --template mail \
        --allow-extra`
}

type bitsCheckJSON struct {
	Source      string           `json:"source"`
	Equal       bool             `json:"equal"`
	Rows        int64            `json:"rows"`
	SkippedRows int64            `json:"skipped_rows"`
	Unknown     map[string]int64 `json:"unknown"`
	Users       int64            `json:"users"` // compared
	Missing     int64            `json:"missing"`
	Differ      int64            `json:"differ"`
	Unreadable  int64            `json:"unreadable"`
	MissingBits int64            `json:"missing_bits"`
	ExtraBits   int64            `json:"extra_bits"`
	Differences []differenceJSON `json:"differences"` // the first --limit
}

type differenceJSON struct {
	User       string    `json:"user"`
	Unreadable bool      `json:"unreadable"`
	Missing    []bitJSON `json:"missing"` // in the source, not in the field
	Extra      []bitJSON `json:"extra"`   // in the field, not in the source
}

func (c bitsCheckCmd) Run(ctx context.Context, a *app) error {
	if c.Limit < 0 {
		return usage("--limit can't be negative")
	}
	return c.read(ctx, a, func(g *graph, o backfill.Options, p *stages) error {
		out := &bitsCheckJSON{Unknown: map[string]int64{}, Differences: []differenceJSON{}}
		counts, checked, err := c.compare(ctx, g, o, out)
		p.end()
		if err != nil {
			return sourceError(ctx, err, false)
		}
		if counts.Unknown != nil {
			out.Unknown = counts.Unknown
		}
		out.Rows, out.SkippedRows = counts.Rows, counts.Skipped
		out.Users, out.Missing, out.Differ, out.Unreadable = checked.Users, checked.Gone, checked.Differ, checked.Unreadable
		out.MissingBits, out.ExtraBits, out.Equal = checked.MissingBits, checked.ExtraBits, checked.Differ == 0
		if err := g.showCheck(out); err != nil {
			return err
		}
		if !out.Equal {
			return errNo
		}
		return nil
	})
}

func (c bitsCheckCmd) compare(ctx context.Context, g *graph, o backfill.Options, out *bitsCheckJSON) (*backfill.Counts, *backfill.Checked, error) {
	report := func(d *backfill.Difference) error {
		if c.Limit == 0 || len(out.Differences) < c.Limit {
			out.Differences = append(out.Differences, differenceJSON{d.User, d.Unreadable, bitsJSONOf(d.Missing, o.Names), bitsJSONOf(d.Extra, o.Names)})
		}
		return nil
	}
	if c.Array != "" {
		out.Source = c.Array
		counts, checked, err := backfill.Array{Field: c.Array}.Check(ctx, o, c.AllowExtra, report)
		return &counts, checked, err
	}
	src, err := c.source(g)
	if err != nil {
		return nil, nil, err
	}
	out.Source = src.String()
	log, err := backfill.Read(ctx, src, o)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	checked, err := log.Check(ctx, o, c.AllowExtra, report)
	return &log.Counts, checked, err
}

func bitsJSONOf(blob []byte, names *backfill.Names) []bitJSON {
	out := []bitJSON{}
	for i := range bitfield.Indexes(blob) {
		out = append(out, bitJSON{BitIndex: i, Name: names.Name(i)})
	}
	return out
}

func (g *graph) showCheck(c *bitsCheckJSON) error {
	if g.json {
		return g.printJSON(c)
	}
	for _, d := range c.Differences {
		var what []string
		if d.Unreadable {
			what = append(what, "the field can't be read")
		}
		if len(d.Missing) > 0 {
			what = append(what, "lacks "+bitNames(d.Missing))
		}
		if len(d.Extra) > 0 {
			what = append(what, "has beyond the source "+bitNames(d.Extra))
		}
		fmt.Fprintf(g.out, "%s: %s\n", visible(d.User), strings.Join(what, "; "))
	}
	if n := c.Differ - int64(len(c.Differences)); n > 0 {
		fmt.Fprintf(g.out, "… and %s more (--limit 0 lists all)\n", count(n))
	}
	g.say("%s compared, %s %s (%s missing, %s beyond the source, %s unreadable); %s of the source %s not in the collection",
		quantity.Of(c.Users, "user"), count(c.Differ), quantity.Verb(c.Differ, "differs", "differ"), quantity.Of(c.MissingBits, "bit"), count(c.ExtraBits),
		quantity.Of(c.Unreadable, "field"), quantity.Of(c.Missing, "user"), quantity.Verb(c.Missing, "is", "are"))
	return nil
}

func bitNames(bits []bitJSON) string {
	names := make([]string, len(bits))
	for i, b := range bits {
		if names[i] = b.Name; b.Name == "" {
			names[i] = "bit " + strconv.Itoa(b.BitIndex)
		}
	}
	return strings.Join(names, ", ")
}
