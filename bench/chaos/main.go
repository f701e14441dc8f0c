// chaos pulls every plug while postbit sends, and then counts.
//
// It starts a MongoDB-protocol server, a redis-server, the SMTP sink, a scheduler, two workers and a web process, with small TCP proxies between
// them, and two campaigns with different templates over the same users. While they send, and pixels of mails that have arrived are
// loaded, it kills processes with SIGKILL and starts them again (the database, too), stops one for longer than its lease and lets it go
// on, flushes Redis, cuts, mutes, delays and heals connections, pauses and resumes runs. When both runs have ended by themselves it
// holds what the sink got against the audience, the log, the users' bits, the counts, and the answered hits against the counters.
//
//	go run ./bench/chaos --users 50000 --faults 160
//
// It prints a line for each fault and a verdict, and exits 1 on any breach. The schedule of faults is a function of --seed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

type settings struct {
	users, faults int
	lasts         time.Duration
	seed          uint64
	mongo, mutant string
	only          []string
	hits          float64
	keep          bool
	timeout       time.Duration
}

// Pace of the trial: how much the workers have in flight at once.
const (
	workers     = 2
	concurrency = 4 // batches of one worker
	connections = 2 // of one wave
)

func main() {
	var o settings
	flag.IntVar(&o.users, "users", 50000, "users, whom both campaigns mail")
	flag.IntVar(&o.faults, "faults", 100, "faults")
	flag.DurationVar(&o.lasts, "for", 0, "time over which they are spread, and the mails; 0: 6 s for each")
	flag.Uint64Var(&o.seed, "seed", 1, "of the schedule")
	flag.StringVar(&o.mongo, "mongo", "secantusd-rs", "secantusd-rs, secantusd-py or minimongo")
	flag.StringVar(&o.mutant, "mutant", "", "build postbit with a guard taken out, which must be found: "+strings.Join(mutantNames(), ", "))
	flag.Float64Var(&o.hits, "hits", 10, "pixels loaded per second")
	flag.Func("only", "targets of the faults, with commas: "+strings.Join(targets(), ", "), func(s string) error {
		for name := range strings.SplitSeq(s, ",") {
			if !slices.Contains(targets(), name) {
				return fmt.Errorf("%q is none of %s", name, strings.Join(targets(), ", "))
			}
			o.only = append(o.only, name)
		}
		return nil
	})
	list := flag.Bool("list", false, "print the schedule and do nothing")
	flag.BoolVar(&o.keep, "keep", false, "keep the folder with the logs and the sink's journal")
	flag.DurationVar(&o.timeout, "timeout", 45*time.Minute, "bound on the whole")
	flag.Parse()
	if o.lasts <= 0 {
		o.lasts = time.Duration(o.faults) * 6 * time.Second
	}
	if *list {
		for n, f := range schedule(o.seed, o.faults, o.lasts, o.only...) {
			fmt.Printf("#%-3d %5.1fs later: %s\n", n+1, f.After.Seconds(), f)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	v, err := trial(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	v.print(os.Stdout)
	if o.mutant != "" {
		if v.ok() {
			fmt.Printf("mutant %s was not found out\n", o.mutant)
			os.Exit(1)
		}
		fmt.Printf("mutant %s was found out\n", o.mutant)
		return
	}
	if !v.ok() {
		os.Exit(1)
	}
}

// trial is one run of everything.
func trial(ctx context.Context, o settings) (*verdict, error) {
	h, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	defer h.close()
	h.faults(ctx, schedule(o.seed, o.faults, o.lasts, o.only...))
	unended := h.awaitEnd(ctx)
	ev, err := h.evidence(ctx)
	if err != nil {
		return nil, err
	}
	ev.Unended = unended
	return judge(ev), nil
}
