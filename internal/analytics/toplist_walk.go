package analytics

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// topList is the walk down the list of one month. Its index is over (sid, -v) alone, so that a count moves one small key.
// Two things follow. Documents of the same v come out of it in no order, and there may be a million that were seen once: see ties. And not
// every server stops reading an index at the limit, so no question is asked whose answer without the limit would be long.
type topList struct {
	coll *mongo.Collection
	sid  string
	// total is how many documents the site has, by the document that keeps to the limit; 0 where that is not known.
	total int64
}

func (l *topList) find(ctx context.Context, filter bson.D, o *options.FindOptionsBuilder) ([]Value, error) {
	cur, err := l.coll.Find(ctx, filter, o)
	if err != nil {
		return nil, err
	}
	var docs []valueDoc
	if err := cur.All(ctx, &docs); err != nil {
		return nil, err
	}
	values := make([]Value, len(docs))
	for i := range docs {
		values[i] = docs[i].value()
	}
	return values, nil
}

// page returns up to n values behind a key, in order.
func (l *topList) page(ctx context.Context, after PageKey, n int) (values []Value, err error) {
	if l.total, err = l.documents(ctx); err != nil {
		return nil, err
	}
	short := l.total > 0 && l.total <= fewTies
	high := after.N
	if high > 0 {
		if values, err = l.ties(ctx, high, after.ID, n); err != nil {
			return nil, err
		}
	} else if high = math.MaxInt64; short {
		// no answer is long
	} else if high, err = l.above(ctx); err != nil {
		return nil, err
	}
	for width := high / 8; high > 1 && len(values) < n; width *= 2 {
		if high <= manyBelow {
			width = 1 // here are the many
		}
		width = min(width, high/2) // further down there are more and more
		low := high - max(1, width)
		if short {
			low = 1
		}
		band, err := l.band(ctx, low, high, n-len(values))
		if err != nil {
			return nil, err
		}
		values, high = append(values, band...), low
	}
	return values, nil
}

// above is a number that no value of the list reaches, and not far above the first one where that has been seen often.
func (l *topList) above(ctx context.Context) (int64, error) {
	for v := int64(1024); ; v *= 16 {
		some, err := l.find(ctx, bson.D{{Key: "sid", Value: l.sid}, {Key: "v", Value: bson.D{{Key: "$gte", Value: v}}}}, options.Find().SetLimit(1))
		if err != nil {
			return 0, err
		}
		if len(some) == 0 {
			return v, nil
		}
		if v > math.MaxInt64/16 {
			return math.MaxInt64, nil
		}
	}
}

// band returns the first n values with low <= v < high.
func (l *topList) band(ctx context.Context, low, high int64, n int) ([]Value, error) {
	if low == high-1 {
		return l.ties(ctx, low, "", n)
	}
	values, err := l.find(ctx, bson.D{{Key: "sid", Value: l.sid}, {Key: "v", Value: bson.D{{Key: "$gte", Value: low}, {Key: "$lt", Value: high}}}},
		options.Find().SetSort(bson.D{{Key: "v", Value: -1}}).SetLimit(int64(n)))
	if err != nil {
		return nil, err
	}
	if len(values) == n { // the last group of the same v may go on: which of it come first?
		last := values[n-1].N
		cut := slices.IndexFunc(values, func(v Value) bool { return v.N <= last })
		group, err := l.ties(ctx, last, "", n-cut)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(values[:cut], byFrequency)
		return append(values[:cut], group...), nil
	}
	slices.SortFunc(values, byFrequency)
	return values, nil
}

const (
	// fewTies is up to how many documents of the same v are read whole to put them in order.
	fewTies = 4000
	// manyBelow: at these v and below, one number is a question of its own.
	manyBelow = 8
	// firstStep is how many documents of the site a walk along _id looks at first.
	firstStep = 512
)

// ties returns up to n documents of the site with exactly v, in the order of _id, behind afterID. Where they are few, the
// index gives all of them; where they are many, they are dense among the documents of the site, and a walk along _id meets n of them soon; since
// an _id is a hash, a stretch of _ids holds about as many documents as it is long. Which of the two it is shows in the first steps.
func (l *topList) ties(ctx context.Context, v int64, afterID string, n int) ([]Value, error) {
	same := bson.D{{Key: "sid", Value: l.sid}, {Key: "v", Value: v}}
	many := l.total > fewTies
	if many && v > 1 { // those that were seen once are many in any list that long
		count, err := l.coll.CountDocuments(ctx, same, options.Count().SetLimit(fewTies+1))
		if err != nil {
			return nil, err
		}
		many = count > fewTies
	}
	if many {
		values, dense, err := l.walk(ctx, same, afterID, n)
		if err != nil || dense {
			return values, err
		}
	}
	return l.few(ctx, v, afterID, n)
}

// few reads the _ids of all that match, and then the documents that are wanted: a filter over v and _id together leaves a server
// the choice to walk along _id, past all that have another v.
func (l *topList) few(ctx context.Context, v int64, afterID string, n int) ([]Value, error) {
	there, err := l.find(ctx, bson.D{{Key: "sid", Value: l.sid}, {Key: "v", Value: v}}, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, t := range there {
		if t.ID > afterID {
			ids = append(ids, t.ID)
		}
	}
	slices.Sort(ids)
	ids = ids[:min(n, len(ids))]
	if len(ids) == 0 {
		return nil, nil
	}
	values, err := l.find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, options.Find())
	for i := range values {
		values[i].N = v // also of one that was counted again in between: its place in the list is here
	}
	slices.SortFunc(values, byFrequency)
	return values, err
}

func inOrder(n int) *options.FindOptionsBuilder {
	return options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(int64(n))
}

// walk goes along _id in growing steps. It gives up, dense being false, when what it met says that there are few.
func (l *topList) walk(ctx context.Context, same bson.D, afterID string, n int) (values []Value, dense bool, err error) {
	begin := l.position(afterID)
	low := bson.E{Key: "$gt", Value: max(afterID, l.sid+":")}
	step := uint64(firstStep) * (math.MaxUint64 / uint64(l.total))
	if step < firstStep { // nonsense in the document that tells how many there are
		return nil, false, nil
	}
	for at, round := begin, 1; ; round++ {
		end, over := at+step, at+step < at
		high := fmt.Sprintf("%s:%016x", l.sid, end)
		if over {
			high = l.sid + ";"
		}
		part, err := l.find(ctx, append(slices.Clip(same), bson.E{Key: "_id", Value: bson.D{low, {Key: "$lt", Value: high}}}),
			inOrder(n-len(values)).SetHint(bson.D{{Key: "_id", Value: 1}}))
		if err != nil {
			return nil, false, err
		}
		if values = append(values, part...); len(values) == n || over {
			return values, true, nil
		}
		share := float64(end-begin) / math.MaxUint64
		if round >= 2 && float64(len(values))/share < fewTies {
			return nil, false, nil
		}
		at, low, step = end, bson.E{Key: "$gte", Value: high}, min(2*step, math.MaxUint64/4)
	}
}

// position is the hash in an _id; 0 where there is none.
func (l *topList) position(id string) uint64 {
	if len(id) < len(l.sid)+17 {
		return 0
	}
	hash, err := strconv.ParseUint(id[len(l.sid)+1:len(l.sid)+17], 16, 64)
	if err != nil {
		return 0
	}
	return hash
}

// documents reads the total.
func (l *topList) documents(ctx context.Context) (int64, error) {
	doc, err := l.coll.FindOne(ctx, bson.D{{Key: "_id", Value: l.sid}}).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return max(0, number(doc.Lookup("n"))), nil
}
