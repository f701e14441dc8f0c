// backfill measures how many users `postbit bits backfill` fills in a second, from reading the log to the last write, against a bare bulk
// update of the same documents with the same values in the same run.
//
//	go run ./bench/backfill --users 200000 [--rows 400000] [--by id|email] [--mongo secantusd-rs|minimongo] [--json]
package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"golang.org/x/sync/errgroup"

	"postbit/bench/internal/lab"
	"postbit/internal/backfill"
	"postbit/internal/bitfield"
	"postbit/internal/clock"
	"postbit/internal/users"
)

const (
	templates  = 148
	batchUsers = 1000
	inFlight   = 2 // bulks at a time, of either side
)

// result is what --json prints.
type result struct {
	Users    int     `json:"users"`
	Rows     int     `json:"rows"`
	By       string  `json:"by"`
	Bare     float64 `json:"bare_users_per_second"`
	Backfill float64 `json:"backfill_users_per_second"`
	Ratio    float64 `json:"ratio"`
}

func main() {
	var (
		n      = flag.Int("users", 200_000, "users")
		rows   = flag.Int("rows", 0, "rows of the log; 0 is one and a half for each user")
		by     = flag.String("by", "id", "what the log names users by: id or email")
		prog   = flag.String("mongo", "secantusd-rs", "secantusd-rs, secantusd-py or minimongo")
		rounds = flag.Int("rounds", 3, "times that both sides take their turn; the medians count")
		asJSON = flag.Bool("json", false, "print one JSON object")
	)
	flag.Parse()
	if *rows == 0 {
		*rows = *n * 3 / 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := measure(ctx, result{Users: *n, Rows: *rows, By: *by}, *prog, *rounds)
	if err != nil {
		fmt.Fprintln(os.Stderr, "backfill:", err)
		os.Exit(1)
	}
	if *asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(r)
		return
	}
	fmt.Printf("bare bulk update   %9.0f users/s\nbits backfill      %9.0f users/s (%d rows, by %s), %.2f of it\n", r.Bare, r.Backfill, r.Rows, r.By, r.Ratio)
}

func measure(ctx context.Context, r result, prog string, rounds int) (result, error) {
	l, err := lab.New("postbit-backfill-")
	if err != nil {
		return r, err
	}
	defer l.Close(false)
	_, client, err := l.Database(ctx, prog)
	if err != nil {
		return r, err
	}
	defer client.Disconnect(context.WithoutCancel(ctx))
	dir, err := os.MkdirTemp("", "postbit-backfill-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	b := &bench{db: client.Database("backfill"), result: r, log: filepath.Join(dir, "sends.csv")}
	if err := b.makeLog(); err != nil {
		return r, err
	}
	var bare, ours, ratios []float64
	for range rounds {
		x, err := b.timed(ctx, b.bare)
		if err != nil {
			return r, err
		}
		y, err := b.timed(ctx, b.backfill)
		if err != nil {
			return r, err
		}
		bare, ours, ratios = append(bare, x), append(ours, y), append(ratios, y/x)
	}
	r.Bare, r.Backfill, r.Ratio = median(bare), median(ours), median(ratios)
	return r, nil
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}

type bench struct {
	result
	db  *mongo.Database
	log string

	targets []target // what the log says, for the bare side
}

type target struct {
	bits        []byte
	first, last time.Time
}

func id(i int) (oid bson.ObjectID) {
	copy(oid[:], fmt.Sprintf("%012d", i))
	return oid
}

func email(i int) string { return "user" + strconv.Itoa(i) + "@example.com" }

// makeLog writes a log in the order of time, as logs are.
func (b *bench) makeLog() error {
	f, err := os.Create(b.log)
	if err != nil {
		return err
	}
	defer f.Close()
	w := csv.NewWriter(f)
	_ = w.Write([]string{"user", "template", "sent_at"})
	b.targets = make([]target, b.Users)
	r := rand.New(rand.NewPCG(1, 2))
	start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range b.Rows {
		i, bit := r.IntN(b.Users), r.IntN(templates)
		at := start.Add(time.Duration(n) * 30 * time.Second)
		who := id(i).Hex()
		if b.By == "email" {
			who = email(i)
		}
		_ = w.Write([]string{who, "t" + strconv.Itoa(bit), at.Format(time.RFC3339)})
		t := &b.targets[i]
		t.bits = bitfield.With(t.bits, bit)
		if t.first.IsZero() {
			t.first = at
		}
		t.last = at
	}
	w.Flush()
	return w.Error()
}

// timed gives the users per second of one side, on users who have nothing yet.
func (b *bench) timed(ctx context.Context, side func(context.Context) (int, error)) (float64, error) {
	coll := b.db.Collection("users")
	if err := coll.Drop(ctx); err != nil {
		return 0, err
	}
	for from := 0; from < b.Users; from += 2000 {
		docs := make([]any, min(2000, b.Users-from))
		for i := range docs {
			docs[i] = bson.D{{Key: "_id", Value: id(from + i)}, {Key: "email", Value: email(from + i)}, {Key: "name", Value: "Somebody with a name"},
				{Key: "timezone", Value: "Europe/Berlin"}, {Key: "plan", Value: "free"}, {Key: "created_at", Value: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)}}
		}
		if _, err := coll.InsertMany(ctx, docs); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	n, err := side(ctx)
	return float64(n) / time.Since(start).Seconds(), err
}

func (b *bench) bare(ctx context.Context) (int, error) {
	journal := true
	coll := b.db.Collection("users", options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journal}))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	var models []mongo.WriteModel
	n := 0
	send := func() {
		part := models
		models = nil
		g.Go(func() error {
			_, err := coll.BulkWrite(ctx, part, options.BulkWrite().SetOrdered(false))
			return err
		})
	}
	for i, t := range b.targets {
		if t.bits == nil {
			continue
		}
		n++
		models = append(models, mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: id(i)}}).SetUpdate(bson.D{{Key: "$set", Value: bson.D{
			{Key: "tpls_sent_at_least_once", Value: t.bits}, {Key: "postbit.first_at", Value: t.first}, {Key: "postbit.last_at", Value: t.last},
		}}}))
		if len(models) == batchUsers {
			send()
		}
	}
	if len(models) > 0 {
		send()
	}
	return n, g.Wait()
}

func (b *bench) backfill(ctx context.Context) (int, error) {
	store, err := users.New(b.db.Collection("users"), users.Config{})
	if err != nil {
		return 0, err
	}
	bits := map[string]int{}
	for i := range templates {
		bits["t"+strconv.Itoa(i)] = i
	}
	names, err := backfill.NewNames(bits)
	if err != nil {
		return 0, err
	}
	o := backfill.Options{Users: store, Names: names, Now: time.Now()}
	src := &backfill.File{Name: b.log, Open: func() (io.ReadCloser, error) { return os.Open(b.log) }, Columns: backfill.Columns{User: "user", Template: "template", SentAt: "sent_at"}}
	log, err := backfill.Read(ctx, src, o)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	if err := b.db.Collection(backfill.MarksCollection).Drop(ctx); err != nil {
		return 0, err
	}
	res, _, err := log.Apply(ctx, o, backfill.NewMarks(b.db, "bench", clock.New()))
	if err != nil {
		return 0, err
	}
	if res.Changed != log.Counts.Users {
		return 0, fmt.Errorf("%d users changed of %d", res.Changed, log.Counts.Users)
	}
	return int(res.Changed), nil
}
