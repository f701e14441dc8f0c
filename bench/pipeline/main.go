// pipeline measures mails per second to a local SMTP sink against a bare pipeline in the same run.
//
// The bare pipeline does the same MongoDB writes (per wave of 32 users: push, one bulk of compare-and-sets, end) and the same SMTP dialogue, without
// rules, rendering, MIME or limits. Then a scheduler and a worker of postbit send a campaign to as many users. Both rates are taken
// at the sink, from its first to its last message.
//
//	go run ./bench/pipeline --users 50000 [--json]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/bench/internal/lab"
)

type settings struct {
	users       int
	mongo       string
	concurrency int
	asJSON      bool
}

// result is what --json prints.
type result struct {
	Users        int     `json:"users"`
	Bare         float64 `json:"bare_per_second"`
	Postbit      float64 `json:"postbit_per_second"`
	Ratio        float64 `json:"ratio"`
	WorkerRSS    float64 `json:"worker_peak_rss_mb"`
	WorkerCPU    float64 `json:"worker_cpu_seconds"`
	RedisPeakMem float64 `json:"redis_peak_mb"`
}

func main() {
	var o settings
	flag.IntVar(&o.users, "users", 50000, "mails of each side")
	flag.StringVar(&o.mongo, "mongo", "secantusd-rs", "secantusd-rs, secantusd-py or minimongo")
	flag.IntVar(&o.concurrency, "concurrency", 8, "batches at once, on both sides")
	flag.BoolVar(&o.asJSON, "json", false, "print one JSON object")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := measure(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pipeline:", err)
		os.Exit(1)
	}
	if o.asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(r)
		return
	}
	fmt.Printf("bare pipeline %8.0f mails/s\npostbit       %8.0f mails/s, %.2f of it\nworker: %.1f MB peak, %.1f s of CPU; Redis: %.1f MB peak\n",
		r.Bare, r.Postbit, r.Ratio, r.WorkerRSS, r.WorkerCPU, r.RedisPeakMem)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func measure(ctx context.Context, o settings) (r result, err error) {
	l, err := lab.New("postbit-pipeline-")
	if err != nil {
		return r, err
	}
	defer l.Close(false)
	postbit, err := l.Build(ctx, "./cmd/postbit")
	if err != nil {
		return r, err
	}
	_, mongoURI, err := l.Mongo(ctx, o.mongo, postbit, false)
	if err != nil {
		return r, err
	}
	_, redisURI, err := l.Redis(ctx)
	if err != nil {
		return r, err
	}
	sink, err := l.StartSink(ctx, false)
	if err != nil {
		return r, err
	}
	client, err := mongo.Connect(options.Client().ApplyURI(mongoURI))
	if err != nil {
		return r, err
	}
	defer client.Disconnect(context.WithoutCancel(ctx))
	db := client.Database("pipeline")
	say("seeding %d users", o.users)
	if err := seed(ctx, db.Collection("users"), o.users); err != nil {
		return r, err
	}
	r.Users = o.users
	say("bare pipeline")
	if err := bare(ctx, db, sink.SMTP, o); err != nil {
		return r, err
	}
	if r.Bare, err = rate(ctx, sink, o.users); err != nil {
		return r, err
	}
	if _, err := db.Collection("users").UpdateMany(ctx, bson.D{}, bson.D{{Key: "$unset", Value: bson.D{{Key: "postbit", Value: ""}, {Key: "tpls_sent_at_least_once", Value: ""}}}}); err != nil {
		return r, err
	}
	if err := post(ctx, sink.HTTP+"/reset"); err != nil {
		return r, err
	}
	say("postbit")
	l.Env = append(l.Env, "POSTBIT_MONGO_URI="+mongoURI, "POSTBIT_MONGO_DB=pipeline", "POSTBIT_REDIS_URI="+redisURI, "POSTBIT_SMTP_URL=smtp://"+sink.SMTP,
		"POSTBIT_PUBLIC_URL=http://localhost:8080", "POSTBIT_SECRET=test:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", "POSTBIT_DATA_DIR="+filepath.Join(l.Dir, "data"),
		fmt.Sprintf("POSTBIT_CONCURRENCY=%d", o.concurrency))
	worker, err := campaign(ctx, l, postbit, sink, o.users)
	if err != nil {
		return r, err
	}
	if r.Postbit, err = rate(ctx, sink, o.users); err != nil {
		return r, err
	}
	r.Ratio = r.Postbit / r.Bare
	r.WorkerRSS, r.WorkerCPU = float64(worker.PeakRSS())/1e6, worker.CPU().Seconds()
	if out, err := l.Run(ctx, l.Dir, "redis-cli", "-u", redisURI, "info", "memory"); err == nil {
		r.RedisPeakMem = redisPeak(string(out)) / 1e6
	}
	return r, nil
}

// stats is the part of the sink's /stats that matters here.
type stats struct {
	Msgs    int64 `json:"msgs"`
	FirstNS int64 `json:"first_ns"`
	LastNS  int64 `json:"last_ns"`
}

func sinkStats(ctx context.Context, s *lab.Sink) (st stats, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.HTTP+"/stats", nil)
	if err != nil {
		return st, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return st, err
	}
	defer resp.Body.Close()
	return st, json.NewDecoder(resp.Body).Decode(&st)
}

// rate is mails per second between the sink's first and last.
func rate(ctx context.Context, s *lab.Sink, want int) (float64, error) {
	st, err := sinkStats(ctx, s)
	if err != nil {
		return 0, err
	}
	if st.Msgs != int64(want) {
		return 0, fmt.Errorf("the sink has %d mails, want %d", st.Msgs, want)
	}
	return float64(st.Msgs) / time.Duration(st.LastNS-st.FirstNS).Seconds(), nil
}

func post(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
