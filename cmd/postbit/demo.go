package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"postbit/examples"
	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/config"
	"postbit/internal/demo"
	"postbit/internal/embedded"
	"postbit/internal/quantity"
	"postbit/templates"
)

type demoCmd struct {
	Users int  `default:"10000" help:"How many users are made up."`
	Exit  bool `help:"End after the run, instead of serving until Ctrl-C."`
}

func (demoCmd) Help() string {
	return `The demo runs on embedded parts in a folder of its own, whatever the settings say. Its mail server is real and takes mails on
this machine alone; nothing leaves it.

Example:

    postbit demo --users 10000 --exit --json`
}

// The demo's campaign and what it is made for.
const (
	demoCampaign = "winback"
	demoFile     = `name: winback
template: winback
audience: { created_at: { $lt: { $ago: 30d } } }
rules: { window: "09:00-20:00", inactive_after: 90d, min_gap: 24h }
expires_after: 24h
`
	maxDemoUsers = 1_000_000
	demoReaders  = 16 // who load pixels at once
)

// demoJSON is what the demo came to.
type demoJSON struct {
	Users          int               `json:"users"`
	State          campaign.RunState `json:"state"`
	Counts         campaign.Counts   `json:"counts"`
	Waited         int64             `json:"waited"` // users who had to wait for their window to open, or after a 4xx
	Opens          demoOpensJSON     `json:"opens"`
	MailsPerSecond float64           `json:"mails_per_second"`
	HitsPerSecond  float64           `json:"hits_per_second"`
	PeakRSSMB      float64           `json:"peak_rss_mb"`
}

type demoOpensJSON struct {
	Hits     int64 `json:"hits"`
	Human    int64 `json:"human"`
	Proxy    int64 `json:"proxy"`
	Prefetch int64 `json:"prefetch"`
	Machine  int64 `json:"machine"`
	Unique   int64 `json:"unique"`
}

func (c demoCmd) Run(ctx context.Context, a *app) (err error) {
	if c.Users < 1 || c.Users > maxDemoUsers {
		return usage("--users: %d is not a number from 1 to %d", c.Users, maxDemoUsers)
	}
	dir, err := os.MkdirTemp("", "postbit-demo-")
	if err != nil {
		return fmt.Errorf("demo: folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d, err := startDemo(ctx, a, c, dir)
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	defer stop()
	var served parts
	served.start(stop, func() error { return d.server.run(serving) })
	err = d.show(serving)
	if err == nil && !c.Exit {
		a.say("\nThe demo goes on serving. Have a look, and end it with Ctrl-C:\n  http://%s/api/campaigns/%s\n  http://%s/api/report/%s\n  http://%s/metrics\n  %s  (any mail's links)",
			d.server.adminAddr(), demoCampaign, d.server.adminAddr(), demoCampaign, d.server.adminAddr(), d.server.publicURL())
		<-serving.Done()
	}
	stop()
	return errors.Join(err, served.wait(), d.Close())
}

// demoRun is one demo: the parts of `postbit serve`, and the world around them.
type demoRun struct {
	demoCmd
	*graph
	dir     string
	server  *server
	readers *demo.Readers
	inbox   *demo.Inbox
	now     time.Time // by the demo's clock, when it started
}

func startDemo(ctx context.Context, a *app, c demoCmd, dir string) (_ *demoRun, err error) {
	d := &demoRun{demoCmd: c, dir: dir, now: a.clk.Now()}
	d.graph = &graph{app: a}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	a.cfg.DataDir = dir
	a.cfg.SuppressStates("state", "deleted", "banned")
	var open listeners
	for _, l := range []*net.Listener{&open.public, &open.admin} {
		if *l, err = listen(ctx, "127.0.0.1:0", "demo"); err != nil {
			return nil, err
		}
	}
	a.cfg.Listen = open.public.Addr().String()
	d.readers = demo.StartReaders(context.WithoutCancel(ctx), demoReaders)
	if d.inbox, err = demo.OpenInbox(ctx, a.log, d.readers.Deliver); err != nil {
		return nil, err
	}
	stack, err := embedded.Start(ctx, embedded.Options{Dir: dir, Clock: a.clk, Log: a.log, Throwaway: true, PublicURL: localURL(a.cfg.Listen), Command: a.command})
	if err != nil {
		return nil, err
	}
	var at addresses
	d.use(stack, &at)
	at.smtp = d.inbox.URL()
	if err := d.build(ctx, config.Needs{Mongo: true, Redis: true, SMTP: true, Links: true}, at); err != nil {
		return nil, err
	}
	if err := d.ensureIndexes(ctx); err != nil {
		return nil, err
	}
	d.server, err = d.newServer(ctx, roles{true, true, true}, 10*time.Second, open)
	return d, err
}

// Close ends the world around the server, which has ended.
func (d *demoRun) Close() error {
	err := d.graph.Close()
	if d.inbox != nil {
		err = errors.Join(err, d.inbox.Close())
	}
	if d.readers != nil {
		d.readers.Close()
	}
	return err
}

// show is the demo from the first template to the table at the end.
func (d *demoRun) show(ctx context.Context) error {
	if err := d.prepare(ctx); err != nil {
		return err
	}
	run, err := d.server.sched.StartManual(ctx, demoCampaign, "")
	if err != nil {
		return err
	}
	result := demoJSON{Users: d.Users}
	f, err := d.follow(ctx, run)
	if err != nil {
		return err
	}
	result.State, result.Counts, result.Waited = f.run.State, allReasons(f.run.Counts), f.waited
	result.MailsPerSecond = perSecond(f.run.Counts.Sent, f.busy)
	if err := d.read(ctx, &result); err != nil {
		return err
	}
	result.PeakRSSMB = round(float64(peakRSS()) / 1e6)
	if d.json {
		err = d.printJSON(result)
	} else {
		err = result.print(d.out)
	}
	return errors.Join(err, result.check())
}

// prepare pushes the sample templates, applies the campaign, and then makes up the users, whose bits would otherwise stand
// in the way of the push.
func (d *demoRun) prepare(ctx context.Context) error {
	samples, campaigns := filepath.Join(d.dir, "examples"), filepath.Join(d.dir, "campaigns")
	if err := os.CopyFS(samples, examples.FS); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if err := os.Mkdir(campaigns, 0o700); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if err := os.WriteFile(filepath.Join(campaigns, "winback.yaml"), []byte(demoFile), 0o600); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	plan, err := d.templates.PlanPush(ctx, filepath.Join(samples, "templates"), templates.PushOptions{BitsInUse: d.users.BitsInUse})
	if err != nil {
		return err
	}
	if err := d.templates.Apply(ctx, plan); err != nil {
		return err
	}
	d.say("pushed %d sample templates", len(plan.Changes))
	if _, err := d.applyCampaigns(ctx, campaigns, false, false); err != nil {
		return err
	}
	world := demo.World{Now: d.now}
	for _, c := range plan.Changes {
		if c.Name == demoCampaign {
			world.Bit = c.BitIndex
		} else {
			world.Old = append(world.Old, c.BitIndex)
		}
	}
	return d.seed(ctx, world)
}

func (d *demoRun) seed(ctx context.Context, world demo.World) error {
	const at = 1000
	var docs []any
	insert := func() error {
		if len(docs) == 0 {
			return nil
		}
		_, err := d.usersColl.InsertMany(ctx, docs)
		docs = docs[:0]
		if err != nil {
			return fmt.Errorf("demo: users: %w", err)
		}
		return nil
	}
	for doc := range demo.People(d.Users, world) {
		if docs = append(docs, doc); len(docs) == at {
			if err := insert(); err != nil {
				return err
			}
		}
	}
	d.say("made up %s", quantity.Of(d.Users, "user"))
	return insert()
}

// read lets people read their mail, and waits until all that was answered is counted.
func (d *demoRun) read(ctx context.Context, result *demoJSON) error {
	d.clk.Advance(time.Hour)
	d.say("an hour later people read their mail")
	bar := newProgress(d.err, "pixels")
	n, took, err := d.readers.Read(ctx, demoReaders, bar.show)
	bar.end()
	if err != nil {
		return err
	}
	result.HitsPerSecond = perSecond(int64(n), took)
	for deadline := time.Now().Add(time.Minute); ; {
		report, err := d.server.ops.report(ctx, demoCampaign, "", "")
		if err != nil {
			return err
		}
		o := report.Opens
		if o.Hits == d.readers.Loaded() {
			result.Opens = demoOpensJSON{Hits: o.Hits, Human: o.Human, Proxy: o.Proxy, Prefetch: o.Prefetch, Machine: o.Machine, Unique: o.Unique}
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("demo: %d hits were answered and %d are counted", d.readers.Loaded(), o.Hits)
		}
		if err := clock.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// check holds the demo to what it shows.
func (r *demoJSON) check() error {
	c := r.Counts
	sum := c.Sent + c.Failed + c.Unconfirmed
	for _, n := range c.Skipped {
		sum += n
	}
	if r.State != campaign.RunDone || c.Checked != sum || c.Audience != c.Checked || c.Deferred != 0 || c.Unconfirmed != 0 {
		return fmt.Errorf("demo: the counts do not add up: %s, %+v", r.State, c)
	}
	return nil
}
