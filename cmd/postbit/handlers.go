package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/track"
	"postbit/internal/users"
	"postbit/internal/web"
	"postbit/templates"
	"postbit/worker"
)

// openSpool takes over the spool of the data directory.
func (g *graph) openSpool() (*track.Spool, error) {
	sync, err := track.ParseSync(g.cfg.SpoolSync)
	if err != nil {
		return nil, err
	}
	maxAge := func() time.Duration { return g.writer.Memory() - time.Hour } // a chunk on its way to a worker grows older
	return track.OpenSpool(g.cfg.DataDir+"/spool", track.SpoolOptions{Clock: g.clk, Sync: sync, MaxAge: maxAge, Log: g.log})
}

// newHits makes the handler that counts hits.
func (g *graph) newHits() (*worker.HitsHandler, error) {
	return worker.NewHitsHandler(worker.HitsConfig{
		Runs: g.campaigns, Opens: g.opens, Users: g.users, Analytics: g.writer,
		Values:     analytics.NewValues(g.db, g.clk, analytics.WithValueLimit(g.cfg.TopValues), analytics.WithDays(g.cfg.TopDays)),
		SignOfLife: g.cfg.SignOfLife, Retention: g.cfg.Retention, Clock: g.clk, Log: g.log,
	})
}

func (s *server) publicHandler() http.Handler {
	pages := &browserPages{graph: s.graph}
	return track.NewHandler(track.HandlerConfig{
		Keys: s.keys, Spool: s.spool, Clock: s.clk, Browser: pages.render, Log: s.log,
		Sites: track.NewSites(s.cfg.Sites), HonourDoNotTrack: s.cfg.DoNotTrack != "ignore",
	})
}

// adminHandler has the API where the web side is, and metrics and health anywhere.
func (s *server) adminHandler() http.Handler {
	metrics := web.NewRegistry(s.facts())
	c := web.Config{
		Token: s.cfg.AdminToken.Reveal(), Metrics: metrics, Log: s.log,
		Ready: map[string]func(context.Context) error{
			"mongo": func(ctx context.Context) error { return s.client.Ping(ctx, nil) },
			"redis": s.queue.Ping,
		},
	}
	if s.roles.web {
		c.Operations = s.ops
	}
	return web.New(c)
}

// facts are what the metrics of this process are read from.
func (s *server) facts() web.Facts {
	f := web.Facts{Queues: s.queue.Depths, Log: s.log}
	if s.roles.scheduler {
		f.Runs = s.campaigns.Unfinished
	}
	if s.roles.worker {
		w := s.worker.Stats()
		f.Mails = map[string]func() int64{"sent": w.Sent.Load, "failed": w.Failed.Load, "unconfirmed": w.Unconfirmed.Load, "retried": w.Retried.Load, "skipped": w.Skipped.Load}
		h := s.hits.Stats()
		f.Hits = func() web.HitCounts {
			return web.HitCounts{Hits: h.Hits.Load(), Chunks: h.Chunks.Load(), StaleChunks: h.Stale.Load(), UnknownRuns: h.UnknownRuns.Load(), PassedOver: h.PassedOver.Load()}
		}
	}
	if s.spool != nil {
		f.Spool = func() (hits, waiting, stale int64) {
			st := s.spool.Stats()
			return st.Appended, st.Waiting, st.Stale
		}
	}
	return f
}

// browserPages shows a mail again in the browser, as its run would write it today.
type browserPages struct {
	*graph
	cache templates.Cache
}

func (b *browserPages) render(ctx context.Context, t track.Token) (string, error) {
	run, err := b.campaigns.RunByShort(ctx, t.Run)
	if errors.Is(err, campaign.ErrNotFound) {
		return "", track.ErrNoPage
	}
	if err != nil {
		return "", err
	}
	compiled, err := b.cache.Compiled(run.Template)
	if err != nil {
		return "", err
	}
	user, err := b.users.Get(ctx, t.User, compiled.Fields(), compiled.Template().BitIndex)
	if errors.Is(err, users.ErrNotFound) {
		return "", track.ErrNoPage
	}
	if err != nil {
		return "", err
	}
	content, err := compiled.Render(user.Doc, templates.Links{
		Unsubscribe: b.urls.Unsubscribe(t.Run, t.User, t.SentAt),
		Browser:     b.urls.Browser(t.Run, t.User, t.SentAt),
		Click:       func(url string) string { return b.urls.Click(t.Run, t.User, t.SentAt, url) },
		Now:         t.SentAt,
		Zone:        user.Recipient.Zone,
	})
	return content.HTML, err
}
