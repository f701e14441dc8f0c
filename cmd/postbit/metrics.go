package main

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"postbit/internal/queue"
)

// register adds what this process does to its metrics.
func (s *server) register(r *prometheus.Registry) {
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	counter := func(name, help string, labels prometheus.Labels, value func() float64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "postbit_" + name, Help: help, ConstLabels: labels}, value))
	}
	of := func(n *atomic.Int64) func() float64 { return func() float64 { return float64(n.Load()) } }
	if s.roles.worker {
		w := s.worker.Stats()
		for outcome, n := range map[string]*atomic.Int64{"sent": &w.Sent, "failed": &w.Failed, "unconfirmed": &w.Unconfirmed, "skipped": &w.Skipped} {
			counter("users_total", "Users that got an outcome from this process.", prometheus.Labels{"outcome": outcome}, of(n))
		}
		counter("replies_4xx_total", "Mails put off by a 4xx reply.", nil, of(&w.Retried))
		counter("passes_total", "Passes over batches.", nil, of(&w.Passes))
		counter("waves_total", "Waves of mails.", nil, of(&w.Waves))
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "postbit_batches_in_work", Help: "Batches that this process has in work."}, of(&w.Working)))
		h := s.hits.Stats()
		counter("hits_counted_total", "Hits that this process has counted.", nil, of(&h.Hits))
		counter("hit_chunks_stale_total", "Chunks of hits refused for their age.", nil, of(&h.Stale))
		counter("hits_passed_over_total", "Hits of users who are gone, or whose document has no room.", nil, of(&h.PassedOver))
	}
	if s.spool != nil {
		stat := func(f func() int64) func() float64 { return func() float64 { return float64(f()) } }
		counter("hits_answered_total", "Hits that were answered and stand in the spool.", nil, stat(func() int64 { return s.spool.Stats().Appended }))
		counter("hits_refused_total", "Hits that could not be written to the spool.", nil, stat(func() int64 { return s.spool.Stats().Failed }))
		counter("hit_chunks_shipped_total", "Chunks of hits put into the queue, each time counted.", nil, stat(func() int64 { return s.spool.Stats().Shipped }))
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "postbit_hit_chunks_waiting", Help: "Chunks of hits in the spool."},
			stat(func() int64 { return s.spool.Stats().Waiting })))
	}
	r.MustRegister(queueDepths{s.queue})
}

// queueDepths asks Redis at each scrape.
type queueDepths struct{ client *queue.Client }

var queueDepth = prometheus.NewDesc("postbit_queue_tasks", "Tasks in the queue.", []string{"queue", "state"}, nil)

func (queueDepths) Describe(ch chan<- *prometheus.Desc) { ch <- queueDepth }

func (q queueDepths) Collect(ch chan<- prometheus.Metric) {
	depths, err := q.client.Depths()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(queueDepth, err)
		return
	}
	for name, d := range depths {
		for state, n := range map[string]int{"waiting": d.Waiting, "active": d.Active, "archived": d.Archived} {
			ch <- prometheus.MustNewConstMetric(queueDepth, prometheus.GaugeValue, float64(n), name, state)
		}
	}
}
