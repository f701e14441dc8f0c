package users

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/bitfield"
)

// History is what a team's own records know of one user: mails that were sent to him without a claim.
type History struct {
	ID   bson.RawValue
	Else bson.RawValue // the id to look for where there is no ID; type 0: none
	Bits []byte        // templates that were sent

	FirstAt, LastAt         time.Time // first and last mail; zero: not known
	OpenFirstAt, OpenLastAt time.Time
}

// MergeState is what became of a user's history.
type MergeState uint8

const (
	MergeMissing    MergeState = iota // no such user
	MergeSame                         // the document says all of it already
	MergeChanged                      // written, or to be written
	MergeUnreadable                   // the bitfield can't be read; nothing was changed
	MergeRefused                      // the server refuses the write of this document (Merged.Err); nothing was changed
)

// Merged is the outcome for one user.
type Merged struct {
	State MergeState
	ID    bson.RawValue // as the document has it
	Bits  []byte        // before
	Added []byte        // bits that were clear and are to be set
	Err   error

	New        bool // had neither bits nor a state
	Dates      bool // a date was written, or is to be
	LastStays  bool // last_at is older than the history's, but it names a claim
	StateStays bool // there are dates, and the state field can't take them
}

// mergeRefusals is how often a server may refuse one document's write before it is believed. A refusal may come of a
// document that has changed its shape since it was read.
const mergeRefusals = 4

// Merge puts histories into the users' documents: bits are added, first dates can only go back and last dates only forward, so
// it may be done again, and at the same time as anything else that works by compare-and-set. It goes on until everything is
// written or ctx ends. With write false it only looks. No user may be listed twice.
//
// Bits are written by compare-and-set on the blob as read. last_at is the name of the last claim (see Claim), so it is
// written only where there was none yet: a user whose state has no `runs`. There it is raised by compare-and-set, so the name
// of a claim that is under way at the same moment is either before it, and keeps last_at, or finds itself lost and begins anew.
func (s *Store) Merge(ctx context.Context, hs []History, write bool) ([]Merged, error) {
	return s.merge(ctx, hs, write, 0)
}

// merge takes the first users who say just what their history says for written, as many as the caller has written.
func (s *Store) merge(ctx context.Context, hs []History, write bool, written int) ([]Merged, error) {
	out := make([]Merged, len(hs))
	us := make([]User, len(hs))
	load := &projectionOf{fields: projection([]string{s.cfg.Bits, s.cfg.State}), bit: -1}
	if err := s.retry(ctx, func() error { return s.loadHistories(ctx, hs, us, load) }); err != nil {
		return nil, fmt.Errorf("users: read %d users: %w", len(hs), err)
	}
	var todo []int
	for i := range us {
		if us[i].ID.Type == 0 {
			continue
		}
		if written > 0 && s.saysJust(&us[i], &hs[i]) {
			written--
			out[i] = hs[i].whole()
			continue
		}
		todo = append(todo, i)
		out[i].ID, out[i].Bits, out[i].State = us[i].ID, us[i].was.blob, MergeSame
		out[i].New = us[i].was.bits.Type == 0 && us[i].was.bitsErr == nil && us[i].was.state == 0 && us[i].was.readable
	}
	plan := func(i int) mongo.WriteModel { return s.mergeModel(&us[i], &hs[i], &out[i]) }
	if err := s.compareAndSet(ctx, us, todo, load, write, plan, out); err != nil {
		return nil, fmt.Errorf("users: write the history of %d users: %w", len(hs), err)
	}
	return out, nil
}

// compareAndSet carries out what plan asks for, reads again who may have changed meanwhile, and asks again, until plan asks for
// nothing.
func (s *Store) compareAndSet(ctx context.Context, us []User, todo []int, load *projectionOf, write bool,
	plan func(i int) mongo.WriteModel, out []Merged,
) error {
	refused := map[int]int{}
	var wait backoff
	for {
		var models []mongo.WriteModel
		var of []int
		for _, i := range todo {
			if m := plan(i); m != nil {
				out[i].State = MergeChanged
				models, of = append(models, m), append(of, i)
			}
		}
		if len(models) == 0 || !write {
			return nil
		}
		matched, failures, err := s.issueEach(ctx, models)
		switch {
		case err == nil && matched == len(models):
			return nil
		case err != nil && !worthAgain(err):
			return fmt.Errorf("%w: %w", ErrRefused, err)
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !wait.sleep(ctx):
			return ctx.Err()
		}
		todo = of
		for _, f := range failures {
			i := of[f.Index]
			if refused[i]++; refused[i] >= mergeRefusals {
				out[i].State, out[i].Err = MergeRefused, f
				todo = slices.DeleteFunc(slices.Clone(todo), func(j int) bool { return j == i })
			}
		}
		if todo, err = s.readChanged(ctx, us, todo, load, out); err != nil || len(todo) == 0 {
			return err
		}
	}
}

// issueEach carries out the bulk once. Errors of single documents are an answer: those documents have not matched.
func (s *Store) issueEach(ctx context.Context, models []mongo.WriteModel) (matched int, failures []mongo.BulkWriteError, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	res, err := s.coll.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	if be, ok := err.(mongo.BulkWriteException); ok && be.WriteConcernError == nil && len(be.WriteErrors) > 0 && !anyTransient(be.WriteErrors) {
		err, failures = nil, be.WriteErrors
	}
	if err != nil {
		return 0, nil, err
	}
	return int(res.MatchedCount), failures, nil
}

// readChanged reads users again. Who is gone is missing and leaves the list.
func (s *Store) readChanged(ctx context.Context, us []User, todo []int, load *projectionOf, out []Merged) ([]int, error) {
	again := make([]User, len(todo))
	for at, i := range todo {
		again[at].ID = us[i].ID
	}
	var fresh map[string]User
	err := s.retry(ctx, func() (err error) {
		fresh, err = s.readAgain(ctx, again, load)
		return err
	})
	if err != nil {
		return nil, err
	}
	var left []int
	for _, i := range todo {
		u, ok := fresh[idKey(us[i].ID)]
		if !ok {
			out[i] = Merged{State: MergeMissing}
			continue
		}
		us[i] = u
		left = append(left, i)
	}
	return left, nil
}

// retry does something again until it is done, ctx ends or it is not worth it.
func (s *Store) retry(ctx context.Context, do func() error) error {
	var wait backoff
	for {
		err := do()
		if err == nil || ctx.Err() != nil || !worthAgain(err) {
			return err
		}
		if !wait.sleep(ctx) {
			return err
		}
	}
}

// loadHistories fills in the users that are there, first by ID, then by Else.
func (s *Store) loadHistories(ctx context.Context, hs []History, us []User, load *projectionOf) error {
	places := make(map[string]int, len(hs))
	ids := make([]bson.RawValue, len(hs))
	for i := range hs {
		places[sameIDKey(hs[i].ID)], ids[i] = i, hs[i].ID
		us[i] = User{}
	}
	if err := s.loadPlaces(ctx, ids, places, us, load); err != nil {
		return err
	}
	ids = ids[:0]
	clear(places)
	for i := range hs {
		if us[i].ID.Type == 0 && hs[i].Else.Type != 0 {
			places[sameIDKey(hs[i].Else)] = i
			ids = append(ids, hs[i].Else)
		}
	}
	return s.loadPlaces(ctx, ids, places, us, load)
}

func (s *Store) loadPlaces(ctx context.Context, ids []bson.RawValue, places map[string]int, us []User, load *projectionOf) error {
	var docs arena
	for part := range slices.Chunk(ids, LoadAtOnce) {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		cur, err := s.coll.Find(attempt, listed(part, nil), options.Find().SetProjection(load.fields).SetSort(byID).SetBatchSize(LoadAtOnce+1))
		if err == nil {
			for cur.Next(attempt) {
				if i, ok := places[sameIDKey(s.idOf(cur.Current))]; ok {
					us[i] = User{load: load}
					s.parse(&us[i], docs.copy(cur.Current), load.bit)
				}
			}
			err = cur.Err()
			cur.Close(context.WithoutCancel(ctx))
		}
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// sameIDKey is idKey, with whole numbers of every type alike: servers compare them by value.
func sameIDKey(id bson.RawValue) string {
	if n, ok := WholeID(id); ok {
		return string(binary.BigEndian.AppendUint64([]byte{0xff}, uint64(n)))
	}
	return idKey(id)
}

// WholeID is the value of an id that is a whole number, of whatever numeric type.
func WholeID(id bson.RawValue) (int64, bool) {
	switch {
	case id.Type == bson.TypeInt32 && len(id.Value) == 4:
		return int64(int32(binary.LittleEndian.Uint32(id.Value))), true
	case id.Type == bson.TypeInt64 && len(id.Value) == 8:
		return int64(binary.LittleEndian.Uint64(id.Value)), true
	case id.Type == bson.TypeDouble && len(id.Value) == 8:
		f := math.Float64frombits(binary.LittleEndian.Uint64(id.Value))
		return int64(f), f == math.Trunc(f) && math.Abs(f) < 1<<53
	}
	return 0, false
}

// union is a | b, as long as the longer of them.
func union(a, b []byte) []byte {
	out := make([]byte, max(len(a), len(b)))
	copy(out, a)
	for i, x := range b {
		out[i] |= x
	}
	return out
}

// beyond is the bits of b that a has not, nil where there are none.
func beyond(a, b []byte) []byte {
	out := make([]byte, len(b))
	for i, x := range b {
		if i < len(a) {
			x &^= a[i]
		}
		out[i] = x
	}
	if !bitfield.Any(out) {
		return nil
	}
	return out
}
