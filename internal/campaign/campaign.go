// Package campaign holds campaigns, their runs and the batches of a run: the types, the reader of campaign files, and the
// stores in MongoDB.
package campaign

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/rules"
)

// Spec is a campaign file, parsed and checked.
type Spec struct {
	Name         string        `bson:"name"`
	Template     string        `bson:"template"`
	Audience     string        `bson:"audience"` // relaxed Extended JSON of a MongoDB query, $ago unresolved; stored as text since field names hold $ and dots
	Schedule     Schedule      `bson:"schedule"`
	Rules        RuleSet       `bson:"rules"`
	Limits       Limits        `bson:"limits"`
	ExpiresAfter time.Duration `bson:"expires_after"`
	MisfireGrace time.Duration `bson:"misfire_grace"`
}

// Schedule is when a campaign fires: by cron in a zone, once at a time, or (neither set) by hand only.
type Schedule struct {
	Cron     string    `bson:"cron,omitempty"`
	Timezone string    `bson:"timezone,omitempty"` // IANA; empty: UTC
	At       time.Time `bson:"at,omitempty"`
}

// RuleSet is the part of the rules that a campaign sets; the template sets repeat.
type RuleSet struct {
	Window        rules.Window  `bson:"window"`
	InactiveAfter time.Duration `bson:"inactive_after"`
	MinGap        time.Duration `bson:"min_gap"`
}

// Rate is at most N mails in any window of Per.
type Rate struct {
	N   int64         `bson:"n"`
	Per time.Duration `bson:"per"`
}

// Limits hold for all workers together, counted at the SMTP server.
type Limits struct {
	Rate      []Rate         `bson:"rate,omitempty"`
	PerDomain []DomainLimits `bson:"per_domain,omitempty"`
}

// DomainLimits are the limits of one recipient domain (lower case, IDNA A-labels).
type DomainLimits struct {
	Domain string `bson:"domain"`
	Rate   []Rate `bson:"rate"`
}

// Campaign is a spec that has been applied, and the state of its schedule.
type Campaign struct {
	Name   string    `bson:"_id" json:"name"`
	Spec   Spec      `bson:"spec" json:"spec"`
	State  string    `bson:"state" json:"state"`                        // StateActive or StatePaused: the schedule, not a run
	NextAt time.Time `bson:"next_at,omitempty" json:"next_at,omitzero"` // zero: nothing to come, or paused
	LastAt time.Time `bson:"last_at,omitempty" json:"last_at,omitzero"` // the last slot that was fired or skipped on purpose
}

// States of a campaign's schedule.
const (
	StateActive = "active"
	StatePaused = "paused"
)

// RunState is where a run stands. Beside it a run may be paused, whatever its state.
type RunState string

const (
	RunPlanning    RunState = "planning"
	RunSending     RunState = "sending"
	RunCancelling  RunState = "cancelling"
	RunSuperseding RunState = "superseding"
	RunDone        RunState = "done"
	RunCancelled   RunState = "cancelled"
	RunSuperseded  RunState = "superseded"
	RunFailed      RunState = "failed"
)

// Finished reports whether nothing will happen to the run any more.
func (s RunState) Finished() bool {
	switch s {
	case RunDone, RunCancelled, RunSuperseded, RunFailed:
		return true
	}
	return false
}

// Run is one firing of a campaign, with the campaign and the template as they were at its start.
type Run struct {
	ID        string    `bson:"_id" json:"id"`      // "campaign@2026-12-01T09:00:00Z", "campaign@TIME+manual-XXXX", "send/KEY"
	Short     ShortID   `bson:"short" json:"short"` // names the run in tokens and claims
	Campaign  string    `bson:"campaign" json:"campaign"`
	Slot      time.Time `bson:"slot" json:"slot"` // the time it was due; by hand: when it was asked for
	StartedAt time.Time `bson:"started_at" json:"started_at"`
	EndedAt   time.Time `bson:"ended_at,omitempty" json:"ended_at,omitzero"`
	State     RunState  `bson:"state" json:"state"`
	Reason    string    `bson:"reason,omitempty" json:"reason,omitempty"` // why it failed, or by whom it was cancelled or superseded
	Paused    string    `bson:"paused,omitempty" json:"paused,omitempty"` // the reason; empty: not paused
	PausedBy  string    `bson:"paused_by,omitempty" json:"paused_by,omitempty"`
	Key       string    `bson:"key,omitempty" json:"key,omitempty"`             // "campaign/KEY" of a run by hand that was asked for with a key
	Elsewhere bool      `bson:"elsewhere,omitempty" json:"elsewhere,omitempty"` // it stands for mails that others send: see ElsewhereRun
	Spec      Spec      `bson:"spec" json:"spec"`
	Template  bson.Raw  `bson:"template" json:"-"`      // snapshot of the templates document, see templates.FromSnapshot
	Planned   int       `bson:"planned" json:"planned"` // batches, final once PlanDone
	PlanDone  bool      `bson:"plan_done" json:"plan_done"`
	Counts    Counts    `bson:"counts" json:"counts"` // as of the reconciler's last look
}

// Single reports whether the run is one mail to one user (`postbit send`). Such runs stand outside of any schedule: they
// supersede nothing and nothing supersedes them.
func (r *Run) Single() bool { return strings.HasPrefix(r.ID, SinglePrefix) }

// SinglePrefix begins the id of every run that is a single mail.
const SinglePrefix = "send/"

// RunID is the id of the run that a slot of a schedule makes; that it is the same for everybody is what makes one run of it.
func RunID(campaign string, slot time.Time) string {
	return campaign + "@" + slot.UTC().Format("2006-01-02T15:04:05Z")
}

// ShortID is a run's random 8 bytes.
type ShortID [8]byte

// String is the id in 16 hex digits.
func (id ShortID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText gives the 16 hex digits of String.
func (id ShortID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *ShortID) UnmarshalText(text []byte) error {
	var read ShortID
	if len(text) != 2*len(id) {
		return fmt.Errorf("%q is no run id of 16 hex digits", clip(string(text)))
	}
	if _, err := hex.Decode(read[:], text); err != nil {
		return fmt.Errorf("%q is no run id of 16 hex digits", clip(string(text)))
	}
	*id = read
	return nil
}

// MarshalBSONValue stores the id as 8 bytes.
func (id ShortID) MarshalBSONValue() (byte, []byte, error) {
	t, data, err := bson.MarshalValue(bson.Binary{Data: id[:]})
	return byte(t), data, err
}

// UnmarshalBSONValue reads what MarshalBSONValue wrote.
func (id *ShortID) UnmarshalBSONValue(t byte, data []byte) error {
	_, b, ok := bson.RawValue{Type: bson.Type(t), Value: data}.BinaryOK()
	if !ok || len(b) != len(id) {
		return fmt.Errorf("a run's short id must be %d bytes of binary data", len(id))
	}
	copy(id[:], b)
	return nil
}

// ExpiresAt is the time from which the run sends nothing more. A pause does not stop this clock.
func (r *Run) ExpiresAt() time.Time { return r.StartedAt.Add(r.Spec.ExpiresAfter) }

// Counts are users, each counted once however often it was evaluated. When a run is done,
// Audience = Checked = Sent + Failed + Unconfirmed + the sum of Skipped.
type Counts struct {
	Audience    int64            `bson:"audience" json:"audience"`
	Checked     int64            `bson:"checked" json:"checked"`
	Sent        int64            `bson:"sent" json:"sent"`
	Failed      int64            `bson:"failed" json:"failed"`
	Unconfirmed int64            `bson:"unconfirmed" json:"unconfirmed"`
	Deferred    int64            `bson:"deferred" json:"deferred"` // still waiting
	Skipped     map[string]int64 `bson:"skipped" json:"skipped"`   // by rule; see SkipReasons
	UnknownZone int64            `bson:"unknown_zone" json:"unknown_zone"`
}

// SkipReasons are the keys of Counts.Skipped: the rules that skip, then what else takes a user out of a run.
var SkipReasons = []string{"expired", "address", "suppressed", "unreadable", "already_sent", "inactive", "min_gap", "left", "superseded", "cancelled"}
