package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"postbit/internal/campaign"
	"postbit/internal/mail"
	"postbit/templates"
)

// activeRun is a run that batches are in work for: what all of them share, made once, and how it is to go on.
type activeRun struct {
	run      *campaign.Run // its State and Paused are those of the first look; see steering
	template *templates.Template
	compiled *templates.Compiled
	rules    *Evaluator
	from     mail.Address
	replyTo  mail.Address
	envelope string // the sender in MAIL FROM: where mails come back to
	domain   string // of the sender, for Message-IDs
	policy   policyWatch

	mu       sync.Mutex
	steering campaign.Steering
	seen     time.Time     // when steering was read, monotonic
	changed  chan struct{} // closed when steering changes
	users    int           // handlers that hold it
	idle     time.Time     // since when users is 0
}

// verdict is how a run is to go on.
type verdict int

const (
	sendOn verdict = iota
	hold           // paused: settle, send nothing
	giveUp         // ending: the rest gets an outcome
	over           // ended, or gone: nothing is left to do
)

// verdict tells how to go on, and for giveUp why: a reason out of campaign.SkipReasons; for hold the reason of the pause.
func (a *activeRun) verdict(now time.Time) (verdict, string) {
	a.mu.Lock()
	s := a.steering
	a.mu.Unlock()
	switch {
	case s.State == campaign.RunCancelling:
		return giveUp, "cancelled"
	case s.State == campaign.RunSuperseding:
		return giveUp, "superseded"
	case s.State == "" || s.State.Finished():
		return over, string(s.State)
	case !now.Before(a.run.ExpiresAt()):
		return giveUp, "expired"
	case s.Paused != "":
		return hold, s.Paused
	}
	return sendOn, ""
}

func (a *activeRun) steer(s campaign.Steering, seen time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if seen.Before(a.seen) {
		return // an answer that was overtaken by a later one
	}
	a.seen = seen
	if s != a.steering {
		a.steering = s
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

// change returns a channel that is closed when the run is steered another way.
func (a *activeRun) change() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

// runCache holds the runs that are in work.
type runCache struct {
	mu     sync.Mutex
	active map[string]*activeRun
}

// acquire returns a run for a handler, with its steering as of now.
func (w *Worker) acquire(ctx context.Context, id string) (*activeRun, error) {
	w.runs.mu.Lock()
	a, ok := w.runs.active[id]
	if ok {
		a.mu.Lock()
		a.users++
		a.mu.Unlock()
	}
	w.runs.mu.Unlock()
	if ok {
		if err := w.look(ctx, a, 0); err != nil {
			w.release(a)
			return nil, err
		}
		return a, nil
	}
	seen := time.Now()
	run, err := w.cfg.Runs.Run(ctx, id)
	if err != nil {
		return nil, err
	}
	a, err = w.prepare(run)
	if err != nil {
		return nil, err
	}
	a.seen = seen
	w.runs.mu.Lock()
	defer w.runs.mu.Unlock()
	if first, ok := w.runs.active[id]; ok {
		a = first
	}
	w.runs.active[id] = a
	a.mu.Lock()
	a.users++
	a.mu.Unlock()
	w.dropIdle()
	return a, nil
}

func (w *Worker) release(a *activeRun) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.users--; a.users == 0 {
		a.idle = time.Now()
	}
}

// dropIdle forgets runs without a batch in work; w.runs.mu is held.
func (w *Worker) dropIdle() {
	for id, a := range w.runs.active {
		a.mu.Lock()
		if a.users == 0 && time.Since(a.idle) > idleRuns {
			delete(w.runs.active, id)
		}
		a.mu.Unlock()
	}
}

// errNotSendable says that a run can't be sent as it stands; the run is paused with it.
type errNotSendable struct{ error }

func (w *Worker) prepare(run *campaign.Run) (*activeRun, error) {
	a := &activeRun{run: run, changed: make(chan struct{}), steering: campaign.Steering{State: run.State, Paused: run.Paused}}
	fail := func(err error) (*activeRun, error) {
		return nil, errNotSendable{fmt.Errorf("run %s: %w", run.ID, err)}
	}
	var err error
	if a.template, err = templates.FromSnapshot(run.Template); err != nil {
		return fail(err)
	}
	if a.compiled, err = a.template.Compile(); err != nil {
		return fail(err)
	}
	if a.rules, err = NewEvaluator(run, a.template, a.compiled.Fields(), w.cfg.Users); err != nil {
		return fail(err)
	}
	from := a.template.From
	if from == "" {
		from = w.cfg.From
	}
	if a.from, err = mail.ParseAddress(from); err != nil {
		return fail(fmt.Errorf("the sender %q (from: of template %s, or the default of the settings): %w", from, a.template.Name, err))
	}
	if a.template.ReplyTo != "" {
		if a.replyTo, err = mail.ParseAddress(a.template.ReplyTo); err != nil {
			return fail(fmt.Errorf("reply_to of template %s: %w", a.template.Name, err))
		}
	}
	if _, a.domain, _, err = mail.Normalize(a.from.Addr); err != nil {
		return fail(err)
	}
	a.envelope = a.from.Addr
	if w.cfg.Bounce != "" {
		bounce, err := mail.ParseAddress(w.cfg.Bounce)
		if err != nil {
			return fail(fmt.Errorf("the envelope sender %q of the settings: %w", w.cfg.Bounce, err))
		}
		a.envelope = bounce.Addr
	}
	return a, nil
}

// look reads the steering of a run unless it was read less than atMost ago.
func (w *Worker) look(ctx context.Context, a *activeRun, atMost time.Duration) error {
	a.mu.Lock()
	fresh := time.Since(a.seen) < atMost
	a.mu.Unlock()
	if fresh {
		return nil
	}
	return w.steer(ctx, map[string]*activeRun{a.run.ID: a})
}

// watch reads the steering of all runs in work.
func (w *Worker) watch(ctx context.Context) error {
	runs := map[string]*activeRun{}
	w.runs.mu.Lock()
	w.dropIdle()
	for id, a := range w.runs.active {
		a.mu.Lock()
		if a.users > 0 {
			runs[id] = a
		}
		a.mu.Unlock()
	}
	w.runs.mu.Unlock()
	if len(runs) == 0 {
		return nil
	}
	return w.steer(ctx, runs)
}

func (w *Worker) steer(ctx context.Context, runs map[string]*activeRun) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ids := make([]string, 0, len(runs))
	for id := range runs {
		ids = append(ids, id)
	}
	asked := time.Now()
	states, err := w.cfg.Batches.Steer(ctx, ids)
	if err != nil {
		return err
	}
	for id, a := range runs {
		a.steer(states[id], asked)
	}
	return nil
}
