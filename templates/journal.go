package templates

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/clock"
	"postbit/internal/faults"
)

// A push changes several documents, all or none, without a transaction:
//
//  1. it inserts a document into the collection of pushes, state "staging";
//  2. it stages every change in the document of its template: a new one is inserted as pending, which reserves its name and,
//     by the unique index, its bit; an old one gets the next revision beside the present one, if that is still the one that
//     was planned with and no other push has staged anything;
//  3. it turns the state to "committed", the one write that decides;
//  4. it puts the staged records in place, and deletes its document.
//
// A kill before 3 leaves reserved names that nobody sees, one after it revisions that are decided and not in place. Whoever
// plans or applies the next change finds both and undoes or finishes them first (Repair). A push that is still at work then
// loses the race for its own document, and undoes what it has staged.

// ErrConflict is returned by Apply if the registry is not what the plan was made with. Nothing has been changed.
var ErrConflict = errors.New("the registry has changed since the plan was made, run the command again")

const (
	staging   = "staging"
	committed = "committed"
)

type pushRecord struct {
	ID    string `bson:"_id"`
	State string `bson:"state"`
}

// Apply carries a plan out, all of it or nothing, and then writes assigned indexes into their files.
func (r *Registry) Apply(ctx context.Context, p *Plan) error {
	if err := r.Repair(ctx); err != nil {
		return err
	}
	var steps []Change
	for _, c := range p.Changes {
		if c.Action != Unchanged {
			steps = append(steps, c)
		}
	}
	if len(steps) > 0 {
		if err := r.applySteps(ctx, steps); err != nil {
			return err
		}
	}
	var wrong []error
	for _, m := range p.files {
		if err := m.writeIndex(); err != nil {
			wrong = append(wrong, fmt.Errorf("%s is registered with bitIndex %d, but the file does not say so: %w", m.template.Name, m.template.BitIndex, err))
		}
	}
	return faults.Join(wrong...)
}

func (r *Registry) applySteps(ctx context.Context, steps []Change) error {
	var random [12]byte
	rand.Read(random[:])
	id := hex.EncodeToString(random[:])
	if _, err := r.pushes.InsertOne(ctx, pushRecord{id, staging}); err != nil {
		return fmt.Errorf("begin the push: %w", err)
	}
	err := r.stage(ctx, id, steps)
	if err == nil {
		var won bool
		if won, err = r.commit(ctx, id); err == nil && !won {
			err = ErrConflict
		} else if err != nil {
			return fmt.Errorf("the push may or may not have been accepted, run the command again to see: %w", err)
		}
	}
	if err != nil {
		// What was staged goes again even if it was ctx that ended.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return errors.Join(err, r.abort(undo, id))
	}
	if err := r.finish(ctx, id); err != nil {
		return fmt.Errorf("the push is accepted, but not all of it is in place; run the command again: %w", err)
	}
	return nil
}

func (r *Registry) stage(ctx context.Context, id string, steps []Change) error {
	for _, c := range steps {
		next, err := bson.Marshal(c.new.record())
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		if c.old == nil {
			_, err = r.templates.InsertOne(ctx, record{Name: c.Name, BitIndex: c.BitIndex, Push: id, Pending: true, Next: next})
			if mongo.IsDuplicateKeyError(err) {
				return fmt.Errorf("%s: the name or bit %d was taken in the meantime: %w", c.Name, c.BitIndex, ErrConflict)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			continue
		}
		res, err := r.templates.UpdateOne(ctx, settled(
			bson.E{Key: "_id", Value: c.Name},
			bson.E{Key: "revision", Value: c.old.Revision},
			bson.E{Key: "retired_at", Value: bson.D{{Key: "$exists", Value: false}}},
			bson.E{Key: "push", Value: bson.D{{Key: "$exists", Value: false}}},
		), bson.D{{Key: "$set", Value: bson.D{{Key: "push", Value: id}, {Key: "next", Value: bson.Raw(next)}}}})
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		if res.MatchedCount == 0 {
			return fmt.Errorf("%s: was changed in the meantime: %w", c.Name, ErrConflict)
		}
	}
	return nil
}

// commit decides. It fails if somebody has given this push up.
func (r *Registry) commit(ctx context.Context, id string) (bool, error) {
	res, err := r.pushes.UpdateOne(ctx, bson.D{{Key: "_id", Value: id}, {Key: "state", Value: staging}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: committed}}}})
	if err != nil {
		return false, err
	}
	return res.MatchedCount == 1, nil
}

// finish puts what a committed push has staged in place. Any number may do it at once.
func (r *Registry) finish(ctx context.Context, id string) error {
	staged, err := findAll[record](ctx, r.templates, bson.D{{Key: "push", Value: id}})
	if err != nil {
		return err
	}
	for _, rec := range staged {
		if _, err := r.templates.ReplaceOne(ctx, bson.D{{Key: "_id", Value: rec.Name}, {Key: "push", Value: id}}, rec.Next); err != nil {
			return err
		}
	}
	_, err = r.pushes.DeleteOne(ctx, bson.D{{Key: "_id", Value: id}, {Key: "state", Value: committed}})
	return err
}

// abort takes a push that is not committed out of the way, and what it has staged.
func (r *Registry) abort(ctx context.Context, id string) error {
	if _, err := r.pushes.DeleteOne(ctx, bson.D{{Key: "_id", Value: id}, {Key: "state", Value: staging}}); err != nil {
		return err
	}
	if err := r.pushes.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Err(); !errors.Is(err, mongo.ErrNoDocuments) {
		return err // nil: it was committed after all
	}
	if _, err := r.templates.DeleteMany(ctx, bson.D{{Key: "push", Value: id}, {Key: "pending", Value: true}}); err != nil {
		return err
	}
	_, err := r.templates.UpdateMany(ctx, bson.D{{Key: "push", Value: id}},
		bson.D{{Key: "$unset", Value: bson.D{{Key: "push", Value: ""}, {Key: "next", Value: ""}}}})
	return err
}

// Repair finishes or undoes pushes that were killed. One that is still at work gets ten seconds for its end.
func (r *Registry) Repair(ctx context.Context) error {
	if err := r.repair(ctx); err != nil {
		return fmt.Errorf("clear up after an earlier push: %w", err)
	}
	return nil
}

func (r *Registry) repair(ctx context.Context) error {
	found, err := findAll[pushRecord](ctx, r.pushes, bson.D{})
	if err != nil {
		return err
	}
	for _, p := range found {
		if err := r.settle(ctx, p.ID); err != nil {
			return err
		}
	}
	// Documents of a push that is gone: it was given up while it was still staging, and killed then.
	staged, err := findAll[record](ctx, r.templates, bson.D{{Key: "push", Value: bson.D{{Key: "$exists", Value: true}}}})
	if err != nil {
		return err
	}
	for _, rec := range staged {
		if err := r.settle(ctx, rec.Push); err != nil {
			return err
		}
	}
	return nil
}

// settle brings one push to its end.
func (r *Registry) settle(ctx context.Context, id string) error {
	const step = 50 * time.Millisecond
	for waited := time.Duration(0); ; waited += step {
		var p pushRecord
		err := r.pushes.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&p)
		switch {
		case errors.Is(err, mongo.ErrNoDocuments):
			return r.abort(ctx, id)
		case err != nil:
			return err
		case p.State == committed:
			return r.finish(ctx, id)
		case waited >= r.patience:
			if err := r.abort(ctx, id); err != nil {
				return err
			}
			continue // it is gone now, or was committed at the last moment
		}
		if err := clock.Sleep(ctx, step); err != nil {
			return err
		}
	}
}

// writeIndex puts the assigned index into the file, which must still be the one that was read.
func (m mailFile) writeIndex() error {
	now, err := os.ReadFile(m.path)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, m.raw) {
		return fmt.Errorf("%s was edited during the push; write bitIndex: %d into it", m.path, m.template.BitIndex)
	}
	out, err := withIndex(m.raw, m.template.BitIndex)
	if err != nil {
		return err
	}
	info, err := os.Stat(m.path)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(m.path), ".postbit-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // fails once it has been renamed
	_, err = tmp.Write(out)
	if err = errors.Join(err, tmp.Chmod(info.Mode().Perm()), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), m.path)
}
