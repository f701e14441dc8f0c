package limits

import (
	"slices"
	"time"

	"postbit/internal/campaign"
)

const (
	buckets     = 64
	maxValidity = 2 * time.Second
	minValidity = 500 * time.Millisecond
)

// Validity is how long a grant for these rates is good: 2 s, or half of the shortest window, but no less than 0.5 s. Every
// window is longer by that much than its rate says, since what was granted at its beginning may be used that much later.
// With a fixed 2 s a rate of 20/s would come to 20 in 3 s.
func Validity(rates []campaign.Rate) time.Duration {
	v := maxValidity
	for _, r := range rates {
		v = min(v, r.Per/2)
	}
	return max(v, minValidity)
}

// window counts what was granted for one rate, in buckets of an equal width. A bucket counts until its end has left the
// window, so it errs on the side of sending less, by 1/64 of the window at most.
type window struct {
	Per     int64    `bson:"per"`   // ms, as in the rate
	Width   int64    `bson:"width"` // ms of one bucket
	Buckets []bucket `bson:"buckets"`
}

// bucket holds what was granted from Start until Start + Width, in Unix ms.
type bucket struct {
	Start int64 `bson:"t"`
	N     int64 `bson:"n"`
}

func newWindow(r campaign.Rate, validity time.Duration) window {
	per := r.Per.Milliseconds()
	return window{Per: per, Width: (per + validity.Milliseconds() + buckets - 1) / buckets}
}

// leaves is the first ms at which b does not count any more. Grants are less than b's end, uses less than that + validity;
// a use at that instant or later is at least Per away from all of them.
func (w window) leaves(b bucket, validity time.Duration) int64 {
	return b.Start + w.Width + w.Per + validity.Milliseconds()
}

// prune drops the buckets that have left the window at now.
func (w *window) prune(now int64, validity time.Duration) {
	w.Buckets = slices.DeleteFunc(w.Buckets, func(b bucket) bool { return w.leaves(b, validity) <= now })
}

// used counts the grants that are in the window, those a faster clock has put ahead of now included. It needs a pruned window.
func (w window) used() int64 {
	var n int64
	for _, b := range w.Buckets {
		n += b.N
	}
	return n
}

// add notes n grants at now, which never lies before the last bucket.
func (w *window) add(now, n int64) {
	start := now - now%w.Width
	if last := len(w.Buckets) - 1; last >= 0 && w.Buckets[last].Start >= start {
		w.Buckets[last].N += n
		return
	}
	w.Buckets = append(w.Buckets, bucket{Start: start, N: n})
}

// opens is the first ms from which fewer than limit grants count: now, if there is room already.
func (w window) opens(now, limit int64, validity time.Duration) int64 {
	used := w.used()
	for _, b := range w.Buckets {
		if used < limit {
			break
		}
		used -= b.N
		now = max(now, w.leaves(b, validity))
	}
	return now
}

// seed fills a window of a rate that is new in its scope from the longest memory there is, each bucket as if granted at its
// end, so that a campaign applied again with another rate does not begin with an empty window.
func (w *window) seed(from []window) {
	var longest window
	for _, f := range from {
		if f.Per > longest.Per {
			longest = f
		}
	}
	for _, b := range longest.Buckets {
		w.add(b.Start+longest.Width-1, b.N)
	}
}

// windowsFor brings the stored windows in line with the rates: one for each, in their order.
func windowsFor(stored []window, rates []campaign.Rate, now int64, validity time.Duration) []window {
	out := make([]window, len(rates))
	for i, r := range rates {
		fresh := newWindow(r, validity)
		j := slices.IndexFunc(stored, func(w window) bool { return w.Per == fresh.Per && w.Width == fresh.Width })
		if j >= 0 {
			fresh.Buckets = slices.Clone(stored[j].Buckets)
		} else {
			fresh.seed(stored)
		}
		fresh.prune(now, validity)
		out[i] = fresh
	}
	return out
}
