package backfill

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/strictjson"
	"postbit/internal/users"
)

// Listed is one line of a list of users.
type Listed struct {
	Line   int64
	User   string // an email or an id, as on the command line
	Reason string
	At     time.Time // zero: the list does not say
}

// Reasons are those that a suppression may have.
var Reasons = []string{users.Unsubscribed, users.Bounced, users.Complained}

// ReadList reads a list of suppressions, or of users, to its end: CSV, with or without a header, of a user, a reason and a date; or JSON
// lines with the keys user, reason and date. A line without a reason gets the one given. An error is a *SourceError. Dates after
// latest are none.
func ReadList(name string, in io.Reader, reason string, latest time.Time) ([]Listed, error) {
	r := bufio.NewReaderSize(in, 64<<10)
	if bom, _ := r.Peek(3); string(bom) == "\xef\xbb\xbf" {
		_, _ = r.Discard(3)
	}
	l := &listReader{name: name, reason: reason, latest: latest.UnixMilli()}
	first, err := firstByte(r)
	switch {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, &SourceError{Source: name, Err: err}
	case first == '{':
		err = l.json(r)
	default:
		err = l.csv(r)
	}
	return l.list, err
}

type listReader struct {
	name, reason string
	latest       int64
	list         []Listed
}

func (l *listReader) take(line int64, user, reason string, date bson.RawValue) error {
	if reason = strings.TrimSpace(reason); reason == "" {
		reason = l.reason
	}
	user = strings.TrimSpace(user)
	if user == "" || !slices.Contains(Reasons, reason) {
		return &SourceError{l.name, line, fmt.Errorf("needs a user and a reason out of %s", strings.Join(Reasons, ", "))}
	}
	if _, err := identifyText(user, "auto", nil); err != nil {
		return &SourceError{l.name, line, err}
	}
	ms, ok := dateOf(date, l.latest)
	if !ok {
		return &SourceError{l.name, line, fmt.Errorf("%s is no date; RFC 3339 is one, 2026-05-31, or milliseconds since 1970", label(date))}
	}
	l.list = append(l.list, Listed{line, user, reason, at(ms)})
	return nil
}

func (l *listReader) csv(in *bufio.Reader) error {
	columns := [3]int{0, 1, 2}
	return eachRecord(l.name, in, '#', func(record []string, line int64, first bool) error {
		if first {
			if header, ok := listHeader(record); ok {
				columns = header
				return nil
			}
		}
		var cells [3]string
		for i, c := range columns {
			if c >= 0 && c < len(record) {
				cells[i] = record[c]
			}
		}
		return l.take(line, cells[0], cells[1], stringValue(cells[2]))
	})
}

// listHeader finds the columns of a header; a record in which no cell is called user or email is none.
func listHeader(record []string) (at [3]int, ok bool) {
	for i, names := range [...][]string{{"user", "email"}, {"reason", "status"}, {"date", "at"}} {
		at[i] = slices.IndexFunc(record, func(cell string) bool {
			return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(strings.TrimSpace(cell), name) })
		})
	}
	return at, at[0] >= 0
}

func (l *listReader) json(r *bufio.Reader) error {
	for n := int64(1); ; n++ {
		line, err := readLine(r)
		if err != nil && !errors.Is(err, io.EOF) {
			return &SourceError{l.name, n, err}
		}
		if len(bytes.TrimSpace(line)) > 0 {
			if err := l.object(n, line); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}

func (l *listReader) object(n int64, line []byte) error {
	var s struct {
		User   string `json:"user"`
		Email  string `json:"email"`
		Reason string `json:"reason"`
		Date   any    `json:"date"`
	}
	if err := strictjson.Decode(bytes.NewReader(line), &s); err != nil {
		return &SourceError{l.name, n, err}
	}
	date := bson.RawValue{}
	switch v := s.Date.(type) {
	case nil:
	case string:
		date = stringValue(v)
	case float64:
		t, data, err := bson.MarshalValue(v)
		if err != nil {
			return &SourceError{l.name, n, err}
		}
		date = bson.RawValue{Type: t, Value: data}
	default:
		return &SourceError{l.name, n, errors.New("date: must be a string or a number")}
	}
	if s.User == "" {
		s.User = s.Email
	}
	return l.take(n, s.User, s.Reason, date)
}

// Marked is what became of a list of users.
type Marked struct {
	Found     int64 // users who have the mark now, or have it no longer
	Changed   int64 // of them, those who were written
	Missing   int64 // lines whose user is not there
	Unmarked  int64 // users whose document has no room for a mark
	Unwritten []Example
}

// MarkUsers suppresses all users of a list, or takes their marks away. An address means every user who has it, in whatever case. Of
// several lines for one user the heaviest reason counts, and its earliest date.
func MarkUsers(ctx context.Context, list []Listed, take bool, o Options) (*Marked, error) {
	marks := &listMarks{byKey: map[string]users.Suppression{}, byEmail: map[string][]int{}, list: list, take: take, now: o.Now}
	if err := marks.resolve(ctx, &o); err != nil {
		return nil, err
	}
	res := &Marked{}
	for i, found := range marks.found {
		if !found {
			res.Missing++
			if o.Missing != nil {
				if err := o.Missing(list[i].User); err != nil {
					return nil, err
				}
			}
		}
	}
	done := int64(0)
	for part := range slices.Chunk(marks.all(), batchUsers) {
		out, err := o.Users.SuppressMany(ctx, part)
		if err != nil {
			return res, err
		}
		for i := range out {
			if err := res.add(&out[i], marks, &part[i], o.Missing); err != nil {
				return res, err
			}
		}
		done += int64(len(part))
		o.progress(Writing, done, int64(len(marks.byKey)))
	}
	return res, nil
}

func (r *Marked) add(m *users.Merged, marks *listMarks, s *users.Suppression, missing func(string) error) error {
	switch m.State {
	case users.MergeMissing:
		r.Missing++
		if missing != nil {
			return missing(users.FormatID(s.ID))
		}
	case users.MergeUnreadable, users.MergeRefused:
		r.Unmarked++
		if len(r.Unwritten) < maxExamples {
			r.Unwritten = append(r.Unwritten, Example{users.FormatID(m.ID), m.Err.Error()})
		}
	case users.MergeChanged:
		r.Changed++
		fallthrough
	default:
		r.Found++
	}
	return nil
}

// listMarks brings a list and the users together.
type listMarks struct {
	list    []Listed
	take    bool
	now     time.Time
	byEmail map[string][]int
	byKey   map[string]users.Suppression
	found   []bool // by line; lines that name an id are looked up by the write itself
}

func (m *listMarks) resolve(ctx context.Context, o *Options) error {
	m.found = make([]bool, len(m.list))
	for i, l := range m.list {
		who, err := identifyText(l.User, "auto", nil)
		if err != nil {
			return err
		}
		if who.email != nil {
			m.byEmail[string(who.email)] = append(m.byEmail[string(who.email)], i)
			continue
		}
		m.found[i] = true
		m.add(string(who.key), who.text, &l)
	}
	if len(m.byEmail) == 0 {
		return nil
	}
	n := int64(0)
	return o.Users.EachAddress(ctx, func(id bson.RawValue, email []byte) error {
		if n++; n%4096 == 0 {
			o.progress(Addresses, n, -1)
		}
		for _, i := range m.byEmail[string(bytes.ToLower(bytes.TrimSpace(email)))] {
			m.found[i] = true
			m.add(string(keyOf(id)), false, &m.list[i])
		}
		return nil
	})
}

func (m *listMarks) add(key string, text bool, l *Listed) {
	s := users.Suppression{Status: l.Reason, At: l.At}
	if s.At.IsZero() {
		s.At = m.now
	}
	if m.take {
		s.Status = ""
	}
	s.ID, s.Else = idsOf([]byte(key), text)
	old, ok := m.byKey[key]
	if ok && old.Else.Type == 0 {
		s.Else = old.Else // the id itself was found already
	}
	if ok && (users.Heavier(old.Status, s.Status) || old.Status == s.Status && old.At.Before(s.At)) {
		s.Status, s.At = old.Status, old.At
	}
	m.byKey[key] = s
}

func (m *listMarks) all() []users.Suppression {
	keys := make([]string, 0, len(m.byKey))
	for key := range m.byKey {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	out := make([]users.Suppression, len(keys))
	for i, key := range keys {
		out[i] = m.byKey[key]
	}
	return out
}
