package worker

import (
	"context"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/users"
	"postbit/rules"
	"postbit/templates"
)

// leftRule stands before the rules: who is not in the audience is not asked about any further.
const leftRule = "left"

// Explanation is what all rules say about one user, and what they say it by.
type Explanation struct {
	User     string          `json:"user"` // as the argument USER of the command line reads it
	Campaign string          `json:"campaign"`
	At       time.Time       `json:"at"`
	Decision string          `json:"decision"` // send, skip or defer
	Rule     *string         `json:"rule"`     // that decided; nil for send
	Until    *time.Time      `json:"until"`    // for defer
	Rules    []ExplainedRule `json:"rules"`    // all of them, in order; "left" comes first
}

// ExplainedRule is one rule's word.
type ExplainedRule struct {
	Rule    string      `json:"rule"`
	Objects bool        `json:"objects"`
	Why     string      `json:"why"`
	Facts   rules.Facts `json:"facts"`
}

// Explain says what a run would do with the user at that instant. The run need not be stored: with StartedAt: at it is one that
// starts just then. Errors: users.ErrNotFound, and those of the database.
func Explain(ctx context.Context, run *campaign.Run, template *templates.Template, store *users.Store, id bson.RawValue, at time.Time) (*Explanation, error) {
	e, err := NewEvaluator(run, template, nil, store)
	if err != nil {
		return nil, err
	}
	at = at.UTC()
	x, err := e.Get(ctx, id, false, at)
	if err != nil {
		return nil, err
	}
	name := run.Campaign
	if name == "" {
		name = run.Spec.Name
	}
	out := &Explanation{User: users.FormatID(x.User.ID), Campaign: name, At: at, Decision: x.Decision.Outcome.String()}
	switch {
	case x.Left:
		left := leftRule
		out.Decision, out.Rule = rules.Skip.String(), &left
	case x.Decision.Outcome != rules.Send:
		rule := x.Decision.Rule.String()
		out.Rule = &rule
	}
	if out.Decision == rules.Defer.String() {
		out.Until = &x.Decision.Until
	}
	out.Rules = append(out.Rules, explainLeft(run, x.Left))
	for _, f := range rules.Explain(&x.User.Recipient, &e.message, at) {
		out.Rules = append(out.Rules, e.explainRule(&x.User, f))
	}
	return out, nil
}

func explainLeft(run *campaign.Run, left bool) ExplainedRule {
	why := "the user is in the audience"
	if left {
		why = "the user is not in the audience"
	}
	audience := strings.TrimSpace(run.Spec.Audience)
	if audience == "" {
		audience = "{}"
	}
	return ExplainedRule{Rule: leftRule, Objects: left, Why: why, Facts: rules.Facts{{Name: "audience", Value: audience}}}
}

// explainRule puts what the document says before what the rule made of it.
func (e *Evaluator) explainRule(u *users.User, f rules.Finding) ExplainedRule {
	out := ExplainedRule{Rule: f.Rule.String(), Objects: f.Objects, Why: f.Why, Facts: append(e.store.Facts(u, f.Rule), f.Facts...)}
	switch {
	case f.Rule == rules.Suppressed && u.Status != "":
		out.Why = "the user's status is " + u.Status
	case f.Rule == rules.Suppressed && f.Objects:
		out.Why = "a field of your own says so (suppressed_when)"
	case f.Rule == rules.AlreadySent:
		out.Facts = append(rules.Facts{{Name: "bit_index", Value: strconv.Itoa(e.bit)}}, out.Facts...)
	case f.Rule == rules.TimeOfDay && u.UnknownZone:
		out.Facts = append(out.Facts, rules.Fact{Name: "unknown_zone", Value: "yes, the default is used"})
	}
	return out
}
