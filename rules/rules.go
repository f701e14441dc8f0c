// Package rules decides whether a recipient may get a message now. It is pure: no I/O, no clock of its own, no
// allocation in Check, so that 40 million checks a day cost seconds of one core. Zone data is built in, so the answers do
// not depend on the machine.
package rules

import (
	"fmt"
	"time"
	_ "time/tzdata" // recipients' zones, also where the machine has none
)

// Rule names the reason of a decision. The order is the order of evaluation; the first that objects decides.
type Rule uint8

// The rules in the order in which they are asked. None stands for "no rule objects".
const (
	None Rule = iota
	Expired
	Address
	Suppressed
	Unreadable
	AlreadySent
	Inactive
	MinGap
	TimeOfDay
)

var ruleNames = [...]string{"none", "expired", "address", "suppressed", "unreadable", "already_sent", "inactive", "min_gap", "time_of_day"}

// String is the rule's name in counts, outcomes and explain.
func (r Rule) String() string {
	if int(r) < len(ruleNames) {
		return ruleNames[r]
	}
	return fmt.Sprintf("rule(%d)", uint8(r))
}

// Outcome is what a decision comes to.
type Outcome uint8

const (
	Send Outcome = iota
	Skip
	Defer
)

// String is "send", "skip" or "defer".
func (o Outcome) String() string {
	switch o {
	case Send:
		return "send"
	case Skip:
		return "skip"
	case Defer:
		return "defer"
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Decision is the answer of Check. Until is set for Defer alone: the next opening on the recipient's own clock.
type Decision struct {
	Outcome Outcome
	Rule    Rule
	Until   time.Time
}

// Repeat says how often one recipient may get one template.
type Repeat uint8

const (
	UntilFirstOpen Repeat = iota // again only after the recipient has opened any mail
	Never                        // once in a lifetime
	Always                       // no limit
)

var repeatNames = [...]string{"until_first_open", "never", "always"}

// String is the word for it in a template file.
func (r Repeat) String() string {
	if int(r) < len(repeatNames) {
		return repeatNames[r]
	}
	return fmt.Sprintf("repeat(%d)", uint8(r))
}

// ParseRepeat reads the word of a template file. An empty one is the default, UntilFirstOpen.
func ParseRepeat(s string) (Repeat, error) {
	if s == "" {
		return UntilFirstOpen, nil
	}
	for i, name := range repeatNames {
		if s == name {
			return Repeat(i), nil
		}
	}
	return 0, fmt.Errorf("repeat: %.40q is not one of until_first_open, never, always", s)
}

// Recipient holds the facts of one user that rules read. The zero time means "not known / never".
type Recipient struct {
	AddressOK  bool           // there is an address that a mail can be sent to
	Suppressed bool           // unsubscribed, bounced, complained, or suppressed by the team's own fields
	Unreadable bool           // the bitfield or the state is of a kind that can't be read
	HasBit     bool           // the template's bit in tpls_sent_at_least_once
	Zone       *time.Location // the recipient's zone, or the default where it is missing or unknown; nil is UTC

	FirstAt, LastAt         time.Time // first and last mail of any kind
	OpenFirstAt, OpenLastAt time.Time // first and last open of any mail

	// HoldsClaim is set where this run has already claimed the recipient (a 4xx, a mail not begun): his own bit and
	// LastAt are then this very run's doing and do not object.
	HoldsClaim bool
}

// Message holds what a run asks of its recipients.
type Message struct {
	Repeat        Repeat
	InactiveAfter time.Duration // 0: off
	MinGap        time.Duration // 0: off
	Window        Window        // zero: always open
	ExpiresAt     time.Time     // start of the run + expires_after; zero: never
}
