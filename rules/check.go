package rules

import "time"

// Check decides about one recipient. The first rule that objects, in the order of the constants, decides. It reads
// nothing but its arguments and allocates nothing.
func Check(r *Recipient, m *Message, now time.Time) Decision {
	switch {
	case expired(m, now):
		return Decision{Outcome: Skip, Rule: Expired}
	case !r.AddressOK:
		return Decision{Outcome: Skip, Rule: Address}
	case r.Suppressed:
		return Decision{Outcome: Skip, Rule: Suppressed}
	case r.Unreadable:
		return Decision{Outcome: Skip, Rule: Unreadable}
	case alreadySent(r, m):
		return Decision{Outcome: Skip, Rule: AlreadySent}
	case inactive(r, m, now):
		return Decision{Outcome: Skip, Rule: Inactive}
	case tooSoon(r, m, now):
		return Decision{Outcome: Skip, Rule: MinGap}
	case m.Window == (Window{}):
		return Decision{Outcome: Send}
	}
	clock := readWallClock(now, r.Zone)
	if m.Window.openAt(clock.furthest) {
		return Decision{Outcome: Send}
	}
	until := m.Window.nextOpening(clock)
	if tooLate(m, until) {
		return Decision{Outcome: Skip, Rule: Expired}
	}
	return Decision{Outcome: Defer, Rule: TimeOfDay, Until: until}
}

func expired(m *Message, now time.Time) bool {
	return !m.ExpiresAt.IsZero() && !now.Before(m.ExpiresAt)
}

// tooLate reports whether an opening comes only when the run has expired, or never.
func tooLate(m *Message, opening time.Time) bool {
	return opening.IsZero() || expired(m, opening)
}

func alreadySent(r *Recipient, m *Message) bool {
	if !r.HasBit || r.HoldsClaim {
		return false
	}
	switch m.Repeat {
	case Always:
		return false
	case Never:
		return true
	}
	return !r.opened()
}

// inactive measures from the last open, or from the first mail where there was no open yet: whoever never opened gets as
// long as the others to do so. Whoever was never mailed has had no chance to open anything.
func inactive(r *Recipient, m *Message, now time.Time) bool {
	if m.InactiveAfter <= 0 {
		return false
	}
	since := r.lastSign()
	return !since.IsZero() && since.Before(now.Add(-m.InactiveAfter))
}

func tooSoon(r *Recipient, m *Message, now time.Time) bool {
	if m.MinGap <= 0 || r.HoldsClaim {
		return false
	}
	last := r.lastMail()
	return !last.IsZero() && last.After(now.Add(-m.MinGap))
}

func (r *Recipient) opened() bool { return !r.OpenFirstAt.IsZero() || !r.OpenLastAt.IsZero() }

// lastMail is the last mail as far as it is known: where only the first has a date, the last is no earlier.
func (r *Recipient) lastMail() time.Time {
	if r.LastAt.Before(r.FirstAt) {
		return r.FirstAt
	}
	return r.LastAt
}

// firstMail is the first mail as far as it is known. A claim of this very run is not yet a mail.
func (r *Recipient) firstMail() time.Time {
	first := r.FirstAt
	if first.IsZero() {
		first = r.LastAt
	}
	if r.HoldsClaim && first.Equal(r.LastAt) {
		return time.Time{}
	}
	return first
}

// lastSign is what `inactive` measures from; zero: nothing to measure from.
func (r *Recipient) lastSign() time.Time {
	if r.opened() {
		return r.lastOpen()
	}
	return r.firstMail()
}

// firstOpen and lastOpen know one by the other where only one has a date.
func (r *Recipient) firstOpen() time.Time {
	if r.OpenFirstAt.IsZero() {
		return r.OpenLastAt
	}
	return r.OpenFirstAt
}

func (r *Recipient) lastOpen() time.Time {
	if r.OpenLastAt.Before(r.OpenFirstAt) {
		return r.OpenFirstAt
	}
	return r.OpenLastAt
}
