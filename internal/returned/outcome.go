package returned

import (
	"postbit/internal/mail"
	"postbit/internal/users"
)

// Outcome is what came of one mail.
type Outcome string

const (
	Bounced      Outcome = "bounced"       // the address does not exist: the user is suppressed
	Complained   Outcome = "complained"    // he called the mail spam: suppressed
	Unsubscribed Outcome = "unsubscribed"  // he opted out at his provider: suppressed
	Soft         Outcome = "soft"          // not delivered for a reason that says nothing about the next mail
	Policy       Outcome = "policy"        // not delivered because of a rule of the recipient's side
	Unverified   Outcome = "unverified"    // would suppress, but holds no token of ours that is valid
	OtherAddress Outcome = "other_address" // would suppress, but what bounced is not the address that the user has now
	Gone         Outcome = "gone"          // would suppress, but there is no such user (any more)
	Refused      Outcome = "refused"       // would suppress, but there is no room for the mark in the user's document
	Reported     Outcome = "feedback"      // feedback of a type that is no complaint
	Noticed      Outcome = "notice"        // a delivery that is delayed, done or passed on
	AutoReplied  Outcome = "auto_reply"    // out of office and the like
	Ignored      Outcome = "other"         // none of these
)

// Outcomes are all of them, in the order in which they are shown.
var Outcomes = []Outcome{Bounced, Complained, Unsubscribed, Soft, Policy, Unverified, OtherAddress, Gone, Refused, Reported, Noticed, AutoReplied, Ignored}

// Silent outcomes are of mails that say nothing about an address; they are counted and not listed.
func (o Outcome) Silent() bool { return o == Noticed || o == AutoReplied || o == Ignored }

// Unbelieved outcomes are of mails that would have suppressed somebody, and did not.
func (o Outcome) Unbelieved() bool {
	return o == Unverified || o == OtherAddress || o == Gone || o == Refused
}

var ofStatus = map[string]Outcome{users.Bounced: Bounced, users.Complained: Complained, users.Unsubscribed: Unsubscribed}

func ofClass(c mail.Class) Outcome {
	switch c {
	case mail.Bounced:
		return Bounced
	case mail.Policy:
		return Policy
	}
	return Soft
}

// gravest is the recipient with the worst news.
func gravest(list []Recipient) Recipient {
	var worst Recipient
	for i := range list {
		if list[i].Failed && (!worst.Failed || weight(&list[i]) > weight(&worst)) {
			worst = list[i]
		}
	}
	return worst
}

// mildest is, of the groups about one address, that with the best news: an alias may stand for several mailboxes, and only where all of
// them failed has the address.
func mildest(list []Recipient, address string) *Recipient {
	var best *Recipient
	for i := range list {
		for _, a := range list[i].Addresses {
			if address != "" && sameAddress(a, address) && (best == nil || weight(&list[i]) < weight(best)) {
				best = &list[i]
			}
		}
	}
	return best
}

func weight(r *Recipient) int {
	switch {
	case !r.Failed:
		return 0
	case r.Reply.Class == mail.Bounced:
		return 2
	}
	return 1
}
