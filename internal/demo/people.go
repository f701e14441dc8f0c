// Package demo makes up what `postbit demo` runs on: users in every state that a rule knows, and a mail server at which some
// of them exist and some read their mail.
package demo

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/bitfield"
)

// World is what the users are made for.
type World struct {
	Now time.Time
	Bit int   // of the template that the campaign sends
	Old []int // of templates that some users were sent before
}

// state is one of the histories that a user may have.
type state int

const (
	fresh       state = iota // never mailed
	active                   // opens mails
	sentBefore               // has this template, and never opened any mail
	lapsed                   // opened long ago
	silent                   // mailed long ago, never opened
	justMailed               // the last mail is hours old
	unsubscribe              // and so on: what suppresses
	bounced
	complained
	banned     // the team's own field says so
	badAddress // missing, malformed, hostile
	unreadable // a field of the wrong kind
	lostZone   // no zone, or one that does not exist
	unlucky    // the mail server refuses some, at least at first
	states
)

// deck is how many of 100 users are in each state. The users are dealt out of shuffled decks, so a demo of a few hundred users
// has all of them, too.
var deck = [states]int{fresh: 22, active: 26, sentBefore: 9, lapsed: 8, silent: 5, justMailed: 8, unsubscribe: 4, bounced: 2,
	complained: 1, banned: 2, badAddress: 4, unreadable: 2, lostZone: 4, unlucky: 3}

// People yields n user documents, the same ones each time but for the dates, which are counted from w.Now.
func People(n int, w World) iter.Seq[bson.D] {
	return func(yield func(bson.D) bool) {
		rnd := rand.New(rand.NewPCG(2011, 148))
		var cards []state
		for i := range n {
			if len(cards) == 0 {
				for s, k := range deck {
					for range k {
						cards = append(cards, state(s))
					}
				}
				rnd.Shuffle(len(cards), func(a, b int) { cards[a], cards[b] = cards[b], cards[a] })
			}
			p := person{World: w, rnd: rnd, i: i, state: cards[0]}
			cards = cards[1:]
			if !yield(p.document()) {
				return
			}
		}
	}
}

type person struct {
	World
	rnd   *rand.Rand
	i     int
	state state
}

func (p *person) document() bson.D {
	home := homes[p.rnd.IntN(len(homes))]
	given, family := pick(p.rnd, home.given), pick(p.rnd, home.family)
	doc := bson.D{
		{Key: "_id", Value: p.id()},
		{Key: "name", Value: given},
		{Key: "full_name", Value: given + " " + family},
		{Key: "email", Value: p.address(home, given, family)},
		{Key: "plan", Value: pick(p.rnd, []string{"free", "free", "free", "team"})},
		{Key: "city", Value: home.city},
		{Key: "locale", Value: home.locale},
		{Key: "created_at", Value: p.ago(days(60), days(900))},
	}
	switch {
	case p.state != lostZone:
		doc = append(doc, bson.E{Key: "timezone", Value: home.zone})
	case p.rnd.IntN(2) == 0:
		doc = append(doc, bson.E{Key: "timezone", Value: "Mars/Base"})
	}
	if p.state == banned {
		doc = append(doc, bson.E{Key: "state", Value: pick(p.rnd, []string{"banned", "deleted"})})
	}
	if bits := p.bits(); bits != nil {
		doc = append(doc, bson.E{Key: "tpls_sent_at_least_once", Value: bits})
	}
	if history := p.history(); history != nil {
		doc = append(doc, bson.E{Key: "postbit", Value: history})
	}
	return doc
}

// id is of one of the types that teams use: mostly ObjectIDs, some numbers, some texts.
func (p *person) id() any {
	switch p.i % 10 {
	case 8:
		return int64(1_000_000 + p.i)
	case 9:
		return fmt.Sprintf("user-%06d", p.i)
	}
	id := bson.NewObjectIDFromTimestamp(time.Date(2024, 1, 1, 0, 0, p.i, 0, time.UTC))
	for i := 4; i < 12; i++ {
		id[i] = byte(p.i >> (8 * (11 - i)))
	}
	return id
}

// address names in its local part what the mail server is to do with it, and by its domain how its owner reads mail.
func (p *person) address(h home, given, family string) any {
	if p.state == badAddress {
		return pick(p.rnd, []any{"", nil, 42, "nobody", "two@@at.example", "x@x.example\r\nBcc: everybody@x.example", "@nothing.example"})
	}
	local := fmt.Sprintf("%s.%d", h.latin, p.i)
	if p.i%17 == 0 { // an address in the script of its owner, for which the server must offer SMTPUTF8
		local = fmt.Sprintf("%s.%d", strings.ReplaceAll(given, " ", "."), p.i)
	}
	if p.state == unlucky {
		local += pick(p.rnd, []string{tagGone, tagFull, tagPolicy, tagLater, tagLater})
	}
	return local + "@" + pick(p.rnd, append([]string{h.domain}, domains...))
}

// bits are the templates that the user was sent, in one of the forms in which services have written them.
func (p *person) bits() any {
	if p.state == unreadable && p.rnd.IntN(2) == 0 {
		return pick(p.rnd, []any{"welcome,digest", bson.A{"welcome"}, int32(7)})
	}
	var blob []byte
	switch p.state {
	case fresh, unlucky, badAddress:
	default:
		for _, i := range p.Old {
			if p.rnd.IntN(2) == 0 {
				blob = bitfield.With(blob, i)
			}
		}
		if p.state == sentBefore || p.state == active && p.rnd.IntN(3) == 0 {
			blob = bitfield.With(blob, p.Bit)
		}
	}
	if blob == nil {
		return nil
	}
	if p.i%25 == 0 { // as old drivers wrote a Uint8Array
		form := bson.D{}
		for i, b := range blob {
			form = append(form, bson.E{Key: fmt.Sprint(i), Value: int32(b)})
		}
		return form
	}
	return bson.Binary{Data: blob}
}

// history is the sub-document of postbit.
func (p *person) history() any {
	var d bson.D
	mailed := func(first, last time.Time) {
		d = append(d, bson.E{Key: "first_at", Value: first}, bson.E{Key: "last_at", Value: last})
	}
	opened := func(first, last time.Time) {
		d = append(d, bson.E{Key: "open_first_at", Value: first}, bson.E{Key: "open_last_at", Value: last})
	}
	switch p.state {
	case fresh, badAddress, unlucky:
		return nil
	case unreadable:
		return "see the other database"
	case active, lostZone, banned:
		mailed(p.ago(days(100), days(400)), p.ago(days(3), days(40)))
		opened(p.ago(days(90), days(100)), p.ago(days(3), days(60)))
	case sentBefore:
		mailed(p.ago(days(50), days(80)), p.ago(days(5), days(40)))
	case lapsed:
		mailed(p.ago(days(500), days(800)), p.ago(days(5), days(100)))
		opened(p.ago(days(400), days(500)), p.ago(days(120), days(400)))
	case silent:
		mailed(p.ago(days(120), days(400)), p.ago(days(5), days(100)))
	case justMailed:
		mailed(p.ago(days(100), days(400)), p.ago(2*time.Hour, 9*time.Hour))
		opened(p.ago(days(90), days(100)), p.ago(days(1), days(60)))
	case unsubscribe, bounced, complained:
		status := map[state]string{unsubscribe: "unsubscribed", bounced: "bounced", complained: "complained"}[p.state]
		mailed(p.ago(days(100), days(400)), p.ago(days(30), days(90)))
		d = append(d, bson.E{Key: "status", Value: status}, bson.E{Key: "status_at", Value: p.ago(days(1), days(30))})
	}
	return d
}

func (p *person) ago(least, most time.Duration) time.Time {
	return p.Now.Add(-least - time.Duration(p.rnd.Int64N(int64(most-least)))).Truncate(time.Millisecond)
}

func days(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }

func pick[T any](rnd *rand.Rand, of []T) T { return of[rnd.IntN(len(of))] }
