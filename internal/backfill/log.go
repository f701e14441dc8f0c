package backfill

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/users"
)

// Options are what all that reads a source has in common.
type Options struct {
	Users       *users.Store
	Names       *Names
	UserKind    string    // one of UserKinds; empty is auto
	SkipUnknown bool      // leave out rows whose user or template can't be read or is not known, and count them
	Now         time.Time // dates after it are not believed
	TempDir     string    // for sorting; empty is the system's

	// Progress, if set, is told how far a stage has come; total is -1 where it is not known. It is called from one goroutine at a time.
	Progress func(stage Stage, done, total int64)
	// Missing, if set, is told of each user of the source who is not in the collection.
	Missing func(user string) error

	memory int // of a sorter, in bytes; 0 is sortMemory
	batch  int // users at a time; 0 is batchUsers
}

func (o *Options) sorter(combine func(a, b []byte) []byte) *sorter {
	s := newSorter(o.TempDir, combine)
	if o.memory > 0 {
		s.limit = o.memory
	}
	return s
}

// Stage is what is going on.
type Stage string

const (
	Reading   Stage = "reading"   // rows of the source
	Addresses Stage = "addresses" // emails of users
	Comparing Stage = "comparing" // users with what the source says, nothing is written
	Writing   Stage = "writing"   // the same, and writing
	Scanning  Stage = "scanning"  // all users, for bits that the source does not have
)

func (o *Options) progress(stage Stage, done, total int64) {
	if o.Progress != nil {
		o.Progress(stage, done, total)
	}
}

// Counts is what was found in a source before anything is compared.
type Counts struct {
	Rows       int64
	Skipped    int64            // rows left out (Options.SkipUnknown)
	Unknown    map[string]int64 // names that are no template's
	BadDates   int64            // dates that can't be read or can't be true; the rows count, their dates don't
	NoUser     int64            // rows that name no user
	Users      int64            // different users
	Emails     int64            // of them, emails that no user has
	SharedWith int64            // users beyond the first who have the same email as another
}

// Log is a source in the order of its users: for each, what all rows say together. What does not fit in memory is in a
// temporary file.
type Log struct {
	Counts      Counts
	Fingerprint string // of all facts; another file with the same facts has the same

	source string
	groups *sorter
}

// Read reads a source to its end. Nothing is written to the database. Unless rows are to be skipped, the first row that names no
// user is a *SourceError, and names of templates that are not known are an *UnknownError.
func Read(ctx context.Context, src Source, o Options) (_ *Log, err error) {
	l := &Log{source: src.String(), groups: o.sorter(combineFacts)}
	emails := o.sorter(combineAddress)
	defer func() {
		if cerr := emails.close(); err == nil {
			err = cerr
		}
		if err != nil {
			_ = l.Close()
		}
	}()
	if err := l.readRows(ctx, src, &o, emails); err != nil {
		return nil, err
	}
	if err := l.resolve(ctx, &o, emails); err != nil {
		return nil, err
	}
	return l, l.count()
}

// Close removes the temporary file.
func (l *Log) Close() error { return l.groups.close() }

func (l *Log) readRows(ctx context.Context, src Source, o *Options, emails *sorter) error {
	var unknown tally
	var key, value []byte
	latest := o.Now.UnixMilli()
	c := &l.Counts
	err := src.Rows(ctx, func(row *Row) error {
		if c.Rows++; c.Rows%4096 == 0 {
			o.progress(Reading, c.Rows, -1)
		}
		bit, ok := o.Names.bit(row.Template)
		if !ok {
			unknown.add(label(row.Template))
			return nil
		}
		who, err := identify(row.User, o.UserKind, key)
		if err != nil {
			if c.NoUser++; o.SkipUnknown {
				return nil
			}
			return &SourceError{l.source, row.Line, fmt.Errorf("%w; leave such rows out with --skip-unknown", err)}
		}
		f := facts{text: who.text}
		f.set(bit)
		f.first = l.date(row.SentAt, latest)
		f.last = f.first
		f.openFirst = l.date(row.OpenedAt, latest)
		f.openLast = f.openFirst
		value = f.append(value[:0])
		if who.email != nil {
			key = who.email
			return emails.add(key, address{facts: value}.append(nil))
		}
		key = who.key
		return l.groups.add(key, value)
	})
	c.Skipped, c.Unknown = unknown.total+c.NoUser, unknown.counts
	if err != nil {
		return err
	}
	o.progress(Reading, c.Rows, c.Rows)
	if unknown.total > 0 && !o.SkipUnknown {
		return &UnknownError{Rows: unknown.total, Names: unknown.counts}
	}
	return nil
}

func (l *Log) date(v bson.RawValue, latest int64) int64 {
	ms, ok := dateOf(v, latest)
	if !ok {
		l.Counts.BadDates++
		return 0
	}
	return ms
}

// resolve finds the users of emails: all emails of the collection are put among those of the source, and sorted. An index is not
// needed for it, and addresses are compared without regard to case.
func (l *Log) resolve(ctx context.Context, o *Options, emails *sorter) error {
	if emails.empty() {
		return nil
	}
	n := int64(0)
	var value []byte
	err := o.Users.EachAddress(ctx, func(id bson.RawValue, email []byte) error {
		if n++; n%4096 == 0 {
			o.progress(Addresses, n, -1)
		}
		email = bytes.ToLower(bytes.TrimSpace(email))
		if len(email) == 0 || len(email) > maxID || len(id.Value) > maxID {
			return nil
		}
		value = address{users: [][]byte{appendKey(nil, id)}}.append(value[:0])
		return emails.add(email, value)
	})
	if err != nil {
		return err
	}
	o.progress(Addresses, n, n)
	return emails.each(func(email, value []byte) error {
		var a address
		a.read(value)
		if a.facts == nil {
			return nil
		}
		if len(a.users) == 0 {
			l.Counts.Emails++
			if o.Missing != nil {
				return o.Missing(strings.ToValidUTF8(string(email), "\uFFFD"))
			}
			return nil
		}
		l.Counts.SharedWith += int64(len(a.users) - 1)
		for _, key := range a.users {
			if err := l.groups.add(key, a.facts); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
}

// count counts the users and takes the fingerprint.
func (l *Log) count() error {
	var h hash.Hash64 = xxhash.New()
	n := int64(0)
	err := l.groups.each(func(key, value []byte) error {
		n++
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(key))))
		_, _ = h.Write(key)
		_, _ = h.Write(value)
		return nil
	})
	l.Counts.Users = n + l.Counts.Emails
	l.Fingerprint = fmt.Sprintf("%016x-%d", h.Sum64(), n)
	return err
}

// address is what the sorter of emails holds: the facts of the source and the users who have the address.
type address struct {
	facts []byte // nil: the source does not name it
	users [][]byte
}

// maxShared bounds how many users one address may stand for. Beyond it is a placeholder of some kind.
const maxShared = 100

func (a address) append(to []byte) []byte {
	to = binary.AppendUvarint(to, uint64(len(a.facts)))
	to = append(to, a.facts...)
	for _, u := range a.users {
		to = append(binary.AppendUvarint(to, uint64(len(u))), u...)
	}
	return to
}

func (a *address) read(from []byte) {
	take := func() []byte {
		n, w := binary.Uvarint(from)
		part := from[w : w+int(n)]
		from = from[w+int(n):]
		return part
	}
	if f := take(); len(f) > 0 {
		a.facts = f
	}
	for len(from) > 0 {
		a.users = append(a.users, take())
	}
}

func combineAddress(x, y []byte) []byte {
	var a, b address
	a.read(x)
	b.read(y)
	switch {
	case a.facts == nil:
		a.facts = b.facts
	case b.facts != nil:
		a.facts = combineFacts(slices.Clone(a.facts), b.facts)
	}
	for _, u := range b.users {
		if len(a.users) < maxShared {
			a.users = append(a.users, u)
		}
	}
	return a.append(nil)
}
