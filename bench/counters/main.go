// counters shows whether the write rate of day counters stays level through the day.
//
// It replays days of hits, minute by minute, against a MongoDB-protocol server, with documents of four shapes: the minutes of a day side by
// side (flat) or in hours (by_hour), each grown by the first hit of a minute or made ahead with all minutes at 0 (preallocated). Each shape is
// written with a bare $inc and through analytics.Apply. It prints the updates per second by hour of the day and the ratio of hour 23 to hour 0.
//
//	go run ./bench/counters [--mongo secantusd-rs|minimongo] [--days 3] [--json] [--svg docs/counters.svg]
//
// Where an engine shows no decline for the flat shape, that is what it prints.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"postbit/bench/internal/lab"
)

type settings struct {
	mongo     string
	days      int // replays; medians over them count
	documents int // counter documents that are hit in turn
	perMinute int // updates in each minute of the day
	callers   int
	asJSON    bool
	svg       string
}

// curve is one line of the chart.
type curve struct {
	Rates [24]float64 `json:"rates"` // updates per second, by hour of the day
	Ratio float64     `json:"ratio"` // hour 23 to hour 0
}

// outcome of one shape: through Apply, and with a bare $inc.
type outcome struct {
	curve
	Bare curve `json:"bare"`
}

// result is what --json prints.
type result struct {
	Server    string             `json:"server"`
	Documents int                `json:"documents"`
	PerMinute int                `json:"updates_per_minute"`
	Days      int                `json:"days"`
	Shapes    map[string]outcome `json:"shapes"`
}

func main() {
	var s settings
	flag.StringVar(&s.mongo, "mongo", "secantusd-rs", "secantusd-rs, secantusd-py or minimongo")
	flag.IntVar(&s.days, "days", 3, "days replayed for each shape, in turn; medians count")
	flag.IntVar(&s.documents, "documents", 20, "counter documents, hit in turn")
	flag.IntVar(&s.perMinute, "per-minute", 20, "updates in each minute of the day")
	flag.IntVar(&s.callers, "callers", 8, "writers at once")
	flag.BoolVar(&s.asJSON, "json", false, "print one JSON object")
	flag.StringVar(&s.svg, "svg", "", "also draw the chart into this file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "counters:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	r, err := measure(ctx, s)
	if err != nil {
		return err
	}
	if s.svg != "" {
		if err := os.WriteFile(s.svg, []byte(chart(r)), 0o644); err != nil {
			return err
		}
	}
	if s.asJSON {
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	fmt.Printf("%s: updates per second by hour of the day (UTC), %d documents\n\n%-22s %-6s %9s %9s %9s %9s %9s   %s\n", r.Server, r.Documents, "shape", "", "00h", "06h", "12h", "18h", "23h", "23h/00h")
	for _, sh := range shapes {
		o := r.Shapes[sh.name]
		for _, c := range []struct {
			how string
			curve
		}{{"$inc", o.Bare}, {"Apply", o.curve}} {
			fmt.Printf("%-22s %-6s %9.0f %9.0f %9.0f %9.0f %9.0f   %.2f\n", sh.name, c.how, c.Rates[0], c.Rates[6], c.Rates[12], c.Rates[18], c.Rates[23], c.Ratio)
		}
	}
	return nil
}

func measure(ctx context.Context, s settings) (*result, error) {
	l, err := lab.New("postbit-counters-")
	if err != nil {
		return nil, err
	}
	defer l.Close(false)
	_, client, err := l.Database(ctx, s.mongo)
	if err != nil {
		return nil, err
	}
	defer client.Disconnect(context.WithoutCancel(ctx))
	db := client.Database("counters")

	apply, stop := startWriter(ctx, db)
	defer stop()
	bare := newBare(db)
	days := map[string][]curve{}
	for day := range s.days {
		for _, sh := range shapes {
			for _, how := range []struct {
				name  string
				write write
			}{{"bare", bare}, {"apply", apply}} {
				fmt.Fprintf(os.Stderr, "day %d of %d: %s, %s\n", day+1, s.days, sh.name, how.name)
				c, err := replay(ctx, db, s, sh, how.name, day, how.write)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", sh.name, how.name, err)
				}
				days[sh.name+"/"+how.name] = append(days[sh.name+"/"+how.name], c)
			}
		}
	}
	r := &result{Server: s.mongo, Documents: s.documents, PerMinute: s.perMinute, Days: s.days, Shapes: map[string]outcome{}}
	for _, sh := range shapes {
		r.Shapes[sh.name] = outcome{curve: middle(days[sh.name+"/apply"]), Bare: middle(days[sh.name+"/bare"])}
	}
	return r, nil
}

// middle takes the median of each hour, and the median of the days' own ratios: what disturbs a day disturbs both its ends.
func middle(days []curve) curve {
	var out curve
	for h := range out.Rates {
		var v []float64
		for _, d := range days {
			v = append(v, d.Rates[h])
		}
		slices.Sort(v)
		out.Rates[h] = v[len(v)/2]
	}
	var v []float64
	for _, d := range days {
		v = append(v, d.Rates[23]/d.Rates[0])
	}
	slices.Sort(v)
	out.Ratio = v[len(v)/2]
	return out
}
