package main

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// tally is what the faults came to, for the bounds of the audit.
type tally struct {
	faults, kills int
	waves         int // waves that may be unconfirmed at most: one for each batch that a worker who was killed or stopped had in flight
	mails         int // mails that may be unconfirmed beside: one for each SMTP connection that was cut
	ended         int // members that ended by themselves
	resumed       int // runs that a worker had paused
	afterEnd      int // faults that came when both runs had ended
}

// faults carries out the schedule. Those that go on for long do so beside the ones that follow.
func (h *house) faults(ctx context.Context, schedule []fault) {
	for n, f := range schedule {
		if !sleep(ctx, f.After) {
			return
		}
		h.say("#%-3d %-32s %s", n+1, f, h.state(ctx))
		h.mu.Lock()
		h.tally.faults++
		if f.Kind == kill {
			h.tally.kills++
		}
		h.mu.Unlock()
		if err := h.commit(ctx, f); err != nil {
			h.say("#%-3d %s: %v", n+1, f, err)
		}
	}
}

// state is how far the runs are.
func (h *house) state(ctx context.Context) string {
	sent, hits := h.traffic.counts()
	s := fmt.Sprintf("%6d mails, %5d hits", sent, hits)
	if runs, err := h.latest(ctx); err == nil {
		ended := true
		for _, r := range runs {
			ended = ended && r.State.Finished()
		}
		if ended {
			h.mu.Lock()
			h.tally.afterEnd++
			h.mu.Unlock()
			s += ", both runs have ended"
		}
	}
	return s
}

// commit commits one fault.
func (h *house) commit(ctx context.Context, f fault) error {
	switch f.Kind {
	case kill, term:
		return h.strike(ctx, f)
	case stop:
		return h.freeze(ctx, f)
	case flush:
		opt, err := redis.ParseURL(h.redisURI)
		if err != nil {
			return err
		}
		c := redis.NewClient(opt)
		defer c.Close()
		return c.FlushAll(ctx).Err()
	case pause:
		return h.hold(ctx, f)
	}
	begun := time.Now()
	h.disturb(ctx, f)
	if f.Target == "mongo" || f.Kind == slow { // a slow server hears of a mail later than it was begun
		h.excuse(begun)
	}
	return nil
}

// strike ends a member, waits and starts it again.
func (h *house) strike(ctx context.Context, f fault) error {
	m := h.members[f.Target]
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.Target == "mongo" {
		defer h.excuse(time.Now())
	}
	switch {
	case f.Kind == term:
		_ = m.proc.Signal(syscall.SIGCONT) // it may be stopped
		m.proc.Stop(40 * time.Second)
	default:
		h.bound(m)
		_ = m.proc.Signal(syscall.SIGKILL)
		<-m.proc.Exited()
	}
	if !sleep(ctx, f.Lasts) {
		return ctx.Err()
	}
	h.again(m)
	if m.addr == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return m.proc.AwaitTCP(ctx, m.addr)
}

// bound notes what the end of a member may leave unconfirmed.
func (h *house) bound(m *member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch m.name {
	case "worker-1", "worker-2":
		h.tally.waves += concurrency
	case "sink":
		h.tally.mails += h.links["smtp"].carries()
	}
}

// freeze stops a member and lets it go on later, unless it was killed meanwhile.
func (h *house) freeze(ctx context.Context, f fault) error {
	m := h.members[f.Target]
	m.mu.Lock()
	defer m.mu.Unlock()
	h.bound(m)
	p := m.proc
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	h.keeping.Go(func() {
		sleep(ctx, f.Lasts)
		select {
		case <-p.Exited():
		default:
			h.say("     %s goes on", m.name)
			h.excuse(time.Now())
			_ = p.Signal(syscall.SIGCONT)
		}
	})
	return nil
}

// hold pauses a run and resumes it later.
func (h *house) hold(ctx context.Context, f fault) error {
	set := func(on bool) {
		h.steering.Lock()
		defer h.steering.Unlock()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.paused[f.Target] = on
	}
	turn := h.holding[f.Target]
	h.keeping.Go(func() {
		turn.Lock() // the end of the one before would be the end of this one, too
		defer turn.Unlock()
		set(true)
		defer set(false)
		if err := h.steer(ctx, "campaigns", "pause", f.Target, "--reason", "chaos"); err != nil {
			h.say("     pause %s: %.200v", f.Target, err)
			return
		}
		p := pauseSpan{campaign: f.Target, span: span{from: time.Now()}}
		sleep(ctx, f.Lasts)
		p.to = time.Now()
		h.mu.Lock()
		h.pauses = append(h.pauses, p)
		h.mu.Unlock()
		if err := h.steer(ctx, "campaigns", "resume", f.Target); err != nil {
			h.say("     resume %s: %.200v", f.Target, err)
		}
	})
	return nil
}

// disturb does something to a link, and heals it.
func (h *house) disturb(ctx context.Context, f fault) {
	p := h.links[f.Target]
	cutAll := func() {
		n := p.cut()
		if f.Target == "smtp" {
			h.mu.Lock()
			h.tally.mails += n
			h.mu.Unlock()
		}
	}
	switch f.Kind {
	case cut:
		cutAll()
	case mute:
		p.set(func() { p.mute = true })
		sleep(ctx, f.Lasts)
		cutAll()
		p.set(func() { p.mute = false })
	case shut:
		p.set(func() { p.shut = true })
		cutAll()
		sleep(ctx, f.Lasts)
		p.set(func() { p.shut = false })
	case slow:
		p.set(func() { p.delay = 150 * time.Millisecond })
		sleep(ctx, f.Lasts)
		p.set(func() { p.delay = 0 })
	}
}

// patience is how long the runs may take to their end when nothing disturbs them any more. A mail that was cut off three times waits for five
// minutes before it is tried again.
const patience = 15 * time.Minute

// awaitEnd waits until both runs have ended by themselves; it returns what has not.
func (h *house) awaitEnd(ctx context.Context) string {
	h.say("the last fault is over; the sink answers at once")
	if resp, err := http.Post(h.sink.HTTP+"/delay?is=0s", "", nil); err == nil { // or it takes a little longer
		resp.Body.Close()
	}
	defer h.traffic.end()
	for until := time.Now().Add(patience); time.Now().Before(until); {
		runs, err := h.latest(ctx)
		ended := err == nil
		for _, r := range runs {
			ended = ended && r.State.Finished()
		}
		if ended {
			h.say("both runs have ended")
			return ""
		}
		if !sleep(ctx, time.Second) {
			break
		}
	}
	return "the runs did not end in time"
}
