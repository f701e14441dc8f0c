// toplist measures how long the pages of a top list take where one site has 1,000,000 distinct pages in a month: the top, page 1,000, and
// a page far down in the tail where all values were seen once; and shows what the server says of the way it took (explain), and what the reader keeps in memory.
//
//	go run ./bench/toplist [--values 1000000] [--mongo secantusd-rs|secantusd-py|minimongo|mongodb://…] [--json]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/bench/internal/lab"
)

type settings struct {
	values, repeat int
	mongo          string
	filled, asJSON bool
}

// result is what --json prints. Times are milliseconds: the median and the longest of the repetitions.
type result struct {
	Server string           `json:"server"`
	Values int              `json:"values"`
	Fill   float64          `json:"fill_s"`
	Pages  map[string]times `json:"pages"`
	Plans  map[string][]way `json:"plans"`
	Heap   map[string]int64 `json:"heap_bytes"` // of the reader's process: after the first page, after 1,000 pages
}

type times struct {
	Median float64 `json:"median_ms"`
	Max    float64 `json:"max_ms"`
}

// way is how a server answered one find of a page.
type way struct {
	Stages   string `json:"stages"`
	Keys     int64  `json:"keys_examined"`
	Docs     int64  `json:"docs_examined"`
	Returned int64  `json:"returned"`
}

func main() {
	var o settings
	flag.IntVar(&o.values, "values", 1_000_000, "distinct pages of the site")
	flag.IntVar(&o.repeat, "repeat", 100, "how often each page is read")
	flag.StringVar(&o.mongo, "mongo", "secantusd-rs", "secantusd-rs, secantusd-py, minimongo, or the URI of a server, whose database toplist is dropped")
	flag.BoolVar(&o.filled, "filled", false, "go on with the list that an earlier run on the same server has written, or begun")
	flag.BoolVar(&o.asJSON, "json", false, "print one JSON object")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "toplist:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o settings) error {
	uri := o.mongo
	if !strings.Contains(uri, "://") {
		l, err := lab.New("toplist")
		if err != nil {
			return err
		}
		defer l.Close(false)
		program := ""
		if o.mongo == "minimongo" {
			if program, err = l.Build(ctx, "postbit/cmd/postbit"); err != nil {
				return err
			}
		}
		if _, uri, err = l.Mongo(ctx, o.mongo, program, false); err != nil {
			return err
		}
	}
	seen := &finds{}
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetMonitor(seen.monitor()))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	db := client.Database("toplist")
	if !o.filled {
		if err := db.Drop(ctx); err != nil {
			return err
		}
	}
	r := result{Server: o.mongo, Values: o.values, Pages: map[string]times{}, Plans: map[string][]way{}, Heap: map[string]int64{}}
	begin := time.Now()
	middle, err := fill(ctx, db, o.values)
	if err != nil {
		return err
	}
	r.Fill = time.Since(begin).Seconds()
	if err := measure(ctx, db, seen, o, middle, &r); err != nil {
		return err
	}
	if o.asJSON {
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	r.print()
	return nil
}

// Of the site's pages the one of rank n was seen 1 + values/10/n times, so that nine in ten were seen once.
func views(values, rank int) int { return 1 + values/10/rank }

const (
	sid        = "shop"
	collection = "pages.2026.12"
	bulk       = 2000
)

var month = time.Date(2026, 12, 14, 0, 0, 0, 0, time.UTC)

// fill writes the list in the shape that docs/analytics.md describes. It returns the _id in the middle of those that were seen once.
func fill(ctx context.Context, db *mongo.Database, values int) (middle string, err error) {
	coll := db.Collection(collection)
	index := mongo.IndexModel{Keys: bson.D{{Key: "sid", Value: 1}, {Key: "v", Value: -1}}, Options: options.Index().SetName("top")}
	if _, err := coll.Indexes().CreateOne(ctx, index); err != nil {
		return "", err
	}
	there, err := coll.EstimatedDocumentCount(ctx)
	if err != nil {
		return "", err
	}
	var docs []any
	var once []string
	for rank := 1; rank <= values; rank++ {
		page := fmt.Sprintf("https://shop.example.com/products/%d", rank)
		id, n := fmt.Sprintf("%s:%016x", sid, xxhash.Sum64String(page)), int32(views(values, rank))
		docs = append(docs, bson.D{{Key: "_id", Value: id}, {Key: "v", Value: n}, {Key: "sid", Value: sid}, {Key: "k", Value: page},
			{Key: "t", Value: fmt.Sprint("Product ", rank)}, {Key: "d", Value: bson.D{{Key: "14", Value: n}}}, {Key: "w", Value: bson.D{{Key: "k3v7q2mzx4ahe", Value: int64(rank)}}}})
		if n == 1 {
			once = append(once, id)
		}
		if int64(rank) <= there-2*bulk { // the last ones may be there in part
			docs = docs[:0]
		} else if len(docs) == bulk || rank == values {
			if _, err := coll.InsertMany(ctx, docs, options.InsertMany().SetOrdered(false)); err != nil && !mongo.IsDuplicateKeyError(err) {
				return "", err
			}
			docs = docs[:0]
		}
	}
	slices.Sort(once)
	_, err = coll.UpdateOne(ctx, bson.D{{Key: "_id", Value: sid}}, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: int64(values)}}}}, options.UpdateOne().SetUpsert(true))
	return once[len(once)/2], err
}

func (r *result) print() {
	fmt.Printf("%s, %d pages of one site in a month (written in %.0f s)\n\n", r.Server, r.Values, r.Fill)
	fmt.Printf("%-34s %12s %12s   %s\n", "", "median ms", "longest ms", "the kinds of finds: stages, keys and documents looked at, returned")
	for _, name := range pageNames {
		t := r.Pages[name]
		var ways []string
		for _, w := range r.Plans[name] {
			ways = append(ways, fmt.Sprintf("%s %d/%d -> %d", w.Stages, w.Keys, w.Docs, w.Returned))
		}
		fmt.Printf("%-34s %12.2f %12.2f   %s\n", name, t.Median, t.Max, strings.Join(ways, "; "))
	}
	fmt.Printf("\nheap of the reader: %.1f MB after the first page, %.1f MB after %d pages\n", float64(r.Heap["first"])/1e6, float64(r.Heap["last"])/1e6, deepPage)
}
