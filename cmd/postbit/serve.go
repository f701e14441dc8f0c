package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/config"
	"postbit/internal/embedded"
	"postbit/internal/queue"
	"postbit/internal/track"
	"postbit/internal/web"
	"postbit/scheduler"
	"postbit/worker"
)

type serveCmd struct {
	Roles []string      `default:"scheduler,worker,web" placeholder:"ROLE,…" help:"What this process does: ${default}."`
	Grace time.Duration `default:"30s" help:"How long mails and requests under way may take to end after SIGTERM."`
}

func (serveCmd) Help() string {
	return `Without POSTBIT_MONGO_URI, POSTBIT_REDIS_URI and POSTBIT_SMTP_URL everything is embedded: a document store, a queue and an outbox
in the data directory. With them, any number of processes may run in any role; each process with the role web needs a data
directory of its own, which holds the hits that are not counted yet.

Examples:

    postbit serve
    postbit serve --roles worker
    postbit serve --roles web --data-dir /var/lib/postbit`
}

type roles struct{ scheduler, worker, web bool }

func parseRoles(names []string) (roles, error) {
	var r roles
	for _, name := range names {
		switch name {
		case "scheduler":
			r.scheduler = true
		case "worker":
			r.worker = true
		case "web":
			r.web = true
		default:
			return r, usage("--roles: %q is no role; scheduler, worker, web", name)
		}
	}
	if r == (roles{}) {
		return r, usage("--roles: name at least one of scheduler, worker, web")
	}
	return r, nil
}

func (r roles) needs() config.Needs {
	sends := r.worker || r.web // the web side has POST /api/send
	return config.Needs{Mongo: true, Redis: true, SMTP: sends, Links: sends}
}

func (r roles) String() string {
	var names []string
	for _, x := range []struct {
		on   bool
		name string
	}{{r.scheduler, "scheduler"}, {r.worker, "worker"}, {r.web, "web"}} {
		if x.on {
			names = append(names, x.name)
		}
	}
	return strings.Join(names, ", ")
}

func (c serveCmd) Run(ctx context.Context, a *app) error {
	r, err := parseRoles(c.Roles)
	if err != nil {
		return err
	}
	if a.cfg.Embedded && r != (roles{true, true, true}) {
		return usage("--roles %s: the embedded parts live in one process, which has all roles; set POSTBIT_MONGO_URI, POSTBIT_REDIS_URI and POSTBIT_SMTP_URL to run several", strings.Join(c.Roles, ","))
	}
	if !a.cfg.Embedded {
		holdMemory()
	}
	g, err := a.assemble(ctx, r.needs(), embedded.Start)
	if err != nil {
		return err
	}
	s, err := g.newServer(ctx, r, c.Grace, listeners{})
	if err != nil {
		return errors.Join(err, g.Close())
	}
	a.log.Info("postbit serves", "roles", r.String(), "public", s.publicAddr(), "admin", s.adminAddr(), "url", s.publicURL())
	if g.stack != nil {
		a.log.Info("everything is embedded: mails become files and reach nobody", "dir", a.cfg.DataDir, "mails", g.stack.SMTPURL)
	}
	return errors.Join(s.run(ctx), g.Close())
}

// server is the running parts of one process.
type server struct {
	*graph
	roles  roles
	grace  time.Duration
	worker *worker.Worker
	sched  *scheduler.Scheduler
	spool  *track.Spool
	ops    *operations
	hits   *worker.HitsHandler
	listeners
}

// listeners may be open already; those of the settings are opened otherwise.
type listeners struct{ public, admin net.Listener }

// newServer opens what a process of these roles listens on and writes to. run closes it.
func (g *graph) newServer(ctx context.Context, r roles, grace time.Duration, open listeners) (_ *server, err error) {
	s := &server{graph: g, roles: r, grace: grace, listeners: open}
	s.worker = g.newWorker(grace)
	s.sched = g.newScheduler(s.settle)
	if s.hits, err = g.newHits(); err != nil {
		return nil, err
	}
	s.ops = &operations{graph: g, worker: s.worker, sched: s.sched}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeListeners())
		}
	}()
	adminAddr := g.cfg.MetricsListen
	if r.web {
		if s.spool, err = g.openSpool(); err != nil {
			return nil, err
		}
		if s.public == nil {
			if s.public, err = listen(ctx, g.cfg.Listen, "POSTBIT_LISTEN"); err != nil {
				return nil, err
			}
		}
		adminAddr = g.cfg.AdminListen
	}
	if s.admin == nil && adminAddr != "" {
		if s.admin, err = listen(ctx, adminAddr, "POSTBIT_ADMIN_LISTEN"); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func listen(ctx context.Context, addr, setting string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; choose another address", setting, err)
	}
	return l, nil
}

func (s *server) closeListeners() error {
	var errs []error
	for _, l := range []net.Listener{s.public, s.admin} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	if s.spool != nil {
		errs = append(errs, s.spool.Close())
	}
	return errors.Join(errs...)
}

func (s *server) publicAddr() string {
	if s.public == nil {
		return ""
	}
	return s.public.Addr().String()
}

func (s *server) adminAddr() string {
	if s.admin == nil {
		return ""
	}
	return s.admin.Addr().String()
}

func (s *server) publicURL() string {
	if s.urls == nil {
		return ""
	}
	return s.urls.Base()
}

// settle finishes a stored delta of a batch; the reconciler calls it.
func (s *server) settle(ctx context.Context, run *campaign.Run, n int) error {
	return s.worker.Settle(ctx, run, n)
}

// run runs all parts until ctx ends or one of them fails, and stops them in the order in which they need each other: what
// brings work in first, what writes it down last.
func (s *server) run(ctx context.Context) error {
	working, stopWorking := context.WithCancel(ctx)
	defer stopWorking()
	writing, stopWriting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriting()

	var first, last parts
	last.start(stopWorking, func() error {
		if err := s.writer.Run(writing); err != nil {
			return fmt.Errorf("MongoDB lets nothing be counted (POSTBIT_MONGO_URI): %w", err)
		}
		return nil
	})
	if s.spool != nil {
		last.start(stopWorking, func() error { return s.spool.Run(writing, s.queue, s.writer) })
		first.start(stopWorking, func() error {
			return web.Serve(working, s.public, s.publicHandler(), s.grace, s.log)
		})
	}
	if s.admin != nil {
		first.start(stopWorking, func() error { return web.Serve(working, s.admin, s.adminHandler(), s.grace, s.log) })
	}
	first.start(stopWorking, func() error {
		if err := s.prepare(working); err != nil || working.Err() != nil {
			return err
		}
		s.startRoles(working, stopWorking, &first)
		return nil
	})
	err := first.wait()
	stopWriting()
	err = errors.Join(err, last.wait())
	if s.spool != nil {
		err = errors.Join(err, s.spool.Close())
	}
	return err
}

// startRoles starts what brings work in.
func (s *server) startRoles(ctx context.Context, stop context.CancelFunc, first *parts) {
	if s.roles.scheduler {
		first.start(stop, func() error { return s.sched.Run(ctx) })
	} else if s.stack == nil {
		first.start(stop, func() error { scheduler.KeepClock(ctx, s.db, s.clk, s.log); return nil })
	}
	if s.roles.worker {
		first.start(stop, func() error { return s.worker.Run(ctx) })
		first.start(stop, func() error { return s.queueServer().Run(ctx) })
	}
}

// prepareAgain is how long the web side waits for a database that was not there.
const prepareAgain = 2 * time.Second

// prepare makes sure that database and queue answer, that the clock is right and the indexes are there. A process that
// does nothing but serve pixels goes on serving them while it waits for that: their hits are in the spool. One that has other roles ends, and says why.
func (s *server) prepare(ctx context.Context) error {
	for {
		err := s.pingMongo(ctx)
		if err == nil {
			if err = s.queue.Ping(ctx); err != nil {
				err = fmt.Errorf("Redis does not answer (POSTBIT_REDIS_URI): %w", err)
			}
		}
		if err == nil {
			err = errors.Join(s.setClock(ctx), s.ensureIndexes(ctx))
		}
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if s.roles != (roles{web: true}) {
			return err
		}
		s.log.Warn("pixels are served, all else waits", "err", s.cfg.Scrub(err.Error()))
		if clock.Sleep(ctx, prepareAgain) != nil {
			return nil
		}
	}
}

// parts are goroutines that are waited for. The end of one with an error ends the others.
type parts struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

func (p *parts) start(stop context.CancelFunc, f func() error) {
	p.wg.Go(func() {
		if err := f(); err != nil {
			p.mu.Lock()
			p.errs = append(p.errs, err)
			p.mu.Unlock()
			stop()
		}
	})
}

func (p *parts) wait() error {
	p.wg.Wait()
	return errors.Join(p.errs...)
}

// setClock puts this process's clock right by the database's before anything is decided by it.
func (g *graph) setClock(ctx context.Context) error {
	if g.stack != nil {
		return nil // the same clock
	}
	return scheduler.FollowClock(ctx, g.db, g.clk, g.log)
}

func (s *server) queueServer() *queue.Server {
	planner := worker.NewPlanner(worker.PlannerConfig{
		Runs: s.campaigns, Batches: s.batches, Users: s.usersColl, Queue: s.queue, Clock: s.clk, Log: s.log,
	})
	return queue.NewServer(queue.ServerConfig{Redis: s.redis, Batches: s.cfg.Concurrency, Grace: s.grace, Log: s.log}, queue.Handlers{
		Plan:  planner.HandlePlan,
		Batch: s.worker.HandleBatch,
		Hits:  s.hits.Handle,
	})
}
