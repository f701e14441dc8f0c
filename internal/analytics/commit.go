package analytics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/clock"
)

// stopPatience is how long the set in hand may still take after Run was told to stop.
const stopPatience = 5 * time.Second

// errNameTaken says that another set stands under our name and number.
var errNameTaken = errors.New("another writer has the same name")

// takenError carries the sets that hold some of the ids already.
type takenError struct{ sets []*appliedSet }

func (e *takenError) Error() string { return fmt.Sprintf("ids stand in %d other sets", len(e.sets)) }

// commit makes one set of the groups, less those whose ids are in other sets, and carries it out; it answers every group.
// model/apply.pml is the model of what happens here and in carryOut; change them together.
func (w *Writer) commit(ctx context.Context, groups []*group) {
	ctx, release := w.bounded(ctx)
	defer release()
	for len(groups) > 0 {
		set := w.setOf(groups)
		err := w.store(ctx, set)
		var taken *takenError
		switch {
		case errors.As(err, &taken):
			groups = w.finishTaken(ctx, groups, taken.sets)
			continue
		case errors.Is(err, errNameTaken):
			w.rename(err)
			continue
		case err == nil:
			w.number = set.Number
			err = w.carryOut(ctx, set)
		}
		if err != nil {
			// The set may be stored (a lost reply) or half applied. The next number must not be used before this one is
			// finished everywhere, so this name ends here; FinishStale, or whoever gets one of the ids, does the rest.
			w.rename(err)
		}
		for _, g := range groups {
			g.answer(err)
		}
		return
	}
}

// bounded is the time that one commit may take. It does not end with ctx at once, so that a stop leaves no set half done.
func (w *Writer) bounded(ctx context.Context) (context.Context, func()) {
	c, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), w.patience, errors.New("the database did not take the set in time"))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-c.Done():
		case <-time.After(stopPatience):
			cancel()
		}
	})
	return c, func() { stop(); cancel() }
}

func (w *Writer) rename(why error) {
	old := w.name
	w.name, w.number = newName(), 0
	w.log.Warn("a set of increments was not finished; going on under a new name", "writer", old, "new", w.name, "err", why)
}

func (w *Writer) setOf(groups []*group) *appliedSet {
	total := newSums()
	ids := make([]string, len(groups))
	for i, g := range groups {
		ids[i] = g.id
		if !total.join(g.calls[0].sums) {
			panic("analytics: what was gathered together does not fit together")
		}
	}
	return newSet(w.name, w.number+1, ids, total, w.clock.Now())
}

// finishTaken carries out the sets that were met, where they are not done, answers those who wait for their ids, and returns the others.
func (w *Writer) finishTaken(ctx context.Context, groups []*group, sets []*appliedSet) []*group {
	for _, set := range sets {
		var err error
		if set.DoneAt == nil {
			err = w.carryOut(ctx, set)
		}
		groups = slices.DeleteFunc(groups, func(g *group) bool {
			if !slices.Contains(set.IDs, g.id) {
				return false
			}
			g.answer(err)
			return true
		})
	}
	return groups
}

// store inserts the set. It is issued again, identically, until it is answered: the insert that got no answer may have been
// done, or may be done later; both end here, since the _id and each of the ids can be there only once.
func (w *Writer) store(ctx context.Context, set *appliedSet) error {
	var wait backoff
	for {
		_, err := w.applied.InsertOne(ctx, set)
		if err == nil {
			return nil
		}
		if mongo.IsDuplicateKeyError(err) {
			if found, lookErr := w.whatIsThere(ctx, set); lookErr != nil {
				err = lookErr
			} else if found {
				return nil
			}
			// Nothing to be seen yet: what stands in our way is not on a majority of the servers, and may still be undone.
		}
		if taken := (*takenError)(nil); errors.As(err, &taken) || errors.Is(err, errNameTaken) {
			return err
		}
		if hopeless(err) || refused(err) {
			return fmt.Errorf("store set %s: %w", set.ID, err)
		}
		if !wait.pause(ctx) {
			return fmt.Errorf("store set %s: %w", set.ID, err)
		}
	}
}

// whatIsThere finds out why the set could not be inserted: it is there itself (true), or other sets have some of its ids
// (a *takenError), or another set has its name (errNameTaken).
func (w *Writer) whatIsThere(ctx context.Context, set *appliedSet) (bool, error) {
	var own appliedSet
	err := w.applied.FindOne(ctx, bson.D{{Key: "_id", Value: set.ID}}).Decode(&own)
	switch {
	case err == nil && slices.Equal(own.IDs, set.IDs):
		return true, nil
	case err == nil:
		return false, fmt.Errorf("%w: %s", errNameTaken, set.ID)
	case !errors.Is(err, mongo.ErrNoDocuments):
		return false, err
	}
	sets, err := w.sets(ctx, bson.D{{Key: "ids", Value: bson.D{{Key: "$in", Value: set.IDs}}}}, 0)
	if err == nil && len(sets) > 0 {
		err = &takenError{sets}
	}
	return false, err
}

func (w *Writer) sets(ctx context.Context, filter bson.D, limit int64) ([]*appliedSet, error) {
	cur, err := w.applied.Find(ctx, filter, options.Find().SetLimit(limit))
	if err != nil {
		return nil, err
	}
	var sets []*appliedSet
	err = cur.All(ctx, &sets)
	return sets, err
}

// carryOut applies a stored set, ours or somebody else's, to all its documents, and marks it done. Any number of processes
// may do so at the same time: a document takes a set only while the number it remembers of the set's writer is lower.
func (w *Writer) carryOut(ctx context.Context, set *appliedSet) error {
	var passedOver []refusal
	for collection, docs := range byCollection(set.Increments) {
		r, err := w.applyTo(ctx, set, collection, docs)
		if err != nil {
			return fmt.Errorf("carry out set %s in %s: %w", set.ID, collection, err)
		}
		passedOver = append(passedOver, r...)
	}
	return w.markDone(ctx, set, passedOver)
}

func byCollection(incs []stored) map[string][]stored {
	m := map[string][]stored{}
	for _, st := range incs {
		m[st.Collection] = append(m[st.Collection], st)
	}
	return m
}

// applyTo updates the documents of one collection in one unordered bulk, and again those of which it is not known that they have taken it.
func (w *Writer) applyTo(ctx context.Context, set *appliedSet, collection string, docs []stored) ([]refusal, error) {
	var (
		coll       = durable(w.db, collection)
		passedOver []refusal
		wait       backoff
	)
	for {
		err := w.shapes.ensure(ctx, w.db, docs)
		if err == nil {
			models := make([]mongo.WriteModel, len(docs))
			for i, st := range docs {
				models[i] = mongo.NewUpdateOneModel().SetFilter(set.filter(st.ID)).SetUpdate(set.update(st)).SetUpsert(true)
			}
			if _, err = coll.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false)); err == nil {
				return passedOver, nil
			}
		}
		// No answer, or some documents objected. E11000 is no objection: either the document has taken this set
		// already, so that the filter did not match and the upsert wanted to make a second one, or two first
		// updates met. So look, and do again what is not there.
		bad := refusals(err, docs)
		passedOver = append(passedOver, bad...)
		rest, lookErr := w.notTaken(ctx, coll, set, docs, bad)
		if lookErr == nil {
			if docs = rest; len(docs) == 0 {
				return passedOver, nil
			}
		}
		if hopeless(err) || !wait.pause(ctx) {
			return nil, errors.Join(err, lookErr)
		}
	}
}

// notTaken leaves of docs those that neither remember the set nor can never take it.
func (w *Writer) notTaken(ctx context.Context, coll *mongo.Collection, set *appliedSet, docs []stored, bad []refusal) ([]stored, error) {
	ids := make([]string, len(docs))
	for i, st := range docs {
		ids[i] = st.ID
	}
	cur, err := coll.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}, {Key: "w." + set.Writer, Value: bson.D{{Key: "$gte", Value: set.Number}}}},
		options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, err
	}
	var have []struct {
		ID string `bson:"_id"`
	}
	if err := cur.All(ctx, &have); err != nil {
		return nil, err
	}
	settled := make(map[string]bool, len(have)+len(bad))
	for _, h := range have {
		settled[h.ID] = true
	}
	for _, r := range bad {
		settled[r.ID] = true
	}
	var rest []stored
	for _, st := range docs {
		if !settled[st.ID] {
			rest = append(rest, st)
		}
	}
	return rest, nil
}

// markDone ends the set, and drops the increments from it: what stays is the memory of its ids.
func (w *Writer) markDone(ctx context.Context, set *appliedSet, passedOver []refusal) error {
	for _, r := range passedOver {
		w.log.Error("a counter document can't take its increments and is passed over; repair or remove it",
			"set", set.ID, "collection", r.Collection, "id", r.ID, "code", r.Code, "err", r.Reason)
	}
	now := w.clock.Now().Truncate(time.Millisecond)
	change := bson.D{{Key: "done_at", Value: now}}
	if len(passedOver) > 0 {
		change = append(change, bson.E{Key: "refused", Value: passedOver})
	}
	var wait backoff
	for {
		_, err := w.applied.UpdateOne(ctx,
			bson.D{{Key: "_id", Value: set.ID}, {Key: "done_at", Value: bson.D{{Key: "$exists", Value: false}}}},
			bson.D{{Key: "$set", Value: change}, {Key: "$unset", Value: bson.D{{Key: "increments", Value: ""}}}})
		if err == nil {
			return nil // or somebody else has marked it: the same
		}
		if hopeless(err) || !wait.pause(ctx) {
			return fmt.Errorf("mark set %s done: %w", set.ID, err)
		}
	}
}

// refusals picks from a bulk's errors the documents that will never take their update, whatever is tried again.
func refusals(err error, docs []stored) []refusal {
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) {
		return nil
	}
	var rs []refusal
	for _, we := range bulk.WriteErrors {
		if !final(we.Code) || we.Index < 0 || we.Index >= len(docs) {
			continue
		}
		st := docs[we.Index]
		rs = append(rs, refusal{Collection: st.Collection, ID: st.ID, Code: we.Code, Reason: cut(we.Message, 200)})
	}
	return rs
}

// final tells the codes by which the server refuses one update for what the document or the update is.
func final(code int) bool {
	switch code {
	case 2, // BadValue
		9,          // FailedToParse
		14,         // TypeMismatch: $inc of a string
		28,         // PathNotViable: a field inside of a number
		40,         // ConflictingUpdateOperators
		52, 56, 57, // field names with $, empty, with a dot
		54,           // NotSingleValueField
		66,           // ImmutableField
		121,          // DocumentValidationFailure
		10334, 17419, // too large
		16837:
		return true
	}
	return false
}

// refused says that the server did not take a document for what it is.
func refused(err error) bool {
	var we mongo.WriteException
	return errors.As(err, &we) && slices.ContainsFunc(we.WriteErrors, func(e mongo.WriteError) bool { return final(e.Code) })
}

// hopeless tells errors of a whole command that waiting does not mend.
func hopeless(err error) bool {
	var command mongo.CommandError
	if !errors.As(err, &command) {
		return false
	}
	switch command.Code {
	case 13, 18, // Unauthorized, AuthenticationFailed
		59, 115: // CommandNotFound, CommandNotSupported
		return true
	}
	return false
}

func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return string([]rune(s)) // a cut rune becomes U+FFFD
}

// backoff waits longer every time, from 5 ms to about a second.
type backoff struct{ last time.Duration }

// pause waits, and reports whether there is time left.
func (b *backoff) pause(ctx context.Context) bool {
	b.last = min(max(2*b.last, 5*time.Millisecond), time.Second)
	return clock.Sleep(ctx, b.last/2+rand.N(b.last)) == nil
}

// FinishStale carries out the sets that were stored longer than olderThan ago and are not done: their writers died, or
// could not finish them. It returns how many it finished. Any number of schedulers may call it.
func (w *Writer) FinishStale(ctx context.Context, olderThan time.Duration) (int, error) {
	before := w.clock.Now().Add(-olderThan)
	finished := 0
	var failed error
	sets, err := w.sets(ctx, bson.D{{Key: "done_at", Value: nil}, {Key: "at", Value: bson.D{{Key: "$lt", Value: before}}}}, 100)
	if err != nil {
		return 0, fmt.Errorf("look for unfinished sets in %s: %w", AppliedCollection, err)
	}
	for _, set := range sets {
		c, release := w.bounded(ctx)
		err := w.carryOut(c, set)
		release()
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		finished++
		w.log.Info("finished a set that was left undone", "set", set.ID, "ids", len(set.IDs), slog.Time("stored", set.At))
	}
	return finished, failed
}
