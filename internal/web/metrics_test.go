package web_test

import (
	"context"
	"errors"
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
