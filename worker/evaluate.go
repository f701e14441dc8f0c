package worker

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/users"
	"postbit/rules"
	"postbit/templates"
)

// Evaluator loads users of a run and asks the rules about them: the one path that dispatch, rehearse and explain share, so
// that what is rehearsed and explained is what is done.
type Evaluator struct {
	store    *users.Store
	audience bson.D
	fields   []string
	bit      int
	message  rules.Message
	loader   *users.Loader
	mailable atomic.Int32 // of a thousand users of the last load, how many may be sent to
}

// NewEvaluator evaluates for the run, which need not be stored: of it are read its Spec and StartedAt. With fields, those of
// the user document are loaded beside what rules read, so that the users can be rendered.
func NewEvaluator(run *campaign.Run, template *templates.Template, fields []string, store *users.Store) (*Evaluator, error) {
	audience, err := run.Spec.AudienceQuery(run.StartedAt)
	if err != nil {
		return nil, err
	}
	e := &Evaluator{
		store: store, audience: audience, fields: fields, bit: template.BitIndex,
		message: run.Spec.Message(template.Repeat, run),
	}
	if e.loader, err = store.Loader(audience, fields, template.BitIndex); err != nil {
		return nil, err
	}
	e.mailable.Store(1000)
	return e, nil
}

// Decide asks the rules about one user. holdsClaim says that the run has claimed him already: his bit and last mail are then
// this very run's doing.
func (e *Evaluator) Decide(u *users.User, holdsClaim bool, now time.Time) rules.Decision {
	r := u.Recipient
	r.HoldsClaim = holdsClaim
	return rules.Check(&r, &e.message, now)
}

// Evaluated is a user and what the rules say about him.
type Evaluated struct {
	Left     bool // he is not in the audience
	User     users.User
	Decision rules.Decision
}

// AtOnce is how many users to load next, as long as nobody knows better: so many that some 128 of them may be sent to, going by the
// last load, and at most as many as one query asks for. Where most may be sent to, no more are read than can be sent to while what was
// read is fresh.
func (e *Evaluator) AtOnce() int {
	return min(fewUsers*1000/max(int(e.mailable.Load()), 1), users.LoadAtOnce)
}

const fewUsers = 128

// Load reads the users with these ids, which should be in _id order, evaluates them at now, and calls f for each place of the list, with
// a nil user where he has left the audience, or is gone. The user is valid until f returns, but for ever where f returns true. holds says
// which of them the run has claimed already; nil: none. rest is the places whom it did not come to, since those kept take much memory.
func (e *Evaluator) Load(ctx context.Context, ids []bson.RawValue, holds func(i int) bool, now time.Time,
	f func(i int, u *users.User, d rules.Decision) (keep bool)) (rest []int, err error) {
	mailable := 0
	rest, err = e.loader.Load(ctx, ids, func(i int, u *users.User) bool {
		if u == nil {
			return f(i, nil, rules.Decision{})
		}
		d := e.Decide(u, holds != nil && holds(i), now)
		if d.Outcome == rules.Send {
			mailable++
		}
		return f(i, u, d)
	})
	if looked := len(ids) - len(rest); looked >= fewUsers && err == nil { // fewer, such as those who are read again, tell little of others
		e.mailable.Store(int32(mailable * 1000 / looked))
	}
	return rest, err
}

// Each evaluates everybody in the audience as it is now. The user is valid until f returns.
func (e *Evaluator) Each(ctx context.Context, now time.Time, f func(*users.User, rules.Decision) error) error {
	return e.store.Each(ctx, e.audience, e.fields, e.bit, func(u *users.User) error {
		return f(u, e.Decide(u, false, now))
	})
}

// Get evaluates one user, whether or not he is in the audience. users.ErrNotFound: there is none.
func (e *Evaluator) Get(ctx context.Context, id bson.RawValue, holdsClaim bool, now time.Time) (Evaluated, error) {
	u, err := e.store.Get(ctx, id, e.fields, e.bit)
	if err != nil {
		return Evaluated{}, err
	}
	in, err := e.store.InAudience(ctx, e.audience, id)
	if err != nil {
		return Evaluated{}, fmt.Errorf("evaluate %s: %w", users.FormatID(id), err)
	}
	return Evaluated{Left: !in, User: u, Decision: e.Decide(&u, holdsClaim, now)}, nil
}
