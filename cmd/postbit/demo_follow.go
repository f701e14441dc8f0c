package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"

	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/quantity"
)

// followed is what became of a run, and how.
type followed struct {
	run    *campaign.Run
	waited int64         // the most users who waited at once
	busy   time.Duration // how long batches were in work
}

// follow shows a run until it ends. When everybody who is left waits for a time, it moves the clock there.
func (d *demoRun) follow(ctx context.Context, run *campaign.Run) (f followed, err error) {
	bar := newProgress(d.err, "users")
	for last := time.Now(); ; {
		p, err := d.batches.Progress(ctx, run)
		if err != nil {
			return f, err
		}
		bar.show(int(p.Counts.Checked-p.Counts.Deferred), d.Users)
		if f.run, err = d.campaigns.Run(ctx, run.ID); err != nil {
			return f, err
		}
		if f.run.Paused != "" {
			return f, fmt.Errorf("demo: the run was paused: %s", f.run.Paused)
		}
		if f.run.State.Finished() {
			bar.end()
			return f, nil
		}
		if d.allWait(p) {
			f.waited = max(f.waited, p.Counts.Deferred)
			if err := d.moveOn(ctx, p, bar); err != nil {
				return f, err
			}
		}
		if err := clock.Sleep(ctx, 50*time.Millisecond); err != nil {
			return f, err
		}
		now := time.Now()
		if d.server.worker.Stats().Working.Load() > 0 {
			f.busy += now.Sub(last)
		}
		last = now
	}
}

// allWait holds when nothing happens until a later time: everybody who is left is deferred, and no batch is in work.
func (d *demoRun) allWait(p campaign.Progress) bool {
	return p.Ended && p.Unvisited == 0 && p.Unsettled == 0 && p.Open > 0 && p.NextDue.After(d.clk.Now()) && d.server.worker.Stats().Working.Load() == 0
}

// openings is the grid on which windows open: zones differ by quarters of an hour.
const openings = 15 * time.Minute

// moveOn moves the clock to the next opening of a window. Who was put off by a 4xx is looked at again then, too.
func (d *demoRun) moveOn(ctx context.Context, p campaign.Progress, bar *progress) error {
	d.readers.Settle() // what machines look at counts by the clock of the mail
	now := d.clk.Now()
	next := p.NextDue.Add(openings - 1).Truncate(openings)
	d.clk.Advance(next.Sub(now))
	bar.line("%s must wait: the demo's clock moves from %s to %s UTC",
		quantity.Of(p.Counts.Deferred, "user"), now.Format("Mon 15:04"), next.UTC().Format("Mon 15:04"))
	return d.server.sched.Feed(ctx)
}

// progress is a bar on a terminal and now and then a line elsewhere.
type progress struct {
	w    io.Writer
	what string
	bar  *progressbar.ProgressBar // nil: no terminal

	mu   sync.Mutex
	said time.Time
	last int
}

func newProgress(w io.Writer, what string) *progress {
	p := &progress{w: w, what: what, said: time.Now()}
	if isTerminal(w) {
		p.bar = progressbar.NewOptions(-1, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
			progressbar.OptionShowCount(), progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	return p
}

// show may be called from any goroutine.
func (p *progress) show(done, of int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		p.bar.ChangeMax(of)
		_ = p.bar.Set(done)
		return
	}
	if done != p.last && time.Since(p.said) >= time.Second {
		fmt.Fprintf(p.w, "%s of %s %s\n", count(int64(done)), count(int64(of)), p.what)
		p.said, p.last = time.Now(), done
	}
}

func (p *progress) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	fmt.Fprintf(p.w, format+"\n", args...)
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}

func (r *demoJSON) print(w io.Writer) error {
	if err := printCounts(w, r.Counts); err != nil {
		return err
	}
	t := table{header: []string{"OPENS", ""}}
	for _, l := range []struct {
		name string
		n    int64
	}{{"hits", r.Opens.Hits}, {"  human", r.Opens.Human}, {"  proxy", r.Opens.Proxy}, {"  prefetch", r.Opens.Prefetch}, {"  machine", r.Opens.Machine}, {"opened by (unique)", r.Opens.Unique}} {
		t.add(l.name, count(l.n))
	}
	speed := table{header: []string{"RATES", ""}}
	speed.add("deferred by time_of_day or a 4xx, decided later", count(r.Waited))
	speed.add("mails per second", count(int64(r.MailsPerSecond)))
	speed.add("pixel hits per second", count(int64(r.HitsPerSecond)))
	speed.add("peak memory, MB", count(int64(r.PeakRSSMB)))
	for _, t := range []table{t, speed} {
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		if err := t.print(w); err != nil {
			return err
		}
	}
	return nil
}

func perSecond(n int64, took time.Duration) float64 {
	return round(float64(n) / max(took.Seconds(), 0.001))
}

func round(f float64) float64 { return math.Round(10*f) / 10 }

// peakRSS is the most memory this process has had resident, in bytes.
func peakRSS() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err == nil {
		if runtime.GOOS == "darwin" {
			return u.Maxrss
		}
		return u.Maxrss * 1024 // Linux counts in KiB
	}
	return 0
}
