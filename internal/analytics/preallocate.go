package analytics

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// How a day's documents are spread over the evening before it, so that midnight brings no burst of inserts. The last ones
// are there a while before midnight: schedulers ask once a minute or so, and their clocks differ.
const (
	eveningStart = 6 * time.Hour // before midnight
	eveningEnd   = 15 * time.Minute
)

// seenDays is how far back a metric must have been counted to be expected tomorrow; a weekly campaign is.
const seenDays = 7

// metricsSeen remembers which metrics days counted, so that an evening does not read the same days again and again.
type metricsSeen struct {
	byDay map[time.Time]seenDay
}

type seenDay struct {
	names []string // "winback.opened"
	at    time.Time
}

// Preallocate makes the documents of a day, usually tomorrow, that are due by now: those of every metric that was counted
// in the seven days before it, each at an instant of the evening that follows from its _id, with all hours and minutes at 0.
// It returns how many it made. Call it every minute from any number of schedulers: what is there already stays as it is.
func (w *Writer) Preallocate(ctx context.Context, day, now time.Time) (int, error) {
	day = midnight(day)
	if now.Before(day.Add(-eveningStart)) {
		return 0, nil
	}
	w.evening.Lock()
	defer w.evening.Unlock()
	names, err := w.seenBefore(ctx, day, now)
	if err != nil {
		return 0, fmt.Errorf("preallocate %s: %w", day.Format(time.DateOnly), err)
	}
	coll := w.db.Collection(DaysCollection(day))
	var due []stored
	for name := range names {
		id := day.Format(dayLayout) + "/" + name
		if now.Before(preallocatedAt(id, day)) || w.shapes.knows(docKey{coll.Name(), id}) {
			continue
		}
		campaign, metric, _ := strings.Cut(name, ".")
		due = append(due, stored{Collection: coll.Name(), ID: id, OnInsert: dayMetadata(campaign, metric, day)})
	}
	if len(due) == 0 {
		return 0, nil
	}
	made, err := w.shapes.make(ctx, coll, due)
	if err != nil {
		return made, fmt.Errorf("preallocate %s: %w", day.Format(time.DateOnly), err)
	}
	return made, nil
}

// preallocatedAt is when in the evening before day the document is made: a function of its _id, so that all schedulers agree.
func preallocatedAt(id string, day time.Time) time.Time {
	span := uint64((eveningStart - eveningEnd) / time.Second)
	return day.Add(-eveningStart).Add(time.Duration(xxhash.Sum64String(id)%span) * time.Second)
}

// seenBefore are the metrics that were counted (not only preallocated) on the days before day.
func (w *Writer) seenBefore(ctx context.Context, day, now time.Time) (map[string]bool, error) {
	names := map[string]bool{}
	fresh := map[time.Time]seenDay{}
	for i := 1; i <= seenDays; i++ {
		d := day.AddDate(0, 0, -i)
		seen, ok := w.seen.byDay[d]
		// Hits come late by seconds, chunks of a web server that was cut off by days: those go without.
		if over := d.AddDate(0, 0, 1).Before(seen.at); !ok || !over && now.Sub(seen.at) >= 15*time.Minute {
			var err error
			if seen, err = w.countedOn(ctx, d, now); err != nil {
				return nil, err
			}
		}
		fresh[d] = seen
		for _, name := range seen.names {
			names[name] = true
		}
	}
	w.seen.byDay = fresh
	return names, nil
}

func (w *Writer) countedOn(ctx context.Context, day, now time.Time) (seenDay, error) {
	prefix := day.Format(dayLayout) + "/"
	ids, err := existing(ctx, w.db.Collection(DaysCollection(day)), append(idRange(prefix), bson.E{Key: "daily", Value: bson.D{{Key: "$gt", Value: 0}}}))
	if err != nil {
		return seenDay{}, fmt.Errorf("metrics of %s: %w", day.Format(time.DateOnly), err)
	}
	seen := seenDay{at: now}
	for id := range ids {
		if name := strings.TrimPrefix(id, prefix); strings.Contains(name, ".") {
			seen.names = append(seen.names, name)
		}
	}
	return seen, nil
}

// idRange matches the _ids that start with prefix, whose last byte is ASCII.
func idRange(prefix string) bson.D {
	next := prefix[:len(prefix)-1] + string(prefix[len(prefix)-1]+1)
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: prefix}, {Key: "$lt", Value: next}}}}
}
