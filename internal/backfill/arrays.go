package backfill

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"postbit/internal/bitfield"
	"postbit/internal/users"
)

// Array is a field of the user documents that lists templates: names, bit indexes, or both. It may be the bitfield's own field;
// then it is converted in place.
type Array struct {
	Field string // dotted path
}

func (a Array) String() string { return a.Field }

// arrayBits are the templates that an array lists. What is no array lists none; a single name or number stands for itself.
func (o *Options) arrayBits(v bson.RawValue, unknown *tally) (bits []byte) {
	var f facts
	one := func(v bson.RawValue) {
		if bit, ok := o.Names.bit(v); ok {
			f.set(bit)
		} else if unknown != nil {
			unknown.add(label(v))
		}
	}
	switch v.Type {
	case 0, bson.TypeNull, bson.TypeUndefined:
	case bson.TypeArray:
		_ = users.EachElement(v, one)
	default:
		one(v)
	}
	return f.bits
}

// scan calls f for every user with the value of the field, and with his bitfield.
func (a Array) scan(ctx context.Context, o *Options, stage Stage, f func(u *users.User, v bson.RawValue, blob []byte, err error) error) error {
	path := strings.Split(a.Field, ".")
	n := int64(0)
	err := o.Users.EachBits(ctx, []string{a.Field}, func(u *users.User, blob []byte, err error) error {
		if n++; n%4096 == 0 {
			o.progress(stage, n, -1)
		}
		v, lerr := u.Doc.LookupErr(path...)
		if lerr != nil {
			v = bson.RawValue{}
		}
		return f(u, v, blob, err)
	})
	if err != nil {
		return fmt.Errorf("read %s of the users: %w", a.Field, err)
	}
	o.progress(stage, n, n)
	return nil
}

// Plan looks at all users and finds what Apply would do. Names that are not known are an *UnknownError unless they are to be
// skipped. Nothing is written.
func (a Array) Plan(ctx context.Context, o Options) (Counts, *Result, error) {
	var c Counts
	var unknown tally
	res := &Result{}
	convert := a.Field == o.Users.BitsField()
	err := a.scan(ctx, &o, Reading, func(u *users.User, v bson.RawValue, blob []byte, err error) error {
		c.Rows++
		m, work := a.planned(u, v, blob, err, o.arrayBits(value(v, convert), &unknown), convert)
		if work {
			c.Users++
			res.add(&m)
		}
		return nil
	})
	c.Skipped, c.Unknown = unknown.total, unknown.counts
	if err == nil && unknown.total > 0 && !o.SkipUnknown {
		err = &UnknownError{Rows: unknown.total, Names: unknown.counts}
	}
	return c, res, err
}

// value is what is to be read as a list. In the bitfield's own field only an array is one.
func value(v bson.RawValue, convert bool) bson.RawValue {
	if convert && v.Type != bson.TypeArray {
		return bson.RawValue{}
	}
	return v
}

// planned is what would become of one user, if there is anything to be looked at.
func (a Array) planned(u *users.User, v bson.RawValue, blob []byte, err error, bits []byte, convert bool) (m users.Merged, work bool) {
	m = users.Merged{ID: u.ID, State: users.MergeSame}
	switch {
	case convert && v.Type == bson.TypeArray:
		m.State, m.Added = users.MergeChanged, bits
		return m, true
	case convert && err != nil:
		m.State, m.Err = users.MergeUnreadable, err
		return m, true
	case convert || bits == nil:
		return m, false
	case err != nil:
		m.State, m.Err = users.MergeUnreadable, err
		return m, true
	}
	if m.Added = beyond(bits, blob); m.Added != nil {
		m.State = users.MergeChanged
	}
	return m, true
}

// Apply writes what Plan has found, reading the users once more. Those who have everything are only read, so after an interruption it
// is simply done again: the documents are their own mark. A list that has changed since the plan and now has unknown names is left
// alone unless they are to be skipped; it counts as unreadable.
func (a Array) Apply(ctx context.Context, o Options, total int64) (*Result, error) {
	convert := a.Field == o.Users.BitsField()
	res := &Result{}
	var guess guess
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	work := make(chan []users.History)
	g.Go(func() error {
		defer close(work)
		return a.collect(gctx, &o, convert, total, func(m *users.Merged) {
			mu.Lock()
			defer mu.Unlock()
			res.add(m)
		}, work)
	})
	for range inFlight {
		g.Go(func() error {
			for hs := range work {
				out, err := a.write(gctx, &o, &guess, convert, hs)
				if err != nil {
					return err
				}
				mu.Lock()
				for i := range out {
					res.add(&out[i])
				}
				mu.Unlock()
			}
			return nil
		})
	}
	return res, g.Wait()
}

// collect sends on the users who need a write, and tells of the others.
func (a Array) collect(ctx context.Context, o *Options, convert bool, total int64, tell func(*users.Merged), work chan<- []users.History) error {
	var hs []users.History
	send := func() error {
		if len(hs) == 0 {
			return nil
		}
		select {
		case work <- hs:
			hs = nil
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	n := int64(0)
	err := a.scan(ctx, &Options{Users: o.Users}, Writing, func(u *users.User, v bson.RawValue, blob []byte, err error) error {
		if n++; n%1024 == 0 {
			o.progress(Writing, n, total)
		}
		var unknown tally
		bits := o.arrayBits(value(v, convert), &unknown)
		m, needed := a.planned(u, v, blob, err, bits, convert)
		switch {
		case !needed:
			return nil
		case m.State == users.MergeChanged && unknown.total > 0 && !o.SkipUnknown:
			m.State, m.Err = users.MergeUnreadable, fmt.Errorf("%s has changed and names what is no template", a.Field)
			fallthrough
		case m.State != users.MergeChanged:
			tell(&m)
			return nil
		}
		hs = append(hs, users.History{ID: bson.RawValue{Type: u.ID.Type, Value: slices.Clone(u.ID.Value)}, Bits: bits})
		if len(hs) < batchUsers {
			return nil
		}
		return send()
	})
	if err != nil {
		return err
	}
	o.progress(Writing, n, max(n, total))
	return send()
}

func (a Array) write(ctx context.Context, o *Options, guess *guess, convert bool, hs []users.History) ([]users.Merged, error) {
	if !convert {
		return guess.merge(ctx, o.Users, hs)
	}
	ids := make([]bson.RawValue, len(hs))
	for i := range hs {
		ids[i] = hs[i].ID
	}
	return o.Users.Convert(ctx, ids, func(array bson.RawValue) ([]byte, bool) {
		var unknown tally
		bits := o.arrayBits(array, &unknown)
		return bits, unknown.total == 0 || o.SkipUnknown
	})
}

// Check compares each user's list with his bits. As of a log, bits beyond the list are a difference unless allowExtra.
func (a Array) Check(ctx context.Context, o Options, allowExtra bool, report func(*Difference) error) (Counts, *Checked, error) {
	var counts Counts
	var unknown tally
	c := &Checked{}
	err := a.scan(ctx, &o, Comparing, func(u *users.User, v bson.RawValue, blob []byte, err error) error {
		counts.Rows++
		bits := o.arrayBits(v, &unknown)
		if bits == nil && err == nil && !bitfield.Any(blob) {
			return nil
		}
		d := &Difference{User: users.FormatID(u.ID), Unreadable: err != nil}
		if !d.Unreadable {
			d.Missing, d.Extra = beyond(bits, blob), beyond(blob, bits)
		}
		return c.add(d, allowExtra, report)
	})
	counts.Skipped, counts.Unknown = unknown.total, unknown.counts
	if err == nil && unknown.total > 0 && !o.SkipUnknown {
		err = &UnknownError{Rows: unknown.total, Names: unknown.counts}
	}
	return counts, c, err
}
