package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// mail is a copy at the sink.
type mail struct {
	Begun   time.Time // its MAIL command
	At      time.Time // accepted
	To      string
	Subject string
	ID      string
	Pixel   string
}

// campaign is the place in campaigns, by the subject; -1: it is none of ours.
func (m *mail) campaign() int {
	subject, err := new(mime.WordDecoder).DecodeHeader(m.Subject)
	if err != nil {
		return -1
	}
	for c, x := range campaigns {
		if strings.HasPrefix(subject, x.name+" for Zoë ") {
			return c
		}
	}
	return -1
}

// traffic follows the sink's journal and loads the pixels of mails that have arrived.
type traffic struct {
	journal, public string
	client          *http.Client
	stop            context.CancelFunc
	running         sync.WaitGroup

	mu     sync.Mutex
	offset int64
	mails  []mail
	broken error
	hits   [2]hits // by campaign
}

// hits are the requests of one campaign's pixels.
type hits struct {
	answered int
	unsure   int             // requests that may have arrived, but were not answered
	by       map[string]bool // addresses of users with an answered one
	maybe    map[string]bool // and with one of which that is not known
}

// ripe is how long a mail lies before its pixel is loaded: what comes within 2 s of the send counts as a machine.
const ripe = 3 * time.Second

func startTraffic(journal, public string, perSecond float64, seed uint64) (*traffic, error) {
	t := &traffic{journal: journal, public: public, client: &http.Client{
		Timeout: 30 * time.Second,
		// A connection that is used again would be tried again by the client, and nobody would know how many requests arrived.
		Transport: &http.Transport{DisableKeepAlives: true},
	}}
	for c := range t.hits {
		t.hits[c].by, t.hits[c].maybe = map[string]bool{}, map[string]bool{}
	}
	ctx, stop := context.WithCancel(context.Background())
	t.stop = stop
	t.running.Go(func() {
		for sleep(ctx, 200*time.Millisecond) {
			t.follow()
		}
	})
	if perSecond > 0 {
		t.running.Go(func() { t.load(ctx, perSecond, seed) })
	}
	return t, nil
}

// end stops loading and waits for the requests under way.
func (t *traffic) end() {
	t.stop()
	t.running.Wait()
	t.follow()
}

func (t *traffic) counts() (mails, answered int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.hits {
		answered += h.answered
	}
	return len(t.mails), answered
}

// follow reads what the sink has written since.
func (t *traffic) follow() {
	t.mu.Lock()
	defer t.mu.Unlock()
	f, err := os.Open(t.journal)
	if err != nil {
		return // no mail yet
	}
	defer f.Close()
	if _, err := f.Seek(t.offset, io.SeekStart); err != nil {
		t.broken = err
		return
	}
	text, err := io.ReadAll(f)
	if err != nil {
		t.broken = err
	}
	for {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		if !whole {
			return
		}
		var m mail
		if err := json.Unmarshal(line, &m); err != nil {
			t.broken = fmt.Errorf("the sink's journal at %d: %w", t.offset, err)
		}
		t.mails = append(t.mails, m)
		t.offset += int64(len(line)) + 1
		text = rest
	}
}

// load requests pixels of ripe mails at a rate.
func (t *traffic) load(ctx context.Context, perSecond float64, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	places := make(chan struct{}, 8)
	ripened := 0
	for sleep(ctx, time.Duration(float64(time.Second)/perSecond)) {
		t.mu.Lock()
		for ripened < len(t.mails) && time.Since(t.mails[ripened].At) > ripe {
			ripened++
		}
		var m mail
		if ripened > 0 {
			m = t.mails[r.IntN(ripened)]
		}
		t.mu.Unlock()
		if m.Pixel == "" || m.campaign() < 0 || !userOf(m.To).mayOpen() {
			continue
		}
		places <- struct{}{}
		t.running.Go(func() {
			defer func() { <-places }()
			t.request(&m)
		})
	}
}

// userOf is the user with an address, -1 if there is none.
func userOf(address string) user {
	var n, d int
	if k, _ := fmt.Sscanf(address, "u%d@d%d.example", &n, &d); k == 2 {
		return user(n)
	}
	if k, _ := fmt.Sscanf(address, "hard-%d@example.com", &n); k == 1 {
		return user(n)
	}
	return -1
}

// request loads the pixel of a mail once.
func (t *traffic) request(m *mail) {
	req, err := http.NewRequest(http.MethodGet, "http://"+t.public+m.Pixel, nil)
	if err != nil {
		return
	}
	req.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Thunderbird/140.0")
	resp, err := t.client.Do(req)
	whole := false
	if err == nil {
		b, readErr := io.ReadAll(resp.Body)
		resp.Body.Close()
		whole = readErr == nil && len(b) == 43 && resp.StatusCode == http.StatusOK
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	h := &t.hits[m.campaign()]
	op, failed := errors.AsType[*net.OpError](err)
	switch {
	case whole:
		h.answered++
		h.by[m.To] = true
	case failed && op.Op == "dial": // nobody has heard it
	default:
		h.unsure++
		h.maybe[m.To] = true
	}
}
