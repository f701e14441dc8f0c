package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Finding is what one rule says about a recipient, and what it says it by.
type Finding struct {
	Rule    Rule
	Objects bool
	Why     string // one sentence for an operator
	Facts   Facts
}

// Fact is one thing that a rule has read.
type Fact struct{ Name, Value string }

// Facts stand in the order in which they are worth reading.
type Facts []Fact

// MarshalJSON writes an object whose keys keep their order.
func (f Facts) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, fact := range f {
		if i > 0 {
			b.WriteByte(',')
		}
		for j, s := range [...]string{fact.Name, fact.Value} {
			quoted, err := json.Marshal(s)
			if err != nil {
				return nil, err
			}
			if j > 0 {
				b.WriteByte(':')
			}
			b.Write(quoted)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Explain asks every rule, in order, also behind the one that decides. The first finding that objects is the rule of
// Check, but for a TimeOfDay that opens too late: Check calls that Expired.
func Explain(r *Recipient, m *Message, now time.Time) []Finding {
	return []Finding{
		explainExpired(m, now),
		explainAddress(r),
		explainSuppressed(r),
		explainUnreadable(r),
		explainAlreadySent(r, m),
		explainInactive(r, m, now),
		explainMinGap(r, m, now),
		explainTimeOfDay(r, m, now),
	}
}

func explainExpired(m *Message, now time.Time) Finding {
	f := Finding{Rule: Expired, Objects: expired(m, now)}
	f.Facts = Facts{{"now", instant(now)}, {"expires_at", instant(m.ExpiresAt)}}
	switch {
	case m.ExpiresAt.IsZero():
		f.Why = "the run never expires"
	case f.Objects:
		f.Why = "the run expired " + span(now.Sub(m.ExpiresAt)) + " ago"
	default:
		f.Why = "the run expires in " + span(m.ExpiresAt.Sub(now))
	}
	return f
}

func explainAddress(r *Recipient) Finding {
	f := Finding{Rule: Address, Objects: !r.AddressOK, Why: "the address can be sent to"}
	if f.Objects {
		f.Why = "there is no address that a mail can be sent to"
	}
	f.Facts = Facts{{"address_ok", yesNo(r.AddressOK)}}
	return f
}

func explainSuppressed(r *Recipient) Finding {
	f := Finding{Rule: Suppressed, Objects: r.Suppressed, Why: "nothing says that this user wants no mail"}
	if f.Objects {
		f.Why = "the user must not be mailed: unsubscribed, bounced, complained, or suppressed by a field of your own"
	}
	f.Facts = Facts{{"suppressed", yesNo(r.Suppressed)}}
	return f
}

func explainUnreadable(r *Recipient) Finding {
	f := Finding{Rule: Unreadable, Objects: r.Unreadable, Why: "the bits and the state can be read"}
	if f.Objects {
		f.Why = "what was sent to this user can't be read, so nothing is sent"
	}
	f.Facts = Facts{{"unreadable", yesNo(r.Unreadable)}}
	return f
}

func explainAlreadySent(r *Recipient, m *Message) Finding {
	f := Finding{Rule: AlreadySent, Objects: alreadySent(r, m)}
	f.Facts = Facts{{"repeat", m.Repeat.String()}, {"bit", yesNo(r.HasBit)}, {"first_open", instant(r.firstOpen())}}
	switch {
	case r.HoldsClaim:
		f.Why = "this very run has claimed the user"
		f.Facts = append(f.Facts, Fact{"holds_claim", "yes"})
	case m.Repeat == Always:
		f.Why = "the template may be sent again and again"
	case !r.HasBit:
		f.Why = "the template was never sent to this user"
	case m.Repeat == Never:
		f.Why = "the template was sent to this user before, and it is sent once only"
	case f.Objects:
		f.Why = "the template was sent to this user before, and no mail was ever opened"
	default:
		f.Why = "the template was sent before, but the user has opened a mail"
	}
	return f
}

func explainInactive(r *Recipient, m *Message, now time.Time) Finding {
	f := Finding{Rule: Inactive, Objects: inactive(r, m, now)}
	since := r.lastSign()
	f.Facts = Facts{{"inactive_after", duration(m.InactiveAfter)}, {"last_open", instant(r.lastOpen())}, {"first_mail", instant(r.firstMail())}}
	what := "the last open"
	if !r.opened() {
		what = "the first mail, with no open since,"
	}
	switch {
	case m.InactiveAfter <= 0:
		f.Why = "the campaign does not ask for activity"
	case since.IsZero():
		f.Why = "the user was never mailed"
	default:
		f.Why = what + " is " + span(now.Sub(since)) + " old"
	}
	return f
}

func explainMinGap(r *Recipient, m *Message, now time.Time) Finding {
	f := Finding{Rule: MinGap, Objects: tooSoon(r, m, now)}
	last := r.lastMail()
	f.Facts = Facts{{"min_gap", duration(m.MinGap)}, {"last_mail", instant(last)}}
	switch {
	case m.MinGap <= 0:
		f.Why = "the campaign does not ask for a gap"
	case r.HoldsClaim:
		f.Why = "this very run has claimed the user"
		f.Facts = append(f.Facts, Fact{"holds_claim", "yes"})
	case last.IsZero():
		f.Why = "the user was never mailed"
	case now.Before(last):
		f.Why = "the last mail lies " + span(last.Sub(now)) + " ahead"
	default:
		f.Why = "the last mail is " + span(now.Sub(last)) + " old"
	}
	return f
}

func explainTimeOfDay(r *Recipient, m *Message, now time.Time) Finding {
	loc := r.Zone
	if loc == nil {
		loc = time.UTC
	}
	f := Finding{Rule: TimeOfDay, Objects: !m.Window.Open(now, loc)}
	f.Facts = Facts{{"window", m.Window.String()}, {"zone", loc.String()}, {"local_time", now.In(loc).Format("Mon 2006-01-02 15:04:05 -07:00")}}
	switch {
	case m.Window == (Window{}):
		f.Why = "the campaign has no window"
		f.Facts[0].Value = "none"
	case !f.Objects:
		f.Why = "the window is open on the user's clock"
	default:
		next := m.Window.NextOpening(now, loc)
		f.Facts = append(f.Facts, Fact{"opens_at", instant(next)})
		switch {
		case next.IsZero():
			f.Why = "the window never opens"
		case tooLate(m, next):
			f.Why = "the window opens on the user's clock only when the run has expired"
		default:
			f.Why = "the window opens on the user's clock in " + span(next.Sub(now))
		}
	}
	return f
}

func instant(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func duration(d time.Duration) string {
	if d <= 0 {
		return "off"
	}
	return span(d)
}

// span writes a duration for people: its two largest units.
func span(d time.Duration) string {
	if d < 0 {
		return "-" + span(-d)
	}
	day := 24 * time.Hour
	switch {
	case d >= day:
		return pair(d, day, "d", time.Hour, "h")
	case d >= time.Hour:
		return pair(d, time.Hour, "h", time.Minute, "m")
	case d >= time.Minute:
		return pair(d, time.Minute, "m", time.Second, "s")
	case d >= time.Second || d == 0:
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return d.Round(time.Millisecond).String()
}

func pair(d, large time.Duration, l string, small time.Duration, s string) string {
	if rest := d % large / small; rest > 0 {
		return fmt.Sprintf("%d%s %d%s", d/large, l, rest, s)
	}
	return fmt.Sprintf("%d%s", d/large, l)
}
