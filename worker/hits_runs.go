package worker

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"postbit/internal/campaign"
)

// runName is what hits need to know of a run; none of it ever changes.
type runName struct {
	short    campaign.ShortID
	id       string
	campaign string
	slot     time.Time
}

// runNames remembers the runs that were looked for last. Runs that are not there are asked for again: one may have been
// restored, and a token that names it was signed by us.
type runNames struct {
	store HitRuns
	most  int

	mu     sync.Mutex
	recent *list.List // of *runName, the one used last in front
	byID   map[campaign.ShortID]*list.Element
}

func newRunNames(store HitRuns, most int) *runNames {
	return &runNames{store: store, most: most, recent: list.New(), byID: map[campaign.ShortID]*list.Element{}}
}

// get returns nil where there is no such run.
func (r *runNames) get(ctx context.Context, short campaign.ShortID) (*runName, error) {
	if run := r.known(short); run != nil {
		return run, nil
	}
	found, err := r.store.RunByShort(ctx, short)
	if errors.Is(err, campaign.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	run := &runName{short: short, id: found.ID, campaign: found.Campaign, slot: found.Slot}
	r.remember(run)
	return run, nil
}

func (r *runNames) known(short campaign.ShortID) *runName {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.byID[short]
	if e == nil {
		return nil
	}
	r.recent.MoveToFront(e)
	return e.Value.(*runName)
}

func (r *runNames) remember(run *runName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.byID[run.short]; e != nil {
		r.recent.MoveToFront(e)
		return
	}
	r.byID[run.short] = r.recent.PushFront(run)
	for r.recent.Len() > r.most {
		oldest := r.recent.Remove(r.recent.Back()).(*runName)
		delete(r.byID, oldest.short)
	}
}
