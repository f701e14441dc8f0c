package backfill

import (
	"context"

	"postbit/internal/bitfield"
	"postbit/internal/users"
)

// Difference is a user whose field does not say what the source says.
type Difference struct {
	User       string
	Missing    []byte // bits that the source has and the field has not
	Extra      []byte // bits that the field has and the source has not
	Unreadable bool   // the field can't be read
}

// Checked is what a check has found.
type Checked struct {
	Users       int64 // looked at
	Differ      int64 // of them, as Check reports them
	MissingBits int64
	ExtraBits   int64 // also those that are allowed
	Unreadable  int64
	Gone        int64 // users of the source who are not in the collection; no difference
}

// add counts and reports a user.
func (c *Checked) add(d *Difference, allowExtra bool, report func(*Difference) error) error {
	c.Users++
	c.MissingBits += int64(bitfield.Count(d.Missing))
	c.ExtraBits += int64(bitfield.Count(d.Extra))
	if d.Unreadable {
		c.Unreadable++
	}
	if !d.Unreadable && d.Missing == nil && (d.Extra == nil || allowExtra) {
		return nil
	}
	c.Differ++
	return report(d)
}

// Check compares the bits of all users with those that the source gives them, and reports who differs. Bits that a user has beyond the
// source are a difference, also where the source does not name him, unless allowExtra. Users of the source who are not in the
// collection have no field that could differ. Nothing is written.
func (l *Log) Check(ctx context.Context, o Options, allowExtra bool, report func(*Difference) error) (*Checked, error) {
	c := &Checked{Gone: l.Counts.Emails}
	var seen *sorter // users of the source, and then all users with bits
	if !allowExtra {
		seen = o.sorter(combineSeen)
		defer seen.close()
	}
	err := l.visit(ctx, &o, visit{stage: Comparing, each: func(h *users.History, m *users.Merged) error {
		if m.State == users.MergeMissing {
			c.Gone++
			return nil
		}
		if seen != nil {
			if err := seen.add(keyOf(m.ID), nil); err != nil {
				return err
			}
		}
		d := &Difference{User: users.FormatID(m.ID), Unreadable: m.State == users.MergeUnreadable}
		if !d.Unreadable {
			d.Missing, d.Extra = beyond(h.Bits, m.Bits), beyond(m.Bits, h.Bits)
		}
		return c.add(d, allowExtra, report)
	}})
	if err != nil || seen == nil {
		return c, err
	}
	return c, l.checkOthers(ctx, &o, c, seen, report)
}

// checkOthers looks for bits of users whom the source does not name.
func (l *Log) checkOthers(ctx context.Context, o *Options, c *Checked, seen *sorter, report func(*Difference) error) error {
	n := int64(0)
	err := o.Users.EachBits(ctx, nil, func(u *users.User, blob []byte, err error) error {
		if n++; n%4096 == 0 {
			o.progress(Scanning, n, -1)
		}
		switch {
		case err != nil:
			return seen.add(keyOf(u.ID), []byte{0})
		case bitfield.Any(blob):
			return seen.add(keyOf(u.ID), append([]byte{1}, blob...))
		}
		return nil
	})
	if err != nil {
		return err
	}
	o.progress(Scanning, n, n)
	return seen.each(func(key, value []byte) error {
		if len(value) == 0 {
			return nil
		}
		id, _ := idsOf(key, false)
		d := &Difference{User: users.FormatID(id), Unreadable: value[0] == 0}
		if !d.Unreadable {
			d.Extra = append([]byte(nil), value[1:]...)
		}
		return c.add(d, false, report)
	})
}

// combineSeen keeps what says that the source names the user: an empty value.
func combineSeen(a, b []byte) []byte {
	if len(a) == 0 || len(b) == 0 {
		return a[:0]
	}
	return a
}

// beyond is the bits of a that b has not, nil where there are none.
func beyond(a, b []byte) []byte {
	out := make([]byte, len(a))
	for i, x := range a {
		if i < len(b) {
			x &^= b[i]
		}
		out[i] = x
	}
	if !bitfield.Any(out) {
		return nil
	}
	return out
}
