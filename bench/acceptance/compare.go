package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"time"
)

// expected is a line of expect.mjs.
type expected struct {
	User, To string
	Copies   int
	Outcome  string
}

// compare holds what every user should have got against the copies at the sink, and the sums against the run's counts.
func (t *trial) compare(ctx context.Context, s shown) (differ int, err error) {
	out, err := t.Run(ctx, t.node, "node", "expect.mjs", filepath.Join(t.Dir, "dump.jsonl"), s.StartedAt.Format(time.RFC3339Nano), t.window.String())
	if err != nil {
		return 0, err
	}
	t.write("expected.jsonl", string(out))
	copies := map[string]int{}
	if err := getJSON(ctx, t.sink.HTTP+"/all", &copies); err != nil {
		return 0, err
	}
	report := func(format string, args ...any) {
		if differ++; differ <= 20 {
			fmt.Printf(format+"\n", args...)
		}
	}
	checked, sums := 0, map[string]int64{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); checked++ {
		var e expected
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return 0, err
		}
		sums[e.Outcome]++
		if got := copies[e.To]; got != e.Copies {
			report("user %s <%s>: %d copies at the sink, %d expected (%s)", e.User, e.To, got, e.Copies, e.Outcome)
		}
		delete(copies, e.To)
	}
	for to, n := range copies {
		report("<%s> got %d copies and is nobody who should", to, n)
	}
	counted := map[string]int64{"sent": s.Counts.Sent, "failed": s.Counts.Failed, "unconfirmed": s.Counts.Unconfirmed}
	for rule, n := range s.Counts.Skipped {
		counted[rule] += n
	}
	for outcome, n := range sums {
		if counted[outcome] != n {
			report("campaigns show counts %d %s, expected %d", counted[outcome], outcome, n)
		}
		delete(counted, outcome)
	}
	for outcome, n := range counted {
		if n != 0 {
			report("campaigns show counts %d %s, expected none", n, outcome)
		}
	}
	if s.Counts.Audience != int64(checked) || s.Counts.Checked != int64(checked) {
		report("audience %d and checked %d, expected %d", s.Counts.Audience, s.Counts.Checked, checked)
	}
	say("expected: %v", sums)
	fmt.Printf("%d checked, %d differ\n", checked, differ)
	return differ, nil
}

func getJSON(ctx context.Context, url string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(v)
}
