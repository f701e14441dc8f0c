package users

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Suppression is one user of a list. An empty Status takes the mark away.
type Suppression struct {
	ID     bson.RawValue
	Else   bson.RawValue // the id to look for where there is no ID; type 0: none
	Status string
	At     time.Time
}

// SuppressMany is Suppress, or Unsuppress, for many at once: by compare-and-set on the status, issued again until it is done or
// ctx ends. MergeSame: a status that weighs as much stands already; MergeUnreadable: there is no room for one. No user may be
// listed twice.
func (s *Store) SuppressMany(ctx context.Context, list []Suppression) ([]Merged, error) {
	hs := make([]History, len(list))
	out := make([]Merged, len(list))
	us := make([]User, len(list))
	for i, l := range list {
		if _, ok := outranked[l.Status]; !ok && l.Status != "" {
			return nil, fmt.Errorf("users: %q is no status; say %s, %s or %s", l.Status, Unsubscribed, Bounced, Complained)
		}
		hs[i].ID, hs[i].Else = l.ID, l.Else
	}
	load := &projectionOf{fields: projection([]string{s.cfg.State}), bit: -1}
	if err := s.retry(ctx, func() error { return s.loadHistories(ctx, hs, us, load) }); err != nil {
		return nil, fmt.Errorf("users: read %d users: %w", len(list), err)
	}
	var todo []int
	for i := range us {
		if us[i].ID.Type != 0 {
			todo = append(todo, i)
			out[i].ID, out[i].State = us[i].ID, MergeSame
		}
	}
	plan := func(i int) mongo.WriteModel { return s.suppressModel(&us[i], &list[i], &out[i]) }
	if err := s.compareAndSet(ctx, us, todo, load, true, plan, out); err != nil {
		return nil, fmt.Errorf("users: write the status of %d users: %w", len(list), err)
	}
	return out, nil
}

// Heavier reports whether status a replaces status b.
func Heavier(a, b string) bool { return slices.Contains(outranked[a], b) }

func (s *Store) suppressModel(u *User, l *Suppression, m *Merged) mongo.WriteModel {
	unreadable := func(what string, v bson.RawValue) mongo.WriteModel {
		m.State, m.Err = MergeUnreadable, fmt.Errorf("%s is of BSON type %s: %w", what, v.Type, ErrStateShape)
		return nil
	}
	var f found
	if !s.walk(u.Doc, s.fields, &f) || f.unreadable {
		return unreadable(s.cfg.State, f.values[slotState])
	}
	state := f.values[slotState]
	var status, statusAt bson.RawValue
	switch state.Type {
	case 0, bson.TypeNull:
	case bson.TypeEmbeddedDocument:
		eachElement(state.Value, func(name []byte, v bson.RawValue) {
			switch string(name) {
			case "status":
				status = v
			case "status_at":
				statusAt = v
			}
		})
	default:
		return unreadable(s.cfg.State, state)
	}
	var w mergeWrite
	w.same(s.paths.status, status)
	if l.Status == "" {
		if status.Type == 0 && statusAt.Type == 0 {
			return nil
		}
		w.unset = []string{s.paths.status, s.paths.statusAt}
		return w.model(u.ID)
	}
	text, isText := textOf(status)
	switch none := status.Type == 0 || status.Type == bson.TypeNull; {
	case !none && !isText:
		return unreadable(s.paths.status, status)
	case len(text) > 0 && !Heavier(l.Status, string(text)):
		return nil
	}
	mark := []element{{"status", stringValue(l.Status)}, {"status_at", dateValue(l.At)}}
	if state.Type == bson.TypeNull {
		w.conditions = nil
		w.same(s.cfg.State, state)
		w.set(s.cfg.State, bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: document(mark)})
		return w.model(u.ID)
	}
	w.set(s.paths.status, mark[0].value)
	w.set(s.paths.statusAt, mark[1].value)
	return w.model(u.ID)
}
