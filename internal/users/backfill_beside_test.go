package users

import (
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"postbit/internal/bitfield"
	"postbit/internal/minimongo"
)

// Histories, claims and claims taken back, one begun between two commands of another: no history's bit is lost, but where a claim of the same bit
// was taken back (docs/backfill.md), nothing is invented, and last_at is the name of the last claim.
func TestHistoriesBesideClaims(t *testing.T) {
	srv, f := openServer(t)
	first := 0 // each round has users of its own
	rapid.Check(t, func(rt *rapid.T) {
		b := &beside{f: f, rt: rt, first: first}
		first += besideUsers
		for i := range besideUsers {
			b.insert(i)
			if rapid.Bool().Draw(rt, "claimed") {
				b.claim(i, rapid.IntRange(0, 4).Draw(rt, "claimed bit"), day(5))
			}
		}
		for range rapid.IntRange(2, 6).Draw(rt, "steps") {
			outer, inner := b.step("outer"), b.step("inner")
			remove := srv.Inject(minimongo.Fault{Nth: rapid.IntRange(1, 3).Draw(rt, "at command"), Reached: inner})
			outer()
			remove()
		}
		b.check(false)
		for _, hs := range slices.Clone(b.merged) {
			b.merge(hs, true)
		}
		b.check(true)
	})
}

const besideUsers = 4

// beside is what the users of one round were told, and what must stand in their documents.
type beside struct {
	f      *fixture
	rt     *rapid.T
	first  int
	mu     sync.Mutex // steps are also done by the server's goroutines; held while one notes what it did
	merged [][]History
	tried  int // claims
	claims []Claim
	users  [besideUsers]besideUser
}

type besideUser struct {
	readable      bool   // the bits
	dates         bool   // the state takes dates
	was, given    []byte // bits at the beginning, and those of histories
	claimed       []byte
	taken         []byte      // of claims that were taken back
	back          []time.Time // by the names of these claims
	firstAt, last time.Time
	claim         Claim // the last one
}

func (b *beside) insert(i int) {
	u := &b.users[i]
	doc := d("_id", b.first+i)
	u.readable, u.dates = true, true
	switch rapid.IntRange(0, 5).Draw(b.rt, "bits") {
	case 0:
		u.was = bitsOf(3)
		doc = append(doc, bson.E{Key: "tpls_sent_at_least_once", Value: blob(0, 3)})
	case 1:
		doc = append(doc, bson.E{Key: "tpls_sent_at_least_once"})
	case 2:
		u.readable = false
		doc = append(doc, bson.E{Key: "tpls_sent_at_least_once", Value: "x"})
	}
	switch rapid.IntRange(0, 6).Draw(b.rt, "state") {
	case 0:
		doc = append(doc, bson.E{Key: "postbit"})
	case 1:
		doc = append(doc, bson.E{Key: "postbit", Value: d("locale", "de")})
	case 2:
		u.last, u.firstAt = day(9), day(9)
		doc = append(doc, bson.E{Key: "postbit", Value: d("last_at", day(9), "first_at", day(9))})
	case 3:
		u.dates = false
		doc = append(doc, bson.E{Key: "postbit", Value: "x"})
	}
	b.f.insert(doc)
}

// step draws what is done, and does it later: to whom is decided before.
func (b *beside) step(label string) func() {
	who := rapid.IntRange(0, besideUsers-1).Draw(b.rt, label+" user")
	switch rapid.IntRange(0, 6).Draw(b.rt, label) {
	case 0, 1, 2:
		guessed := rapid.Bool().Draw(b.rt, label+" guesses")
		var hs []History
		for i := range besideUsers {
			if i != who || rapid.Bool().Draw(b.rt, label+" all") {
				h := History{ID: value(b.f.t, b.first+i), Bits: bitsOf(rapid.IntRange(0, 4).Draw(b.rt, label+" bit"))}
				if n := rapid.IntRange(0, 25).Draw(b.rt, label+" day"); n > 0 {
					h.FirstAt, h.LastAt = day(n), day(n+2)
				}
				hs = append(hs, h)
			}
		}
		return func() { b.merge(hs, guessed) }
	case 3, 4:
		bit := rapid.IntRange(0, 4).Draw(b.rt, label+" bit")
		now := day(rapid.IntRange(1, 28).Draw(b.rt, label+" day"))
		return func() { b.claim(who, bit, now) }
	default:
		nth := rapid.IntRange(0, 3).Draw(b.rt, label+" claim")
		return func() {
			if c, ok := b.takes(nth); ok {
				b.need(b.f.store.TakeBack(b.f.t.Context(), []Claim{c}))
			}
		}
	}
}

// takes notes that a claim is to be taken back.
func (b *beside) takes(nth int) (c Claim, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if nth >= len(b.claims) {
		return c, false
	}
	c = b.claims[nth]
	if u := b.of(c.ID); !c.Before {
		u.taken, u.back = union(u.taken, bitsOf(c.Bit)), append(u.back, c.LastAt)
	}
	return c, true
}

func (b *beside) merge(hs []History, guessed bool) {
	merge := b.f.store.Merge
	if guessed {
		merge = mergeNew(b.f.store)
	}
	out, err := merge(b.f.t.Context(), hs, true)
	b.need(err)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range hs {
		u := b.of(hs[i].ID)
		if u.readable != (out[i].State != MergeUnreadable) {
			b.failf("user %d: outcome %d", hs[i].ID.Int32(), out[i].State)
		}
		if !u.readable {
			continue
		}
		u.given = union(u.given, hs[i].Bits)
		if at := hs[i].FirstAt; u.dates && !at.IsZero() {
			if u.firstAt.IsZero() || at.Before(u.firstAt) {
				u.firstAt = at
			}
			if hs[i].LastAt.After(u.last) {
				u.last = hs[i].LastAt
			}
		}
	}
	b.merged = append(b.merged, hs)
}

func (b *beside) claim(i, bit int, now time.Time) {
	u, err := b.f.store.Get(b.f.t.Context(), value(b.f.t, b.first+i), nil, bit)
	b.need(err)
	if u.Recipient.Unreadable {
		return
	}
	b.mu.Lock()
	b.tried++
	run := RunID{byte(b.tried), 1}
	b.mu.Unlock()
	res, err := b.f.store.Claim(b.f.t.Context(), []User{u}, bit, run, now)
	b.need(err)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch res[0].State {
	case Claimed:
		us := &b.users[i]
		us.claimed = union(us.claimed, bitsOf(bit))
		if c := res[0].Claim; c.LastAt.After(us.claim.LastAt) {
			us.claim = c
		}
		b.claims = append(b.claims, res[0].Claim)
	case Lost:
	default:
		b.failf("user %d: the claim is %s", i, res[0].State)
	}
}

// check compares the documents with what was told. whole: histories were merged again, so a claim that was taken back excuses nothing.
func (b *beside) check(whole bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.users {
		want := &b.users[i]
		u, err := b.f.store.Get(b.f.t.Context(), value(b.f.t, b.first+i), nil, -1)
		b.need(err)
		must := union(want.was, want.given)
		if may := union(must, want.claimed); beyond(may, u.was.blob) != nil {
			b.failf("user %d: bits % x, and nobody has given more than % x", i, u.was.blob, may)
		}
		if !whole {
			must = beyond(want.taken, must)
		}
		if lost := beyond(u.was.blob, must); want.readable && lost != nil {
			b.failf("user %d: bits % x, of which % x is lost", i, u.was.blob, lost)
		}
		if last := &want.claim; !last.LastAt.IsZero() {
			if !u.was.lastTime.Equal(last.LastAt) || u.was.runs[0] != last.Run {
				b.failf("user %d: last_at %s of %s, and the last claim is %s of %s", i, u.was.lastTime, u.was.runs[0], last.LastAt, last.Run)
			}
			if !bitfield.Has(u.was.blob, last.Bit) && !slices.ContainsFunc(want.back, last.LastAt.Equal) {
				b.failf("user %d: the bit of the last claim is lost", i)
			}
		} else if first, _ := dateOf(u.was.firstAt); !u.was.lastTime.Equal(want.last) || !first.Equal(want.firstAt) {
			b.failf("user %d: dates %s to %s, want %s to %s", i, first, u.was.lastTime, want.firstAt, want.last)
		}
	}
}

func (b *beside) of(id bson.RawValue) *besideUser {
	return &b.users[int(id.Int32())-b.first]
}

func (b *beside) need(err error) {
	if err != nil {
		b.failf("%v", err)
	}
}

// failf goes on, since steps are also done by the server's goroutines.
func (b *beside) failf(format string, args ...any) { b.rt.Errorf(format, args...) }
