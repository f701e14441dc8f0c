package main

import (
	"slices"
	"time"
)

// span is a stretch of time.
type span struct{ from, to time.Time }

func (s span) holds(t time.Time) bool { return !t.Before(s.from) && t.Before(s.to) }

// pauseSpan is a pause of a run, from when the command that asked for it had succeeded until the one that ends it was begun.
type pauseSpan struct {
	campaign string
	span
}

// pauseWithin is how soon a pause has its effect, as docs/guarantees.md promises: no mail of the run is begun any more. One that
// was begun is finished, however long the server takes.
const pauseWithin = 2 * time.Second

// excuse notes that workers could not see a pause since begun: the database didn't answer, or a worker was stopped. The 2 s begin when
// that is over.
func (h *house) excuse(begun time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.excused = append(h.excused, span{begun, time.Now()})
}

// pauses counts the mails that were begun when their run had been paused for 2 s.
func (v *verdict) pauses(e *evidence) {
	excused := make([]span, 0, len(e.Excused))
	for _, s := range e.Excused {
		excused = append(excused, span{s.from, s.to.Add(pauseWithin)})
	}
	v.Pauses = len(e.Pauses)
	for _, p := range e.Pauses {
		judged := without(span{p.from.Add(pauseWithin), p.to}, excused)
		for _, s := range judged {
			v.Judged += s.to.Sub(s.from)
		}
		for _, m := range e.Mails {
			c := m.campaign()
			if c < 0 || campaigns[c].name != p.campaign {
				continue
			}
			if slices.ContainsFunc(judged, func(s span) bool { return s.holds(m.Begun) }) {
				v.note(&v.Late, "%s: a mail to %s was begun %.1f s after the pause and accepted at %s", p.campaign, m.To, m.Begun.Sub(p.from).Seconds(),
					m.At.Format(time.TimeOnly))
			}
		}
	}
}

// without is what is left of s outside of others.
func without(s span, others []span) []span {
	var left []span
	if s.from.Before(s.to) {
		left = append(left, s)
	}
	for _, o := range others {
		var next []span
		for _, l := range left {
			before, after := span{l.from, earlier(l.to, o.from)}, span{later(l.from, o.to), l.to}
			for _, part := range []span{before, after} {
				if part.from.Before(part.to) {
					next = append(next, part)
				}
			}
		}
		left = next
	}
	return left
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
