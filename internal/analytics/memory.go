package analytics

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// DefaultMemory is how long an id is remembered after its set was done.
const DefaultMemory = 7 * 24 * time.Hour

// memoryMargin is how much longer than promised a done set is kept: an Apply that began just before its id got too old
// has ended, by far, when the set goes.
const memoryMargin = time.Hour

// WithMemory sets how long ids are remembered, counted from the end of their set. The index that forgets them only ever grows to
// that: another process, which has been told less, makes none forgotten that this one relies on.
func WithMemory(d time.Duration) Option { return func(w *Writer) { w.memory = d } }

// Memory is how long an id is remembered as of now. Whoever keeps ids longer than that must not give them to Apply again. It is what
// WithMemory says, but for a while after that was raised: what had been forgotten by then does not come back.
func (w *Writer) Memory() time.Duration {
	from := w.keptFrom.Load()
	if from == 0 {
		return w.memory
	}
	return min(w.memory, w.clock.Now().Sub(time.UnixMilli(from)))
}

// growth is a document of `applied` that says from when on ids are kept, since the memory has grown. It looks like a set that is
// done, so it goes by itself when the memory is whole again.
type growth struct {
	ID       string    `bson:"_id"` // "memory/…"
	IDs      []string  `bson:"ids"`
	At       time.Time `bson:"at"`
	DoneAt   time.Time `bson:"done_at"`
	KeptFrom time.Time `bson:"kept_from"`
}

// ensureForgetting makes the index by which sets go, or lets it keep them longer. Before it does that, it writes down how far back
// they are there at that moment; whoever finds the longer index finds that, too.
func (w *Writer) ensureForgetting(ctx context.Context) error {
	want := w.memory + memoryMargin
	index := mongo.IndexModel{
		Keys:    bson.D{{Key: "done_at", Value: 1}},
		Options: options.Index().SetName("done_at").SetExpireAfterSeconds(int32(want / time.Second)),
	}
	_, err := w.applied.Indexes().CreateOne(ctx, index)
	if differs(err, 85, 86) { // IndexOptionsConflict, IndexKeySpecsConflict: it keeps them for another time
		var keeps time.Duration
		if keeps, err = w.forgetsAfter(ctx); err == nil && keeps < want {
			err = w.grow(ctx, keeps, index)
		}
	}
	if err != nil {
		return err
	}
	return w.readGrowth(ctx)
}

// grow puts a longer index in the place of one that keeps sets for some time; 0: another process has just dropped that one, and has
// written the note.
func (w *Writer) grow(ctx context.Context, keeps time.Duration, index mongo.IndexModel) error {
	if keeps != 0 {
		if err := w.noteGrowth(ctx, keeps-memoryMargin); err != nil {
			return err
		}
	}
	if err := w.applied.Indexes().DropOne(ctx, "done_at"); err != nil && !differs(err, 27) { // IndexNotFound: another process was faster
		return err
	}
	_, err := w.applied.Indexes().CreateOne(ctx, index)
	return err
}

// forgetsAfter is what the index says; 0: there is none.
func (w *Writer) forgetsAfter(ctx context.Context) (time.Duration, error) {
	specs, err := w.applied.Indexes().ListSpecifications(ctx)
	if err != nil {
		return 0, err
	}
	for _, s := range specs {
		if s.Name == "done_at" && s.ExpireAfterSeconds != nil {
			return time.Duration(*s.ExpireAfterSeconds) * time.Second, nil
		}
	}
	return 0, nil
}

func (w *Writer) noteGrowth(ctx context.Context, old time.Duration) error {
	now := w.clock.Now().UTC().Truncate(time.Millisecond)
	id := "memory/" + rand.Text()
	_, err := w.applied.InsertOne(ctx, growth{id, []string{id}, now, now, now.Add(-old)})
	if err != nil {
		return fmt.Errorf("note that the memory grows: %w", err)
	}
	return nil
}

func (w *Writer) readGrowth(ctx context.Context) error {
	cur, err := w.applied.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: "memory/"}, {Key: "$lt", Value: "memory0"}}}})
	if err != nil {
		return err
	}
	var grown []growth
	if err := cur.All(ctx, &grown); err != nil {
		return err
	}
	latest := int64(0)
	for _, g := range grown {
		latest = max(latest, g.KeptFrom.UnixMilli())
	}
	w.keptFrom.Store(latest)
	return nil
}
