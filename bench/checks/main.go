// checks measures how many users a worker loads and evaluates in a second, against a bare cursor over the same documents in the same run, and
// what 40,000,000 checks a day cost.
//
//	go run ./bench/checks --users 200000 [--mongo secantusd-rs|minimongo] [--mailable 1.5] [--json]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"postbit/bench/internal/lab"
	"postbit/rules"
)

const (
	dailyChecks = 40_000_000
	batchUsers  = 500
)

// result is what --json prints. Ratio is a worker, with its batches side by side as in production, against one bare cursor. The other
// two say how much of it is their being several: one batch at a time against one cursor, and as many cursors as batches.
type result struct {
	Users             int     `json:"users"`
	Mailable          float64 `json:"mailable_percent"`
	Batches           int     `json:"batches_at_once"`
	CursorPerSecond   float64 `json:"cursor_per_second"`
	ChecksPerSecond   float64 `json:"checks_per_second"`
	Ratio             float64 `json:"ratio"`
	OneBatchPerSecond float64 `json:"one_batch_checks_per_second"`
	OneBatchRatio     float64 `json:"one_batch_ratio"`
	CursorsPerSecond  float64 `json:"as_many_cursors_per_second"`
	CursorsRatio      float64 `json:"as_many_cursors_ratio"`
	ListsPerSecond    float64 `json:"bare_lists_per_second"`
	ListsRatio        float64 `json:"bare_lists_ratio"`

	CPU map[string]cpuCost `json:"cpu_us_per_user"`

	RuleNS     float64 `json:"rule_check_ns"`
	DailyRules float64 `json:"daily_rules_core_seconds"`
	DailyWhole float64 `json:"daily_load_and_evaluate_core_seconds"`
}

// cpuCost is processor time in microseconds a user. Unlike a rate it says much the same on a busy machine.
type cpuCost struct {
	Client float64 `json:"client"`
	Server float64 `json:"server"`
}

func main() {
	var (
		n        = flag.Int("users", 200_000, "users")
		prog     = flag.String("mongo", "secantusd-rs", "secantusd-rs, secantusd-py or minimongo")
		rounds   = flag.Int("rounds", 5, "times that all sides take their turn; the medians count")
		atOnce   = flag.Int("batches", 4, "batches that the worker has in work at once; 4 is the setting's default")
		mailable = flag.Float64("mailable", 1.5, "percent of the users who may be sent to; 600,000 mails of 40,000,000 checks are 1.5")
		asJSON   = flag.Bool("json", false, "print one JSON object")
	)
	flag.Parse()
	debug.SetMemoryLimit(24 << 20) // as a worker has them
	debug.SetGCPercent(400)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := measure(ctx, *n, *prog, *rounds, *atOnce, *mailable)
	if err != nil {
		fmt.Fprintln(os.Stderr, "checks:", err)
		os.Exit(1)
	}
	if *asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(r)
		return
	}
	line := func(what string, rate float64, than, side string) {
		fmt.Printf("%-26s %9.0f users/s%s; %.1f µs of this process and %.1f µs of the server a user\n", what, rate, than, r.CPU[side].Client, r.CPU[side].Server)
	}
	ofCursor := func(ratio float64) string { return fmt.Sprintf(", %.2f of the cursor", ratio) }
	line("one bare cursor", r.CursorPerSecond, "", "cursor")
	line(fmt.Sprintf("a worker, %d batches", r.Batches), r.ChecksPerSecond, ofCursor(r.Ratio), "worker")
	line("one batch after the other", r.OneBatchPerSecond, ofCursor(r.OneBatchRatio), "batch")
	line(fmt.Sprintf("%d bare cursors", r.Batches), r.CursorsPerSecond, fmt.Sprintf(", of which the worker does %.2f", r.CursorsRatio), "cursors")
	line(fmt.Sprintf("bare lists of ids, %d", r.Batches), r.ListsPerSecond, fmt.Sprintf(", of which the worker does %.2f", r.ListsRatio), "lists")
	fmt.Printf("one check                  %9.1f ns\n", r.RuleNS)
	fmt.Printf("40,000,000 checks a day: %.1f core-seconds for the rules, %.0f core-seconds of a worker with loading\n", r.DailyRules, r.DailyWhole)
}

func measure(ctx context.Context, n int, prog string, rounds, atOnce int, mailable float64) (r result, err error) {
	l, err := lab.New("postbit-checks-")
	if err != nil {
		return r, err
	}
	defer l.Close(false)
	server, client, err := l.Database(ctx, prog)
	if err != nil {
		return r, err
	}
	defer client.Disconnect(context.WithoutCancel(ctx))
	b, err := newBench(ctx, client.Database("checks").Collection("users"), n, mailable)
	if err != nil {
		return r, err
	}
	sides := []struct {
		name  string
		users int
		do    func() error
	}{
		{"cursor", n, func() error { return b.cursors(ctx, 1) }},
		{"worker", n, func() error { return b.batches(ctx, atOnce) }},
		{"batch", n, func() error { return b.batches(ctx, 1) }},
		{"cursors", atOnce * n, func() error { return b.cursors(ctx, atOnce) }},
		{"lists", n, func() error { return b.lists(ctx, atOnce) }},
	}
	rates, mine, theirs := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	for range rounds {
		for _, side := range sides {
			start, client, serverBefore := time.Now(), cpuTime(), server.CPU()
			if err := side.do(); err != nil {
				return r, err
			}
			each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(side.users) }
			rates[side.name] = append(rates[side.name], float64(side.users)/time.Since(start).Seconds())
			mine[side.name] = append(mine[side.name], each(cpuTime()-client))
			theirs[side.name] = append(theirs[side.name], each(server.CPU()-serverBefore))
		}
	}
	r = result{Users: n, Mailable: b.mailable(), Batches: atOnce, CPU: map[string]cpuCost{},
		CursorPerSecond: median(rates["cursor"]), ChecksPerSecond: median(rates["worker"]), OneBatchPerSecond: median(rates["batch"]),
		CursorsPerSecond: median(rates["cursors"]), ListsPerSecond: median(rates["lists"]), RuleNS: ruleCheck(b.now)}
	for _, side := range sides {
		r.CPU[side.name] = cpuCost{Client: median(mine[side.name]), Server: median(theirs[side.name])}
	}
	r.Ratio, r.OneBatchRatio = r.ChecksPerSecond/r.CursorPerSecond, r.OneBatchPerSecond/r.CursorPerSecond
	r.CursorsRatio, r.ListsRatio = r.ChecksPerSecond/r.CursorsPerSecond, r.ChecksPerSecond/r.ListsPerSecond
	r.DailyRules = r.RuleNS * dailyChecks / 1e9
	r.DailyWhole = r.CPU["worker"].Client * dailyChecks / 1e6
	return r, nil
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
