package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/config"
	"postbit/internal/embedded"
	"postbit/internal/limits"
	"postbit/internal/mail"
	"postbit/internal/queue"
	"postbit/internal/track"
	"postbit/internal/users"
	"postbit/scheduler"
	"postbit/templates"
	"postbit/worker"
)

// graph is the objects of one process. What a command did not ask for is nil.
type graph struct {
	*app
	stack *embedded.Stack // nil: nothing is embedded

	client    *mongo.Client
	db        *mongo.Database
	usersColl *mongo.Collection
	users     *users.Store
	templates *templates.Registry
	campaigns *campaign.Store
	batches   *campaign.Batches
	limiter   *limits.Limiter
	writer    *analytics.Writer
	opens     *analytics.Opens
	reader    *analytics.Reader

	redis     redis.UniversalClient
	queue     *queue.Client
	transport mail.Transport
	urls      *track.URLs
	keys      *track.Keys

	close []func() error // in the order of opening
}

// serverSelection is how long a command waits for a database that does not answer.
const serverSelection = 10 * time.Second

// open is assemble for commands that end at once where the database does not answer.
func (a *app) open(ctx context.Context, n config.Needs) (*graph, error) {
	g, err := a.assemble(ctx, n, embedded.Attach)
	if err == nil && n.Mongo {
		if err = g.pingMongo(ctx); err != nil {
			return nil, errors.Join(err, g.Close())
		}
	}
	return g, err
}

func (g *graph) pingMongo(ctx context.Context) error {
	if err := g.client.Ping(ctx, nil); err != nil {
		return fmt.Errorf("MongoDB does not answer (POSTBIT_MONGO_URI): %w", err)
	}
	return nil
}

// partsFrom is embedded.Start for a process that has to own the embedded parts, and embedded.Attach for one that has a use for another's.
type partsFrom func(context.Context, embedded.Options) (*embedded.Stack, error)

// assemble checks that the settings are whole for a command and builds what it needs. The caller closes the graph.
func (a *app) assemble(ctx context.Context, n config.Needs, parts partsFrom) (_ *graph, err error) {
	if err := a.cfg.Require(n); err != nil {
		return nil, err
	}
	g := &graph{app: a}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	at := addresses{mongo: a.cfg.MongoURI.Reveal(), redis: a.cfg.RedisURI, smtp: a.cfg.SMTPURL.Reveal(), secret: a.cfg.Secret.Reveal(), public: a.cfg.PublicURL,
		secretFrom: "POSTBIT_SECRET"}
	if a.cfg.Embedded {
		stack, err := parts(ctx, embedded.Options{Dir: a.cfg.DataDir, Clock: a.clk, Log: a.log, PublicURL: cmp.Or(a.cfg.PublicURL, localURL(a.cfg.Listen)),
			Command: a.command, Patience: a.patience})
		if errors.Is(err, embedded.ErrInUse) {
			err = fmt.Errorf("%w; stop that one, or choose another --data-dir", err)
		}
		if err != nil {
			return nil, err
		}
		g.use(stack, &at)
	}
	return g, g.build(ctx, n, at)
}

// addresses are where everything is, whether it is set or embedded.
type addresses struct {
	mongo  string
	redis  config.URI
	smtp   string
	secret string
	public string

	secretFrom string // for errors: the setting, or the file
}

// use makes the embedded parts those of the graph, which closes them.
func (g *graph) use(stack *embedded.Stack, at *addresses) {
	g.stack = stack
	g.close = append(g.close, stack.Close)
	at.mongo, at.redis, at.smtp = stack.MongoURI, config.NewURI(stack.RedisURI), stack.SMTPURL
	if at.secret == "" {
		at.secret, at.secretFrom = stack.Secret, filepath.Join(g.cfg.DataDir, "secret")
	}
	if at.public == "" {
		at.public = stack.PublicURL
	}
}

// localURL is where this machine reaches a server that listens on addr.
func localURL(addr string) string {
	i := strings.LastIndexByte(addr, ':')
	host := addr[:i]
	if host == "" || host == "0.0.0.0" || host == "[::]" {
		host = "localhost"
	}
	return "http://" + host + addr[i:]
}

func (g *graph) build(ctx context.Context, n config.Needs, at addresses) error {
	if n.Mongo {
		if err := g.openMongo(ctx, at.mongo); err != nil {
			return err
		}
	}
	if n.Redis {
		opt, err := config.RedisConnOpt(at.redis)
		if err != nil {
			return err
		}
		quietRedis()
		g.redis = opt.MakeRedisClient().(redis.UniversalClient)
		g.close = append(g.close, g.redis.Close)
		g.queue = queue.NewClient(g.redis)
	}
	if n.SMTP {
		signer, err := g.signer()
		if err != nil {
			return err
		}
		transport, err := mail.Open(at.smtp, mail.Options{Log: g.log, Hello: g.cfg.EHLO, Signer: signer})
		if err != nil {
			return &config.Error{Faults: []error{fmt.Errorf("POSTBIT_SMTP_URL: %w", err)}}
		}
		g.transport = transport
		g.close = append(g.close, transport.Close)
	}
	if n.Links {
		keys, err := track.ParseKeys(at.secret)
		if err != nil {
			return &config.Error{Faults: []error{fmt.Errorf("%s: %w", at.secretFrom, err)}}
		}
		g.keys = keys
		if g.urls, err = track.NewURLs(at.public, keys); err != nil {
			return &config.Error{Faults: []error{fmt.Errorf("POSTBIT_PUBLIC_URL: %w", err)}}
		}
	}
	return nil
}

// quietRedis keeps the Redis client from writing to standard error by itself: what goes wrong comes back as an error, too.
var quietRedis = sync.OnceFunc(func() { redis.SetLogger(noLog{}) })

type noLog struct{}

func (noLog) Printf(context.Context, string, ...any) {}

func (g *graph) openMongo(ctx context.Context, uri string) error {
	journal := true
	opts := options.Client().SetServerSelectionTimeout(serverSelection).ApplyURI(uri) // the URI may say otherwise
	client, err := mongo.Connect(opts.
		SetAppName("postbit").
		SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()).
		SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journal}))
	if err != nil {
		return &config.Error{Faults: []error{fmt.Errorf("POSTBIT_MONGO_URI: %w", err)}}
	}
	g.client = client
	g.close = append(g.close, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return client.Disconnect(ctx)
	})
	name := g.cfg.MongoDB
	if name == "" {
		name = databaseOf(uri)
	}
	g.db = client.Database(name)
	u := g.cfg.Users
	usersDB := g.db
	if u.DB != "" {
		usersDB = client.Database(u.DB)
	}
	g.usersColl = usersDB.Collection(u.Collection)
	g.users, err = users.New(g.usersColl, users.Config{
		Email: u.Email, Timezone: u.Timezone, Bits: u.Bits, State: u.State,
		FirstAt: u.FirstAt, LastAt: u.LastAt, OpenFirstAt: u.OpenFirstAt, OpenLastAt: u.OpenLastAt,
		SuppressedWhen: u.SuppressedWhen, HistoryBefore: u.HistoryBefore, DefaultZone: g.cfg.DefaultZone,
	})
	if err != nil {
		return &config.Error{Faults: []error{err}}
	}
	if g.templates, err = templates.Open(g.db); err != nil {
		return err
	}
	g.campaigns = campaign.NewStore(g.db)
	g.batches = campaign.NewBatches(g.db, g.clk)
	g.limiter = limits.New(g.db.Collection(limits.Collection), g.clk)
	g.writer = analytics.NewWriter(g.db, g.clk, g.log, analytics.WithMemory(g.cfg.HitsMemory))
	g.opens = analytics.NewOpens(g.db)
	g.reader = analytics.NewReader(g.db)
	return nil
}

// databaseOf is the database that a URI names behind its hosts, or "postbit".
func databaseOf(uri string) string {
	_, rest, _ := strings.Cut(uri, "://")
	rest, _, _ = strings.Cut(rest, "?")
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	if _, name, ok := strings.Cut(rest, "/"); ok && name != "" {
		return name
	}
	return "postbit"
}

// ensureIndexes makes what is missing; whoever writes calls it first.
func (g *graph) ensureIndexes(ctx context.Context) error {
	return errors.Join(g.templates.EnsureIndexes(ctx), g.campaigns.EnsureIndexes(ctx), g.writer.EnsureIndexes(ctx))
}

// Close closes what was opened, the last first.
func (g *graph) Close() error {
	var errs []error
	for i := len(g.close) - 1; i >= 0; i-- {
		errs = append(errs, g.close[i]())
	}
	g.close = nil
	return errors.Join(errs...)
}

// newScheduler gives a scheduler; with no settle it can start runs by hand only.
func (g *graph) newScheduler(settle func(ctx context.Context, run *campaign.Run, n int) error) *scheduler.Scheduler {
	c := scheduler.Config{
		DB: g.db, Runs: g.campaigns, Batches: g.batches, Templates: registry{g.templates}, Clock: g.clk,
		Settle: settle, Limits: g.limiter, Counters: g.writer, Retention: g.cfg.Retention,
		FollowClock: g.stack == nil, Log: g.log,
	}
	if g.queue != nil {
		c.Queue = g.queue
	}
	return scheduler.New(c)
}

func (g *graph) newWorker(grace time.Duration) *worker.Worker {
	c := worker.Config{
		Batches: g.batches, Runs: g.campaigns, Users: g.users, Limiter: g.limiter, Transport: g.transport, URLs: g.urls,
		Analytics: g.writer, Clock: g.clk, Log: g.log,
		From: g.cfg.From, Bounce: g.cfg.Bounce, Connections: g.cfg.Connections, SMTPPatience: g.cfg.SMTPPatience, Grace: grace,
	}
	if g.queue != nil {
		c.Replan = func(ctx context.Context, run string) error { return g.queue.EnqueuePlan(ctx, queue.PlanTask{Run: run}) }
	}
	return worker.New(c)
}

// registry is the templates as campaigns ask for them.
type registry struct{ *templates.Registry }

func (r registry) TemplateInfo(ctx context.Context, name string) (campaign.TemplateInfo, error) {
	t, err := r.Get(ctx, name)
	if errors.Is(err, templates.ErrNotFound) {
		return campaign.TemplateInfo{}, nil
	}
	if err != nil {
		return campaign.TemplateInfo{}, err
	}
	return campaign.TemplateInfo{Exists: !t.Imported(), Retired: t.Retired(), Repeat: t.Repeat, Snapshot: templates.Snapshot(t)}, nil
}

// withGraph opens what a command needs, does it, and closes everything again.
func (a *app) withGraph(ctx context.Context, n config.Needs, do func(*graph) error) error {
	g, err := a.open(ctx, n)
	if err != nil {
		return err
	}
	return errors.Join(do(g), g.Close())
}
