package campaign

import (
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Limits of one batch document, so that it stays under 200 KB whatever happens to it (see batch_test.go for the worst case).
const (
	MaxBatchUsers   = 500
	MaxBatchIDBytes = 64 << 10 // of BSON ids, type bytes included; see IDBytes
	MaxReplyBytes   = 200
	MaxWaveUsers    = 32
)

// Errors of the batch store.
var (
	ErrBatchExists   = errors.New("campaign: the batch exists already")
	ErrBatchTooLarge = errors.New("campaign: too many users or bytes of ids for one batch")
	ErrNoBatch       = errors.New("campaign: no such batch")
	ErrBatchOwned    = errors.New("campaign: the batch belongs to another worker")
	ErrBatchDone     = errors.New("campaign: nothing is left to do in the batch")
	ErrStalePass     = errors.New("campaign: this pass of the batch is over")
	ErrLostOwnership = errors.New("campaign: the batch has been taken over by another worker")
)

// States of a batch document.
const (
	batchNew  = "new"  // planned; no pass is over
	batchOpen = "open" // a pass is over; somebody is left to look at
	batchDone = "done" // everybody has an outcome
	batchEnd  = "end"  // no batch, but the marker behind the last one
)

// IDBytes is what an id counts towards MaxBatchIDBytes.
func IDBytes(id bson.RawValue) int { return 1 + len(id.Value) }

// BatchID is the `_id` of batch n of a run.
func BatchID(run string, n int) string { return run + "/" + strconv.Itoa(n) }

// Batch is the log of what was sent to the users of one batch, as it was when it was read. The names in brackets are those
// of the model (model/dispatch.pml).
type Batch struct {
	Run   string
	N     int
	Users []bson.RawValue
	Pass  int   // passes that are over
	Epoch int64 // [epoch] how often the batch was taken
	Rev   int64 // writes of its owners; every one of them names it in its filter, so that none is applied twice or late
	Waves int   // [waves] pushed so far
	// Open are the users of the wave that was pushed and not ended [wave[u] == waves && !wdone[waves]]. There is one at the
	// most: a worker ends a wave before it pushes the next, and ends those it finds. That is why done waves need no lists:
	// the model asks of a done wave nothing but that it is done, and who left one has no wave.
	Open       []int
	NotBefore  time.Time
	OwnedUntil time.Time
	Counts     Counts // all stored passes together; Audience is the length of the list once a pass is over

	state   string
	log     []entry
	claims  map[int]HeldClaim
	replies map[int]string
	delta   *Delta
}

// entry is what is known about one user. In the document an entry is entryBytes of a Binary: everybody's state is 4.5 KB.
type entry struct {
	outcome Outcome // [res]
	flags   byte
	tries   byte   // 4xx replies so far, at most 255
	wave    uint16 // the last wave he was in, for whoever reads the log; it wraps
	at      uint32 // Unix seconds: the final outcome, the last 4xx, or (flagDeferred) when he is to be looked at again
}

const entryBytes = 9

func (e *entry) setZone(unknown bool) {
	e.flags &^= flagUnknownZone
	if unknown {
		e.flags |= flagUnknownZone
	}
}

const (
	flagCounted     = 1 << iota // in a stored delta
	flagUnknownZone             // his time zone was missing or unknown when last looked at
	flagDeferred                // a rule lets him wait
)

// HeldClaim is a claim on a user document that the batch remembers: its name (with the run's short id) and what it changed.
type HeldClaim struct {
	LastAt time.Time // [cname]
	Before bool      // [cbefore] the template's bit was set before
	Back   bool      // [back] to be taken back; otherwise held [held] for the next look
}

const claimBytes = 11

// UserOutcome is one user's line in the log of a run.
type UserOutcome struct {
	Batch   int
	Index   int
	User    bson.RawValue
	Outcome Outcome
	Reply   string    // of the SMTP server, or why the mail could not be made; at most MaxReplyBytes
	At      time.Time // of the outcome or the last 4xx, to the second; zero where there was none
	Until   time.Time // until when a rule lets him wait; zero: none does
	Tries   int       // 4xx replies
	Wave    int       // modulo 65536
	Holds   bool      // a claim is kept for him

	UnknownZone bool // his time zone was missing or unknown when he was last looked at
}

// User returns the line of the i-th user.
func (b *Batch) User(i int) UserOutcome {
	e := b.entry(i)
	u := UserOutcome{Batch: b.N, Index: i, User: b.Users[i], Outcome: e.outcome, Reply: b.replies[i], Tries: int(e.tries), Wave: int(e.wave),
		UnknownZone: e.flags&flagUnknownZone != 0}
	switch at := time.Unix(int64(e.at), 0).UTC(); {
	case e.at == 0:
	case e.flags&flagDeferred != 0:
		u.Until = at
	default:
		u.At = at
	}
	c, ok := b.claims[i]
	u.Holds = ok && !c.Back
	return u
}

// Held returns the claim that is kept for user i.
func (b *Batch) Held(i int) (HeldClaim, bool) {
	c, ok := b.claims[i]
	return c, ok && !c.Back
}

// Waiting returns the indexes of the users without an outcome who are in no open wave, in order.
func (b *Batch) Waiting() []int {
	open := make(map[int]bool, len(b.Open))
	for _, i := range b.Open {
		open[i] = true
	}
	var is []int
	for i := range b.Users {
		if b.entry(i).outcome == Waiting && !open[i] {
			is = append(is, i)
		}
	}
	return is
}

// Unsettled returns the stored delta that is not marked as applied, or nil.
func (b *Batch) Unsettled() *Delta { return b.delta }

func (b *Batch) entry(i int) entry {
	if i < len(b.log) {
		return b.log[i]
	}
	return entry{}
}

func encodeLog(log []entry) []byte {
	out := make([]byte, 0, len(log)*entryBytes)
	for _, e := range log {
		out = append(out, byte(e.outcome), e.flags, e.tries, byte(e.wave), byte(e.wave>>8), byte(e.at), byte(e.at>>8), byte(e.at>>16), byte(e.at>>24))
	}
	return out
}

func decodeLog(p []byte, n int) ([]entry, error) {
	if len(p) != 0 && len(p) != n*entryBytes {
		return nil, fmt.Errorf("log has %d bytes for %d users, want %d", len(p), n, n*entryBytes)
	}
	log := make([]entry, n)
	for i := range log {
		if len(p) == 0 {
			break
		}
		e := p[i*entryBytes:]
		log[i] = entry{outcome: Outcome(e[0]), flags: e[1], tries: e[2], wave: uint16(e[3]) | uint16(e[4])<<8,
			at: uint32(e[5]) | uint32(e[6])<<8 | uint32(e[7])<<16 | uint32(e[8])<<24}
	}
	return log, nil
}

func encodeIndexes(is []int) []byte {
	out := make([]byte, 0, 2*len(is))
	for _, i := range is {
		out = append(out, byte(i), byte(i>>8))
	}
	return out
}

func decodeIndexes(p []byte, n int) ([]int, error) {
	var is []int
	for ; len(p) >= 2; p = p[2:] {
		i := int(p[0]) | int(p[1])<<8
		if i >= n {
			return nil, fmt.Errorf("index %d of %d users", i, n)
		}
		is = append(is, i)
	}
	return is, nil
}

func encodeClaims(cs map[int]HeldClaim, n int) []byte {
	out := make([]byte, 0, claimBytes*len(cs))
	for i := range n {
		c, ok := cs[i]
		if !ok {
			continue
		}
		var f byte
		if c.Before {
			f |= 1
		}
		if c.Back {
			f |= 2
		}
		out = append(out, byte(i), byte(i>>8), f)
		ms := uint64(c.LastAt.UnixMilli())
		for s := 0; s < 64; s += 8 {
			out = append(out, byte(ms>>s))
		}
	}
	return out
}

func decodeClaims(p []byte, n int) (map[int]HeldClaim, error) {
	if len(p)%claimBytes != 0 {
		return nil, fmt.Errorf("claims have %d bytes", len(p))
	}
	cs := make(map[int]HeldClaim, len(p)/claimBytes)
	for ; len(p) > 0; p = p[claimBytes:] {
		i := int(p[0]) | int(p[1])<<8
		if i >= n {
			return nil, fmt.Errorf("claim of user %d of %d", i, n)
		}
		var ms uint64
		for s := range 8 {
			ms |= uint64(p[3+s]) << (8 * s)
		}
		cs[i] = HeldClaim{LastAt: time.UnixMilli(int64(ms)).UTC(), Before: p[2]&1 != 0, Back: p[2]&2 != 0}
	}
	return cs, nil
}

// cutReply makes a reply fit: valid UTF-8, no more than MaxReplyBytes, cut at a rune.
func cutReply(s string) string {
	out := make([]byte, 0, min(len(s), MaxReplyBytes))
	for _, r := range s {
		if r == 0 || len(out)+utf8.RuneLen(r) > MaxReplyBytes {
			break
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out)
}

// parseBatch reads a batch document; the batch keeps references into it.
func parseBatch(doc bson.Raw) (*Batch, error) {
	id, _ := doc.Lookup("_id").StringValueOK()
	fail := func(what string, err error) error { return fmt.Errorf("campaign: batch %q: %s: %w", id, what, err) }
	b := &Batch{replies: map[int]string{}}
	elems, err := doc.Elements()
	if err != nil {
		return nil, fail("document", err)
	}
	var log, open, claims []byte
	for _, e := range elems {
		v := e.Value()
		switch e.Key() {
		case "run":
			b.Run, _ = v.StringValueOK()
		case "n":
			n, _ := v.AsInt64OK()
			b.N = int(n)
		case "state":
			b.state, _ = v.StringValueOK()
		case "users":
			arr, ok := v.ArrayOK()
			if !ok {
				return nil, fail("users", errors.New("not an array"))
			}
			if b.Users, err = arr.Values(); err != nil {
				return nil, fail("users", err)
			}
		case "pass":
			n, _ := v.AsInt64OK()
			b.Pass = int(n)
		case "epoch":
			b.Epoch, _ = v.AsInt64OK()
		case "rev":
			b.Rev, _ = v.AsInt64OK()
		case "waves":
			n, _ := v.AsInt64OK()
			b.Waves = int(n)
		case "open":
			_, open, _ = v.BinaryOK()
		case "log":
			_, log, _ = v.BinaryOK()
		case "claims":
			_, claims, _ = v.BinaryOK()
		case "not_before":
			b.NotBefore, _ = v.TimeOK()
		case "owned_until":
			b.OwnedUntil, _ = v.TimeOK()
		case "counts":
			if err := v.Unmarshal(&b.Counts); err != nil {
				return nil, fail("counts", err)
			}
		case "delta":
			if b.delta, err = parseDelta(v); err != nil {
				return nil, fail("delta", err)
			}
		case "replies":
			if err := b.parseReplies(v); err != nil {
				return nil, fail("replies", err)
			}
		}
	}
	if b.log, err = decodeLog(log, len(b.Users)); err != nil {
		return nil, fail("log", err)
	}
	if b.Open, err = decodeIndexes(open, len(b.Users)); err != nil {
		return nil, fail("open", err)
	}
	if b.claims, err = decodeClaims(claims, len(b.Users)); err != nil {
		return nil, fail("claims", err)
	}
	return b, nil
}

func (b *Batch) parseReplies(v bson.RawValue) error {
	doc, ok := v.DocumentOK()
	if !ok {
		return errors.New("not a document")
	}
	elems, err := doc.Elements()
	if err != nil {
		return err
	}
	for _, e := range elems {
		i, err := strconv.Atoi(e.Key())
		if err != nil {
			return err
		}
		b.replies[i], _ = e.Value().StringValueOK()
	}
	return nil
}
