package worker

import (
	"context"
	"fmt"
	"time"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/users"
)

// settle ends a pass: takes back the claims that are marked, stores what the pass came to, gives the batch back, and counts it.
func (p *pass) settle(ctx context.Context, visited bool, stopRenewing func()) error { // [settle]
	now := p.w.cfg.Clock.Now()
	found := p.found
	p.countFound(found)
	if p.leavesClaims(found) {
		if err := p.o.Record(ctx, found, now); err != nil {
			return err
		}
		found = nil
	}
	tookBack, err := p.takeBack(ctx)
	if err != nil {
		return err
	}
	stopRenewing()
	d, err := p.o.StorePass(ctx, campaign.PassEnd{
		Now: now, Found: found, TookBack: tookBack,
		Visited:   visited || len(p.unseen) == 0,
		NotBefore: p.notBefore(now),
	})
	if err != nil {
		return err
	}
	p.w.stats.Passes.Add(1)
	if d == nil || p.uncounted {
		return nil
	}
	return p.w.applyDelta(ctx, p.a.run, p.o.N, d)
}

// leavesClaims reports whether one of the results marks a claim to be taken back: that has to be written before it is done.
func (p *pass) leavesClaims(found []campaign.Result) bool {
	for _, r := range found {
		if _, held := p.o.Held(r.Index); held && r.Outcome != campaign.Waiting {
			return true
		}
	}
	return false
}

// takeBack undoes the claims of those who did not get their mail.
func (p *pass) takeBack(ctx context.Context) (bool, error) { // [takeBack]
	var claims []users.Claim
	for _, i := range p.o.TakeBacks() {
		c := p.o.Claim(i)
		claims = append(claims, users.Claim{ID: p.o.Users[i], LastAt: c.LastAt, Before: c.Before, Bit: p.a.template.BitIndex, Run: p.a.run.Short})
	}
	if len(claims) == 0 {
		return true, nil
	}
	if err := p.w.cfg.Users.TakeBack(ctx, claims); err != nil {
		return false, fmt.Errorf("worker: take back claims of batch %s: %w", p.o.ID(), err)
	}
	return true, nil
}

// notBefore is when to look at the batch again: at the earliest time that somebody waits for, and when the run expires at the
// latest, since everybody has an outcome then.
func (p *pass) notBefore(now time.Time) time.Time {
	at := p.again
	if at.IsZero() {
		at = now
	}
	if end := p.a.run.ExpiresAt(); at.After(end) {
		at = end
	}
	if at.Before(now) {
		at = now
	}
	return at
}

// Settle counts what a pass of a batch has stored and nobody has counted yet. Anybody may do so at any time.
func (w *Worker) Settle(ctx context.Context, run *campaign.Run, n int) error {
	b, err := w.cfg.Batches.Get(ctx, run, n)
	if err != nil {
		return err
	}
	if d := b.Unsettled(); d != nil {
		return w.applyDelta(ctx, run, n, d)
	}
	return nil
}

// applyDelta gives a stored delta to the analytics under its id and marks it as applied. Both may be done twice and by anybody.
func (w *Worker) applyDelta(ctx context.Context, run *campaign.Run, n int, d *campaign.Delta) error {
	id := d.ID(run.ID, n)
	if w.forgotten(d) {
		w.log.Error("a pass is older than the memory of the analytics, which may have counted it already: its outcomes are left out of the days, not of the run",
			"pass", id, "outcomes", d.Rows)
	} else if err := w.cfg.Analytics.Apply(ctx, id, increments(run.Campaign, d)); err != nil {
		return fmt.Errorf("worker: count pass %s: %w", id, err)
	}
	return w.cfg.Batches.MarkApplied(ctx, run, n, d.Pass)
}

// forgotten reports whether a delta may have been counted so long ago that the analytics don't know its id any more. It can't have
// been counted before it was stored.
func (w *Worker) forgotten(d *campaign.Delta) bool {
	return w.cfg.Clock.Now().Sub(d.At) >= w.cfg.Analytics.Memory()
}

// increments are what a delta adds to the days of its campaign and of all.
func increments(campaignName string, d *campaign.Delta) []analytics.Increment {
	var incs []analytics.Increment
	add := func(metric string, r campaign.DeltaRow) {
		incs = append(incs, analytics.Day(campaignName, metric, r.Minute, int64(r.N))...)
	}
	for _, r := range d.Rows {
		switch o := r.Outcome; {
		case o == campaign.FailedBounced:
			add("failed", r)
			add("bounced", r)
		case o.Rule() != "":
			add("skipped."+o.Rule(), r)
		default:
			add(o.String(), r)
		}
	}
	return incs
}
