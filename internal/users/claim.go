package users

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
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

// ClaimResult is the outcome for one user.
type ClaimResult struct {
	Claim Claim
	State ClaimState
	Fresh User // for Lost: the user as he is now
}

// ErrClaimRefused says that the server refused a claim as a whole, for a reason that trying again can't change. Nobody is
// claimed.
var ErrClaimRefused = errors.New("the server refuses claims")

// Claim is written in claim protocol; see docs.
func (s *Store) Claim(ctx context.Context, us []User, bit int, run RunID, now time.Time) ([]ClaimResult, error) {
	panic("being written")
}

// TakeBack undoes claims.
func (s *Store) TakeBack(ctx context.Context, cs []Claim) error { panic("being written") }
