package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/bench/internal/lab"
	"postbit/internal/campaign"
	"postbit/internal/clock"
)

// house is everything that runs.
type house struct {
	options settings
	*lab.Lab
	begun   time.Time
	postbit string
	public  string // address of the web process

	mongoURI, redisURI string // past the links
	client             *mongo.Client
	db                 *mongo.Database
	runs               *campaign.Store
	batches            *campaign.Batches

	sink    *lab.Sink
	members map[string]*member
	links   map[string]*proxy
	traffic *traffic

	keeping  sync.WaitGroup // keepers, and faults that end later
	stopKeep context.CancelFunc

	mu      sync.Mutex
	tally   tally
	paused  map[string]bool        // by a fault
	holding map[string]*sync.Mutex // by campaign, held while a fault has it paused
	pauses  []pauseSpan            // that were acknowledged
	excused []span                 // in which a worker could not see a pause

	steering sync.Mutex // held while a run is resumed that a worker has paused, and when a fault is about to pause one
}

// member is a program that is started again when it ends.
type member struct {
	name string
	addr string // where it listens; empty: nowhere

	mu   sync.Mutex // held while it is down
	proc *lab.Proc
}

func open(ctx context.Context, o settings) (_ *house, err error) {
	h := &house{options: o, begun: time.Now(), members: map[string]*member{}, links: map[string]*proxy{}, paused: map[string]bool{}, holding: map[string]*sync.Mutex{}}
	for _, c := range campaigns {
		h.holding[c.name] = new(sync.Mutex)
	}
	if h.Lab, err = lab.New("postbit-chaos-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	for _, step := range []func(context.Context) error{h.build, h.servers, h.configure, h.serve, h.begin} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func (h *house) close() {
	if h.traffic != nil {
		h.traffic.end()
	}
	if h.stopKeep != nil {
		h.stopKeep()
	}
	h.keeping.Wait()
	for _, m := range h.members {
		_ = m.proc.Signal(syscall.SIGCONT) // a stopped one could not end
	}
	for _, p := range h.links {
		p.close()
	}
	if h.client != nil {
		_ = h.client.Disconnect(context.Background())
	}
	if h.options.keep {
		h.say("kept in %s", h.Dir)
	}
	h.Close(h.options.keep)
}

// say prints a line with the time since the start.
func (h *house) say(format string, args ...any) {
	fmt.Printf("%7.1fs  %s\n", time.Since(h.begun).Seconds(), fmt.Sprintf(format, args...))
}

func (h *house) build(ctx context.Context) (err error) {
	if h.options.mutant != "" {
		h.postbit, err = buildMutant(ctx, h.options.mutant, h.Dir)
		return err
	}
	h.postbit, err = h.Build(ctx, "./cmd/postbit")
	return err
}

// join makes a started program one that is kept.
func (h *house) join(name, addr string, p *lab.Proc) {
	h.members[name] = &member{name: name, addr: addr, proc: p}
}

func (h *house) servers(ctx context.Context) error {
	p, uri, err := h.Mongo(ctx, h.options.mongo, h.postbit, true)
	if err != nil {
		return err
	}
	h.mongoURI = uri
	if err := h.linkTo("mongo", p, uri); err != nil {
		return err
	}
	if p, uri, err = h.Redis(ctx); err != nil {
		return err
	}
	h.redisURI = uri
	if err := h.linkTo("redis", p, uri); err != nil {
		return err
	}
	// Each batch in flight sends over so many connections: the sink's delay is what makes the runs take as long as the faults. It is a part
	// of the time that a mail takes, and the rest of the faults' time goes by with workers that are down.
	delay := time.Duration(workers*concurrency*connections) * h.options.lasts * 3 / 10 / time.Duration(mails(h.options.users))
	delay = min(max(delay, 5*time.Millisecond), time.Second).Round(time.Millisecond)
	journal := filepath.Join(h.Dir, "journal")
	if h.sink, err = h.StartSink(ctx, false, "-journal", journal, "-delay", delay.String()); err != nil {
		return err
	}
	if err := h.linkTo("smtp", nil, "smtp://"+h.sink.SMTP); err != nil {
		return err
	}
	h.join("sink", h.sink.SMTP, h.sink.Proc)
	h.say("%s, redis-server and a sink that answers after %s, in %s", h.options.mongo, delay, h.Dir)
	if h.client, err = mongo.Connect(options.Client().ApplyURI(h.mongoURI)); err != nil {
		return err
	}
	h.db = h.client.Database("chaos")
	h.runs, h.batches = campaign.NewStore(h.db), campaign.NewBatches(h.db, clock.New())
	return nil
}

// linkTo puts a link in front of a server, and keeps the server if it is given.
func (h *house) linkTo(name string, p *lab.Proc, uri string) error {
	u, err := url.Parse(uri)
	if err != nil {
		return err
	}
	if p != nil {
		h.join(name, u.Host, p)
	}
	h.links[name], err = link(u.Host)
	return err
}

// through is the URI of a server by way of its link.
func (h *house) through(name, uri string) string {
	return strings.Replace(uri, h.links[name].backend, h.links[name].addr(), 1)
}

func (h *house) configure(ctx context.Context) error {
	if err := seedUsers(ctx, h.db.Collection("users"), h.options.users); err != nil {
		return err
	}
	var ports [2]int
	for i := range ports {
		var err error
		if ports[i], err = lab.Port(); err != nil {
			return err
		}
	}
	h.public = fmt.Sprintf("127.0.0.1:%d", ports[0])
	h.Env = append(h.Env,
		"POSTBIT_MONGO_URI="+h.through("mongo", h.mongoURI), "POSTBIT_MONGO_DB=chaos", "POSTBIT_REDIS_URI="+h.through("redis", h.redisURI),
		"POSTBIT_SMTP_URL=smtp://"+h.links["smtp"].addr(), "POSTBIT_PUBLIC_URL=http://"+h.public, "POSTBIT_LISTEN="+h.public,
		fmt.Sprintf("POSTBIT_ADMIN_LISTEN=127.0.0.1:%d", ports[1]), "POSTBIT_DATA_DIR="+filepath.Join(h.Dir, "data"),
		"POSTBIT_SECRET=test:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
		fmt.Sprintf("POSTBIT_CONCURRENCY=%d", concurrency), fmt.Sprintf("POSTBIT_CONNECTIONS=%d", connections))
	for c, x := range campaigns {
		limits := ""
		if c == 1 {
			limits = `limits: { rate: ["2000/s"] }`
		}
		if err := h.write("templates/"+x.name+".html", fmt.Sprintf(templateFile, x.name, x.bit)); err != nil {
			return err
		}
		if err := h.write("campaigns/"+x.name+".yaml", fmt.Sprintf(campaignFile, x.name, limits)); err != nil {
			return err
		}
	}
	if _, err := h.cli(ctx, "templates", "push", "--adopt", "templates"); err != nil {
		return err
	}
	_, err := h.cli(ctx, "campaigns", "apply", "campaigns")
	return err
}

func (h *house) write(name, text string) error {
	path := filepath.Join(h.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// cli runs a command of postbit past the links.
func (h *house) cli(ctx context.Context, args ...string) ([]byte, error) {
	return h.Run(ctx, h.Dir, h.postbit, append(args, "--mongo-uri", h.mongoURI, "--redis-uri", h.redisURI)...)
}

// steer runs a command of postbit until it succeeds: the database may be down just now.
func (h *house) steer(ctx context.Context, args ...string) error {
	for try := 0; ; try++ {
		_, err := h.cli(ctx, args...)
		if err == nil || try == 20 || !sleep(ctx, time.Second) {
			return err
		}
	}
}

// serve starts the processes of postbit, and keeps all members running from then on.
func (h *house) serve(ctx context.Context) error {
	for _, m := range [][3]string{{"scheduler", "scheduler", ""}, {"worker-1", "worker", ""}, {"worker-2", "worker", ""}, {"web", "web", h.public}} {
		p, err := h.Start(m[0], h.postbit, "serve", "--roles", m[1])
		if err != nil {
			return err
		}
		h.join(m[0], m[2], p)
	}
	if err := h.members["web"].proc.AwaitTCP(ctx, h.public); err != nil {
		return err
	}
	ctx, h.stopKeep = context.WithCancel(ctx)
	for _, m := range h.members {
		h.keeping.Go(func() { h.keep(ctx, m) })
	}
	h.keeping.Go(func() { h.resume(ctx) })
	return nil
}

// begin starts both runs, and the traffic.
func (h *house) begin(ctx context.Context) error {
	for _, c := range campaigns {
		if _, err := h.cli(ctx, "campaigns", "run", c.name); err != nil {
			return err
		}
	}
	var err error
	h.traffic, err = startTraffic(filepath.Join(h.Dir, "journal"), h.public, h.options.hits, h.options.seed)
	return err
}

// keep starts a member again that has ended without a fault, as a service manager would.
func (h *house) keep(ctx context.Context, m *member) {
	for {
		m.mu.Lock()
		p := m.proc
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-p.Exited():
		}
		m.mu.Lock()
		if m.proc == p && ctx.Err() == nil {
			h.say("%s ended by itself and is started again: %s", m.name, p.Tail(1))
			h.mu.Lock()
			h.tally.ended++
			h.mu.Unlock()
			if sleep(ctx, time.Second) {
				h.again(m)
			}
		}
		m.mu.Unlock()
	}
}

// again starts a member that has ended; m.mu is held.
func (h *house) again(m *member) {
	p, err := h.Again(m.proc)
	if err != nil {
		h.say("%s: %v", m.name, err)
		return
	}
	m.proc = p
}

// resume lets runs go on that a worker has paused, as an operator would.
func (h *house) resume(ctx context.Context) {
	for sleep(ctx, time.Second) {
		runs, err := h.latest(ctx)
		if err != nil {
			continue
		}
		for _, r := range runs {
			if r.Paused != "" && r.PausedBy == "worker" {
				h.resumeOne(ctx, r)
			}
		}
	}
}

func (h *house) resumeOne(ctx context.Context, r *campaign.Run) {
	h.steering.Lock()
	defer h.steering.Unlock()
	h.mu.Lock()
	ours := h.paused[r.Campaign]
	h.mu.Unlock()
	if ours {
		return
	}
	h.say("%s was paused by a worker (%s) and is resumed", r.Campaign, r.Paused)
	if err := h.runs.ResumeRun(ctx, r.ID); err == nil {
		h.mu.Lock()
		h.tally.resumed++
		h.mu.Unlock()
	}
}

// latest reads the runs.
func (h *house) latest(ctx context.Context) ([]*campaign.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var out []*campaign.Run
	for _, c := range campaigns {
		r, err := h.runs.LatestRun(ctx, c.name)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// sleep reports whether ctx is still there after d.
func sleep(ctx context.Context, d time.Duration) bool {
	return clock.Sleep(ctx, d) == nil
}
