package backfill

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash"
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
	var key, value, mail []byte // used again by each row
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
		sent, opened := l.date(row.SentAt, latest), l.date(row.OpenedAt, latest)
		about := about{text: who.text, first: sent, last: sent, openFirst: opened, openLast: opened}
		value = about.appendRow(value[:0], bit)
		if who.email != nil {
			key = who.email
			mail = address{facts: value}.append(mail[:0])
			return emails.add(key, mail)
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
	var key, value []byte
	err := o.Users.EachAddress(ctx, func(id bson.RawValue, email []byte) error {
		if n++; n%4096 == 0 {
			o.progress(Addresses, n, -1)
		}
		email = bytes.ToLower(bytes.TrimSpace(email))
		if len(email) == 0 || len(email) > maxID || len(id.Value) > maxID {
			return nil
		}
		key = appendKey(key[:0], id)
		value = address{users: [][]byte{key}}.append(value[:0])
		return emails.add(email, value)
	})
	if err != nil {
		return err
	}
	o.progress(Addresses, n, n)
	var a address
	return emails.each(func(email, value []byte) error {
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
	var head []byte
	l.groups.gather() // they are read again
	err := l.groups.each(func(key, value []byte) error {
		n++
		head = binary.AppendUvarint(head[:0], uint64(len(key)))
		_, _ = h.Write(head)
		_, _ = h.Write(key)
		_, _ = h.Write(value)
		return nil
	})
	l.Counts.Users = n + l.Counts.Emails
	l.Fingerprint = fmt.Sprintf("%016x-%d", h.Sum64(), n)
	return err
}
