package worker

import (
	"fmt"
	"sync"
	"time"
)

// outage watches whether the SMTP server can be reached at all, for the whole process.
type outage struct {
	mu          sync.Mutex
	since, last time.Time
}

// staleOutage: when nobody has tried for so long, an earlier failure says nothing about the time between.
const staleOutage = 2 * time.Minute

// failed notes a failed attempt and returns for how long all of them have failed.
func (o *outage) failed(now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() || now.Sub(o.last) > staleOutage || now.Before(o.since) {
		o.since = now
	}
	o.last = now
	return now.Sub(o.since)
}

func (o *outage) ended() {
	o.mu.Lock()
	o.since = time.Time{}
	o.mu.Unlock()
}

// slowDomains holds the recipient domains that asked for fewer mails (421, 4.7.x): none is sent there for a while, which
// doubles as long as they go on asking.
type slowDomains struct {
	mu      sync.Mutex
	domains map[string]slowness
}

type slowness struct {
	until time.Time
	step  time.Duration
}

const (
	slowFirst   = time.Minute
	slowMost    = 30 * time.Minute
	slowDomainN = 10_000 // domains remembered at most
)

// asked notes that a domain wants to be left alone. Several replies within one pause are one request.
func (s *slowDomains) asked(domain string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.domains[domain]
	if ok && now.Before(d.until) {
		return
	}
	if !ok && len(s.domains) >= slowDomainN {
		for k, d := range s.domains {
			if now.After(d.until) {
				delete(s.domains, k)
			}
		}
		if len(s.domains) >= slowDomainN {
			return
		}
	}
	d.step = min(max(2*d.step, slowFirst), slowMost)
	d.until = now.Add(d.step)
	s.domains[domain] = d
}

// accepted notes that a domain takes mails again.
func (s *slowDomains) accepted(domain string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.domains[domain]; ok && !now.Before(d.until) {
		delete(s.domains, domain)
	}
}

// until is when a domain may be sent to; zero: now.
func (s *slowDomains) until(domain string, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.domains[domain]; ok && now.Before(d.until) {
		return d.until
	}
	return time.Time{}
}

// policyWatch notices when receivers refuse the sender rather than single recipients, by the final replies of one run as
// this process sees them.
type policyWatch struct {
	mu     sync.Mutex
	inARow int
	ring   [200]string // the domain of a refusal; empty: the mail was accepted or refused for another reason
	n      int         // replies so far
}

const (
	policyInARow  = 10
	policyPercent = 5
	policyDomains = 3
)

// note takes one reply and returns a reason to pause the run, or "".
func (p *policyWatch) note(domain string, refused bool) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot := &p.ring[p.n%len(p.ring)]
	p.n++
	if !refused {
		p.inARow, *slot = 0, ""
		return ""
	}
	*slot = domain
	if p.inARow++; p.inARow >= policyInARow {
		p.reset()
		return fmt.Sprintf("%d mails in a row were refused by policy (5.7.x), the last by %s", policyInARow, domain)
	}
	if p.n < len(p.ring) {
		return ""
	}
	refusals, domains := 0, map[string]bool{}
	for _, d := range p.ring {
		if d != "" {
			refusals++
			domains[d] = true
		}
	}
	if refusals*100 > policyPercent*len(p.ring) && len(domains) >= policyDomains {
		p.reset()
		return fmt.Sprintf("%d of the last %d mails were refused by policy (5.7.x), by %d domains", refusals, len(p.ring), len(domains))
	}
	return ""
}

// reset begins anew, so that a run that was resumed is not paused by what led to its last pause.
func (p *policyWatch) reset() { p.inARow, p.n, p.ring = 0, 0, [200]string{} }
