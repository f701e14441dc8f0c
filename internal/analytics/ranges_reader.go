package analytics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// rangeFields are the fields of a document of ranges that a reader takes.
var rangeFields = []string{ScreenWidth, BrowserWidth, BrowserHeight, ClientField, DeviceField, OSField, KindField, DelayField}

// Ranges sums the ranges of a campaign or site (or of All) over the months from..to, both included whole: counts by field and bucket.
func (r *Reader) Ranges(ctx context.Context, sid string, from, to time.Time) (map[string]map[string]int64, error) {
	months, err := monthsOf(from, to)
	if err != nil {
		return nil, err
	}
	sum := map[string]map[string]int64{}
	for _, month := range months {
		doc, err := r.db.Collection("ranges."+month).FindOne(ctx, bson.D{{Key: "_id", Value: sid}}).Raw()
		if errors.Is(err, mongo.ErrNoDocuments) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("ranges of %s in %s: %w", sid, month, err)
		}
		addRanges(sum, doc)
	}
	return sum, nil
}

func addRanges(sum map[string]map[string]int64, doc bson.Raw) {
	fields, err := doc.Elements()
	if err != nil {
		return
	}
	for _, f := range fields {
		buckets, ok := f.Value().DocumentOK()
		if !ok || !slices.Contains(rangeFields, f.Key()) {
			continue
		}
		elements, err := buckets.Elements()
		if err != nil {
			continue
		}
		for _, e := range elements {
			if n := number(e.Value()); n != 0 {
				if sum[f.Key()] == nil {
					sum[f.Key()] = map[string]int64{}
				}
				sum[f.Key()][e.Key()] += n
			}
		}
	}
}
