// storage measures what it costs to remember which of 148 templates were sent to whom: as an array of names, as an array of int32, and as the
// blob that postbit keeps.
//
// For each it prints three figures for 7,000,000 users: the payload (the sum of what says something: bytes of names, of numbers, of blobs),
// the BSON cost of the field with its frame, and bytes on disk. The first two are exact, worked out from real documents; the third is measured with
// --users documents in a server's storage and extrapolated. Once for the worst case, all templates sent to everybody, and once for a spread.
//
//	go run ./bench/storage --users 1000000 [--mongo secantusd-rs|minimongo] [--json]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

const (
	templates = 148
	allUsers  = 7_000_000
)

type settings struct {
	users  int
	mongo  string
	spread string
	asJSON bool
}

// figures are those of one shape for 7,000,000 users, in bytes.
type figures struct {
	Payload int64   `json:"payload"`
	BSON    int64   `json:"bson"`
	Disk    int64   `json:"disk"` // extrapolated
	Mean    float64 `json:"mean_payload"`
}

// result is what --json prints: by case (all, spread) and shape (names, int32, blob).
type result struct {
	MeasuredUsers int                           `json:"measured_users"`
	Users         int                           `json:"users"`
	Templates     int                           `json:"templates"`
	Spread        string                        `json:"spread"`
	DiskWithout   int64                         `json:"disk_without_field"` // of the same documents with nothing but _id
	Cases         map[string]map[string]figures `json:"cases"`
	Line40MB      float64                       `json:"mean_blob_at_40_mb"` // bytes
}

func main() {
	var o settings
	flag.IntVar(&o.users, "users", 1_000_000, "documents that are really stored for each shape")
	flag.StringVar(&o.mongo, "mongo", "secantusd-rs", "secantusd-rs, secantusd-py or minimongo")
	flag.StringVar(&o.spread, "spread", "0.30:0,0.35:16,0.25:64,0.10:148", "shares of users and the number of templates they may have had, share:templates,…; 0: no send, no field")
	flag.BoolVar(&o.asJSON, "json", false, "print one JSON object")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "storage:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o settings) error {
	spread, err := parseSpread(o.spread)
	if err != nil {
		return err
	}
	r := result{MeasuredUsers: o.users, Users: allUsers, Templates: templates, Spread: o.spread, Line40MB: 40e6 / allUsers, Cases: map[string]map[string]figures{}}
	bare, err := measure(ctx, o, shape{}, []share{{1, 0}})
	if err != nil {
		return err
	}
	r.DiskWithout = bare.Disk
	for name, shares := range map[string][]share{"all": {{1, templates}}, "spread": spread} {
		r.Cases[name] = map[string]figures{}
		for _, s := range shapes {
			f, err := measure(ctx, o, s, shares)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", name, s.name, err)
			}
			r.Cases[name][s.name] = f
		}
	}
	if o.asJSON {
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	show(r)
	return nil
}

func show(r result) {
	fmt.Printf("%d users, %d templates; disk measured with %d documents a shape and multiplied by %.3g\n", r.Users, r.Templates, r.MeasuredUsers, float64(r.Users)/float64(r.MeasuredUsers))
	for _, c := range []struct{ key, title string }{{"all", "all templates sent to everybody"}, {"spread", "spread " + r.Spread}} {
		fmt.Printf("\n%s\n%-8s %16s %16s %16s %12s\n", c.title, "", "payload", "BSON", "on disk", "bytes/user")
		for _, s := range shapes {
			f := r.Cases[c.key][s.name]
			fmt.Printf("%-8s %16s %16s %16s %12.2f\n", s.name, thousands(f.Payload), thousands(f.BSON), thousands(f.Disk), f.Mean)
		}
		n, i, b := r.Cases[c.key]["names"].BSON, r.Cases[c.key]["int32"].BSON, r.Cases[c.key]["blob"].BSON
		fmt.Printf("names : int32 : blob = %.1f : %.1f : 1 as BSON\n", float64(n)/float64(b), float64(i)/float64(b))
	}
	fmt.Printf("\nWithout the field the same documents, with nothing but _id, take %s bytes on disk.\n", thousands(r.DiskWithout))
	fmt.Printf("The payload of the blobs is 40 MB at a mean of %.1f bytes over all users; here it is %.1f (spread) and %.1f (all).\n",
		r.Line40MB, r.Cases["spread"]["blob"].Mean, r.Cases["all"]["blob"].Mean)
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// share is a part of the users, and how many of the first templates they may have had.
type share struct {
	part      float64
	templates int
}

func parseSpread(s string) ([]share, error) {
	var out []share
	sum := 0.0
	for _, f := range strings.Split(s, ",") {
		part, n, ok := strings.Cut(f, ":")
		p, err1 := strconv.ParseFloat(part, 64)
		k, err2 := strconv.Atoi(n)
		if !ok || err1 != nil || err2 != nil || p < 0 || k < 0 || k > templates {
			return nil, fmt.Errorf("--spread: %q is not share:templates", f)
		}
		out, sum = append(out, share{p, k}), sum+p
	}
	if sum < 0.999 || sum > 1.001 {
		return nil, fmt.Errorf("--spread: the shares add up to %g, want 1", sum)
	}
	return out, nil
}
