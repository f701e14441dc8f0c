package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/campaign"
	"postbit/internal/limits"
	"postbit/internal/mail"
	"postbit/internal/users"
	"postbit/rules"
)

// candidate is a user of the batch as his document was read, whom no rule keeps from getting the mail.
type candidate struct {
	index int
	user  users.User
	read  time.Time // by the common clock
}

// fill loads and evaluates users until a wave's worth of them may be sent to, or nobody is left to look at.
func (p *pass) fill(ctx context.Context) error {
	for len(p.ready) < campaign.MaxWaveUsers && len(p.unseen) > 0 {
		n := min(p.a.rules.AtOnce(), len(p.unseen))
		rest, err := p.load(ctx, p.unseen[:n])
		if err != nil {
			return err
		}
		p.unseen = append(rest, p.unseen[n:]...)
	}
	return nil
}

// load reads users and sorts them into those who may be sent to, those who are skipped and those who have to wait. rest is whom it did not
// come to, in order.
func (p *pass) load(ctx context.Context, indexes []int) (rest []int, err error) {
	slices.Sort(indexes) // a server reads them best in the order of their ids, and the batch is in that order
	ids := make([]bson.RawValue, len(indexes))
	for k, i := range indexes {
		ids[k] = p.o.Users[i]
	}
	now := p.w.cfg.Clock.Now()
	holds := func(k int) bool { _, held := p.o.Held(indexes[k]); return held }
	before := len(p.ready)
	places, err := p.a.rules.Load(ctx, ids, holds, now, func(k int, u *users.User, d rules.Decision) (keep bool) {
		switch i := indexes[k]; {
		case u == nil:
			p.found = append(p.found, p.givenUp(i, "left"))
		case d.Outcome == rules.Send:
			p.ready = append(p.ready, candidate{index: i, user: *u, read: now})
			return true
		default:
			p.found = append(p.found, p.object(i, u, d))
		}
		return false
	})
	if err != nil {
		return nil, fmt.Errorf("worker: load users of batch %s: %w", p.o.ID(), err)
	}
	slices.SortFunc(p.ready[before:], func(a, b candidate) int { return cmp.Compare(a.index, b.index) })
	for _, k := range places {
		rest = append(rest, indexes[k])
	}
	return rest, nil
}

// object is what becomes of a user whom a rule keeps from getting the mail, for good or for now.
func (p *pass) object(i int, u *users.User, d rules.Decision) campaign.Result {
	var r campaign.Result
	if d.Outcome == rules.Skip {
		r = p.givenUp(i, d.Rule.String())
	} else {
		r = campaign.Result{Index: i, Until: d.Until}
		p.lookAgainAt(d.Until)
	}
	r.UnknownZone = u.UnknownZone
	return r
}

// refresh reads again what is too old to be claimed.
func (p *pass) refresh(ctx context.Context) error {
	var stale []int
	now := p.w.cfg.Clock.Now()
	kept := p.ready[:0]
	for k, c := range p.ready {
		if k < campaign.MaxWaveUsers && now.Sub(c.read) > freshFor {
			stale = append(stale, c.index)
		} else {
			kept = append(kept, c)
		}
	}
	if len(stale) == 0 {
		return nil
	}
	later := append([]candidate(nil), kept...)
	p.ready = nil
	rest, err := p.load(ctx, stale)
	if err != nil {
		return err
	}
	p.unseen = append(rest, p.unseen...)
	p.ready = append(p.ready, later...)
	return nil
}

// wave sends to up to MaxWaveUsers of those who are ready. It reports whether there may be another one in this pass.
func (p *pass) wave(ctx context.Context, conn mail.Conn) (more bool, err error) {
	taken := false
	defer func() {
		if !taken {
			conn.Release()
		}
	}()
	if err := p.refresh(ctx); err != nil {
		return false, err
	}
	p.dropSlow()
	if len(p.ready) == 0 {
		return true, nil
	}
	picked, until, err := p.takeRoom(ctx)
	if errors.Is(err, errNoRoom) {
		return false, nil
	}
	if err != nil || len(picked) == 0 { // nobody: the domains of all of them are at their limits; others may be unseen
		return err == nil, err
	}
	if !p.goOn() {
		p.ready = append(picked, p.ready...)
		return true, nil // the loop sees why
	}
	wave := make([]campaign.WaveUser, len(picked))
	for k, c := range picked {
		wave[k] = campaign.WaveUser{Index: c.index, UnknownZone: c.user.UnknownZone}
	}
	if err := p.o.PushWave(ctx, wave, p.found, p.w.cfg.Clock.Now()); err != nil { // [a: push the wave]
		return false, err
	}
	p.w.stats.Waves.Add(1)
	p.countFound(p.found)
	p.found = p.found[:0]

	jobs := make([]job, len(picked))
	for k := range picked {
		jobs[k] = job{candidate: picked[k], result: campaign.Result{Index: picked[k].index, UnknownZone: picked[k].user.UnknownZone}}
	}
	if err := p.claim(ctx, jobs); err != nil { // [b: claim]
		return false, err
	}
	taken = true
	p.send(conn, jobs, until) // [c: send]
	if err := p.suppress(ctx, jobs); err != nil {
		return false, err
	}
	return true, p.end(ctx, jobs)
}

// end closes the wave, and lines up again whom it left without an outcome.
func (p *pass) end(ctx context.Context, jobs []job) error {
	results := make([]campaign.Result, len(jobs))
	for k := range jobs {
		results[k] = jobs[k].result
	}
	now := p.w.cfg.Clock.Now()
	if err := p.o.EndWave(ctx, results, now); err != nil { // [d: the end of the wave]
		return err
	}
	var back []int
	for k := range jobs {
		j := &jobs[k]
		p.count(j)
		switch {
		case j.result.Outcome != campaign.Waiting:
		case j.result.Tried:
			p.lookAgainAt(retryAt(p.o.User(j.index)))
		case !j.result.Until.IsZero():
		default:
			back = append(back, j.index)
		}
	}
	p.unseen = append(back, p.unseen...)
	slices.Sort(p.unseen)
	return nil
}

func (p *pass) countFound(found []campaign.Result) {
	for _, r := range found {
		if r.Outcome != campaign.Waiting {
			p.w.stats.Skipped.Add(1)
		}
	}
}

func (p *pass) count(j *job) {
	s := &p.w.stats
	switch o := j.result.Outcome; {
	case o == campaign.Sent:
		s.Sent.Add(1)
	case o == campaign.Unconfirmed:
		s.Unconfirmed.Add(1)
	case o.Failed():
		s.Failed.Add(1)
	case o != campaign.Waiting:
		s.Skipped.Add(1)
	case j.result.Tried:
		s.Retried.Add(1)
	}
}

// errNoRoom: the limit of the whole campaign is used up, and a batch does not wait for room in its handler.
var errNoRoom = errors.New("no room in the limits")

// takeRoom takes the next users for a wave out of p.ready, as many as the limits have room for: overall first, then per
// domain, in scopes that all runs of the campaign share. Who finds no room in his domain makes way for the others. until is when the room expires; zero: never.
func (p *pass) takeRoom(ctx context.Context) (picked []candidate, until time.Time, err error) {
	spec := &p.a.run.Spec
	room := min(campaign.MaxWaveUsers, len(p.ready))
	if len(spec.Limits.Rate) > 0 {
		g, err := p.w.cfg.Limiter.Take(ctx, p.a.run.Campaign, spec.Limits.Rate, room)
		if err != nil {
			return nil, time.Time{}, err
		}
		if g.N == 0 {
			p.lookAgainAt(g.Next)
			return nil, time.Time{}, errNoRoom
		}
		room, until = g.N, g.Until
	}
	if len(spec.Limits.PerDomain) == 0 {
		picked, p.ready = p.ready[:room:room], p.ready[room:]
		return picked, until, nil
	}
	shut := map[string]bool{}
	for len(picked) < room && len(p.ready) > 0 {
		chosen, rest := p.choose(room-len(picked), shut)
		if len(chosen) == 0 {
			break
		}
		p.ready = rest
		for _, d := range spec.Limits.PerDomain {
			var g limits.Grant
			want := 0
			for _, c := range chosen {
				if c.user.Domain == d.Domain {
					want++
				}
			}
			if want == 0 {
				continue
			}
			if g, err = p.w.cfg.Limiter.Take(ctx, p.a.run.Campaign+"/"+d.Domain, d.Rate, want); err != nil {
				return nil, time.Time{}, err
			}
			if g.N > 0 && (until.IsZero() || g.Until.Before(until)) {
				until = g.Until
			}
			if g.N < want {
				shut[d.Domain] = true
				if g.Next.IsZero() {
					g.Next = p.w.cfg.Clock.Now().Add(time.Second)
				}
				chosen = p.putBack(chosen, d.Domain, want-g.N, g.Next)
			}
		}
		picked = append(picked, chosen...)
	}
	p.dropShut(shut)
	return picked, until, nil
}

// choose splits the ready into the first n whose domain is not shut, and the rest.
func (p *pass) choose(n int, shut map[string]bool) (chosen, rest []candidate) {
	for _, c := range p.ready {
		if len(chosen) < n && !shut[c.user.Domain] {
			chosen = append(chosen, c)
		} else {
			rest = append(rest, c)
		}
	}
	return chosen, rest
}

// putBack takes n users of a domain out of those chosen; they wait until its limit has room.
func (p *pass) putBack(chosen []candidate, domain string, n int, next time.Time) []candidate {
	kept := chosen[:0]
	for k := len(chosen) - 1; k >= 0; k-- { // the last ones, so that the order is kept
		if chosen[k].user.Domain == domain && n > 0 {
			n--
			p.lookAgainAt(next)
			chosen[k].index = -1
		}
	}
	for _, c := range chosen {
		if c.index >= 0 {
			kept = append(kept, c)
		}
	}
	return kept
}

// dropSlow lets those wait for a later pass whose domain asked for fewer mails.
func (p *pass) dropSlow() {
	now := p.w.cfg.Clock.Now()
	kept := p.ready[:0]
	for _, c := range p.ready {
		if at := p.w.slow.until(c.user.Domain, now); !at.IsZero() {
			p.lookAgainAt(at)
			continue
		}
		kept = append(kept, c)
	}
	p.ready = kept
}

// dropShut lets those wait for a later pass whose domain has no room now; a time for them was noted.
func (p *pass) dropShut(shut map[string]bool) {
	if len(shut) == 0 {
		return
	}
	kept := p.ready[:0]
	for _, c := range p.ready {
		if !shut[c.user.Domain] {
			kept = append(kept, c)
		}
	}
	p.ready = kept
}
