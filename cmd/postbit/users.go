package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
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

// reasons are the statuses that a user may be given.
var reasons = []string{users.Unsubscribed, users.Bounced, users.Complained}

type usersSuppressCmd struct {
	User   string `arg:"" optional:"" help:"User: an email, or an id; oid: int: str: uuid: force a type."`
	Reason string `enum:"unsubscribed,bounced,complained" default:"unsubscribed" help:"Why: ${enum}."`
	From   string `placeholder:"FILE" help:"File of users, - for standard input: CSV (user,reason) or JSON lines ({\"user\":…,\"reason\":…})."`
}

func (usersSuppressCmd) Help() string {
	return `A reason that weighs more stays: a complaint is not forgotten by a bounce. Of a file that can't be read nothing is done.
Exit code 3: some of the users are not there.

Examples:

    postbit users suppress ada@example.com --reason complained
    postbit users suppress --from unsubscribed.csv`
}

type suppressJSON struct {
	Suppressed int      `json:"suppressed"`
	NotFound   []string `json:"not_found"`
}

// suppression is one line of a file.
type suppression struct {
	User   string `json:"user"`
	Reason string `json:"reason"`
}

func (c usersSuppressCmd) Run(ctx context.Context, a *app) error {
	if (c.User == "") == (c.From == "") {
		return usage("name one user, or a file with --from")
	}
	list := []suppression{{c.User, c.Reason}}
	if c.From != "" {
		data, err := a.readInput(c.From)
		if err != nil {
			return usage("%w", err)
		}
		if list, err = readSuppressions(c.From, data, c.Reason); err != nil {
			return &exitError{exitUsage, err}
		}
	}
	return a.withGraph(ctx, mongoOnly, func(g *graph) error {
		out := suppressJSON{NotFound: []string{}}
		for _, s := range list {
			id, err := g.users.Find(ctx, s.User)
			if err == nil {
				err = g.users.Suppress(ctx, id, s.Reason, g.clk.Now())
			}
			switch {
			case errors.Is(err, users.ErrNotFound) && c.From != "":
				out.NotFound = append(out.NotFound, s.User)
			case err != nil:
				return err
			default:
				out.Suppressed++
			}
		}
		if g.json {
			if err := g.printJSON(out); err != nil {
				return err
			}
		} else {
			g.say("%s suppressed", count(int64(out.Suppressed)))
			for _, user := range out.NotFound {
				g.say("no such user: %s", visible(user))
			}
		}
		if len(out.NotFound) > 0 {
			return errNo
		}
		return nil
	})
}

// readSuppressions reads all of a file before anything is done with it.
func readSuppressions(name string, data []byte, reason string) ([]suppression, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	read := readCSV
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '{' {
		read = readJSONLines
	}
	var list []suppression
	err := read(data, func(line int, s suppression) error {
		if s.Reason == "" {
			s.Reason = reason
		}
		if s.User == "" || !slices.Contains(reasons, s.Reason) {
			return fmt.Errorf("%s:%d: needs a user and a reason out of %s", name, line, strings.Join(reasons, ", "))
		}
		list = append(list, s)
		return nil
	})
	if err != nil && !strings.HasPrefix(err.Error(), name) {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return list, err
}

func readCSV(data []byte, take func(int, suppression) error) error {
	r := csv.NewReader(bytes.NewReader(data))
	r.FieldsPerRecord, r.Comment, r.TrimLeadingSpace = -1, '#', true
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line, _ := r.FieldPos(0)
		s := suppression{User: strings.TrimSpace(record[0])}
		if len(record) > 1 {
			s.Reason = strings.TrimSpace(record[1])
		}
		if line == 1 && (strings.EqualFold(s.User, "user") || strings.EqualFold(s.User, "email")) {
			continue // the header
		}
		if err := take(line, s); err != nil {
			return err
		}
	}
}

func readJSONLines(data []byte, take func(int, suppression) error) error {
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.DisallowUnknownFields()
		var s suppression
		if err := d.Decode(&s); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if err := take(n, s); err != nil {
			return err
		}
	}
	return lines.Err()
}

type usersUnsuppressCmd struct {
	User string `arg:"" help:"User: an email, or an id; oid: int: str: uuid: force a type."`
}

func (usersUnsuppressCmd) Help() string {
	return `Takes postbit's own mark away; what your own fields say (users.suppressed_when) stays.

Example:

    postbit users unsuppress ada@example.com`
}

func (c usersUnsuppressCmd) Run(ctx context.Context, a *app) error {
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
