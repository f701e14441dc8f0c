package worker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/mail"
	"postbit/internal/users"
	"postbit/rules"
	"postbit/templates"
)

// job is one user of a wave: from the push to the end of the wave.
type job struct {
	candidate
	claimed bool
	result  campaign.Result
}

// claim claims those who hold no claim yet. Who was changed by somebody else since he was read is evaluated again, and claimed once
// more if the rules still let him.
func (p *pass) claim(ctx context.Context, jobs []job) error {
	var which []int
	now := p.w.cfg.Clock.Now()
	for k := range jobs {
		j := &jobs[k]
		_, held := p.o.Held(j.index)
		// The push may have waited for the database for hours. Whatever else has changed in the document, the claim compares it.
		if now.Sub(j.read) > freshFor && !p.evaluateAgain(j, held, now) {
			continue
		}
		if held {
			j.claimed = true
		} else {
			which = append(which, k)
		}
	}
	for range 2 {
		if len(which) == 0 || !p.o.Alive() {
			return nil
		}
		us := make([]users.User, len(which))
		for n, k := range which {
			us[n] = jobs[k].user
		}
		now = p.w.cfg.Clock.Now()
		results, err := p.w.cfg.Users.Claim(ctx, us, p.a.template.BitIndex, p.a.run.Short, now)
		if err != nil && !errors.Is(err, users.ErrRefused) {
			return fmt.Errorf("worker: claim users of batch %s: %w", p.o.ID(), err)
		}
		if err != nil {
			p.halt = err.Error()
			return nil
		}
		var lost []int
		for n, k := range which {
			j := &jobs[k]
			switch r := results[n]; r.State {
			case users.Claimed:
				j.claimed = true
				j.result.Claim = &campaign.HeldClaim{LastAt: r.Claim.LastAt, Before: r.Claim.Before}
			case users.Lost:
				j.user, j.read = r.Fresh, now
				if p.evaluateAgain(j, false, now) {
					lost = append(lost, k)
				}
			case users.Gone:
				j.result = p.givenUp(j.index, "left")
			default:
				j.result.Outcome = campaign.Unconfirmed
				j.result.Reply = "nobody can tell whether the claim succeeded; nothing was sent"
			}
		}
		which = lost
	}
	return nil // who lost twice stays for the next wave
}

// evaluateAgain evaluates a user of the wave and reports whether he may still be claimed, or sent to where he is.
func (p *pass) evaluateAgain(j *job, held bool, now time.Time) bool {
	j.result.UnknownZone = j.user.UnknownZone
	d := p.a.rules.Decide(&j.user, held, now)
	if d.Outcome == rules.Send {
		return true
	}
	j.result = p.object(j.index, &j.user, d)
	return false
}

// helperAfter is how long a wave goes on over one connection before another one is taken to help, and another one. A server that is
// fast, or a machine that is busy, needs none: the batches beside this one have connections of their own.
const helperAfter = 100 * time.Millisecond

// send hands the mails of a wave to the SMTP server, over conn and, where that is slow, over others beside it. It releases conn.
// Whoever was not begun when the pass had to stop stays waiting, with his claim. until is when the limits' grant expires.
func (p *pass) send(conn mail.Conn, jobs []job, until time.Time) {
	var todo []*job
	for k := range jobs {
		if jobs[k].claimed {
			todo = append(todo, &jobs[k])
		}
	}
	s := &sending{p: p, todo: todo, until: until}
	helpers, cancel := context.WithCancel(p.stopping)
	var running sync.WaitGroup
	for n := 1; n < p.w.cfg.Connections && n < len(todo); n++ {
		running.Go(func() { s.help(helpers, time.Duration(n)*helperAfter) })
	}
	s.run(conn)
	cancel() // a helper that has a mail in flight finishes it
	running.Wait()
}

// sending is the part c of one wave.
type sending struct {
	p     *pass
	todo  []*job
	next  atomic.Int64
	until time.Time

	mu     sync.Mutex
	halted bool // a reply says that nothing more should be sent
}

func (s *sending) help(ctx context.Context, after time.Duration) {
	if clock.Sleep(ctx, after) != nil {
		return
	}
	if int(s.next.Load()) >= len(s.todo) {
		return
	}
	conn, err := s.p.w.cfg.Transport.Connect(ctx)
	if err != nil {
		return // the wave goes on without
	}
	s.run(conn)
}

// run sends over one connection until nobody is left, the pass has to stop, or the connection is dead and there is no other.
func (s *sending) run(conn mail.Conn) {
	defer func() { conn.Release() }()
	for {
		if s.stopped() || !s.p.goOn() || !s.until.IsZero() && !s.p.w.cfg.Clock.Now().Before(s.until) {
			return
		}
		if !conn.Usable() {
			ctx, cancel := context.WithTimeout(s.p.stopping, 5*time.Second)
			next, err := s.p.w.cfg.Transport.Connect(ctx)
			cancel()
			if err != nil {
				return
			}
			conn.Release()
			conn = next
			continue // the time that took may have changed the answer
		}
		n := int(s.next.Add(1)) - 1
		if n >= len(s.todo) {
			return
		}
		s.mail(conn, s.todo[n])
	}
}

func (s *sending) stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.halted
}

// halt stops the wave and asks for a pause of the run.
func (s *sending) halt(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.halted = true
	if s.p.halt == "" {
		s.p.halt = reason
	}
}

// mail makes and sends one mail and notes what became of it.
func (s *sending) mail(conn mail.Conn, j *job) {
	p := s.p
	msg, err := p.compose(j)
	if err != nil {
		j.result.Outcome, j.result.Reply = campaign.FailedRender, err.Error()
		return
	}
	// A mail that was begun is always finished, whatever happens to the pass.
	reply := conn.Send(context.Background(), p.a.envelope, j.user.Email, j.user.NeedsUTF8, msg)
	now := p.w.cfg.Clock.Now()
	text := replyText(reply)
	switch reply.Class {
	case mail.Accepted:
		j.result.Outcome = campaign.Sent
		p.w.slow.accepted(j.user.Domain, now)
	case mail.Retry:
		j.result.Tried, j.result.Reply = true, text
	case mail.Bounced:
		j.result.Outcome, j.result.Reply = campaign.FailedBounced, text
	case mail.Failed:
		j.result.Outcome, j.result.Reply = campaign.FailedMailbox, text
	case mail.Policy:
		j.result.Outcome, j.result.Reply = campaign.FailedPolicy, text
	case mail.Unconfirmed:
		j.result.Outcome, j.result.Reply = campaign.Unconfirmed, text
	case mail.SenderRefused:
		s.halt(fmt.Sprintf("the server refuses the sender %s: %s", p.a.envelope, text))
	default: // cut before the end of DATA, or MAIL FROM refused for now
		s.cut(j, reply.Code, text, now)
	}
	if reply.Class != mail.Cut {
		p.w.from.ended()
	}
	if reply.DomainSlow {
		p.w.slow.asked(j.user.Domain, now)
	}
	if j.result.Outcome != campaign.Waiting && j.result.Outcome != campaign.Unconfirmed {
		if reason := p.a.policy.note(j.user.Domain, reply.Class == mail.Policy); reason != "" {
			s.halt(reason)
		}
	}
}

// maxCuts is how often a mail may be cut off within one pass before it waits like one that got a 4xx: it may be the mail that
// kills the connection.
const maxCuts = 3

func (s *sending) cut(j *job, code int, text string, now time.Time) {
	p := s.p
	s.mu.Lock()
	defer s.mu.Unlock()
	j.result.Reply = text
	if code != 0 { // an answer, and it is not about this mail: the server takes none from us now
		s.halted, p.rest = true, true
		p.lookAgainAt(now.Add(5 * time.Second))
		if down := p.w.from.failed(now); down >= p.w.cfg.SMTPPatience && p.halt == "" {
			p.halt = fmt.Sprintf("the server takes no mail from %s: %s", p.a.envelope, text)
		}
		return
	}
	if p.cuts[j.index]++; p.cuts[j.index] >= maxCuts {
		j.result.Tried = true
	}
}

// errNoUnsubscribe fails a mail that could not be unsubscribed from: it must not go out.
var errNoUnsubscribe = errors.New("the user's _id is too long for an unsubscribe link")

func (p *pass) links(u *users.User, now time.Time) (templates.Links, error) {
	run, id, urls := p.a.run.Short, u.ID, p.w.cfg.URLs
	l := templates.Links{
		Pixel:       urls.Pixel(run, id, now),
		Unsubscribe: urls.Unsubscribe(run, id, now),
		Browser:     urls.Browser(run, id, now),
		Click:       func(target string) string { return urls.Click(run, id, now, target) },
		Now:         now,
		Zone:        u.Recipient.Zone,
	}
	if l.Unsubscribe == "" {
		return l, errNoUnsubscribe
	}
	return l, nil
}

// compose renders the template for one user.
func (p *pass) compose(j *job) ([]byte, error) {
	now := p.w.cfg.Clock.Now()
	links, err := p.links(&j.user, now)
	if err != nil {
		return nil, err
	}
	c, err := p.a.compiled.Render(j.user.Doc, links)
	if err != nil {
		return nil, err
	}
	m := mail.Message{
		From: p.a.from, ReplyTo: p.a.replyTo, To: mail.Address{Addr: j.user.Email},
		Subject: c.Subject, Text: c.Text, HTML: c.HTML,
		MessageID: mail.MessageID(p.a.run.Short, j.user.ID, p.a.domain), Date: now, UnsubscribeURL: links.Unsubscribe,
	}
	return m.Encode()
}

// replyText is a reply as it stands in the log: "550 5.1.1 no such user".
func replyText(r mail.Reply) string {
	text := r.Text
	if r.Enhanced != "" {
		text = r.Enhanced + " " + text
	}
	if r.Code != 0 {
		text = strconv.Itoa(r.Code) + " " + text
	}
	return text
}

// suppress marks the users whose addresses don't exist. Before the end of the wave, so that a crash can't lose it: what the server said
// holds whatever becomes of the batch.
func (p *pass) suppress(ctx context.Context, jobs []job) error {
	for k := range jobs {
		if jobs[k].result.Outcome != campaign.FailedBounced {
			continue
		}
		if err := p.w.cfg.Users.Suppress(ctx, jobs[k].user.ID, users.Bounced, p.w.cfg.Clock.Now()); err != nil {
			p.log.Warn("a bounced user could not be suppressed", "user", users.FormatID(jobs[k].user.ID), "err", err)
		}
	}
	return nil
}
