package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/users"
)

type usersCmd struct {
	Suppress   usersSuppressCmd   `cmd:"" help:"Keep users from getting mail."`
	Unsuppress usersUnsuppressCmd `cmd:"" help:"Let a user get mail again."`
	Show       usersShowCmd       `cmd:"" help:"Show what postbit knows of a user."`
}

type usersSuppressCmd struct {
	User    string `arg:"" optional:"" help:"User: an email, or an id; oid: int: str: uuid: force a type."`
	Reason  string `enum:"unsubscribed,bounced,complained" default:"unsubscribed" help:"Why: ${enum}."`
	From    string `placeholder:"FILE" help:"File of users, - for standard input: CSV (user,reason,date) or JSON lines ({\"user\":…,\"reason\":…,\"date\":…})."`
	Missing string `placeholder:"FILE" help:"Where to list users who are not in the collection, - for standard output."`
}

func (usersSuppressCmd) Help() string {
	return `A reason that weighs more stays: a complaint is not forgotten by a bounce. Of a file that can't be read nothing is done.
In a file an address means every user who has it. Exit code 3: some of the users are not there.

Examples:

    postbit users suppress ada@example.com --reason complained
    postbit users suppress --from unsubscribed.csv --missing nobody.txt`
}

type suppressJSON struct {
	Suppressed int64    `json:"suppressed"` // also those who were before
	Changed    int64    `json:"changed"`
	Refused    int64    `json:"refused"` // no room in their documents
	Missing    int64    `json:"missing"`
	NotFound   []string `json:"not_found"` // with --missing they stand there
}

func (c usersSuppressCmd) Run(ctx context.Context, a *app) error {
	return markUsers{user: c.User, from: c.From, missing: c.Missing, reason: c.Reason}.run(ctx, a)
}

type usersUnsuppressCmd struct {
	User    string `arg:"" optional:"" help:"User: an email, or an id; oid: int: str: uuid: force a type."`
	From    string `placeholder:"FILE" help:"File of users, - for standard input: as for suppress; reasons and dates are not looked at."`
	Missing string `placeholder:"FILE" help:"Where to list users who are not in the collection, - for standard output."`
}

func (usersUnsuppressCmd) Help() string {
	return `Takes postbit's own mark away; what your own fields say (users.suppressed_when) stays.

Examples:

    postbit users unsuppress ada@example.com
    postbit users unsuppress --from forgiven.csv`
}

type unsuppressJSON struct {
	Unsuppressed int64    `json:"unsuppressed"` // also those who had no mark
	Changed      int64    `json:"changed"`
	Refused      int64    `json:"refused"`
	Missing      int64    `json:"missing"`
	NotFound     []string `json:"not_found"`
}

func (c usersUnsuppressCmd) Run(ctx context.Context, a *app) error {
	if c.User != "" && c.From == "" {
		return a.withGraph(ctx, mongoOnly, func(g *graph) error {
			id, err := g.users.Find(ctx, c.User)
			if err != nil {
				return err
			}
			if err := g.users.Unsuppress(ctx, id); err != nil {
				return err
			}
			return g.showUser(ctx, id)
		})
	}
	return markUsers{user: c.User, from: c.From, missing: c.Missing, reason: users.Unsubscribed, take: true}.run(ctx, a)
}

type usersShowCmd struct {
	User string `arg:"" help:"User: an email, or an id; oid: int: str: uuid: force a type."`
}

func (usersShowCmd) Help() string {
	return `Example:

    postbit users show ada@example.com`
}

func (c usersShowCmd) Run(ctx context.Context, a *app) error {
	return a.withGraph(ctx, mongoOnly, func(g *graph) error {
		id, err := g.users.Find(ctx, c.User)
		if err != nil {
			return err
		}
		return g.showUser(ctx, id)
	})
}

type userJSON struct {
	User        string     `json:"user"`
	Email       string     `json:"email"` // as mails are addressed; "" where there is none that can be
	Suppressed  bool       `json:"suppressed"`
	Status      string     `json:"status"` // postbit's own mark
	StatusAt    *time.Time `json:"status_at"`
	Unreadable  bool       `json:"unreadable"`
	Timezone    string     `json:"timezone"` // in force
	UnknownZone bool       `json:"unknown_zone"`
	FirstAt     *time.Time `json:"first_at"`
	LastAt      *time.Time `json:"last_at"`
	OpenFirstAt *time.Time `json:"open_first_at"`
	OpenLastAt  *time.Time `json:"open_last_at"`
	Bits        []bitJSON  `json:"bits"`
}

func (g *graph) showUser(ctx context.Context, id bson.RawValue) error {
	u, err := g.users.Get(ctx, id, nil, -1)
	if err != nil {
		return err
	}
	bits, err := g.bitsOf(ctx, u.Doc)
	if err != nil {
		return err
	}
	r := &u.Recipient
	out := userJSON{User: users.FormatID(id), Email: u.Email, Suppressed: r.Suppressed, Status: u.Status, Unreadable: r.Unreadable,
		Timezone: r.Zone.String(), UnknownZone: u.UnknownZone, FirstAt: optionalTime(r.FirstAt), LastAt: optionalTime(r.LastAt),
		OpenFirstAt: optionalTime(r.OpenFirstAt), OpenLastAt: optionalTime(r.OpenLastAt), Bits: bits.Bits}
	if v, err := u.Doc.LookupErr(append(strings.Split(g.cfg.Users.State, "."), "status_at")...); err == nil {
		if at, ok := v.TimeOK(); ok {
			out.StatusAt = optionalTime(at)
		}
	}
	if g.json {
		return g.printJSON(out)
	}
	view := table{header: []string{"USER", out.User}}
	view.add("email", orDash(out.Email))
	view.add("suppressed", yes(out.Suppressed))
	if out.Status != "" {
		view.add("status", out.Status+" since "+stamp(deref(out.StatusAt)))
	}
	if out.Unreadable {
		view.add("unreadable", "yes: a field is of a kind that can't be read, so no mail is sent")
	}
	zone := out.Timezone
	if out.UnknownZone {
		zone += " (the default: the user's own is missing or unknown)"
	}
	view.add("timezone", zone)
	view.add("first mail", stamp(deref(out.FirstAt)))
	view.add("last mail", stamp(deref(out.LastAt)))
	view.add("first open", stamp(deref(out.OpenFirstAt)))
	view.add("last open", stamp(deref(out.OpenLastAt)))
	var names []string
	for _, b := range out.Bits {
		if b.Name == "" {
			b.Name = fmt.Sprintf("bit %d", b.BitIndex)
		}
		names = append(names, b.Name)
	}
	view.add("templates sent", orDash(strings.Join(names, ", ")))
	return view.print(g.out)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func deref(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
