package main

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/bitfield"
)

// campaigns are the two that run at once. The names are those of their templates, and begin the subjects.
var campaigns = []struct {
	name string
	bit  int
}{{"summer", 3}, {"autumn", 12}}

const templateFile = `---
name: %[1]s
bitIndex: %[2]d
subject: "%[1]s for {{ .User.name }}"
from: "Chaos <news@example.com>"
---
<html><body><h1>Hello {{ .User.name | default "there" }}</h1><p><a href="{{ link "https://example.com/%[1]s" }}">look</a></p>
<p><a href="{{ unsubscribe }}">unsubscribe</a></p></body></html>
`

// The second campaign has a limit that it hardly ever reaches: its room is taken and lost through all faults, too.
const campaignFile = `name: %[1]s
template: %[1]s
audience: { plan: free }
%[2]s
expires_after: 6h
`

// user is the i-th user: who he is follows from his number.
type user int

// Every hundredth user is of one of these kinds; they have odd numbers, for those with even ones have opened a mail before.
const (
	noAddress    = 1
	unsubscribed = 9
	unreadable   = 13 // his bits are a text
	hard         = 17 // his address does not exist
)

func (u user) kind() int    { return int(u) % 100 }
func (u user) opened() bool { return u%2 == 0 }

// id is a number or a text, so that the planner has to walk over both types.
func (u user) id() any {
	if u%5 == 4 {
		return fmt.Sprintf("user-%06d", int(u))
	}
	return int32(u)
}

func (u user) email() string {
	switch u.kind() {
	case noAddress:
		return ""
	case hard:
		return fmt.Sprintf("hard-%d@example.com", int(u))
	}
	return fmt.Sprintf("u%d@d%d.example", int(u), int(u)%7)
}

// had says whether campaign c's bit was set before the run: for every fourth user, all of whom have opened and get the mail again, and for a
// few who never opened and must not.
func (u user) had(c int) bool {
	if u%4 == 0 {
		return true
	}
	switch u.kind() {
	case 23, 43:
		return c == 0
	case 27, 47:
		return c == 1
	}
	return false
}

// wants is the outcome that the rules ask for: sent, or the reason of a skip; "hard" for those whom the server refuses.
func (u user) wants(c int) string {
	switch u.kind() {
	case noAddress:
		return "address"
	case unsubscribed:
		return "suppressed"
	case unreadable:
		return "unreadable"
	case hard:
		return "hard"
	}
	if u.had(c) && !u.opened() {
		return "already_sent"
	}
	return "sent"
}

// mayOpen says whether an open can't change what the other campaign is to do with him.
func (u user) mayOpen() bool { return u.opened() || !u.had(0) && !u.had(1) }

func (u user) doc(now time.Time) bson.D {
	d := bson.D{{Key: "_id", Value: u.id()}, {Key: "n", Value: int32(u)}, {Key: "plan", Value: "free"}, {Key: "name", Value: fmt.Sprintf("Zoë %d", int(u))}}
	if a := u.email(); a != "" {
		d = append(d, bson.E{Key: "email", Value: a})
	}
	var bits []byte
	for c, x := range campaigns {
		if u.had(c) {
			bits = bitfield.With(bits, x.bit)
		}
	}
	switch {
	case u.kind() == unreadable:
		d = append(d, bson.E{Key: "tpls_sent_at_least_once", Value: "no blob"})
	case bits != nil:
		d = append(d, bson.E{Key: "tpls_sent_at_least_once", Value: bson.Binary{Data: bits}})
	}
	var state bson.D
	if u.opened() {
		at := now.AddDate(0, 0, -10)
		state = append(state, bson.E{Key: "first_at", Value: at}, bson.E{Key: "last_at", Value: at}, bson.E{Key: "open_first_at", Value: at}, bson.E{Key: "open_last_at", Value: at})
	}
	if u.kind() == unsubscribed {
		state = append(state, bson.E{Key: "status", Value: "unsubscribed"})
	}
	if state != nil {
		d = append(d, bson.E{Key: "postbit", Value: state})
	}
	return d
}

func seedUsers(ctx context.Context, coll *mongo.Collection, n int) error {
	now := time.Now().UTC().Truncate(time.Millisecond)
	var docs []bson.D
	for i := range n {
		docs = append(docs, user(i).doc(now))
		if len(docs) == 1000 || i == n-1 {
			if _, err := coll.InsertMany(ctx, docs); err != nil {
				return fmt.Errorf("seed users: %w", err)
			}
			docs = docs[:0]
		}
	}
	return nil
}

// mails is about how many mails both campaigns send to n users.
func mails(n int) int {
	sum := 0
	for i := range min(n, 100) {
		for c := range campaigns {
			if user(i).wants(c) == "sent" {
				sum++
			}
		}
	}
	return sum * n / min(n, 100)
}
