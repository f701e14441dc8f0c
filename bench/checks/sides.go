package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"postbit/internal/bitfield"
	"postbit/internal/campaign"
	"postbit/internal/users"
	"postbit/rules"
	"postbit/templates"
	"postbit/worker"
)

const ours = 23 // the template's bit

var byID = bson.D{{Key: "_id", Value: 1}}

// bench is a collection of users and the sides that read it.
type bench struct {
	coll  *mongo.Collection
	ids   []bson.ObjectID // no pointers: a worker has only those of its batches to walk when memory is collected
	store *users.Store
	rules *worker.Evaluator
	now   time.Time
	sends atomic.Int64 // of the last time that all users were evaluated
}

func newBench(ctx context.Context, coll *mongo.Collection, n int, mailable float64) (*bench, error) {
	b := &bench{coll: coll, now: time.Now().UTC()}
	if err := b.seed(ctx, n, mailable); err != nil {
		return nil, err
	}
	var err error
	if b.store, err = users.New(coll, users.Config{}); err != nil {
		return nil, err
	}
	window, err := rules.ParseWindow("00:00-23:59")
	if err != nil {
		return nil, err
	}
	run := &campaign.Run{ID: "checks", StartedAt: b.now, Spec: campaign.Spec{Name: "checks", Audience: `{"plan":"free"}`, ExpiresAfter: 24 * time.Hour,
		Rules: campaign.RuleSet{Window: window, InactiveAfter: 90 * 24 * time.Hour, MinGap: 24 * time.Hour}}}
	b.rules, err = worker.NewEvaluator(run, &templates.Template{Name: "checks", BitIndex: ours}, []string{"name"}, b.store)
	return b, err
}

// seed writes users of about a kilobyte, as an application has them.
func (b *bench) seed(ctx context.Context, n int, mailable float64) error {
	for from := 0; from < n; from += 2000 {
		var docs []any
		for i := from; i < min(from+2000, n); i++ {
			id := bson.NewObjectID()
			b.ids = append(b.ids, id)
			docs = append(docs, b.user(id, i, float64(i*7919%10_000) < mailable*100))
		}
		if _, err := b.coll.InsertMany(ctx, docs, options.InsertMany().SetOrdered(false)); err != nil {
			return err
		}
	}
	return nil
}

// user is one who may be sent to, or one whom one of three rules keeps from it.
func (b *bench) user(id bson.ObjectID, i int, mailable bool) bson.D {
	var blob []byte
	for bit := 0; bit < 8*(1+i%19); bit += 1 + i%7 {
		if bit != ours {
			blob = bitfield.With(blob, bit)
		}
	}
	ago := func(days int) time.Time { return b.now.AddDate(0, 0, -days) }
	state := bson.D{{Key: "first_at", Value: ago(300)}, {Key: "last_at", Value: ago(2 + i%80)}, {Key: "open_last_at", Value: ago(2 + i%80)}}
	switch {
	case mailable:
	case i%3 == 0: // already sent, and not opened
		blob = bitfield.With(blob, ours)
		state = state[:2]
	case i%3 == 1: // inactive
		state[2].Value = ago(100 + i%100)
	default: // got a mail today
		state[1].Value = b.now.Add(-time.Hour)
	}
	return bson.D{{Key: "_id", Value: id}, {Key: "email", Value: fmt.Sprintf("u%d@example.com", i)}, {Key: "name", Value: "Zoë Müller"},
		{Key: "timezone", Value: []string{"Europe/Berlin", "Asia/Tokyo", "America/New_York", "Africa/Lagos"}[i%4]}, {Key: "plan", Value: "free"},
		{Key: "bio", Value: strings.Repeat("x", 700)}, {Key: "tpls_sent_at_least_once", Value: bson.Binary{Data: blob}}, {Key: "postbit", Value: state}}
}

// mailable is how many percent the rules let have the mail.
func (b *bench) mailable() float64 { return 100 * float64(b.sends.Load()) / float64(len(b.ids)) }

func (b *bench) find() *options.FindOptionsBuilder {
	return options.Find().SetProjection(b.store.Fields([]string{"name"}))
}

// cursors reads the same fields of the same documents, each of several cursors all of them, and does nothing with them.
func (b *bench) cursors(ctx context.Context, several int) error {
	var all errgroup.Group
	for range several {
		all.Go(func() error {
			return b.drain(ctx, bson.D{}, b.find().SetSort(byID), len(b.ids))
		})
	}
	return all.Wait()
}

// lists reads them by lists of their ids, in the very queries of a worker, and does nothing with them: what the server and the driver leave
// to a worker.
func (b *bench) lists(ctx context.Context, atOnce int) error {
	var all errgroup.Group
	all.SetLimit(atOnce)
	for part := range slices.Chunk(b.ids, users.LoadAtOnce) {
		all.Go(func() error {
			filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: rawIDs(part)}}}, {Key: "plan", Value: "free"}}
			return b.drain(ctx, filter, b.find().SetSort(byID).SetBatchSize(users.LoadAtOnce+1), len(part))
		})
	}
	return all.Wait()
}

func (b *bench) drain(ctx context.Context, filter bson.D, opts *options.FindOptionsBuilder, want int) error {
	cur, err := b.coll.Find(ctx, filter, opts)
	if err != nil {
		return err
	}
	defer cur.Close(ctx)
	n := 0
	for cur.Next(ctx) {
		n++
	}
	if n != want {
		return fmt.Errorf("%d of %d users came: %w", n, want, cur.Err())
	}
	return cur.Err()
}

// batches takes all users through the path of a worker: as many batches side by side as it has in work, of each as many users at once as
// it takes, and those who may be sent to are kept.
func (b *bench) batches(ctx context.Context, atOnce int) error {
	var decided, sends atomic.Int64
	var all errgroup.Group
	all.SetLimit(atOnce)
	for ids := range slices.Chunk(b.ids, batchUsers) {
		all.Go(func() error {
			batch := rawIDs(ids)
			var ready []users.User
			for len(batch) > 0 {
				part := batch[:min(b.rules.AtOnce(), len(batch))]
				rest, err := b.rules.Load(ctx, part, nil, b.now, func(_ int, u *users.User, d rules.Decision) (keep bool) {
					if u != nil {
						decided.Add(1)
					}
					if keep = d.Outcome == rules.Send && u != nil; keep {
						ready = append(ready, *u)
					}
					return keep
				})
				if err != nil || rest != nil {
					return fmt.Errorf("%d users were not looked at: %w", len(rest), err)
				}
				batch = batch[len(part):]
			}
			sends.Add(int64(len(ready)))
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	if decided.Load() != int64(len(b.ids)) {
		return fmt.Errorf("%d of %d users were decided", decided.Load(), len(b.ids))
	}
	b.sends.Store(sends.Load())
	return nil
}

// rawIDs is a batch as a worker has it.
func rawIDs(ids []bson.ObjectID) []bson.RawValue {
	out := make([]bson.RawValue, len(ids))
	for i := range ids {
		out[i] = bson.RawValue{Type: bson.TypeObjectID, Value: ids[i][:]}
	}
	return out
}
