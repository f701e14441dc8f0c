package returned

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/mail"
	"postbit/internal/track"
	"postbit/internal/users"
)

// Users is where users are found and suppressed: *users.Store.
type Users interface {
	Get(ctx context.Context, id bson.RawValue, extra []string, bit int) (users.User, error)
	Find(ctx context.Context, ref string) (bson.RawValue, error)
	SuppressMany(ctx context.Context, list []users.Suppression) ([]users.Merged, error)
}

// Runs tells whose mail it was; campaign.ErrNotFound where nobody remembers: *campaign.Store.
type Runs interface {
	RunByShort(ctx context.Context, short campaign.ShortID) (*campaign.Run, error)
}

// Counters count once for an id: *analytics.Writer.
type Counters interface {
	Apply(ctx context.Context, id string, incs []analytics.Increment) error
	Memory() time.Duration
}

// Config is what an Intake works with.
type Config struct {
	Keys     *track.Keys
	Users    Users
	Runs     Runs
	Counters Counters
	State    string // the field that the mark is in, as in users.Config
	// TrustAddresses believes the addresses of a report that has no valid token. Only for mails whose sender was made sure of by other
	// means: otherwise anybody gets anybody suppressed by writing a mail.
	TrustAddresses bool
	DryRun         bool // look, and change nothing
	Clock          *clock.Clock
	Log            *slog.Logger // nil: silent
}

// Intake acts on returned mails. It is safe for concurrent use.
//
// Whom a mail is about is told by the token in the List-Unsubscribe of the returned headers, which we signed: whoever has it was
// sent the mail, or handles it on the way, and could unsubscribe the user as well. A bounce must also be of the address that the user has now.
type Intake struct {
	cfg  Config
	log  *slog.Logger
	runs sync.Map // runName by short id; only our own tokens name one, so there are as many as there are runs
}

type runName struct{ id, campaign string }

// NewIntake returns an Intake.
func NewIntake(cfg Config) *Intake {
	if cfg.State == "" {
		cfg.State = "postbit"
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Intake{cfg: cfg, log: log}
}

// Result is what was made of one mail.
type Result struct {
	Outcome  Outcome
	Changed  bool            // a user who was not suppressed for that, or for more, is now (on a dry run: would be); of two at the same instant both may say so
	Users    []bson.RawValue // whom it is about; several only by a trusted address, none where nobody could be found
	Campaign string          // of the mail that came back; "" where it is not known
	Run      string
	SentAt   time.Time
	Address  string     // that the report names; for a bounce without a valid token anybody may have written it
	Reply    mail.Reply // of a bounce
	Feedback string     // the type of feedback
}

// Take acts on what a mail says. Done twice it changes nothing more and counts nothing twice. After an error it may be done again.
func (in *Intake) Take(ctx context.Context, r *Report) (Result, error) {
	res := Result{Feedback: r.Feedback}
	switch r.Kind {
	case Notice:
		res.Outcome = Noticed
		return res, nil
	case AutoReply:
		res.Outcome = AutoReplied
		return res, nil
	case Bounce, Complaint, OptOut, Feedback:
	default:
		res.Outcome = Ignored
		return res, nil
	}
	t, signed := in.verify(r.tokens)
	if signed {
		res.SentAt = t.SentAt
		if err := in.nameRun(ctx, t.Run, &res); err != nil {
			return res, err
		}
	}
	var err error
	switch r.Kind {
	case Feedback:
		res.Outcome = Reported
		if signed {
			res.Users = []bson.RawValue{t.User}
		}
	case Bounce:
		err = in.bounce(ctx, r, t, signed, &res)
	default:
		err = in.complaint(ctx, r, t, signed, &res)
	}
	if err == nil {
		in.note(&res)
	}
	return res, err
}

// verify finds a token that permits to unsubscribe; one of a pixel or a link gets into more hands, and permits less.
func (in *Intake) verify(tokens []string) (track.Token, bool) {
	for _, s := range tokens {
		if t, err := in.cfg.Keys.Verify(s); err == nil && t.Kind == track.Unsubscribe {
			return t, true
		}
	}
	return track.Token{}, false
}

func (in *Intake) nameRun(ctx context.Context, short [8]byte, res *Result) error {
	known, ok := in.runs.Load(short)
	if !ok {
		run, err := in.cfg.Runs.RunByShort(ctx, short)
		switch {
		case errors.Is(err, campaign.ErrNotFound):
			known = runName{}
		case err != nil:
			return err
		default:
			known = runName{run.ID, run.Campaign}
		}
		in.runs.Store(short, known)
	}
	res.Run, res.Campaign = known.(runName).id, known.(runName).campaign
	return nil
}

// bounce suppresses the user whose present address can't be delivered to.
func (in *Intake) bounce(ctx context.Context, r *Report, t track.Token, signed bool, res *Result) error {
	if !signed {
		return in.unsigned(ctx, r, users.Bounced, res)
	}
	res.Users = []bson.RawValue{t.User}
	worst := gravest(r.Recipients)
	res.Address, res.Reply = worst.Address(), worst.Reply
	if worst.Reply.Class != mail.Bounced {
		res.Outcome = ofClass(worst.Reply.Class)
		return nil
	}
	u, found, err := in.user(ctx, t.User, res)
	if !found {
		return err
	}
	mine := mildest(r.Recipients, u.Email)
	switch {
	case mine == nil:
		res.Outcome = OtherAddress
		return nil
	case !mine.Failed: // an alias with several mailboxes behind it, one of which took the mail
		res.Outcome, res.Address, res.Reply = Noticed, u.Email, mine.Reply
		return nil
	}
	res.Address, res.Reply = u.Email, mine.Reply
	if mine.Reply.Class != mail.Bounced {
		res.Outcome = ofClass(mine.Reply.Class)
		return nil
	}
	return in.suppress(ctx, &u, t, users.Bounced, res)
}

// user is the user as he is now. Who is not there any more is Gone.
func (in *Intake) user(ctx context.Context, id bson.RawValue, res *Result) (u users.User, found bool, err error) {
	u, err = in.cfg.Users.Get(ctx, id, nil, -1)
	if errors.Is(err, users.ErrNotFound) {
		res.Outcome = Gone
		return u, false, nil
	}
	return u, err == nil, err
}

// complaint suppresses whoever was sent the mail. Which address complained does not matter: the person has said so.
func (in *Intake) complaint(ctx context.Context, r *Report, t track.Token, signed bool, res *Result) error {
	status := users.Complained
	if r.Kind == OptOut {
		status = users.Unsubscribed
	}
	if !signed {
		return in.unsigned(ctx, r, status, res)
	}
	if len(r.Recipients) > 0 {
		res.Address = r.Recipients[0].Address()
	}
	res.Users = []bson.RawValue{t.User}
	u, found, err := in.user(ctx, t.User, res)
	if !found {
		return err
	}
	return in.suppress(ctx, &u, t, status, res)
}

// unsigned is for reports without a valid token. They suppress nobody, unless addresses are trusted, and are never counted: they name
// no campaign, and nothing by which the same report could be known again.
func (in *Intake) unsigned(ctx context.Context, r *Report, status string, res *Result) error {
	var who Recipient
	if len(r.Recipients) > 0 {
		who = r.Recipients[0]
	}
	if status == users.Bounced {
		who = gravest(r.Recipients)
		if res.Reply = who.Reply; who.Reply.Class != mail.Bounced {
			res.Outcome, res.Address = ofClass(who.Reply.Class), who.Address()
			return nil
		}
	}
	res.Outcome, res.Address = Unverified, who.Address()
	if !in.cfg.TrustAddresses || len(who.Addresses) == 0 {
		return nil
	}
	for _, address := range who.Addresses {
		ids, err := in.owners(ctx, address)
		if err != nil {
			return err
		}
		for _, id := range ids {
			res.Users = append(res.Users, id)
			if err := in.mark(ctx, id, status, res); err != nil {
				return err
			}
		}
		if len(ids) > 0 {
			res.Address = address
			return nil
		}
	}
	res.Outcome = Gone
	return nil
}

// owners are the users who have an address, at most as many as users.Find lists.
func (in *Intake) owners(ctx context.Context, address string) ([]bson.RawValue, error) {
	id, err := in.cfg.Users.Find(ctx, address)
	var several *users.AmbiguousError
	switch {
	case errors.As(err, &several):
		return several.IDs, nil
	case errors.Is(err, users.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []bson.RawValue{id}, nil
}

// suppress counts the mail and marks the user. The count comes first, under an id of its own, so that whoever dies in between does both when
// the mail is read again.
func (in *Intake) suppress(ctx context.Context, u *users.User, t track.Token, status string, res *Result) error {
	if !in.cfg.DryRun && in.countable(u, status) {
		incs := analytics.Day(res.Campaign, metrics[status], in.cfg.Clock.Now(), 1)
		if err := in.cfg.Counters.Apply(ctx, countID(t, status), incs); err != nil {
			return err
		}
	}
	return in.mark(ctx, u.ID, status, res)
}

var metrics = map[string]string{users.Bounced: analytics.Bounced, users.Complained: analytics.Complained, users.Unsubscribed: analytics.Unsubscribed}

// countID names a bounce or a complaint about one mail. A mail is one run's to one user.
func countID(t track.Token, status string) string {
	h := sha256.New()
	h.Write(t.Run[:])
	h.Write([]byte{byte(t.User.Type)})
	h.Write(t.User.Value)
	return "returned/" + status + "/" + hex.EncodeToString(h.Sum(nil)[:16])
}

// countable says no where the user has borne the mark, or one that weighs more, for longer than ids are remembered: then nobody could
// tell whether the mail is read for the first time, and it hardly is.
func (in *Intake) countable(u *users.User, status string) bool {
	if u.Status == "" || users.Heavier(status, u.Status) {
		return true
	}
	v, err := u.Doc.LookupErr(append(strings.Split(in.cfg.State, "."), "status_at")...)
	if err != nil {
		return false
	}
	since, ok := v.TimeOK()
	return ok && in.cfg.Clock.Now().Sub(since) < in.cfg.Counters.Memory()
}

// mark writes the status where no heavier one stands.
func (in *Intake) mark(ctx context.Context, id bson.RawValue, status string, res *Result) error {
	res.Outcome = ofStatus[status]
	if in.cfg.DryRun {
		u, found, err := in.user(ctx, id, res)
		res.Changed = res.Changed || found && (u.Status == "" || users.Heavier(status, u.Status))
		return err
	}
	out, err := in.cfg.Users.SuppressMany(ctx, []users.Suppression{{ID: id, Status: status, At: in.cfg.Clock.Now()}})
	if err != nil {
		return err
	}
	switch m := out[0]; m.State {
	case users.MergeChanged:
		res.Changed = true
	case users.MergeMissing:
		res.Outcome = Gone
	case users.MergeUnreadable, users.MergeRefused:
		res.Outcome = Refused
		in.log.Warn("a returned mail could not be noted in the user's document", "user", users.FormatID(id), "status", status, "err", m.Err)
	}
	return nil
}

// note logs what concerns a user. Never a token; what the mail says has been cleaned.
func (in *Intake) note(res *Result) {
	args := []any{"outcome", string(res.Outcome), "changed", res.Changed, "campaign", res.Campaign, "run", res.Run}
	for _, id := range res.Users {
		args = append(args, "user", users.FormatID(id))
	}
	if res.Reply.Class != 0 {
		args = append(args, "reply", fmt.Sprintf("%.240s", res.Reply))
	}
	in.log.Info("a mail came back", args...)
}
