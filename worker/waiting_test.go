package worker

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/mail"
	"postbit/internal/queue"
)

// silentServer takes connections and never greets; met is closed at the first.
func silentServer(t *testing.T) (addr string, met chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	met = make(chan struct{})
	var serving sync.WaitGroup
	var conns []net.Conn
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if conns = append(conns, c); len(conns) == 1 {
				close(met)
			}
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
		for _, c := range conns {
			c.Close()
		}
	})
	return l.Addr().String(), met
}

// A run is steered, or the worker told to stop, while its handler waits for an SMTP server that does not even greet: the handler ends
// at the watcher's next look, which comes every second, not when the server's time is up.
func TestSteeredWhileItWaits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		do   func(h *house, r *campaign.Run)
		want string
	}{
		{"paused", func(h *house, r *campaign.Run) { h.check(h.runs.PauseRun(h.ctx, r.ID, "by hand", "test")) }, "waiting"},
		{"cancelled", steerTo(campaign.RunCancelling), "skipped/cancelled"},
		{"superseded", steerTo(campaign.RunSuperseding), "skipped/superseded"},
		{"the worker is stopped", nil, "waiting"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.seed(3)
			r := h.run("winback", 3)
			addr, met := silentServer(t)
			tr, err := mail.Open("smtp://"+addr, mail.Options{})
			h.check(err)
			defer tr.Close()
			w := h.idleWorker(func(cfg *Config) { cfg.Transport = tr })
			ctx, stop := context.WithCancel(h.ctx)
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- w.HandleBatch(ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 1}) }()
			<-met
			if c.do == nil {
				stop()
			} else {
				c.do(h, r)
				h.check(w.watch(h.ctx))
			}
			h.check(<-ended)
			got := h.outcomes(r)
			if len(got[c.want]) != 3 {
				t.Errorf("%v", got)
			}
			b, err := h.batches.Get(h.ctx, r, 1)
			h.check(err)
			if !b.OwnedUntil.IsZero() {
				t.Error("the batch was not given back")
			}
			if _, bit := h.user(1); bit {
				t.Error("somebody was claimed without a connection")
			}
		})
	}
}

// A worker an hour ahead takes batches away from the living, until its clock is put right. Whoever loses one stops; nobody gets two
// mails, and no more than the wave in flight is unconfirmed: that never depends on a clock.
func TestAWorkerWhoseClockIsWrong(t *testing.T) {
	t.Parallel()
	for _, corrected := range []bool{false, true} {
		h := newHouse(t)
		h.seed(40)
		r := h.run("winback", 40)
		ahead := clock.At(testStart.Add(time.Hour))
		if corrected {
			now := ahead.Now()
			ahead.Correct(h.clk.Now(), now, now)
		}
		second := newFakeSMTP()
		other := h.idleWorker(func(cfg *Config) {
			cfg.Clock, cfg.Batches, cfg.Transport = ahead, campaign.NewBatches(h.db, ahead), second
		})
		var taken error
		var once sync.Once
		h.smtp.begin = func(user int) {
			if user == 3 {
				once.Do(func() { _, taken = other.lookAt(h.ctx, r.ID, 1, 0, true, h.log) })
			}
		}
		w := h.idleWorker(oneConnection)
		h.check(w.HandleBatch(h.ctx, queue.BatchTask{Run: r.ID, N: 1, Pass: 1}))
		h.handle(w, r)
		got := h.outcomes(r)
		for i := range 40 {
			if n := h.smtp.copies(i) + second.copies(i); n > 1 {
				t.Errorf("corrected %t: user %d has %d copies", corrected, i, n)
			}
		}
		want := map[bool]int{false: 32, true: 0}[corrected]
		if len(got["unconfirmed"]) != want || len(got["sent"]) != 40-want {
			t.Errorf("corrected %t: %v", corrected, got)
		}
		if corrected && !errors.Is(taken, campaign.ErrBatchOwned) {
			t.Errorf("the owner lives, and the other got %v", taken)
		}
		if d := cmp.Diff(int64(40), h.progress(r).Counts.Checked); d != "" {
			t.Error(d)
		}
	}
}
