package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/mail"
	"postbit/internal/users"
	"postbit/templates"
)

// Errors of SendOne.
var (
	ErrKeyTaken    = errors.New("the key belongs to a mail of another template or to another user")
	ErrKey         = errors.New("a key is 1 to 128 of a-z, A-Z, 0-9, . _ : and -")
	ErrNotSendable = errors.New("the template can't be sent")
)

// singleExpiresAfter is how long a single mail that can't be delivered now is tried.
const singleExpiresAfter = 24 * time.Hour

var validKey = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// Single asks for one mail.
type Single struct {
	Key      string // names the mail: asked for again with the same key, it is not sent again; empty: a new one
	Template *templates.Template
	User     bson.RawValue
	Count    bool // give what it comes to to the analytics here; otherwise a scheduler does
}

// SingleResult is what became of the mail.
type SingleResult struct {
	Run       string
	Key       string
	User      bson.RawValue
	Outcome   string    // sent, failed, unconfirmed, skipped; deferred: left to the workers, see Until
	Rule      string    // of a skip
	Class     string    // of a failure
	Reply     string    // of the SMTP server, or why there was none
	MessageID string    // where a mail has gone out, or may have
	Until     time.Time // deferred: when it is looked at again, if a worker runs
}

// SendOne sends one mail as a run of one batch of one user: by the same rules, claims and log as any other. The key is the run's
// id, so the same call again completes or reports the first one, and ErrKeyTaken is the answer where it is about something else.
func (w *Worker) SendOne(ctx context.Context, s Single) (SingleResult, error) {
	if s.Key == "" {
		s.Key = strings.ToLower(rand.Text())
	}
	if !validKey.MatchString(s.Key) {
		return SingleResult{}, fmt.Errorf("key %.80q: %w", s.Key, ErrKey)
	}
	run, err := w.singleRun(ctx, s)
	if err != nil {
		return SingleResult{}, err
	}
	if run.Paused != "" && run.PausedBy == "worker" { // by an earlier call that met a fault; this one says to try again
		if err := w.cfg.Runs.ResumeRun(ctx, run.ID); err != nil && !errors.Is(err, campaign.ErrRunFinished) {
			return SingleResult{}, err
		}
	}
	p, err := w.lookAt(ctx, run.ID, 1, 0, s.Count, w.log.With("run", run.ID))
	if err != nil && !nothingToDo(err) && !errors.Is(err, campaign.ErrLostOwnership) {
		return SingleResult{}, err
	}
	b, err := w.cfg.Batches.Get(context.WithoutCancel(ctx), run, 1)
	if err != nil {
		return SingleResult{}, err
	}
	u := b.User(0)
	r := SingleResult{Run: run.ID, Key: s.Key, User: u.User, Outcome: u.Outcome.String(), Rule: u.Outcome.Rule(), Class: u.Outcome.Class(), Reply: u.Reply}
	switch u.Outcome {
	case campaign.Sent, campaign.Unconfirmed:
		a, err := w.prepare(run)
		if err != nil {
			return r, err
		}
		r.MessageID = mail.MessageID(run.Short, u.User, a.domain)
	case campaign.Waiting:
		r.Outcome, r.Until = "deferred", b.NotBefore
		if p != nil && p.halt != "" {
			r.Reply, r.Until = p.halt, time.Time{} // paused
		} else if p != nil && p.noSMTP != "" {
			r.Reply = p.noSMTP
		}
	}
	return r, nil
}

// singleRun makes the run of a single mail, or finds the one that was made for the same key.
func (w *Worker) singleRun(ctx context.Context, s Single) (*campaign.Run, error) {
	who, err := bson.MarshalExtJSON(bson.D{{Key: "_id", Value: s.User}}, true, false)
	if err != nil {
		return nil, fmt.Errorf("worker: the user's id: %w", err)
	}
	now := w.cfg.Clock.Now().Truncate(time.Millisecond)
	run := &campaign.Run{
		ID: campaign.SinglePrefix + s.Key, Slot: now, StartedAt: now, State: campaign.RunSending,
		Spec:     campaign.Spec{Template: s.Template.Name, Audience: string(who), ExpiresAfter: singleExpiresAfter},
		Template: templates.Snapshot(s.Template), Planned: 1, PlanDone: true,
	}
	rand.Read(run.Short[:])
	existing, err := w.cfg.Runs.Run(ctx, run.ID)
	switch {
	case err == nil:
		run = existing
	case !errors.Is(err, campaign.ErrNotFound):
		return nil, err
	default:
		if s.Template.Retired() {
			return nil, fmt.Errorf("template %s is retired: %w", s.Template.Name, ErrNotSendable)
		}
		if _, err := w.prepare(run); err != nil { // before anything is written
			return nil, fmt.Errorf("%w: %w", ErrNotSendable, err)
		}
		if err := w.cfg.Runs.InsertRun(ctx, run); errors.Is(err, campaign.ErrRunExists) {
			if run, err = w.cfg.Runs.Run(ctx, run.ID); err != nil {
				return nil, err
			}
		} else if err != nil {
			return nil, err
		}
	}
	if run.Spec.Template != s.Template.Name || run.Spec.Audience != string(who) {
		return nil, fmt.Errorf("key %s: %w: template %s, user %s", s.Key, ErrKeyTaken, run.Spec.Template, singleUser(run))
	}
	return run, w.singleBatch(ctx, run, s.User)
}

// singleUser is the user of a single mail's run, for people to read.
func singleUser(run *campaign.Run) string {
	var who bson.Raw
	if err := bson.UnmarshalExtJSON([]byte(run.Spec.Audience), true, &who); err != nil {
		return run.Spec.Audience
	}
	return users.FormatID(who.Lookup("_id"))
}

// singleBatch plans the run: its one batch, and the end marker. Whoever comes second, or comes back after a crash, does what is
// missing of it.
func (w *Worker) singleBatch(ctx context.Context, run *campaign.Run, user bson.RawValue) error {
	head, there, err := w.cfg.Batches.Last(ctx, run)
	if err != nil || head.End {
		return err
	}
	if !there {
		if err := w.cfg.Batches.EnsureIndexes(ctx, run.Slot); err != nil {
			return err
		}
		if err := w.cfg.Batches.Insert(ctx, run, 1, []bson.RawValue{user}); err != nil && !errors.Is(err, campaign.ErrBatchExists) {
			return err
		}
	}
	if err := w.cfg.Batches.InsertEnd(ctx, run, 2); err != nil && !errors.Is(err, campaign.ErrBatchExists) {
		return err
	}
	return nil
}
