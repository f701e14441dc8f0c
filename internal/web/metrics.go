package web

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"postbit/internal/campaign"
	"postbit/internal/queue"
)

// Facts are what the metrics of a process are read from, at the moment that Prometheus asks. A nil one is left out.
type Facts struct {
	Queues func() (map[string]queue.Depth, error)
	Runs   func(ctx context.Context) ([]campaign.Run, error) // the unfinished ones
	Spool  func() (hits, waiting, stale int64)               // answered hits; chunks not counted yet; chunks put aside as too old
	Mails  map[string]func() int64                           // by outcome, since the process started
	Hits   func() HitCounts                                  // of a worker
	Log    *slog.Logger
}

// HitCounts are what a worker has done with hits since the process started.
type HitCounts struct {
	Hits, Chunks int64 // counted
	StaleChunks  int64 // refused, since they are older than the memory of what was counted
	UnknownRuns  int64 // hits of runs that nobody remembers: they count for all alone
	PassedOver   int64 // users who are gone, or whose document had no room for what was to be noted
}

var (
	queueTasks = prometheus.NewDesc("postbit_queue_tasks", "Tasks in the queue.", []string{"queue", "state"}, nil)
	runUsers   = prometheus.NewDesc("postbit_run_users", "Users of an unfinished run, by outcome.", []string{"campaign", "outcome"}, nil)
	runPaused  = prometheus.NewDesc("postbit_run_paused", "1 where an unfinished run is paused.", []string{"campaign"}, nil)
	spoolHits  = prometheus.NewDesc("postbit_hits_total", "Hits answered by this process.", nil, nil)
	spoolSize  = prometheus.NewDesc("postbit_spool_chunks", "Sealed chunks of hits that are not counted yet.", nil, nil)
	spoolStale = prometheus.NewDesc("postbit_spool_stale_chunks_total", "Chunks put aside since they are too old to be counted safely.", nil, nil)
	hitsDone   = prometheus.NewDesc("postbit_hits_counted_total", "Hits counted by this process, each once.", nil, nil)
	hitChunks  = prometheus.NewDesc("postbit_hit_chunks_total", "Chunks of hits that this process has dealt with, by outcome.", []string{"outcome"}, nil)
	hitsNoRun  = prometheus.NewDesc("postbit_hits_unknown_run_total", "Hits of runs that nobody remembers: they count for all alone.", nil, nil)
	passedOver = prometheus.NewDesc("postbit_hit_users_passed_over_total", "Users who are gone, or whose document had no room for what a hit tells of them.", nil, nil)
	mails      = prometheus.NewDesc("postbit_mails_total", "Mails of this process, by outcome.", []string{"outcome"}, nil)
)

// NewRegistry gives the metrics of f beside those of the Go runtime and the process.
func NewRegistry(f Facts) *prometheus.Registry {
	if f.Log == nil {
		f.Log = slog.New(slog.DiscardHandler)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collector{f})
	return r
}

// collector asks when it is asked: a gauge that is kept beside the truth goes wrong in time.
type collector struct{ Facts }

// Describe says nothing, so that facts which are missing now may turn up later.
func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for outcome, n := range c.Mails {
		counter(mails, n(), outcome)
	}
	if c.Spool != nil {
		hits, waiting, stale := c.Spool()
		counter(spoolHits, hits)
		gauge(spoolSize, float64(waiting))
		counter(spoolStale, stale)
	}
	if c.Hits != nil {
		n := c.Hits()
		counter(hitsDone, n.Hits)
		counter(hitChunks, n.Chunks, "counted")
		counter(hitChunks, n.StaleChunks, "stale")
		counter(hitsNoRun, n.UnknownRuns)
		counter(passedOver, n.PassedOver)
	}
	c.collectQueues(gauge)
	c.collectRuns(gauge)
}

type gaugeFunc func(d *prometheus.Desc, v float64, labels ...string)

func (c collector) collectQueues(gauge gaugeFunc) {
	if c.Queues == nil {
		return
	}
	depths, err := c.Queues()
	if err != nil {
		c.Log.Warn("metrics: queues", "err", err)
		return
	}
	for name, d := range depths {
		gauge(queueTasks, float64(d.Waiting), name, "waiting")
		gauge(queueTasks, float64(d.Active), name, "active")
		gauge(queueTasks, float64(d.Archived), name, "archived")
	}
}

func (c collector) collectRuns(gauge gaugeFunc) {
	if c.Runs == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	runs, err := c.Runs(ctx)
	if err != nil {
		c.Log.Warn("metrics: runs", "err", err)
		return
	}
	seen := map[string]bool{} // a run that is being superseded and its successor are one series: the newer is shown
	for i := len(runs) - 1; i >= 0; i-- {
		r := &runs[i]
		if seen[r.Campaign] {
			continue
		}
		seen[r.Campaign] = true
		paused := 0.0
		if r.Paused != "" {
			paused = 1
		}
		gauge(runPaused, paused, r.Campaign)
		for outcome, n := range map[string]int64{"audience": r.Counts.Audience, "checked": r.Counts.Checked, "sent": r.Counts.Sent,
			"failed": r.Counts.Failed, "unconfirmed": r.Counts.Unconfirmed, "deferred": r.Counts.Deferred} {
			gauge(runUsers, float64(n), r.Campaign, outcome)
		}
		for rule, n := range r.Counts.Skipped {
			gauge(runUsers, float64(n), r.Campaign, "skipped_"+rule)
		}
	}
}
