package limits

import (
	"time"

	"postbit/internal/campaign"
)

// scopeDoc is the document of a scope. Every change raises Rev.
type scopeDoc struct {
	ID      string   `bson:"_id"`
	Rev     int64    `bson:"rev"`
	At      int64    `bson:"at"` // Unix ms of the last grant; time in a scope never goes back
	Windows []window `bson:"windows"`
}

// take grants what all rates have room for, up to want, and returns the document as it must be written for the grant to
// hold. own is the time on the clock of the worker that asks. One that is behind takes the time of the last grant, since its
// own would drop out of the window too early; the grant ends by its own clock, which is the one it compares with.
func (d scopeDoc) take(rates []campaign.Rate, want int, own time.Time) (scopeDoc, Grant) {
	now, validity := max(own.UnixMilli(), d.At), Validity(rates)
	windows := windowsFor(d.Windows, rates, now, validity)
	free, next := room(windows, rates, now, validity)
	if free == 0 {
		return d, Grant{Until: own, Next: time.UnixMilli(next).UTC()}
	}
	n := min(int64(want), free)
	for i := range windows {
		windows[i].add(now, n)
	}
	after := scopeDoc{ID: d.ID, Rev: d.Rev + 1, At: now, Windows: windows}
	return after, Grant{N: int(n), Until: own.Truncate(time.Millisecond).Add(validity)}
}

// next is when there will be room for one mail, or the zero time if there is now.
func (d scopeDoc) next(rates []campaign.Rate, own time.Time) time.Time {
	now, validity := max(own.UnixMilli(), d.At), Validity(rates)
	if _, next := room(windowsFor(d.Windows, rates, now, validity), rates, now, validity); next > now {
		return time.UnixMilli(next).UTC()
	}
	return time.Time{}
}

// room is how many mails all windows have room for, and from when there is room for one.
func room(windows []window, rates []campaign.Rate, now int64, validity time.Duration) (free, next int64) {
	free, next = rates[0].N, now
	for i, r := range rates {
		free = min(free, max(r.N-windows[i].used(), 0))
		next = max(next, windows[i].opens(now, r.N, validity))
	}
	return free, next
}
