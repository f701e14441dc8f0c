package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"postbit/internal/config"
	"postbit/internal/quantity"
	"postbit/internal/returned"
	"postbit/internal/users"
)

// exitTempFail is EX_TEMPFAIL of sysexits.h: whoever piped a mail keeps it and tries again.
const exitTempFail = 75

type bouncesCmd struct {
	Files          []string `arg:"" optional:"" name:"file" help:"Message, mbox or Maildir; - or none: one message on standard input."`
	DryRun         bool     `help:"Say what would be done, and change nothing."`
	TrustAddresses bool     `help:"Believe the address in a report that holds no token of ours. Only where nobody but your own mail server can put mails there."`
}

func (bouncesCmd) Help() string {
	return `Reads mails that came back. A hard bounce and a complaint suppress the user; a soft bounce, a delay, an out-of-office reply do not.
Who is meant is told by postbit's own token in the returned headers; a report without one suppresses nobody.
Of a Maildir it reads new, and moves what it has read to cur. Reading a mail again changes nothing.

Exit code 75: something is away, the mail was not dealt with, try again. Exit code 3, not for standard input: some
bounces or complaints suppressed nobody, because they hold no token, or the user is gone or has another address now.

Examples:

    postbit bounces --dry-run returned.mbox
    postbit bounces /var/mail/bounces/Maildir
    postbit bounces < returned.eml
    bounces: "|postbit --config /etc/postbit.yaml bounces"   (in /etc/aliases)`
}

// piped says that one message comes on standard input.
func (c *bouncesCmd) piped() bool {
	return len(c.Files) == 0 || len(c.Files) == 1 && c.Files[0] == "-"
}

// bouncesJSON is what came of the mails.
type bouncesJSON struct {
	DryRun  bool                       `json:"dry_run"`
	Mails   int64                      `json:"mails"`
	Changed int64                      `json:"changed"` // mails by which somebody is suppressed who was not before
	Counts  map[returned.Outcome]int64 `json:"counts"`  // mails by outcome; all outcomes
	List    []bounceJSON               `json:"list"`    // without notices, automatic replies and other mails
}

type bounceJSON struct {
	Mail     string           `json:"mail"`
	Outcome  returned.Outcome `json:"outcome"`
	Changed  bool             `json:"changed"`
	Users    []string         `json:"users"`
	Campaign string           `json:"campaign"`
	Run      string           `json:"run"`
	SentAt   *time.Time       `json:"sent_at"` // of the mail that came back
	Address  string           `json:"address"` // as the report says
	Code     int              `json:"code"`
	Enhanced string           `json:"enhanced"`
	Text     string           `json:"text"`
	Feedback string           `json:"feedback"` // the type of a feedback report
}

const (
	bouncesAtOnce = 64               // mails that are read, then dealt with
	bouncesBeside = 16               // of these, how many at the same time
	bouncesEach   = 30 * time.Second // for one mail
)

func (c bouncesCmd) Run(ctx context.Context, a *app) error {
	if c.piped() {
		return tempFail(c.pipe(ctx, a))
	}
	boxes := make([]*returned.Mailbox, len(c.Files))
	for i, name := range c.Files {
		if name == "-" {
			return usage("standard input is one message; name it alone")
		}
		var err error
		if boxes[i], err = returned.OpenMailbox(name); err != nil {
			return usage("%w", err)
		}
	}
	out := c.empty()
	err := a.withIntake(ctx, c, func(in *returned.Intake) error {
		for _, box := range boxes {
			if err := out.readBox(ctx, a, in, box, c.DryRun); err != nil {
				return err
			}
		}
		return nil
	})
	var settings *config.Error
	if errors.As(err, &settings) {
		return err
	}
	if out.Mails > 0 || err == nil { // what was done before something went wrong is told, too
		err = errors.Join(err, out.print(a))
	}
	if err != nil {
		return tempFail(err)
	}
	for outcome, n := range out.Counts {
		if n > 0 && outcome.Unbelieved() {
			return errNo
		}
	}
	return nil
}

// pipe deals with the message on standard input. All of that is read, or the mail server takes the broken pipe for a failure.
func (c bouncesCmd) pipe(ctx context.Context, a *app) error {
	if f, ok := a.in.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&fs.ModeCharDevice != 0 {
			a.say("reading one message from standard input")
		}
	}
	r, err := returned.Read(a.in)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, a.in); err != nil {
		return err
	}
	out := c.empty()
	err = a.withIntake(ctx, c, func(in *returned.Intake) error {
		return out.take(ctx, in, []returned.Mail{{Name: "-", Report: r}}, func(returned.Mail) error { return nil })
	})
	if err != nil {
		return err
	}
	return out.print(a)
}

// tempFail gives an error that says nothing of its code the one by which a mail is kept. Settings that are wrong are mended as well, and the
// mail must be there then.
func tempFail(err error) error {
	var own *exitError
	if err == nil || errors.As(err, &own) {
		return err
	}
	return &exitError{exitTempFail, err}
}

func (c bouncesCmd) empty() *bouncesJSON {
	out := &bouncesJSON{DryRun: c.DryRun, Counts: map[returned.Outcome]int64{}, List: []bounceJSON{}}
	for _, o := range returned.Outcomes {
		out.Counts[o] = 0
	}
	return out
}

// withIntake opens what acts on returned mails, with a writer of counters beside it.
func (a *app) withIntake(ctx context.Context, c bouncesCmd, do func(*returned.Intake) error) error {
	return a.withGraph(ctx, config.Needs{Mongo: true, Links: true}, func(g *graph) (err error) {
		if !c.DryRun {
			writing, stop := context.WithCancel(context.WithoutCancel(ctx)) // longer than those who count
			var counting sync.WaitGroup
			var failed error
			counting.Go(func() { failed = g.writer.Run(writing) })
			defer func() { stop(); counting.Wait(); err = errors.Join(err, failed) }()
		}
		return do(returned.NewIntake(returned.Config{Keys: g.keys, Users: g.users, Runs: g.campaigns, Counters: g.writer, State: g.cfg.Users.State,
			TrustAddresses: c.TrustAddresses, DryRun: c.DryRun, Clock: g.clk, Log: g.log}))
	})
}

// readBox deals with all mails of a mailbox, some at a time.
func (out *bouncesJSON) readBox(ctx context.Context, a *app, in *returned.Intake, box *returned.Mailbox, dry bool) error {
	done := box.Done
	if dry {
		done = func(returned.Mail) error { return nil }
	}
	var some []returned.Mail
	for m, err := range box.Mails() {
		if err != nil {
			return err
		}
		if some = append(some, m); len(some) < bouncesAtOnce {
			continue
		}
		if err := out.take(ctx, in, some, done); err != nil {
			return err
		}
		some = some[:0]
	}
	return out.take(ctx, in, some, done)
}

// take deals with some mails at the same time, and notes in their order what came of those that were dealt with.
func (out *bouncesJSON) take(ctx context.Context, in *returned.Intake, mails []returned.Mail, done func(returned.Mail) error) error {
	results := make([]returned.Result, len(mails))
	errs := make([]error, len(mails))
	var beside errgroup.Group
	beside.SetLimit(bouncesBeside)
	for i := range mails {
		beside.Go(func() error {
			ctx, cancel := context.WithTimeoutCause(ctx, bouncesEach, errors.New("the database did not answer in time"))
			defer cancel()
			if results[i], errs[i] = in.Take(ctx, mails[i].Report); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", mails[i].Name, errs[i])
				return nil
			}
			errs[i] = done(mails[i])
			return nil
		})
	}
	_ = beside.Wait()
	for i := range mails {
		if errs[i] == nil {
			out.add(mails[i].Name, &results[i])
		}
	}
	for _, err := range errs {
		if err != nil { // one of many that will be the same
			return err
		}
	}
	return nil
}

func (out *bouncesJSON) add(name string, r *returned.Result) {
	out.Mails++
	out.Counts[r.Outcome]++
	if r.Changed {
		out.Changed++
	}
	if r.Outcome.Silent() {
		return
	}
	b := bounceJSON{Mail: name, Outcome: r.Outcome, Changed: r.Changed, Users: []string{}, Campaign: r.Campaign, Run: r.Run, SentAt: optionalTime(r.SentAt), Address: r.Address,
		Code: r.Reply.Code, Enhanced: r.Reply.Enhanced, Text: r.Reply.Text, Feedback: r.Feedback}
	for _, id := range r.Users {
		b.Users = append(b.Users, users.FormatID(id))
	}
	out.List = append(out.List, b)
}

func (out *bouncesJSON) print(a *app) error {
	if a.json {
		return a.printJSON(out)
	}
	if len(out.List) > 0 {
		t := table{header: []string{"MAIL", "OUTCOME", "USER", "CAMPAIGN", "ADDRESS", "SAYS"}}
		for _, b := range out.List {
			says := b.Feedback
			if b.Code != 0 || b.Enhanced != "" || b.Text != "" {
				says = strings.Join(strings.Fields(fmt.Sprintf("%s %s %s", codeOf(b.Code), b.Enhanced, b.Text)), " ")
			}
			t.add(b.Mail, string(b.Outcome), orDash(strings.Join(b.Users, ", ")), orDash(b.Campaign), orDash(b.Address), orDash(says))
		}
		if err := t.print(a.out); err != nil {
			return err
		}
	}
	var parts []string
	for _, o := range returned.Outcomes {
		if n := out.Counts[o]; n > 0 {
			parts = append(parts, count(n)+" "+string(o))
		}
	}
	newly := "newly suppressed"
	if out.DryRun {
		newly = "would be newly suppressed"
	}
	if len(parts) > 0 {
		a.say("%s: %s; %s %s", quantity.Of(out.Mails, "mail"), strings.Join(parts, ", "), count(out.Changed), newly)
	} else {
		a.say("no mails")
	}
	return nil
}

func codeOf(code int) string {
	if code == 0 {
		return ""
	}
	return fmt.Sprint(code)
}
