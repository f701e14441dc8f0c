package campaign

import "slices"

// Outcome is what became of one user in a run. The numbers stand in batch documents: append, never renumber.
type Outcome uint8

// Outcomes. Those above Unconfirmed and below skippedBase are failures.
const (
	Waiting         Outcome = 0 // none: left to look at
	Sent            Outcome = 1
	Unconfirmed     Outcome = 2 // handed over, and no reply: he may have the mail, and gets no other from this run
	FailedBounced   Outcome = 3 // the address does not exist: suppressed
	FailedMailbox   Outcome = 4 // full, too large …: the mailbox's own trouble, not suppressed
	FailedPolicy    Outcome = 5 // 5.7.x: what the receiver thinks of the sender, not suppressed
	FailedTemporary Outcome = 6 // nothing but 4xx until the run expired
	FailedRender    Outcome = 7 // the mail could not be made for this user
	failedEnd       Outcome = 8

	skippedBase Outcome = 32
)

var failureClasses = [...]string{FailedBounced: "bounced", FailedMailbox: "mailbox", FailedPolicy: "policy", FailedTemporary: "temporary", FailedRender: "render"}

// Skipped is the outcome of a user skipped for a reason out of SkipReasons.
func Skipped(reason string) Outcome {
	i := slices.Index(SkipReasons, reason)
	if i < 0 {
		panic("campaign: no skip reason " + reason)
	}
	return skippedBase + Outcome(i)
}

// Failed reports whether the outcome is one of the failures.
func (o Outcome) Failed() bool { return o > Unconfirmed && o < failedEnd }

// Rule is the reason of a skip, out of SkipReasons; empty for other outcomes.
func (o Outcome) Rule() string {
	if i := int(o) - int(skippedBase); i >= 0 && i < len(SkipReasons) {
		return SkipReasons[i]
	}
	return ""
}

// Class is the kind of a failure: bounced, mailbox, policy, temporary, render; empty for other outcomes.
func (o Outcome) Class() string {
	if o.Failed() {
		return failureClasses[o]
	}
	return ""
}

// String is sent, failed, unconfirmed or skipped; waiting where there is none yet.
func (o Outcome) String() string {
	switch {
	case o == Waiting:
		return "waiting"
	case o == Sent:
		return "sent"
	case o == Unconfirmed:
		return "unconfirmed"
	case o.Failed():
		return "failed"
	case o.Rule() != "":
		return "skipped"
	}
	return "unknown"
}

// add counts n users of the outcome.
func (c *Counts) add(o Outcome, n int64) {
	c.Checked += n
	switch {
	case o == Sent:
		c.Sent += n
	case o == Unconfirmed:
		c.Unconfirmed += n
	case o.Failed():
		c.Failed += n
	default:
		if c.Skipped == nil {
			c.Skipped = map[string]int64{}
		}
		c.Skipped[o.Rule()] += n
	}
}
