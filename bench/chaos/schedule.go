package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// fault is one entry of the schedule.
type fault struct {
	After  time.Duration // since the one before
	Kind   string
	Target string
	Lasts  time.Duration // until it is started again, healed, resumed
}

func (f fault) String() string {
	s := f.Kind + " " + f.Target
	if f.Lasts > 0 {
		s += fmt.Sprintf(" for %.1fs", f.Lasts.Seconds())
	}
	return s
}

// Kinds of faults.
const (
	kill  = "kill -9"
	stop  = "stop"  // SIGSTOP, and SIGCONT long after the lease of its batches has ended
	term  = "term"  // SIGTERM
	flush = "flush" // of Redis
	cut   = "cut"   // all connections of a link at once
	mute  = "mute"  // a link carries requests, no replies, and is cut then
	shut  = "shut"  // a link is cut and takes no connections
	slow  = "slow"  // a link delays everything
	pause = "pause" // of a run, and resume
)

// deck is what is dealt out. Every thirty-odd faults hold all of them.
var deck = []struct {
	n            int
	kind, target string
}{
	{5, kill, "worker-1"}, {5, kill, "worker-2"}, {3, kill, "web"}, {3, kill, "scheduler"}, {3, kill, "mongo"}, {2, kill, "redis"}, {1, kill, "sink"},
	{1, stop, "worker-1"}, {1, stop, "worker-2"}, {1, term, "worker-1"}, {2, flush, "redis"},
	{1, cut, "mongo"}, {1, mute, "mongo"}, {1, slow, "mongo"}, {1, shut, "redis"}, {1, cut, "smtp"}, {1, mute, "smtp"}, {1, slow, "smtp"},
	{1, pause, "summer"}, {1, pause, "autumn"},
}

// targets are what faults befall.
func targets() (names []string) {
	for _, d := range deck {
		if !slices.Contains(names, d.target) {
			names = append(names, d.target)
		}
	}
	return names
}

// schedule deals n faults over the given time, of those targets only where any are named. The same seed gives the same schedule.
func schedule(seed uint64, n int, over time.Duration, only ...string) []fault {
	r := rand.New(rand.NewPCG(seed, 0x706f7374626974))
	var cards, out []fault
	var waited time.Duration // for the fault before, whose time is a part of the gap
	for len(out) < n {
		if len(cards) == 0 {
			for _, d := range deck {
				for range d.n {
					if len(only) > 0 && !slices.Contains(only, d.target) {
						continue
					}
					cards = append(cards, fault{Kind: d.kind, Target: d.target})
				}
			}
			r.Shuffle(len(cards), func(i, j int) { cards[i], cards[j] = cards[j], cards[i] })
		}
		f := cards[0]
		cards = cards[1:]
		gap := time.Duration((0.5 + r.Float64()) * float64(over) / float64(n+1))
		f.After = max(gap-waited, 200*time.Millisecond).Round(time.Millisecond)
		f.Lasts = lasts(f.Kind, r.Float64())
		waited = 0
		if f.Kind != stop && f.Kind != pause {
			waited = f.Lasts
		}
		out = append(out, f)
	}
	return out
}

// lasts is how long a fault of this kind goes on; at is between 0 and 1.
func lasts(kind string, at float64) time.Duration {
	between := func(least, most float64) time.Duration {
		return time.Duration((least + at*(most-least)) * float64(time.Second)).Round(100 * time.Millisecond)
	}
	switch kind {
	case kill, term:
		return between(0, 3)
	case stop: // a lease is 30 s, and a batch may be taken over 10 s after it
		return between(43, 50)
	case mute, shut:
		return between(1, 5)
	case slow:
		return between(3, 8)
	case pause:
		return between(3, 8)
	}
	return 0
}
