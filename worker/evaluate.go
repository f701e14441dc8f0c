package worker

import (
	"context"
	"fmt"
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
}

// NewEvaluator evaluates for the run, which need not be stored: of it are read its Spec and StartedAt. With fields, those of
// the user document are loaded beside what rules read, so that the users can be rendered.
func NewEvaluator(run *campaign.Run, template *templates.Template, fields []string, store *users.Store) (*Evaluator, error) {
	audience, err := run.Spec.AudienceQuery(run.StartedAt)
	if err != nil {
		return nil, err
	}
	return &Evaluator{
		store: store, audience: audience, fields: fields, bit: template.BitIndex,
		message: run.Spec.Message(template.Repeat, run),
	}, nil
}

// Decide asks the rules about one user. holdsClaim says that the run has claimed him already: his bit and last mail are then
// this very run's doing.
func (e *Evaluator) Decide(u *users.User, holdsClaim bool, now time.Time) rules.Decision {
	r := u.Recipient
	r.HoldsClaim = holdsClaim
	return rules.Check(&r, &e.message, now)
}

// Evaluated is a user and what the rules say about him, in the place of his id.
type Evaluated struct {
	Left     bool // he is gone from the audience, or deleted; there is no User
	User     users.User
	Decision rules.Decision
}

// Load reads the users with these ids, which must be in _id order, and evaluates them at now. holds says which of them the run
// has claimed already; nil: none. The result has the order of ids.
func (e *Evaluator) Load(ctx context.Context, ids []bson.RawValue, holds func(i int) bool, now time.Time) ([]Evaluated, error) {
	loaded, err := e.store.Load(ctx, e.audience, ids, e.fields, e.bit)
	if err != nil {
		return nil, err
	}
	out := make([]Evaluated, len(ids))
	n := 0 // both are in the order of ids
	for i, id := range ids {
		if n == len(loaded) || !sameID(loaded[n].ID, id) {
			out[i].Left = true
			continue
		}
		out[i].User = loaded[n]
		out[i].Decision = e.Decide(&out[i].User, holds != nil && holds(i), now)
		n++
	}
	return out, nil
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
