// checks measures how many users a worker loads and evaluates in a second, against a bare cursor over the same documents in the same run, and
// what 40,000,000 checks a day cost.
//
//	go run ./bench/checks --users 200000 [--mongo secantusd-rs|minimongo] [--json]
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
	"sync/atomic"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"postbit/bench/internal/lab"
	"postbit/internal/bitfield"
	"postbit/internal/campaign"
	"postbit/internal/users"
	"postbit/rules"
	"postbit/templates"
	"postbit/worker"
)

const (
	dailyChecks = 40_000_000
	ours        = 23  // the template's bit
	loadAtOnce  = 128 // as the worker does
	batchUsers  = 500
)

// result is what --json prints. Ratio is a worker, with its batches side by side as in production, against one bare cursor. The other
// two say how much of it is their being several: one batch at a time against one cursor, and as many cursors as batches.
type result struct {
	Users             int     `json:"users"`
	Batches           int     `json:"batches_at_once"`
	CursorPerSecond   float64 `json:"cursor_per_second"`
	ChecksPerSecond   float64 `json:"checks_per_second"`
	Ratio             float64 `json:"ratio"`
	OneBatchPerSecond float64 `json:"one_batch_checks_per_second"`
	OneBatchRatio     float64 `json:"one_batch_ratio"`
	CursorsPerSecond  float64 `json:"as_many_cursors_per_second"`
	CursorsRatio      float64 `json:"as_many_cursors_ratio"`

	RuleNS     float64 `json:"rule_check_ns"`
	DailyRules float64 `json:"daily_rules_core_seconds"`
	DailyWhole float64 `json:"daily_load_and_evaluate_core_seconds"`
}

func main() {
	var (
		n      = flag.Int("users", 200_000, "users")
		prog   = flag.String("mongo", "secantusd-rs", "secantusd-rs, secantusd-py or minimongo")
		rounds = flag.Int("rounds", 5, "times that all sides take their turn; the medians count")
		atOnce = flag.Int("batches", 4, "batches that the worker has in work at once; 4 is the setting's default")
		asJSON = flag.Bool("json", false, "print one JSON object")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := measure(ctx, *n, *prog, *rounds, *atOnce)
	if err != nil {
		fmt.Fprintln(os.Stderr, "checks:", err)
		os.Exit(1)
	}
	if *asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(r)
		return
	}
	fmt.Printf("one bare cursor             %9.0f users/s\n", r.CursorPerSecond)
	fmt.Printf("a worker, %2d batches        %9.0f users/s, %.2f of the cursor\n", r.Batches, r.ChecksPerSecond, r.Ratio)
	fmt.Printf("one batch after the other   %9.0f users/s, %.2f of the cursor\n", r.OneBatchPerSecond, r.OneBatchRatio)
	fmt.Printf("%2d bare cursors             %9.0f users/s, of which the worker does %.2f\n", r.Batches, r.CursorsPerSecond, r.CursorsRatio)
	fmt.Printf("one check                   %9.1f ns\n", r.RuleNS)
	fmt.Printf("40,000,000 checks a day: %.1f core-seconds for the rules, %.0f core-seconds of a worker with loading\n", r.DailyRules, r.DailyWhole)
}

func measure(ctx context.Context, n int, prog string, rounds, atOnce int) (r result, err error) {
	l, err := lab.New("postbit-checks-")
	if err != nil {
		return r, err
	}
	defer l.Close(false)
	postbit := ""
	if prog == "minimongo" {
		if postbit, err = l.Build(ctx, "./cmd/postbit"); err != nil {
			return r, err
		}
	}
	_, uri, err := l.Mongo(ctx, prog, postbit, false)
	if err != nil {
		return r, err
	}
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return r, err
	}
	defer client.Disconnect(context.WithoutCancel(ctx))
	coll := client.Database("checks").Collection("users")
	now := time.Now().UTC()
	ids, err := seed(ctx, coll, n, now)
	if err != nil {
		return r, err
	}
	store, err := users.New(coll, users.Config{})
	if err != nil {
		return r, err
	}
	e, err := evaluator(store, now)
	if err != nil {
		return r, err
	}
	sides := []struct {
		name string
		do   func() (float64, error) // users per second
	}{
		{"cursor", func() (float64, error) { return rate(n, func() error { return bareCursor(ctx, coll, store, n) }) }},
		{"worker", func() (float64, error) {
			return rate(n, func() error { return loadAndEvaluate(ctx, e, ids, atOnce, now) })
		}},
		{"batch", func() (float64, error) { return rate(n, func() error { return loadAndEvaluate(ctx, e, ids, 1, now) }) }},
		{"cursors", func() (float64, error) {
			return rate(atOnce*n, func() error {
				var all errgroup.Group
				for range atOnce {
					all.Go(func() error { return bareCursor(ctx, coll, store, n) })
				}
				return all.Wait()
			})
		}},
	}
	rates := map[string][]float64{}
	var cpu []float64
	for range rounds {
		for _, side := range sides {
			before := cpuTime()
			v, err := side.do()
			if err != nil {
				return r, err
			}
			rates[side.name] = append(rates[side.name], v)
			if side.name == "worker" {
				cpu = append(cpu, (cpuTime()-before).Seconds()/float64(n))
			}
		}
	}
	r = result{Users: n, Batches: atOnce, CursorPerSecond: median(rates["cursor"]), ChecksPerSecond: median(rates["worker"]),
		OneBatchPerSecond: median(rates["batch"]), CursorsPerSecond: median(rates["cursors"]), RuleNS: ruleCheck(now)}
	r.Ratio, r.OneBatchRatio, r.CursorsRatio = r.ChecksPerSecond/r.CursorPerSecond, r.OneBatchPerSecond/r.CursorPerSecond, r.ChecksPerSecond/r.CursorsPerSecond
	r.DailyRules = r.RuleNS * dailyChecks / 1e9
	r.DailyWhole = median(cpu) * dailyChecks
	return r, nil
}

// seed writes users of about a kilobyte, as an application has them, and returns their ids in order.
func seed(ctx context.Context, coll *mongo.Collection, n int, now time.Time) ([]bson.RawValue, error) {
	ids := make([]bson.RawValue, 0, n)
	for from := 0; from < n; from += 2000 {
		var docs []any
		for i := from; i < min(from+2000, n); i++ {
			id := bson.NewObjectID()
			ids = append(ids, bson.RawValue{Type: bson.TypeObjectID, Value: id[:]})
			blob := make([]byte, 1+i%19)
			for b := 0; b < 8*len(blob); b += 1 + i%7 {
				blob = bitfield.With(blob, b)
			}
			docs = append(docs, bson.D{{Key: "_id", Value: id}, {Key: "email", Value: fmt.Sprintf("u%d@example.com", i)}, {Key: "name", Value: "Zoë Müller"},
				{Key: "timezone", Value: []string{"Europe/Berlin", "Asia/Tokyo", "America/New_York", "Africa/Lagos"}[i%4]}, {Key: "plan", Value: "free"},
				{Key: "bio", Value: strings.Repeat("x", 700)}, {Key: "tpls_sent_at_least_once", Value: bson.Binary{Data: blob}},
				{Key: "postbit", Value: bson.D{{Key: "first_at", Value: now.AddDate(0, 0, -300)}, {Key: "last_at", Value: now.AddDate(0, 0, -i%90)}, {Key: "open_last_at", Value: now.AddDate(0, 0, -i%120)}}}})
		}
		if _, err := coll.InsertMany(ctx, docs, options.InsertMany().SetOrdered(false)); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

func evaluator(store *users.Store, now time.Time) (*worker.Evaluator, error) {
	window, err := rules.ParseWindow("00:00-23:59")
	if err != nil {
		return nil, err
	}
	run := &campaign.Run{ID: "checks", StartedAt: now, Spec: campaign.Spec{Name: "checks", Audience: `{"plan":"free"}`, ExpiresAfter: 24 * time.Hour,
		Rules: campaign.RuleSet{Window: window, InactiveAfter: 90 * 24 * time.Hour, MinGap: 24 * time.Hour}}}
	return worker.NewEvaluator(run, &templates.Template{Name: "checks", BitIndex: ours}, []string{"name"}, store)
}

// bareCursor reads the same fields of the same documents and does nothing with them.
func bareCursor(ctx context.Context, coll *mongo.Collection, store *users.Store, want int) error {
	cur, err := coll.Find(ctx, bson.D{}, options.Find().SetProjection(store.Fields([]string{"name"})).SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return err
	}
	defer cur.Close(ctx)
	n := 0
	for cur.Next(ctx) {
		n++
	}
	if n != want {
		return fmt.Errorf("the cursor gave %d of %d users: %w", n, want, cur.Err())
	}
	return cur.Err()
}

// loadAndEvaluate takes all users through the path of a worker: as many batches side by side as it has in work, of each as many users
// at once as it takes.
func loadAndEvaluate(ctx context.Context, e *worker.Evaluator, ids []bson.RawValue, atOnce int, now time.Time) error {
	var decided atomic.Int64
	var all errgroup.Group
	all.SetLimit(atOnce)
	for batch := range slices.Chunk(ids, batchUsers) {
		all.Go(func() error {
			for part := range slices.Chunk(batch, loadAtOnce) {
				if _, err := e.Load(ctx, part, nil, now, func(_ int, u *users.User, d rules.Decision) bool {
					if u != nil {
						decided.Add(1)
					}
					return d.Outcome == rules.Send
				}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	if decided.Load() != int64(len(ids)) {
		return fmt.Errorf("%d of %d users were decided", decided.Load(), len(ids))
	}
	return nil
}

// ruleCheck is the time of one check, over recipients for whom different rules decide.
func ruleCheck(now time.Time) float64 {
	window, _ := rules.ParseWindow("09:00-20:00")
	m := rules.Message{InactiveAfter: 90 * 24 * time.Hour, MinGap: 24 * time.Hour, Window: window, ExpiresAt: now.Add(24 * time.Hour)}
	berlin, _ := time.LoadLocation("Europe/Berlin")
	rs := make([]rules.Recipient, 64)
	for i := range rs {
		rs[i] = rules.Recipient{AddressOK: i%16 != 0, Suppressed: i%16 == 1, HasBit: i%4 == 0, Zone: berlin, FirstAt: now.AddDate(0, 0, -200), LastAt: now.AddDate(0, 0, -i), OpenFirstAt: now.AddDate(0, 0, -190), OpenLastAt: now.AddDate(0, 0, -2*i)}
	}
	const n = 20_000_000
	start := time.Now()
	sends := 0
	for i := range n {
		if rules.Check(&rs[i&63], &m, now).Outcome == rules.Send {
			sends++
		}
	}
	if sends == n {
		panic("every recipient was sent to: the recipients say nothing")
	}
	return float64(time.Since(start).Nanoseconds()) / n
}

// rate is how many of n a second f does.
func rate(n int, f func() error) (float64, error) {
	start := time.Now()
	err := f()
	return float64(n) / time.Since(start).Seconds(), err
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// cpuTime is the processor time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
