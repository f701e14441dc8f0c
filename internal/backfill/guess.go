package backfill

import (
	"context"
	"sync/atomic"

	"postbit/internal/users"
)

// guess decides whether the users of a batch are written before they are read (users.Store.MergeNew). That pays where most of them have
// nothing yet, which the batch before tells: a first backfill guesses from its second batch on, one that is done again never does.
type guess struct{ on atomic.Bool }

func (g *guess) merge(ctx context.Context, store *users.Store, hs []users.History) (out []users.Merged, err error) {
	if g.on.Load() {
		out, err = store.MergeNew(ctx, hs)
	} else {
		out, err = store.Merge(ctx, hs, true)
	}
	if err == nil {
		g.on.Store(mostlyNew(out))
	}
	return out, err
}

// mostlyNew reports whether a guess would have been right for nearly all. Who is missing costs no more than without a guess.
func mostlyNew(out []users.Merged) bool {
	had := 0
	for i := range out {
		if out[i].State != users.MergeMissing && !out[i].New {
			had++
		}
	}
	return had*8 <= len(out)
}
