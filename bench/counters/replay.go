package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"postbit/internal/analytics"
	"postbit/internal/clock"
)

// shape is where a hit of a minute is counted in the document of its day.
type shape struct {
	name         string
	byHour       bool
	preallocated bool
}

var shapes = []shape{
	{"flat_grown", false, false},
	{"flat_preallocated", false, true},
	{"by_hour_grown", true, false},
	{"by_hour_preallocated", true, true},
}

func (s shape) paths(minute int) map[string]int64 {
	if !s.byHour {
		return map[string]int64{"daily": 1, fmt.Sprintf("minute.%04d", minute): 1}
	}
	hour := fmt.Sprintf("%02d", minute/60)
	return map[string]int64{"daily": 1, "hourly." + hour: 1, fmt.Sprintf("minute.%s.%02d", hour, minute%60): 1}
}

// empty is a document with everything at 0.
func (s shape) empty(id string) bson.D {
	var hours, minutes bson.D
	for h := range 24 {
		hour := fmt.Sprintf("%02d", h)
		hours = append(hours, bson.E{Key: hour, Value: int32(0)})
		var inner bson.D
		for m := range 60 {
			if s.byHour {
				inner = append(inner, bson.E{Key: fmt.Sprintf("%02d", m), Value: int32(0)})
			} else {
				minutes = append(minutes, bson.E{Key: fmt.Sprintf("%04d", h*60+m), Value: int32(0)})
			}
		}
		if s.byHour {
			minutes = append(minutes, bson.E{Key: hour, Value: inner})
		}
	}
	doc := bson.D{{Key: "_id", Value: id}, {Key: "daily", Value: int32(0)}}
	if s.byHour {
		doc = append(doc, bson.E{Key: "hourly", Value: hours})
	}
	return append(doc, bson.E{Key: "minute", Value: minutes})
}

// write makes one update of one document.
type write func(ctx context.Context, collection, id string, inc map[string]int64) error

func newBare(db *mongo.Database) write {
	return func(ctx context.Context, collection, id string, inc map[string]int64) error {
		_, err := db.Collection(collection).UpdateOne(ctx, bson.D{{Key: "_id", Value: id}}, bson.D{{Key: "$inc", Value: inc}}, options.UpdateOne().SetUpsert(true))
		if mongo.IsDuplicateKeyError(err) { // two made the document at once
			_, err = db.Collection(collection).UpdateOne(ctx, bson.D{{Key: "_id", Value: id}}, bson.D{{Key: "$inc", Value: inc}})
		}
		return err
	}
}

// startWriter returns a write through Apply, each under an id of its own, as a chunk of hits or a pass of a batch has it.
func startWriter(ctx context.Context, db *mongo.Database) (write, func()) {
	w := analytics.NewWriter(db, clock.New(), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) }) // what fails there fails in Apply, too
	var n atomic.Int64
	return func(ctx context.Context, collection, id string, inc map[string]int64) error {
			return w.Apply(ctx, fmt.Sprintf("bench/%d", n.Add(1)), []analytics.Increment{{Collection: collection, ID: id, Inc: inc}})
		}, func() {
			cancel()
			running.Wait()
		}
}

// replay goes through one day and takes the time of each hour.
func replay(ctx context.Context, db *mongo.Database, s settings, sh shape, how string, day int, w write) (c curve, err error) {
	collection := fmt.Sprintf("%s_%s.%d", sh.name, how, day)
	ids := make([]string, s.documents)
	for i := range ids {
		ids[i] = fmt.Sprintf("20261201/m%03d", i)
		if sh.preallocated {
			if _, err := db.Collection(collection).InsertOne(ctx, sh.empty(ids[i])); err != nil {
				return c, err
			}
		}
	}
	for hour := range 24 {
		start := time.Now()
		g, gctx := errgroup.WithContext(ctx)
		g.SetLimit(s.callers)
		for minute := hour * 60; minute < hour*60+60; minute++ {
			inc := sh.paths(minute)
			for k := range s.perMinute {
				id := ids[(minute*s.perMinute+k)%len(ids)]
				g.Go(func() error { return w(gctx, collection, id, inc) })
			}
		}
		if err := g.Wait(); err != nil {
			return c, err
		}
		c.Rates[hour] = float64(60*s.perMinute) / time.Since(start).Seconds()
	}
	return c, check(ctx, db, s, collection)
}

// check makes sure that what was timed was also counted.
func check(ctx context.Context, db *mongo.Database, s settings, collection string) error {
	cur, err := db.Collection(collection).Aggregate(ctx, mongo.Pipeline{{{Key: "$group", Value: bson.D{{Key: "_id", Value: nil}, {Key: "n", Value: bson.D{{Key: "$sum", Value: "$daily"}}}}}}})
	if err != nil {
		return err
	}
	var sum []struct{ N int64 }
	if err := cur.All(ctx, &sum); err != nil {
		return err
	}
	if want := int64(1440 * s.perMinute); len(sum) != 1 || sum[0].N != want {
		return fmt.Errorf("%v counted, want %d", sum, want)
	}
	return nil
}
