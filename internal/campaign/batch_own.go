package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/clock"
)

// Owned is a batch in the hands of the one worker that may write to it. Renew may be called beside the other methods; those are
// called one at a time. Each of them is one write, issued again until the server answers or ctx ends, and each fails with
// ErrLostOwnership once another worker has raised the epoch.
type Owned struct {
	*Batch // as of the last write

	coll  *mongo.Collection
	id    string
	owner string // random, one per Own
	lease time.Duration
	clock *leaseClock
	epoch int64 // ours; beside Batch.Epoch since Renew must not look into a batch that another method replaces

	mu      sync.Mutex
	renewed clock.Moment // before the last renewal that was answered: nothing new is begun when the lease has passed since
	lost    bool
}

// Own takes a batch for its next pass (0: whichever that is) under a name that no other call uses. ErrStalePass, ErrBatchDone and
// ErrNoBatch say that there is nothing to do; ErrBatchOwned that somebody else is at it.
//
// [own] The epoch goes up in one find-and-modify, whose answer is the document. Issued again after a lost reply it raises the
// epoch once more, which shuts out only ourselves as we would have been.
//
// That somebody's lease has run out is said by the database's clock, whatever this machine's says. Takeovers from the living are no fault
// (the model allows them at every step), but each leaves a wave unconfirmed.
func (s *Batches) Own(ctx context.Context, run *Run, n, pass int, owner string) (*Owned, error) {
	o := &Owned{coll: s.coll(run.Slot), id: BatchID(run.ID, n), owner: owner, lease: s.lease, clock: s.leases}
	var doc bson.Raw
	err := answered(ctx, func(ctx context.Context) (err error) {
		o.renewed = o.clock.watch.Now()
		least, most, err := o.clock.now(ctx)
		if err != nil {
			return err
		}
		filter := bson.D{
			{Key: "_id", Value: o.id},
			{Key: "state", Value: bson.D{{Key: "$in", Value: bson.A{batchNew, batchOpen}}}},
			{Key: "$or", Value: bson.A{bson.D{{Key: "owner", Value: owner}}, bson.D{unowned(least)}}},
		}
		if pass > 0 {
			filter = append(filter, bson.E{Key: "pass", Value: pass - 1})
		}
		doc, err = o.coll.FindOneAndUpdate(ctx, filter, bson.D{
			{Key: "$inc", Value: bson.D{{Key: "epoch", Value: int64(1)}}},
			{Key: "$set", Value: bson.D{{Key: "owner", Value: owner}, {Key: "owned_until", Value: leaseEnd(most, s.lease)}}},
		}, options.FindOneAndUpdate().SetReturnDocument(options.After)).Raw()
		return err
	})
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, s.whyNotOwned(ctx, run, n, pass)
	}
	if err != nil {
		return nil, fmt.Errorf("campaign: own batch %s: %w", o.id, err)
	}
	if o.Batch, err = parseBatch(doc); err != nil {
		return nil, err
	}
	o.epoch = o.Batch.Epoch
	return o, nil
}

// leaseEnd is the end of a lease that begins now: whole milliseconds, and no sooner.
func leaseEnd(now time.Time, lease time.Duration) time.Time {
	return now.Add(lease + time.Millisecond - 1).Truncate(time.Millisecond)
}

func (s *Batches) whyNotOwned(ctx context.Context, run *Run, n, pass int) error {
	b, err := s.Get(ctx, run, n)
	switch {
	case err != nil:
		return err
	case b.state == batchDone:
		err = ErrBatchDone
	case pass > 0 && b.Pass != pass-1:
		err = ErrStalePass
	default:
		err = ErrBatchOwned
	}
	return fmt.Errorf("batch %s, pass %d: %w", b.ID(), pass, err)
}

// ID is the `_id` of the batch.
func (b *Batch) ID() string { return BatchID(b.Run, b.N) }

// Renew keeps others from taking the batch. A renewal that the server comes to late can't shorten what a later one set, and finds
// no owner to renew once the batch was given back.
func (o *Owned) Renew(ctx context.Context) error {
	var asked clock.Moment
	var matched int64
	err := answered(ctx, func(ctx context.Context) error {
		asked = o.clock.watch.Now()
		_, most, err := o.clock.now(ctx)
		if err != nil {
			return err
		}
		res, err := o.coll.UpdateOne(ctx,
			bson.D{{Key: "_id", Value: o.id}, {Key: "epoch", Value: o.epoch}, {Key: "owner", Value: o.owner}},
			bson.D{{Key: "$max", Value: bson.D{{Key: "owned_until", Value: leaseEnd(most, o.lease)}}}})
		if err == nil {
			matched = res.MatchedCount
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("campaign: renew batch %s: %w", o.id, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if matched == 0 {
		o.lost = true
		return fmt.Errorf("batch %s: %w", o.id, ErrLostOwnership)
	}
	o.renewed = asked
	return nil
}

// Alive reports whether a claim or a mail may be begun: not after the ownership was lost, nor when the last renewal is so
// old that it may have been, by either of this machine's clocks: the monotonic one stands while the machine sleeps.
func (o *Owned) Alive() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	mono, wall := o.clock.watch.Now().Since(o.renewed)
	return !o.lost && mono < o.lease && wall < o.lease
}

// Result is what has become of one user. For whoever stays Waiting a Claim is kept for the next look; for any other final outcome than
// Sent and Unconfirmed the claim, given here or held before, is marked to be taken back in the same write.
type Result struct {
	Index       int
	Outcome     Outcome
	Reply       string     // cut to MaxReplyBytes; empty: the last one stays where the user stays Waiting or failed for it
	Claim       *HeldClaim // made in this wave, or nil
	Tried       bool       // a 4xx: counts for the backoff
	Until       time.Time  // for whoever stays Waiting because of a rule: not to be looked at before
	UnknownZone bool
}

// WaveUser is a user who goes into a wave.
type WaveUser struct {
	Index       int
	UnknownZone bool
}

// PushWave opens a wave of users who wait, and records what was found about others on the way. From here on nobody else may send to
// them in this run: whoever takes over sets them to Unconfirmed.
func (o *Owned) PushWave(ctx context.Context, users []WaveUser, found []Result, now time.Time) error { // [a: push the wave]
	if len(users) == 0 || len(o.Open) > 0 {
		return fmt.Errorf("campaign: batch %s: push of %d users with %d in an open wave", o.id, len(users), len(o.Open))
	}
	next := o.Batch.clone()
	next.record(found, now)
	next.Waves++
	next.Open = nil
	for _, u := range users {
		e := &next.log[u.Index]
		if e.outcome != Waiting {
			return fmt.Errorf("campaign: batch %s: user %d is %s and can't go into a wave", o.id, u.Index, e.outcome)
		}
		e.wave = uint16(next.Waves)
		e.setZone(u.UnknownZone)
		next.Open = append(next.Open, u.Index)
	}
	return o.write(ctx, next, nil, nil)
}

// EndWave closes the open wave with its outcomes. Users of it without a result leave it as they came.
func (o *Owned) EndWave(ctx context.Context, results []Result, now time.Time) error { // [d: the end of the wave]
	if len(o.Open) == 0 {
		return fmt.Errorf("campaign: batch %s: end of a wave, but none is open", o.id)
	}
	next := o.Batch.clone()
	next.record(results, now)
	next.Open = nil
	return o.write(ctx, next, nil, nil)
}

// Record writes outcomes outside of waves: skips, deferrals, and users who are given up when the run ends.
func (o *Owned) Record(ctx context.Context, results []Result, now time.Time) error {
	if len(results) == 0 {
		return nil
	}
	next := o.Batch.clone()
	next.record(results, now)
	return o.write(ctx, next, nil, nil)
}

// Recover sets the users of a wave that a former owner left open to Unconfirmed: the server may or may not have accepted their mails.
// It returns how many there were.
func (o *Owned) Recover(ctx context.Context, now time.Time) (int, error) { // [recover]
	found := slices.Clone(o.Open)
	if len(found) == 0 {
		return 0, nil
	}
	var rs []Result
	for _, i := range found {
		rs = append(rs, Result{Index: i, Outcome: Unconfirmed, UnknownZone: o.log[i].flags&flagUnknownZone != 0,
			Reply: "a worker ended between handing the mail over and noting the reply"})
	}
	return len(found), o.EndWave(ctx, rs, now)
}

// PassEnd says how a batch is given back.
type PassEnd struct {
	Now       time.Time
	Found     []Result  // outcomes outside of waves, and deferrals, that are not recorded yet; none may leave a claim to be taken back
	NotBefore time.Time // when to look again, if somebody is left
	Visited   bool      // everybody has been looked at
	TookBack  bool      // the claims marked to be taken back have been
}

// StorePass ends a pass: the delta of its outcomes is stored and the batch given back in one write. The delta is to be applied
// to the analytics and then marked with MarkApplied; nil: nothing was counted. While claims wait to be taken back, the batch is
// not done.
func (o *Owned) StorePass(ctx context.Context, end PassEnd) (*Delta, error) { // [settle]
	if o.delta != nil || len(o.Open) > 0 {
		return nil, fmt.Errorf("campaign: batch %s: end of a pass with %d in an open wave and unsettled=%t", o.id, len(o.Open), o.delta != nil)
	}
	next := o.Batch.clone()
	next.record(end.Found, end.Now)
	next.Pass++
	d := next.newDelta(next.Pass)
	d.At = end.Now.UTC().Truncate(time.Millisecond)
	next.count(d)
	if end.TookBack {
		maps.DeleteFunc(next.claims, func(_ int, c HeldClaim) bool { return c.Back })
	}
	waiting, back := len(next.Waiting()), len(next.TakeBacks())
	switch {
	case waiting+back == 0:
		next.state = batchDone
	case end.Visited || waiting == 0:
		next.state = batchOpen
	}
	next.Counts.Deferred = 0
	if next.state == batchOpen {
		next.Counts.Deferred = int64(waiting)
	}
	set := bson.D{
		{Key: "pass", Value: next.Pass}, {Key: "state", Value: next.state}, {Key: "counts", Value: next.Counts},
		{Key: "not_before", Value: end.NotBefore.UTC().Truncate(time.Millisecond)},
	}
	if len(d.Rows) > 0 {
		next.delta = d
		set = append(set, bson.E{Key: "delta", Value: d.document()}, bson.E{Key: "unsettled", Value: next.Run})
	}
	if err := o.write(ctx, next, set, bson.D{{Key: "owner", Value: ""}, {Key: "owned_until", Value: ""}}); err != nil {
		return nil, err
	}
	return next.delta, nil
}

// GiveBack gives a batch back as it is, without ending a pass.
func (o *Owned) GiveBack(ctx context.Context, notBefore time.Time) error {
	return o.write(ctx, o.Batch.clone(), bson.D{{Key: "not_before", Value: notBefore.UTC().Truncate(time.Millisecond)}},
		bson.D{{Key: "owner", Value: ""}, {Key: "owned_until", Value: ""}})
}

// TakeBacks lists the users whose claims are marked to be taken back, in order.
func (b *Batch) TakeBacks() []int {
	var is []int
	for i, c := range b.claims {
		if c.Back {
			is = append(is, i)
		}
	}
	slices.Sort(is)
	return is
}

// Claim is the claim that the batch remembers for user i, held or to be taken back.
func (b *Batch) Claim(i int) HeldClaim { return b.claims[i] }

// MarkApplied notes that the analytics have the delta of a pass. Anybody may do so, any number of times.
func (s *Batches) MarkApplied(ctx context.Context, run *Run, n, pass int) error {
	err := answered(ctx, func(ctx context.Context) error {
		_, err := s.coll(run.Slot).UpdateOne(ctx, bson.D{{Key: "_id", Value: BatchID(run.ID, n)}, {Key: "delta.pass", Value: pass}},
			bson.D{{Key: "$unset", Value: bson.D{{Key: "delta", Value: ""}, {Key: "unsettled", Value: ""}}}})
		return err
	})
	if err != nil {
		return fmt.Errorf("campaign: mark pass %d of batch %s: %w", pass, BatchID(run.ID, n), err)
	}
	return nil
}

// Applied takes the delta out of the owner's view once it is marked.
func (o *Owned) Applied() { o.delta = nil }
