package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
)

// How the pictures of a mail are loaded, by user agent.
const (
	agentProxy    = "Mozilla/5.0 (Windows NT 5.1; rv:11.0) Gecko Firefox/11.0 (via ggpht.com GoogleImageProxy)"
	agentPrefetch = "Mozilla/5.0"
	agentScanner  = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36" // scanners pretend
)

var agentsOfPeople = []string{
	"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko)",
	"Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Thunderbird/140.1.0",
	"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148",
	"Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Mobile Safari/537.36",
	"Microsoft Office/16.0 (Windows NT 10.0; Microsoft Outlook 16.0.18827; Pro)",
}

type request struct{ url, agent string }

// Readers load the pictures of the mails that arrive: scanners at once, everybody else when told to.
type Readers struct {
	client *http.Client
	atOnce chan request
	queued sync.WaitGroup // requests in atOnce or under way
	work   sync.WaitGroup // goroutines
	loaded atomic.Int64
	failed atomic.Int64

	mu    sync.Mutex
	later []request
	fault error // the first
}

// StartReaders starts the machines that look at mails as they come in. Close ends them.
func StartReaders(ctx context.Context, concurrency int) *Readers {
	r := &Readers{
		client: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 2 * concurrency}},
		atOnce: make(chan request, 1024),
	}
	for range concurrency {
		r.work.Go(func() {
			for q := range r.atOnce {
				r.load(ctx, q)
				r.queued.Done()
			}
		})
	}
	return r
}

// Close waits for the machines. Nothing may be delivered any more.
func (r *Readers) Close() {
	close(r.atOnce)
	r.work.Wait()
	r.client.CloseIdleConnections()
}

// Deliver takes a mail in. Who reads it, and how, depends on the address alone, so that every demo comes to the same.
func (r *Readers) Deliver(l Letter) {
	if l.Pixel == "" {
		return
	}
	chance := int(xxhash.Sum64String(l.To) % 100)
	person := request{l.Pixel, agentsOfPeople[chance%len(agentsOfPeople)]}
	_, domain, _ := strings.Cut(l.To, "@")
	var later []request
	switch domain {
	case proxyDomain:
		if chance < 55 {
			later = []request{{l.Pixel, agentProxy}}
		}
	case privacyDomain:
		later = []request{{l.Pixel, agentPrefetch}}
	case scannerDomain:
		r.queued.Add(1)
		r.atOnce <- request{l.Pixel, agentScanner}
		if chance < 40 {
			later = []request{person}
		}
	default:
		if chance < 45 {
			later = []request{person}
		}
		if chance < 12 {
			later = append(later, person) // and once more
		}
	}
	r.mu.Lock()
	r.later = append(r.later, later...)
	r.mu.Unlock()
}

// Settle waits until the machines have looked at all that has come so far.
func (r *Readers) Settle() { r.queued.Wait() }

// Read lets everybody else read their mail, as fast as the server answers, and tells progress how many have.
func (r *Readers) Read(ctx context.Context, concurrency int, progress func(done, of int)) (n int, took time.Duration, err error) {
	r.mu.Lock()
	later := r.later
	r.later = nil
	r.mu.Unlock()
	start := time.Now()
	var next, done atomic.Int64
	var work sync.WaitGroup
	for range concurrency {
		work.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(later) {
					return
				}
				r.load(ctx, later[i])
				progress(int(done.Add(1)), len(later))
			}
		})
	}
	work.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(later), time.Since(start), errors.Join(ctx.Err(), r.fault)
}

// Loaded is how many pixels have been answered, at once or later: as many hits must be counted.
func (r *Readers) Loaded() int64 { return r.loaded.Load() }

func (r *Readers) load(ctx context.Context, q request) {
	err := r.get(ctx, q)
	if err == nil {
		r.loaded.Add(1)
		return
	}
	r.failed.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault == nil {
		r.fault = fmt.Errorf("demo: pixel: %w", err)
	}
}

func (r *Readers) get(ctx context.Context, q request) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, q.url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", q.agent)
	res, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", res.Status)
	}
	return nil
}
