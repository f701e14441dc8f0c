package analytics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"
)

// Reader reads counters for reports. Days are UTC days; a range of days includes both ends.
type Reader struct{ db *mongo.Database }

// NewReader returns a reader of the counters in db.
func NewReader(db *mongo.Database) *Reader { return &Reader{db} }

// maxReportDays bounds a range of days: ten years.
const maxReportDays = 3660

// daysAtOnce is how many days are asked for at a time.
const daysAtOnce = 8

// Totals sums every metric of a campaign (or of All) over a range of days.
func (r *Reader) Totals(ctx context.Context, campaign string, from, to time.Time) (map[string]int64, error) {
	days, err := r.Daily(ctx, campaign, from, to)
	if err != nil {
		return nil, err
	}
	totals := map[string]int64{}
	for _, d := range days {
		for metric, n := range d.Metrics {
			totals[metric] += n
		}
	}
	return totals, nil
}

// DayCounts are the counts of one campaign on one day by metric.
type DayCounts struct {
	Day     time.Time
	Metrics map[string]int64
}

// Daily returns the days of the range in order, also those on which nothing was counted.
func (r *Reader) Daily(ctx context.Context, campaign string, from, to time.Time) ([]DayCounts, error) {
	return eachDay(ctx, from, to, func(ctx context.Context, day time.Time) (DayCounts, error) {
		counts := DayCounts{Day: day, Metrics: map[string]int64{}}
		prefix := day.Format(dayLayout) + "/" + campaign + "."
		err := r.read(ctx, day, idRange(prefix), "daily", func(id string, v bson.RawValue) {
			if n := number(v); n != 0 {
				counts.Metrics[strings.TrimPrefix(id, prefix)] = n
			}
		})
		return counts, err
	})
}

// HourCount is what was counted in the hour that starts at At.
type HourCount struct {
	At time.Time
	N  int64
}

// Hours returns one metric hour by hour over a range of days, in order, also the hours in which nothing was counted.
func (r *Reader) Hours(ctx context.Context, campaign, metric string, from, to time.Time) ([]HourCount, error) {
	days, err := eachDay(ctx, from, to, func(ctx context.Context, day time.Time) ([24]int64, error) {
		var hours [24]int64
		err := r.read(ctx, day, bson.D{{Key: "_id", Value: DayID(campaign, metric, day)}}, "hourly", func(_ string, v bson.RawValue) {
			fill(hours[:], v)
		})
		return hours, err
	})
	if err != nil {
		return nil, err
	}
	counts := make([]HourCount, 0, 24*len(days))
	for i, hours := range days {
		for h, n := range hours {
			counts = append(counts, HourCount{midnight(from).AddDate(0, 0, i).Add(time.Duration(h) * time.Hour), n})
		}
	}
	return counts, nil
}

// Minutes returns one metric minute by minute, [hour][minute], on one day.
func (r *Reader) Minutes(ctx context.Context, campaign, metric string, day time.Time) ([24][60]int64, error) {
	var minutes [24][60]int64
	err := r.read(ctx, day, bson.D{{Key: "_id", Value: DayID(campaign, metric, day)}}, "minute", func(_ string, v bson.RawValue) {
		eachNumbered(v, 24, func(h int, v bson.RawValue) { fill(minutes[h][:], v) })
	})
	return minutes, err
}

// Campaigns names, in order, those that counted anything in a range of days, without All.
func (r *Reader) Campaigns(ctx context.Context, from, to time.Time) ([]string, error) {
	days, err := eachDay(ctx, from, to, func(ctx context.Context, day time.Time) (map[string]bool, error) {
		names := map[string]bool{}
		prefix := day.UTC().Format(dayLayout) + "/"
		err := r.read(ctx, day, idRange(prefix), "daily", func(id string, v bson.RawValue) {
			if name, _, ok := strings.Cut(strings.TrimPrefix(id, prefix), "."); ok && name != All && number(v) != 0 {
				names[name] = true
			}
		})
		return names, err
	})
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, names := range days {
		maps.Copy(all, names)
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// eachDay asks for every day of the range, several at a time.
func eachDay[T any](ctx context.Context, from, to time.Time, ask func(context.Context, time.Time) (T, error)) ([]T, error) {
	from, to = midnight(from), midnight(to)
	n := int(to.Sub(from)/(24*time.Hour)) + 1
	switch {
	case to.Before(from):
		return nil, fmt.Errorf("a range of days that ends (%s) before it begins (%s)", to.Format(time.DateOnly), from.Format(time.DateOnly))
	case n > maxReportDays:
		return nil, fmt.Errorf("a range of %d days; at most %d", n, maxReportDays)
	}
	answers := make([]T, n)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(daysAtOnce)
	for i := range n {
		g.Go(func() (err error) {
			day := from.AddDate(0, 0, i)
			if answers[i], err = ask(ctx, day); err != nil {
				return fmt.Errorf("counters of %s: %w", day.Format(time.DateOnly), err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return answers, nil
}

// read calls f with one field of every document of a day that matches. Documents that lack it are passed over.
func (r *Reader) read(ctx context.Context, day time.Time, filter bson.D, field string, f func(id string, v bson.RawValue)) error {
	cur, err := r.db.Collection(DaysCollection(day)).Find(ctx, filter, options.Find().SetProjection(bson.D{{Key: field, Value: 1}}))
	if err != nil {
		return err
	}
	for cur.Next(ctx) {
		id, ok := cur.Current.Lookup("_id").StringValueOK()
		v, err := cur.Current.LookupErr(field)
		if ok && err == nil {
			f(id, v)
		}
	}
	return errors.Join(cur.Err(), cur.Close(context.WithoutCancel(ctx)))
}

// number reads a count of any numeric type: other services write the model as well. What is no number is 0.
func number(v bson.RawValue) int64 {
	n, ok := v.AsInt64OK()
	if !ok {
		return 0
	}
	return n
}

func fill(counts []int64, v bson.RawValue) {
	eachNumbered(v, len(counts), func(i int, v bson.RawValue) { counts[i] = number(v) })
}

// eachNumbered calls f for the fields "00", "01" … below n of a document.
func eachNumbered(v bson.RawValue, n int, f func(int, bson.RawValue)) {
	doc, ok := v.DocumentOK()
	if !ok {
		return
	}
	elements, err := doc.Elements()
	if err != nil {
		return
	}
	for _, e := range elements {
		if i, err := strconv.Atoi(e.Key()); err == nil && i >= 0 && i < n {
			f(i, e.Value())
		}
	}
}
