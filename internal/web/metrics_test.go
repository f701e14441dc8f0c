package web_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"postbit/internal/campaign"
	"postbit/internal/queue"
	"postbit/internal/web"
)

func scrape(t *testing.T, f web.Facts) string {
	t.Helper()
	w := request(web.New(web.Config{Operations: &operations{}, Metrics: web.NewRegistry(f)}), "GET", "/metrics", "")
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestMetricsShowWhatIsGoingOn(t *testing.T) {
	got := scrape(t, web.Facts{
		Queues: func() (map[string]queue.Depth, error) {
			return map[string]queue.Depth{"batch": {Waiting: 3, Active: 2, Archived: 1}}, nil
		},
		Spool: func() (hits, waiting, stale int64) { return 4096, 4, 1 },
		Mails: map[string]func() int64{"sent": func() int64 { return 17 }},
		Hits: func() web.HitCounts {
			return web.HitCounts{Hits: 3000, Chunks: 12, StaleChunks: 2, UnknownRuns: 7, PassedOver: 5}
		},
		Runs: func(context.Context) ([]campaign.Run, error) {
			return []campaign.Run{
				{Campaign: "winback", Counts: campaign.Counts{Sent: 1}},
				{Campaign: "winback", Paused: "password", Counts: campaign.Counts{Sent: 5, Skipped: map[string]int64{"min_gap": 2}}},
			}, nil
		},
	})
	for _, line := range []string{
		`postbit_queue_tasks{queue="batch",state="waiting"} 3`,
		`postbit_queue_tasks{queue="batch",state="archived"} 1`,
		`postbit_spool_chunks 4`,
		`postbit_hits_total 4096`,
		`postbit_spool_stale_chunks_total 1`,
		`postbit_mails_total{outcome="sent"} 17`,
		`postbit_hits_counted_total 3000`,
		`postbit_hit_chunks_total{outcome="counted"} 12`,
		`postbit_hit_chunks_total{outcome="stale"} 2`,
		`postbit_hits_unknown_run_total 7`,
		`postbit_hit_users_passed_over_total 5`,
		`postbit_run_users{campaign="winback",outcome="sent"} 5`,
		`postbit_run_users{campaign="winback",outcome="skipped_min_gap"} 2`,
		`postbit_run_paused{campaign="winback"} 1`,
		`process_resident_memory_bytes`,
	} {
		if !strings.Contains(got, line) {
			t.Errorf("%s is missing", line)
		}
	}
}

// A metric that the docs do not know is one that nobody watches.
func TestEveryMetricIsInTheDocs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	got := scrape(t, web.Facts{
		Queues: func() (map[string]queue.Depth, error) { return map[string]queue.Depth{"batch": {}}, nil },
		Spool:  func() (hits, waiting, stale int64) { return 0, 0, 0 },
		Mails:  map[string]func() int64{"sent": func() int64 { return 0 }},
		Hits:   func() web.HitCounts { return web.HitCounts{} },
		Runs:   func(context.Context) ([]campaign.Run, error) { return []campaign.Run{{Campaign: "winback"}}, nil },
	})
	names := regexp.MustCompile(`(?m)^# HELP (postbit_\w+)`).FindAllStringSubmatch(got, -1)
	if len(names) < 11 {
		t.Errorf("%d metrics", len(names))
	}
	for _, name := range names {
		if !strings.Contains(string(text), "| `"+name[1]) {
			t.Errorf("%s is missing in docs/operations.md", name[1])
		}
	}
}

func TestMetricsSurviveAnOutage(t *testing.T) {
	got := scrape(t, web.Facts{
		Queues: func() (map[string]queue.Depth, error) { return nil, errors.New("redis is down") },
		Runs:   func(context.Context) ([]campaign.Run, error) { return nil, errors.New("mongo is down") },
		Spool:  func() (hits, waiting, stale int64) { return 1, 9, 0 },
	})
	if !strings.Contains(got, "postbit_spool_chunks 9") || strings.Contains(got, "down") {
		t.Errorf("%s", got)
	}
}
