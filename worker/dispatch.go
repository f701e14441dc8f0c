package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"postbit/internal/campaign"
	"postbit/internal/mail"
	"postbit/internal/queue"
)

// HandleBatch takes a batch through one pass: own, recover, waves for everybody who is left, settle. When ctx ends, only the mails in
// flight are finished: the wave is ended, the batch given back. The steps are those of model/dispatch.pml, named in brackets.
//
// A nil error means that the queue may forget the task, not that the batch is done: what is left to do stands in its document.
func (w *Worker) HandleBatch(ctx context.Context, t queue.BatchTask) error {
	log := w.log.With("run", t.Run, "batch", t.N, "pass", t.Pass)
	_, err := w.lookAt(ctx, t.Run, t.N, t.Pass, true, log)
	unsendable, isUnsendable := errors.AsType[errNotSendable](err)
	switch {
	case isUnsendable:
		log.Error("the run can't be sent; paused", "err", err)
		return w.pauseRun(context.WithoutCancel(ctx), t.Run, unsendable.Error())
	case errors.Is(err, campaign.ErrNotFound):
		log.Warn("a task of a run that is not there")
		return nil
	case nothingToDo(err):
		log.Debug("nothing to do", "why", err)
		return nil
	case errors.Is(err, campaign.ErrLostOwnership):
		log.Warn("stopped: the batch belongs to another worker now")
		return nil
	}
	return err
}

func nothingToDo(err error) bool {
	for _, e := range []error{campaign.ErrStalePass, campaign.ErrBatchDone, campaign.ErrNoBatch, campaign.ErrBatchOwned} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// lookAt is one look at a batch; count says whether what it comes to is given to the analytics here. The pass is nil where there was none.
func (w *Worker) lookAt(ctx context.Context, run string, n, passNo int, count bool, log *slog.Logger) (*pass, error) {
	if err := w.begin(ctx); err != nil {
		return nil, err
	}
	defer w.working.Done()
	w.stats.Working.Add(1)
	defer w.stats.Working.Add(-1)
	stopping, work, end := w.lifetime(ctx)
	defer end()
	a, err := w.acquire(work, run)
	if err != nil {
		return nil, err
	}
	defer w.release(a)
	return w.dispatch(work, stopping, a, n, passNo, count, log)
}

// lifetime gives a handler two contexts: stopping ends when the worker is to stop, work goes on for the grace beyond that.
func (w *Worker) lifetime(ctx context.Context) (stopping, work context.Context, end func()) {
	work, cancelWork := context.WithCancel(context.WithoutCancel(ctx))
	stopping, cancelStopping := context.WithCancel(ctx)
	done := make(chan struct{})
	var guard sync.WaitGroup
	guard.Go(func() {
		select {
		case <-done:
			return
		case <-w.stop:
			cancelStopping()
		case <-stopping.Done():
		}
		t := time.NewTimer(w.cfg.Grace)
		defer t.Stop()
		select {
		case <-done:
		case <-t.C:
			cancelWork()
		}
	})
	return stopping, work, func() {
		close(done)
		cancelStopping()
		cancelWork()
		guard.Wait()
	}
}

// pass is one look at a batch by its owner.
type pass struct {
	w        *Worker
	a        *activeRun
	o        *campaign.Owned
	log      *slog.Logger
	stopping context.Context

	unseen []int             // users to load and evaluate, in order
	ready  []candidate       // evaluated, may be sent to
	found  []campaign.Result // skips that no write has recorded yet
	again  time.Time         // the earliest time at which somebody is to be looked at again; zero: nobody is waiting for a time
	cuts   map[int]int       // how often a user's mail was cut off in this pass
	rest   bool              // the server takes nothing now: the pass ends here
	halt   string            // why the run must be paused
	noSMTP string            // why there was no connection at the last attempt

	uncounted bool // what the pass comes to is left to others to count
}

func (w *Worker) dispatch(ctx, stopping context.Context, a *activeRun, n, passNo int, count bool, log *slog.Logger) (*pass, error) {
	if v, state := a.verdict(w.cfg.Clock.Now()); v == over {
		log.Warn("a task of a run that has ended", "state", state)
		return nil, nil
	}
	o, err := w.cfg.Batches.Own(ctx, a.run, n, passNo, ownerName()) // [own]
	if err != nil {
		return nil, err
	}
	stopRenewing := w.renew(ctx, o, log)
	defer stopRenewing()
	unknown, err := o.Recover(ctx, w.cfg.Clock.Now()) // [recover]
	if err != nil {
		return nil, err
	}
	if unknown > 0 {
		w.stats.Unconfirmed.Add(int64(unknown))
		log.Warn("a worker left a wave open: nobody knows whether these users have the mail", "users", unknown)
	}
	if d := o.Unsettled(); d != nil {
		if err := w.applyDelta(ctx, a.run, n, d); err != nil {
			return nil, err
		}
		o.Applied()
	}
	p := &pass{w: w, a: a, o: o, log: log, stopping: stopping, cuts: map[int]int{}, uncounted: !count}
	visited, err := p.waves(ctx)
	if err != nil {
		if len(o.Open) == 0 && !errors.Is(err, campaign.ErrLostOwnership) { // a read failed: whoever comes next need not wait for a takeover
			stopRenewing()
			if berr := o.GiveBack(ctx, w.cfg.Clock.Now()); berr != nil {
				log.Debug("the batch was not given back", "err", berr)
			}
		}
		return nil, err
	}
	pauseErr := p.pause(ctx)
	if err := p.settle(ctx, visited, stopRenewing); err != nil {
		return nil, err
	}
	w.replan(ctx, a, n, passNo, log)
	return p, pauseErr
}

// pause pauses the run if the pass found a reason to, for all batches in work here at once.
func (p *pass) pause(ctx context.Context) error {
	if p.halt == "" {
		return nil
	}
	p.log.Error("run paused", "reason", p.halt)
	if err := p.w.pauseRun(ctx, p.a.run.ID, p.halt); err != nil {
		return err
	}
	return p.w.look(ctx, p.a, 0)
}

func (w *Worker) pauseRun(ctx context.Context, run, reason string) error {
	if err := w.cfg.Runs.PauseRun(ctx, run, reason, "worker"); err != nil && !errors.Is(err, campaign.ErrRunFinished) {
		return err
	}
	return nil
}

// replanEvery: every so many batches that have been looked at, the planner is called at once, so that a big audience of
// whom few may be sent to is not bound by the feeder's tick.
const replanEvery = 16

func (w *Worker) replan(ctx context.Context, a *activeRun, n, passNo int, log *slog.Logger) {
	if w.cfg.Replan == nil || a.run.Single() || passNo != 1 || n%replanEvery != 0 {
		return
	}
	if err := w.cfg.Replan(ctx, a.run.ID); err != nil {
		log.Debug("the planner could not be called; the feeder will", "err", err)
	}
}

// renew keeps the batch until the returned function is called, which waits for it to end.
func (w *Worker) renew(ctx context.Context, o *campaign.Owned, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		t := time.NewTicker(renewEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				if err := o.Renew(ctx); err != nil && ctx.Err() == nil {
					log.Warn("ownership not renewed", "err", err)
					if errors.Is(err, campaign.ErrLostOwnership) {
						return
					}
				}
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// goOn reports whether another claim or mail may be begun.
func (p *pass) goOn() bool {
	if p.stopping.Err() != nil || !p.o.Alive() {
		return false
	}
	v, _ := p.a.verdict(p.w.cfg.Clock.Now())
	return v == sendOn
}

// waves sends to whoever is left and may be sent to. It reports whether everybody was looked at.
func (p *pass) waves(ctx context.Context) (visited bool, err error) { // [again_]
	p.begin()
	for {
		if err := p.w.look(ctx, p.a, steerStale); err != nil {
			p.log.Warn("can't see how the run is to go on", "err", err)
		}
		switch v, reason := p.a.verdict(p.w.cfg.Clock.Now()); {
		case v == giveUp:
			p.giveUp(reason)
			return true, nil
		case !p.goOn():
			p.lookAgainAt(p.w.cfg.Clock.Now())
			return false, nil
		}
		if err := p.fill(ctx); err != nil {
			return false, err
		}
		if len(p.ready) == 0 {
			return true, nil
		}
		conn, ok := p.connect(ctx)
		if !ok {
			if v, _ := p.a.verdict(p.w.cfg.Clock.Now()); v == giveUp {
				continue
			}
			return false, nil
		}
		more, err := p.wave(ctx, conn)
		if err != nil {
			return false, err
		}
		if !more || p.rest || p.halt != "" {
			return false, nil
		}
	}
}

// begin lists whom this pass has to look at: those without an outcome, but for those whose turn has not come.
func (p *pass) begin() {
	now := p.w.cfg.Clock.Now()
	for _, i := range p.o.Waiting() {
		at := turn(p.o.User(i))
		if now.Before(at) && now.Before(p.a.run.ExpiresAt()) {
			p.lookAgainAt(at)
			continue
		}
		p.unseen = append(p.unseen, i)
	}
}

// turn is when a user who has no outcome is to be looked at: when his deferral or his backoff is over.
func turn(u campaign.UserOutcome) time.Time {
	if !u.Until.IsZero() {
		return u.Until
	}
	return retryAt(u)
}

// lookAgainAt notes a time at which somebody of the batch is to be looked at again.
func (p *pass) lookAgainAt(t time.Time) {
	if p.again.IsZero() || t.Before(p.again) {
		p.again = t
	}
}

// retryAt is when a user who got 4xx replies is to be tried again: 5 minutes after the first, doubling up to 6 hours.
func retryAt(u campaign.UserOutcome) time.Time {
	if u.Tries == 0 {
		return time.Time{}
	}
	const first, most = 5 * time.Minute, 6 * time.Hour
	return u.At.Add(min(first<<min(u.Tries-1, 7), most))
}

// giveUp gives everybody who is left the outcome that the run's end has for him. Who had nothing but 4xx until the run expired has failed
// with the last reply.
func (p *pass) giveUp(reason string) { // [the run may end here]
	p.unseen, p.ready, p.found = nil, nil, nil
	for _, i := range p.o.Waiting() {
		p.found = append(p.found, p.givenUp(i, reason))
	}
}

func (p *pass) givenUp(i int, reason string) campaign.Result {
	u := p.o.User(i)
	r := campaign.Result{Index: i, Outcome: campaign.Skipped(reason), UnknownZone: u.UnknownZone}
	if reason == "expired" && u.Tries > 0 {
		r.Outcome = campaign.FailedTemporary
	}
	return r
}

// connect returns a live connection. Where there is none it tries again a few times, then leaves the batch for later, and asks for a pause
// of the run once nobody of this process has got through for SMTPPatience, or at once where waiting can't help.
func (p *pass) connect(ctx context.Context) (mail.Conn, bool) {
	for try := 1; ; try++ {
		change := p.a.change()
		conn, err := p.connectOnce(ctx, change)
		if err == nil {
			p.w.smtp.ended()
			p.noSMTP = ""
			return conn, true
		}
		now := p.w.cfg.Clock.Now()
		p.noSMTP = err.Error()
		p.lookAgainAt(now.Add(5 * time.Second))
		if ce, ok := errors.AsType[*mail.ConnectError](err); ok {
			down := p.w.smtp.failed(now)
			if ce.Permanent || down >= p.w.cfg.SMTPPatience {
				p.halt = ce.Error()
				return nil, false
			}
			p.log.Warn("no connection to the SMTP server", "err", err, "for", down)
		} else if errors.Is(err, mail.ErrClosed) {
			return nil, false
		}
		if try == retryPauses || !p.goOn() {
			return nil, false
		}
		t := time.NewTimer(time.Duration(try) * p.w.retryPause)
		select {
		case <-t.C:
		case <-p.stopping.Done():
		case <-change:
		}
		t.Stop()
		if !p.goOn() {
			return nil, false
		}
	}
}

// connectOnce gives up when the worker is stopped or the run is steered.
func (p *pass) connectOnce(ctx context.Context, change <-chan struct{}) (mail.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-done:
		case <-change:
			cancel()
		case <-p.stopping.Done():
			cancel()
		}
	})
	defer watching.Wait()
	defer close(done)
	return p.w.cfg.Transport.Connect(ctx)
}
