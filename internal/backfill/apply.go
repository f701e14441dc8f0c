package backfill

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"postbit/internal/bitfield"
	"postbit/internal/users"
)

const (
	batchUsers = 1000
	// inFlight is how many batches are under way: while one waits for its reads, another one writes.
	inFlight = 2
)

// Result is what became of the users of a source.
type Result struct {
	Users      int64         `bson:"users"`       // looked at
	Missing    int64         `bson:"missing"`     // not in the collection
	Same       int64         `bson:"same"`        // had everything
	Changed    int64         `bson:"changed"`     // written, or to be written
	Unreadable int64         `bson:"unreadable"`  // their bitfield can't be read: left alone
	Refused    int64         `bson:"refused"`     // the server does not take the write
	Dates      int64         `bson:"dates"`       // of those changed: a date moves
	LastStays  int64         `bson:"last_stays"`  // last_at names a claim and stays
	StateStays int64         `bson:"state_stays"` // their state field can't take dates
	Bits       map[int]int64 `bson:"-"`           // bits set, by index
	Examples   []Example     `bson:"-"`           // the first users who were left alone or refused
}

// Example is a user who needs somebody's eye.
type Example struct {
	User string
	Why  string
}

const maxExamples = 20

func (r *Result) add(m *users.Merged) {
	r.Users++
	switch m.State {
	case users.MergeMissing:
		r.Missing++
	case users.MergeSame:
		r.Same++
	case users.MergeUnreadable:
		r.Unreadable++
		r.example(m, "the bitfield can't be read")
	case users.MergeRefused:
		r.Refused++
		r.example(m, "the server refuses the write")
	case users.MergeChanged:
		r.Changed++
		if m.Dates {
			r.Dates++
		}
		for bit := range bitfield.Indexes(m.Added) {
			if r.Bits == nil {
				r.Bits = map[int]int64{}
			}
			r.Bits[bit]++
		}
	}
	if m.LastStays {
		r.LastStays++
	}
	if m.StateStays {
		r.StateStays++
		r.example(m, "the state field holds something that postbit did not write; its dates are left out")
	}
}

func (r *Result) example(m *users.Merged, why string) {
	if len(r.Examples) < maxExamples {
		if m.Err != nil {
			why = fmt.Sprintf("%s: %v", why, m.Err)
		}
		r.Examples = append(r.Examples, Example{users.FormatID(m.ID), why})
	}
}

// Compare finds what Apply would do.
func (l *Log) Compare(ctx context.Context, o Options) (*Result, error) {
	res := &Result{}
	err := l.visit(ctx, &o, visit{stage: Comparing, each: func(_ *users.History, m *users.Merged) error {
		res.add(m)
		return nil
	}})
	return res, err
}

// Apply writes. Where an earlier Apply of the same facts was interrupted it goes on, and the result counts both. marks may be nil.
func (l *Log) Apply(ctx context.Context, o Options, marks *Marks) (res *Result, resumed bool, err error) {
	return l.apply(ctx, o, marks, markEvery)
}

// apply writes a mark after so many batches.
func (l *Log) apply(ctx context.Context, o Options, marks *Marks, every int) (res *Result, resumed bool, err error) {
	mark := &mark{}
	if marks != nil {
		if mark, err = marks.begin(ctx, l.Fingerprint, l.source); err != nil {
			return nil, false, err
		}
	}
	res = mark.result()
	resumed = mark.Key != nil
	v := visit{stage: Writing, write: true, after: mark.Key, done: res.Users}
	v.each = func(_ *users.History, m *users.Merged) error {
		res.add(m)
		return nil
	}
	v.reached = func(key []byte) error {
		if marks == nil {
			return nil
		}
		if mark.since++; mark.since < every {
			return nil
		}
		return marks.keepAt(ctx, mark, key, res)
	}
	if err = l.visit(ctx, &o, v); err != nil {
		return res, resumed, err
	}
	if marks != nil {
		err = marks.done(ctx, mark, res)
	}
	return res, resumed, err
}

// visit is a way through all users of a log.
type visit struct {
	stage   Stage
	write   bool
	after   []byte // begin behind this key
	done    int64  // users before it
	each    func(*users.History, *users.Merged) error
	reached func(key []byte) error // everything up to key is done; now and then
}

// batch is a number of users that are worked on together.
type batch struct {
	n    int // from 0
	last []byte
	hs   []users.History
	out  []users.Merged
}

// visit works on several batches at a time and tells of them in their order.
func (l *Log) visit(ctx context.Context, o *Options, v visit) error {
	total := l.Counts.Users - l.Counts.Emails
	g, gctx := errgroup.WithContext(ctx)
	work := make(chan *batch)
	g.Go(func() error {
		defer close(work)
		return l.batches(v.after, cmp.Or(o.batch, batchUsers), func(b *batch) error {
			select {
			case work <- b:
				return nil
			case <-gctx.Done():
				return gctx.Err()
			}
		})
	})
	var guess guess
	var mu sync.Mutex
	waiting := map[int]*batch{}
	next := 0
	finish := func(b *batch) error {
		mu.Lock()
		defer mu.Unlock()
		for waiting[b.n] = b; ; next++ {
			b, ok := waiting[next]
			if !ok {
				return nil
			}
			delete(waiting, next)
			if err := v.tell(o, b); err != nil {
				return err
			}
			v.done += int64(len(b.hs))
			o.progress(v.stage, v.done, total)
			if v.reached != nil {
				if err := v.reached(b.last); err != nil {
					return err
				}
			}
		}
	}
	for range inFlight {
		g.Go(func() error {
			for b := range work {
				var err error
				if v.write {
					b.out, err = guess.merge(gctx, o.Users, b.hs)
				} else {
					b.out, err = o.Users.Merge(gctx, b.hs, false)
				}
				if err != nil {
					return err
				}
				if err := finish(b); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (v *visit) tell(o *Options, b *batch) error {
	for i := range b.out {
		if b.out[i].State == users.MergeMissing && o.Missing != nil {
			if err := o.Missing(users.FormatID(b.hs[i].ID)); err != nil {
				return err
			}
		}
		if err := v.each(&b.hs[i], &b.out[i]); err != nil {
			return err
		}
	}
	return nil
}

// batches cuts the users behind a key into batches.
func (l *Log) batches(after []byte, size int, f func(*batch) error) error {
	b := &batch{}
	err := l.groups.each(func(key, value []byte) error {
		if after != nil && bytes.Compare(key, after) <= 0 {
			return nil
		}
		b.hs = append(b.hs, history(key, value))
		if len(b.hs) < size {
			return nil
		}
		b.last = bytes.Clone(key)
		full := b
		b = &batch{n: full.n + 1}
		return f(full)
	})
	if err != nil || len(b.hs) == 0 {
		return err
	}
	b.last = keyOf(b.hs[len(b.hs)-1].ID)
	return f(b)
}

func history(key, value []byte) users.History {
	var f facts
	f.read(value)
	h := users.History{Bits: f.bits, FirstAt: at(f.first), LastAt: at(f.last), OpenFirstAt: at(f.openFirst), OpenLastAt: at(f.openLast)}
	h.ID, h.Else = idsOf(key, f.text)
	return h
}

func keyOf(id bson.RawValue) []byte { return appendKey(nil, id) }
