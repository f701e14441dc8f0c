// acceptance runs postbit's main job on real servers and lets others judge it.
//
// It starts a MongoDB-protocol server, a redis-server, the SMTP sink, two workers, a scheduler and a web process. The users are written by a
// Node.js script with the npm packages bitfield and mongodb. A second, naive script works out from a dump made before the run
// what every user should get; the sink's list of copies is compared with it, user by user. Then pixel paths are taken from the
// mails that the sink kept and requested, and the report must count each of them.
//
//	go run ./bench/acceptance --users 50000
//
// It prints "50000 checked, 0 differ", or the first 20 that differ and exits 1.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"postbit/bench/internal/lab"
)

type options struct {
	users, hits int
	mongo       string
	seed        int64
	keep        bool
	picture     string
	timeout     time.Duration
}

func main() {
	var o options
	flag.IntVar(&o.users, "users", 50000, "users in the audience")
	flag.IntVar(&o.hits, "hits", 20000, "pixel hits")
	flag.StringVar(&o.mongo, "mongo", "", "secantusd-rs, secantusd-py or minimongo; empty: the first that is installed")
	flag.Int64Var(&o.seed, "seed", 1, "of the users")
	flag.BoolVar(&o.keep, "keep", false, "keep the folder with dump, logs and mails")
	flag.StringVar(&o.picture, "picture", "", "draw the report of the run into this SVG")
	flag.DurationVar(&o.timeout, "timeout", 30*time.Minute, "bound on the whole")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "acceptance:", err)
		os.Exit(1)
	}
}

// trial is one run of the acceptance.
type trial struct {
	options
	*lab.Lab
	postbit, mongoURI, public string
	node                      string // the folder of the scripts
	sink                      *lab.Sink
	workers                   []*lab.Proc
	window                    window
}

func run(ctx context.Context, o options) error {
	l, err := lab.New("postbit-acceptance-")
	if err != nil {
		return err
	}
	t := &trial{options: o, Lab: l}
	defer func() {
		if o.keep {
			say("kept in %s", l.Dir)
		}
		l.Close(o.keep)
	}()
	for _, step := range []func(context.Context) error{t.build, t.servers, t.seedUsers, t.configure, t.damage, t.startPostbit, t.dump} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	shown, err := t.dispatch(ctx)
	if err != nil {
		return err
	}
	differ, err := t.compare(ctx, shown)
	if err != nil {
		return err
	}
	if err := t.pixels(ctx); err != nil {
		return err
	}
	if err := t.drawReport(ctx); err != nil {
		return err
	}
	for _, w := range t.workers {
		say("peak memory of %s: %.1f MB", w.Name, float64(w.PeakRSS())/1e6)
	}
	if differ > 0 {
		return fmt.Errorf("%d differ", differ)
	}
	return nil
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (t *trial) build(ctx context.Context) (err error) {
	say("building")
	if t.postbit, err = t.Build(ctx, "./cmd/postbit"); err != nil {
		return err
	}
	t.node = filepath.Join(t.Dir, "node")
	if err := os.CopyFS(t.node, os.DirFS("bench/acceptance/node")); err != nil {
		return fmt.Errorf("run this from the root of the project: %w", err)
	}
	if _, err := os.Stat(filepath.Join(t.node, "node_modules")); err == nil {
		return nil
	}
	_, err = t.Run(ctx, t.node, "npm", "ci", "--silent", "--no-audit", "--no-fund")
	return err
}

func (t *trial) servers(ctx context.Context) (err error) {
	if t.mongo == "" {
		t.mongo = "secantusd-py"
		if _, err := exec.LookPath("secantusd-rs"); err == nil {
			t.mongo = "secantusd-rs"
		}
	}
	say("starting %s, redis-server and the sink in %s", t.mongo, t.Dir)
	if _, t.mongoURI, err = t.Mongo(ctx, t.mongo, t.postbit, false); err != nil {
		return err
	}
	_, redisURI, err := t.Redis(ctx)
	if err != nil {
		return err
	}
	if t.sink, err = t.StartSink(ctx, true); err != nil {
		return err
	}
	ports := make([]int, 2)
	for i := range ports {
		if ports[i], err = lab.Port(); err != nil {
			return err
		}
	}
	t.public = fmt.Sprintf("127.0.0.1:%d", ports[0])
	t.Env = append(t.Env,
		"POSTBIT_MONGO_URI="+t.mongoURI, "POSTBIT_MONGO_DB=acceptance", "POSTBIT_REDIS_URI="+redisURI,
		"POSTBIT_SMTP_URL=smtp://"+t.sink.SMTP, "POSTBIT_PUBLIC_URL=http://"+t.public, "POSTBIT_LISTEN="+t.public,
		fmt.Sprintf("POSTBIT_ADMIN_LISTEN=127.0.0.1:%d", ports[1]), "POSTBIT_DATA_DIR="+filepath.Join(t.Dir, "data"),
		"POSTBIT_SECRET=test:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	return nil
}

func (t *trial) seedUsers(ctx context.Context) error {
	t.window = chooseWindow(time.Now())
	zones := t.window.zones(time.Now())
	say("seeding %d users in %d zones, window %s", t.users, len(zones), t.window)
	out, err := t.Run(ctx, t.node, "node", "seed.mjs", t.mongoURI, "acceptance", fmt.Sprint(t.users), strings.Join(zones, ","), fmt.Sprint(t.seed))
	say("%s", strings.TrimSpace(string(out)))
	return err
}

// configure writes the team's files and hands them to postbit, as an operator would.
func (t *trial) configure(ctx context.Context) error {
	files := map[string]string{
		"postbit.yaml":              "users:\n  suppressed_when: { state: [deleted, banned] }\n",
		"templates/comeback.html":   template,
		"campaigns/acceptance.yaml": fmt.Sprintf(campaign, t.window),
	}
	for name, text := range files {
		path := filepath.Join(t.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if _, err := t.Run(ctx, t.Dir, t.postbit, "templates", "import", t.write("owned.json", owned())); err != nil {
		return err
	}
	if _, err := t.Run(ctx, t.Dir, t.postbit, "templates", "push", "--adopt", "templates"); err != nil {
		return err
	}
	_, err := t.Run(ctx, t.Dir, t.postbit, "campaigns", "apply", "campaigns")
	return err
}

func (t *trial) write(name, text string) string {
	path := filepath.Join(t.Dir, name)
	_ = os.WriteFile(path, []byte(text), 0o644)
	return path
}

func (t *trial) startPostbit(ctx context.Context) error {
	for _, p := range [][2]string{{"scheduler", "scheduler"}, {"worker-1", "worker"}, {"worker-2", "worker"}, {"web", "web"}} {
		proc, err := t.Start(p[0], t.postbit, "serve", "--roles", p[1])
		if err != nil {
			return err
		}
		if p[1] == "worker" {
			t.workers = append(t.workers, proc)
		}
		if p[1] == "web" {
			return proc.AwaitTCP(ctx, t.public)
		}
	}
	return nil
}

func (t *trial) damage(ctx context.Context) error {
	out, err := t.Run(ctx, t.node, "node", "damage.mjs", t.mongoURI, "acceptance")
	say("%s", strings.TrimSpace(string(out)))
	return err
}

func (t *trial) dump(ctx context.Context) error {
	_, err := t.Run(ctx, t.node, "node", "dump.mjs", t.mongoURI, "acceptance", filepath.Join(t.Dir, "dump.jsonl"))
	return err
}

// shown is what `campaigns show --json` says of the latest run.
type shown struct {
	State     string    `json:"state"`
	StartedAt time.Time `json:"started_at"`
	Counts    counts    `json:"counts"`
}

type counts struct {
	Audience, Checked, Sent, Failed, Unconfirmed, Deferred int64
	Skipped                                                map[string]int64
}

func (t *trial) dispatch(ctx context.Context) (shown, error) {
	begin := time.Now()
	if _, err := t.Run(ctx, t.Dir, t.postbit, "campaigns", "run", "acceptance"); err != nil {
		return shown{}, err
	}
	var last int64
	for {
		out, err := t.Run(ctx, t.Dir, t.postbit, "campaigns", "show", "acceptance", "--json")
		if err != nil {
			return shown{}, err
		}
		var s shown
		if err := json.Unmarshal(out, &s); err != nil {
			return s, fmt.Errorf("campaigns show --json: %w in %.300s", err, out)
		}
		if s.Counts.Checked != last {
			say("%5.0fs  %s  checked %d of %d, sent %d, failed %d, unconfirmed %d, deferred %d", time.Since(begin).Seconds(), s.State,
				s.Counts.Checked, s.Counts.Audience, s.Counts.Sent, s.Counts.Failed, s.Counts.Unconfirmed, s.Counts.Deferred)
			last = s.Counts.Checked
		}
		switch s.State {
		case "done":
			say("run done in %.1f s", time.Since(begin).Seconds())
			return s, nil
		case "failed", "cancelled", "superseded":
			return s, errors.New("the run ended as " + s.State)
		}
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case <-time.After(2 * time.Second):
		}
	}
}
