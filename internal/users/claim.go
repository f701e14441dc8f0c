package users

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/bitfield"
)

// Claim is the right of one run to mail one user. Its name is LastAt with Run: last_at grows with every claim of any run
// and never goes back, so a name never comes again.
type Claim struct {
	ID     bson.RawValue
	LastAt time.Time // whole milliseconds
	Run    RunID
	Bit    int
	Before bool // the bit was set before the claim
}

// ClaimState is what became of an attempt to claim.
type ClaimState uint8

const (
	Unconfirmed ClaimState = iota // it can't be known whether the user is claimed; he must not be sent to
	Claimed                       // the user is this run's to mail
	Lost                          // the user changed since he was read; ClaimResult.Fresh is to be evaluated again
	Gone                          // the user was deleted since he was read
)

var stateNames = [...]string{"unconfirmed", "claimed", "lost", "gone"}

func (c ClaimState) String() string {
	if int(c) < len(stateNames) {
		return stateNames[c]
	}
	return fmt.Sprintf("ClaimState(%d)", uint8(c))
}

// ClaimResult is the outcome for one user, in the place in which he was given.
type ClaimResult struct {
	Claim Claim // its name also where it was lost
	State ClaimState
	Fresh User // for Lost (of use for no other): the user as he is now, loaded as he was before
}

// ErrRefused says that the server refused a write as a whole, and that trying again would not help.
var ErrRefused = errors.New("the server refuses the write")

// Claim tries to get all users for the run: one unordered bulk of compare-and-sets on what Parse read (the blob, last_at,
// status), each of which sets the bit and the claim's name. A bulk without a reply is issued again, unchanged, until there
// is one: the first may still be running on the server, and only a later one that was answered says that it can do nothing
// more. Then, if anything is unclear, the users are read and compared.
//
// When ctx ends before there is an answer, everybody is Unconfirmed. An error means that nobody is claimed: ctx had ended
// before, a user is unreadable, or the server refused (ErrRefused).
func (s *Store) Claim(ctx context.Context, us []User, bit int, run RunID, now time.Time) ([]ClaimResult, error) {
	if len(us) == 0 {
		return nil, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("users: claim: %w", err)
	}
	if run == (RunID{}) {
		return nil, errors.New("users: claim: the run has no short id")
	}
	out := make([]ClaimResult, len(us))
	models := make([]mongo.WriteModel, len(us))
	for i := range us {
		u := &us[i]
		if u.Recipient.Unreadable || u.ID.Type == 0 {
			return nil, fmt.Errorf("users: claim %s: the document is unreadable", FormatID(u.ID))
		}
		out[i].Claim = u.claim(bit, run, now)
		models[i] = s.claimModel(u, &out[i].Claim)
	}
	matched, answered, err := s.issueClaims(ctx, models)
	switch {
	case err != nil:
		return nil, fmt.Errorf("users: claim %d users: %w", len(us), err)
	case !answered:
		return out, nil
	case matched == len(models): // a compare-and-set matches once at most, so the bulk that was answered was the one that did it
		for i := range out {
			out[i].State = Claimed
		}
		return out, nil
	}
	if s.compareClaims(ctx, us, out) && matched >= 0 {
		settleBySum(out, matched)
	}
	return out, nil
}

// claim names the claim that the user would get.
func (u *User) claim(bit int, run RunID, now time.Time) Claim {
	at := now.UTC().Truncate(time.Millisecond)
	if next := u.was.lastTime.Add(time.Millisecond); !u.was.lastTime.IsZero() && at.Before(next) {
		at = next
	}
	return Claim{ID: u.ID, LastAt: at, Run: run, Bit: bit, Before: u.Recipient.HasBit}
}

// issueClaims issues the bulk until it is answered, and returns how many of its compare-and-sets matched: -1 where that is not
// known, since only an answer after a lost one says less than all. Not answered means that ctx ended, or that the server
// refuses now what it may have carried out before.
func (s *Store) issueClaims(ctx context.Context, models []mongo.WriteModel) (matched int, answered bool, err error) {
	var wait backoff
	for lost := false; ; lost = true {
		matched, _, err := s.issue(ctx, models)
		if err == nil {
			if lost && matched < len(models) {
				matched = -1
			}
			return matched, true, nil
		}
		if !worthAgain(err) {
			if lost {
				return -1, false, nil
			}
			return -1, false, fmt.Errorf("%w: %w", ErrRefused, err)
		}
		if !wait.sleep(ctx) {
			return -1, false, nil
		}
	}
}

// settleBySum decides for those of whom the documents don't tell, since several other runs have claimed them meanwhile: the server
// has said how many claims succeeded, and where that is as many as are known, or as many as can be, nothing is open.
func settleBySum(out []ClaimResult, matched int) {
	open := 0
	for i := range out {
		switch out[i].State {
		case Claimed:
			matched--
		case Unconfirmed, Gone:
			open++
		}
	}
	state := Lost
	if matched == open {
		state = Claimed
	} else if matched != 0 {
		return
	}
	for i := range out {
		if out[i].State == Unconfirmed {
			out[i].State = state
		}
	}
}

// issue carries out the bulk once. An error of a single document (rejected is the first of them) is an answer: that
// document has not matched.
func (s *Store) issue(ctx context.Context, models []mongo.WriteModel) (matched int, rejected, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.attempt)
	defer cancel()
	res, err := s.coll.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	var be mongo.BulkWriteException
	if errors.As(err, &be) && be.WriteConcernError == nil && len(be.WriteErrors) > 0 && !anyTransient(be.WriteErrors) {
		err, rejected = nil, be.WriteErrors[0]
	}
	if err != nil {
		return 0, nil, err
	}
	return int(res.MatchedCount), rejected, nil
}

// compareClaims reads the users again, until they can be read or ctx ends (false), and says what became of each claim, as far as the
// documents tell.
func (s *Store) compareClaims(ctx context.Context, us []User, out []ClaimResult) bool {
	load := us[0].load
	if load == nil {
		load = &projectionOf{fields: s.Fields(nil)}
	}
	load = &projectionOf{fields: load.fields, bit: out[0].Claim.Bit}
	var wait backoff
	for {
		fresh, err := s.readAgain(ctx, us, load)
		if err == nil {
			for i := range us {
				now, ok := fresh[idKey(us[i].ID)]
				if !ok {
					out[i].State = Gone
					continue
				}
				out[i].State, out[i].Fresh = compareClaim(&us[i].was, &now.was, &out[i].Claim), now
			}
			return true
		}
		if !worthAgain(err) || !wait.sleep(ctx) {
			return false
		}
	}
}

func (s *Store) readAgain(ctx context.Context, us []User, load *projectionOf) (map[string]User, error) {
	ctx, cancel := context.WithTimeout(ctx, s.attempt)
	defer cancel()
	ids := make(bson.A, len(us))
	for i := range us {
		ids[i] = us[i].ID
	}
	cur, err := s.coll.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, options.Find().SetProjection(load.fields))
	if err != nil {
		return nil, err
	}
	defer cur.Close(context.WithoutCancel(ctx))
	out := make(map[string]User, len(us))
	var docs arena
	for cur.Next(ctx) {
		u := s.Parse(docs.copy(cur.Current), load.bit)
		u.load = load
		out[idKey(u.ID)] = u
	}
	return out, cur.Err()
}

// compareClaim says what became of a claim by the document as it was read before the claim and as it is after it. The
// document names the last two claims; `runs` is rewritten with every claim. Further back the bit tells: a claim sets it, and nobody but
// the run that has the claim clears it again.
func compareClaim(was, now *snapshot, c *Claim) ClaimState {
	if !now.readable {
		return Unconfirmed
	}
	first, second := now.runs[0], now.runs[1]
	switch {
	case first == c.Run && now.lastTime.Equal(c.LastAt):
		return Claimed
	case first == was.runs[0] && second == was.runs[1] && now.lastTime.Equal(was.lastTime):
		return Lost // no claim since; the blob, the status or the shape has changed
	case first == c.Run || was.runs[0] == c.Run:
		return Unconfirmed // a claim of this run that is not this one: its name alone can't tell them apart further down
	case second == c.Run:
		return Claimed // and another run has claimed him since
	case second == was.runs[0]:
		return Lost // to exactly one other claim
	case !c.Before && now.bitsErr == nil && !bitfield.Has(now.blob, c.Bit):
		return Lost // to two claims or more, of other templates
	}
	return Unconfirmed // two claims or more since, and ours may have been the first of them
}
