package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"postbit/internal/config"
	"postbit/internal/users"
	"postbit/internal/web"
	"postbit/worker"
)

type sendCmd struct {
	Template string `arg:"" help:"Name of the template."`
	User     string `arg:"" help:"User: an email, or an id; oid: int: str: uuid: force a type."`
	Key      string `help:"Idempotency key: the same key again sends nothing, and reports what became of the first."`
}

func (sendCmd) Help() string {
	return `The mail goes through all rules and the same protocol as a campaign's. Exit code 3: it was skipped or deferred.

Example:

    postbit send welcome ada@example.com --key welcome-ada`
}

// sendJSON is what became of one mail.
type sendJSON struct {
	Run       string     `json:"run"`
	Key       string     `json:"key"`
	User      string     `json:"user"`
	Outcome   string     `json:"outcome"` // sent, failed, unconfirmed, skipped, deferred
	Rule      string     `json:"rule"`
	Class     string     `json:"class"` // of a failure
	Reply     string     `json:"reply"`
	MessageID string     `json:"message_id"`
	Until     *time.Time `json:"until"` // deferred: when it is looked at again
}

// maxSend is how long one mail may take on the command line.
const maxSend = 5 * time.Minute

func (c sendCmd) Run(ctx context.Context, a *app) error {
	return a.withGraph(ctx, config.Needs{Mongo: true, SMTP: true, Links: true}, func(g *graph) error {
		if err := errors.Join(g.ensureIndexes(ctx), g.setClock(ctx)); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, maxSend)
		defer cancel()
		o := &operations{graph: g, worker: g.newWorker(20 * time.Second)}
		r, err := o.send(ctx, c.Template, c.User, c.Key, false)
		if err != nil {
			return err
		}
		if g.json {
			err = g.printJSON(r)
		} else {
			err = g.printSend(r)
		}
		if err != nil {
			return err
		}
		switch r.Outcome {
		case "skipped", "deferred":
			return errNo
		case "failed", "unconfirmed":
			return &exitError{code: exitFailed}
		}
		return nil
	})
}

func (g *graph) printSend(r *sendJSON) error {
	fmt.Fprintf(g.out, "%s: %s", visible(r.User), r.Outcome)
	for _, more := range []string{r.Rule, r.Class, r.Reply, r.MessageID} {
		if more != "" {
			fmt.Fprintf(g.out, ", %s", visible(more))
		}
	}
	if r.Until != nil {
		fmt.Fprintf(g.out, ", until %s", stamp(*r.Until))
	}
	_, err := fmt.Fprintf(g.out, " (%s)\n", r.Run)
	return err
}

// send sends one mail; count says that nobody else gives what it comes to to the analytics.
func (o *operations) send(ctx context.Context, template, ref, key string, count bool) (*sendJSON, error) {
	t, err := o.templates.Get(ctx, template)
	if err != nil {
		return nil, err
	}
	id, err := o.users.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	r, err := o.worker.SendOne(ctx, worker.Single{Key: key, Template: t, User: id, Count: count})
	if err != nil {
		return nil, err
	}
	return &sendJSON{Run: r.Run, Key: r.Key, User: users.FormatID(r.User), Outcome: r.Outcome, Rule: r.Rule, Class: r.Class,
		Reply: r.Reply, MessageID: r.MessageID, Until: optionalTime(r.Until)}, nil
}

func (o *operations) Send(ctx context.Context, r web.SendRequest) (any, error) {
	sent, err := o.send(ctx, r.Template, r.User, r.Key, true)
	switch {
	case errors.Is(err, worker.ErrKeyTaken), errors.Is(err, worker.ErrNotSendable):
		return nil, sorted{err, web.ErrConflict}
	case errors.Is(err, worker.ErrKey):
		return nil, sorted{err, web.ErrInvalid}
	}
	return forWeb(sent, err)
}
