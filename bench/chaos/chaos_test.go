package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"postbit/internal/bitfield"
	"postbit/internal/campaign"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestScheduleIsAFunctionOfItsSeed(t *testing.T) {
	first := schedule(1, 200, 10*time.Minute)
	if diff := cmp.Diff(first, schedule(1, 200, 10*time.Minute)); diff != "" {
		t.Errorf("the same seed, another schedule: %s", diff)
	}
	if cmp.Equal(first, schedule(2, 200, 10*time.Minute)) {
		t.Error("another seed, the same schedule")
	}
}

func TestOnlySomeTargets(t *testing.T) {
	for _, f := range schedule(1, 50, time.Minute, "mongo", "redis") {
		if f.Target != "mongo" && f.Target != "redis" {
			t.Errorf("%s", f)
		}
	}
}

// A schedule of one deck's length has every kind of fault on every target, so that none is left to luck.
func TestADeckHoldsEveryFault(t *testing.T) {
	cards := 0
	for _, d := range deck {
		cards += d.n
	}
	got := map[string]int{}
	var over time.Duration
	for _, f := range schedule(3, cards, time.Minute) {
		got[f.Kind+" "+f.Target]++
		over += f.After
		if f.Kind == stop && f.Lasts <= 30*time.Second+campaign.TakeoverAfter {
			t.Errorf("%s: the batches of a stopped worker are taken over 40 s after a renewal at the most", f)
		}
	}
	for _, d := range deck {
		if n := got[d.kind+" "+d.target]; n != d.n {
			t.Errorf("%s %s: %d times, want %d", d.kind, d.target, n, d.n)
		}
	}
	if over > 90*time.Second {
		t.Errorf("the faults of a minute take %s", over)
	}
}

func TestMutantsHaveTheirPlace(t *testing.T) {
	for name, m := range mutants {
		text, err := os.ReadFile(filepath.Join("../..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), m.old); n != 1 {
			t.Errorf("%s: its place is %d times in %s, want once", name, n, m.file)
		}
	}
}

// echo answers every byte with the same.
func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
}

func TestLink(t *testing.T) {
	p, err := link(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", p.addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		return c
	}
	ask := func(c net.Conn) error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	c := dial()
	if err := ask(c); err != nil {
		t.Fatalf("a healthy link: %v", err)
	}
	if n := p.carries(); n != 1 {
		t.Errorf("it carries %d connections", n)
	}
	if n := p.cut(); n != 1 {
		t.Errorf("cut %d connections", n)
	}
	if err := ask(c); err == nil {
		t.Error("a connection outlived a cut")
	}

	c = dial()
	p.set(func() { p.mute = true })
	answered := make(chan error, 1)
	go func() { answered <- ask(c) }()
	select {
	case err := <-answered:
		t.Errorf("a mute link answered: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	p.set(func() { p.mute = false })
	if err := <-answered; err != nil {
		t.Errorf("healed: %v", err)
	}

	p.set(func() { p.shut = true })
	if c, err := net.Dial("tcp", p.addr()); err == nil { // it may be refused at once, or reset
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if ask(c) == nil {
			t.Error("a shut link let somebody through")
		}
		c.Close()
	}
	p.set(func() { p.shut = false })
	if err := ask(dial()); err != nil {
		t.Errorf("open again: %v", err)
	}
}

// right is the evidence of a trial in which everything went as it should.
func right(t *testing.T, n int) *evidence {
	t.Helper()
	e := &evidence{Users: n, Docs: map[user]bson.Raw{}}
	bits := map[user][]byte{}
	for c, x := range campaigns {
		r := runEvidence{State: string(campaign.RunDone), Short: campaign.ShortID{byte(c + 1)}, Log: map[user]campaign.UserOutcome{}}
		r.Counts = campaign.Counts{Audience: int64(n), Checked: int64(n), Skipped: map[string]int64{}}
		r.Counters.Skipped = map[string]int64{}
		for i := range n {
			u := user(i)
			if u.had(c) {
				bits[u] = bitfield.With(bits[u], x.bit)
			}
			o := campaign.UserOutcome{Batch: 1, User: bson.RawValue{Type: bson.TypeInt32, Value: []byte{byte(i), byte(i >> 8), 0, 0}}}
			switch w := u.wants(c); w {
			case "sent":
				o.Outcome = campaign.Sent
				r.Counts.Sent++
				bits[u] = bitfield.With(bits[u], x.bit)
				e.Mails = append(e.Mails, mail{To: u.email(), Subject: fmt.Sprintf("%s for Zoë %d", x.name, i), ID: fmt.Sprintf("<%d.%d@x>", c, i)})
			case "hard":
				o.Outcome = campaign.FailedBounced
				r.Counts.Failed++
			default:
				o.Outcome = campaign.Skipped(w)
				r.Counts.Skipped[w]++
				r.Counters.Skipped[w]++
			}
			r.Log[u] = o
		}
		r.Counters.Sent, r.Counters.Failed = r.Counts.Sent, r.Counts.Failed
		r.Hits = hits{answered: 3, by: map[string]bool{user(0).email(): true, user(2).email(): true}, maybe: map[string]bool{}}
		r.Counters.Opens.Hits, r.Counters.Opens.Human, r.Counters.Opens.Unique = 3, 3, 2
		e.Runs[c] = r
	}
	for i := range n {
		u := user(i)
		d := u.doc(time.UnixMilli(1))
		if u.kind() != unreadable {
			d = append(d, bson.E{Key: "tpls_sent_at_least_once", Value: bson.Binary{Data: bits[u]}})
		}
		kept := d[:0]
		for k, x := range d { // the last one of a name
			last := true
			for _, y := range d[k+1:] {
				last = last && y.Key != x.Key
			}
			if last {
				kept = append(kept, x)
			}
		}
		raw, err := bson.Marshal(kept)
		if err != nil {
			t.Fatal(err)
		}
		e.Docs[u] = raw
	}
	return e
}

// What the verdict says of every kind of breach, one at a time.
func TestVerdict(t *testing.T) {
	unconfirmed := func(e *evidence, u user, reply string, listed bool) {
		r := &e.Runs[0]
		o := r.Log[u]
		o.Outcome, o.Reply, o.Wave = campaign.Unconfirmed, reply, 1
		r.Log[u] = o
		r.Counts.Sent--
		r.Counters.Sent--
		r.Counts.Unconfirmed++
		r.Counters.Unconfirmed++
		if listed {
			r.Listed = append(r.Listed, fmt.Sprint(int(u)))
		}
	}
	const crash, cutOff = "a worker ended between handing the mail over and noting the reply", "EOF"
	drop := func(e *evidence, u user, c int) {
		for i, m := range e.Mails {
			if userOf(m.To) == u && m.campaign() == c {
				e.Mails = append(e.Mails[:i], e.Mails[i+1:]...)
				return
			}
		}
	}
	bits := func(e *evidence, u user, f func([]byte) []byte) {
		var d bson.D
		if err := bson.Unmarshal(e.Docs[u], &d); err != nil {
			t.Fatal(err)
		}
		for i := range d {
			if d[i].Key == "tpls_sent_at_least_once" {
				d[i].Value = bson.Binary{Data: f(d[i].Value.(bson.Binary).Data)}
			}
		}
		e.Docs[u], _ = bson.Marshal(d)
	}
	pausedAt := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	paused := func(e *evidence, begun time.Duration) { // the first run, for 8 s
		e.Pauses = []pauseSpan{{campaigns[0].name, span{pausedAt, pausedAt.Add(8 * time.Second)}}}
		for i := range e.Mails {
			e.Mails[i].Begun = pausedAt.Add(-time.Hour)
		}
		e.Mails[5].Begun = pausedAt.Add(begun)
	}
	tests := []struct {
		name  string
		spoil func(e *evidence)
		want  func(v *verdict) int // must be 1; nil: all is well
	}{
		{"nothing", func(*evidence) {}, nil},
		{"a second copy", func(e *evidence) { e.Mails = append(e.Mails, e.Mails[5]) }, func(v *verdict) int { return v.Copies }},
		{"a mail that never came", func(e *evidence) { drop(e, 2, 0) }, func(v *verdict) int { return v.Lost }},
		{"a user in no batch", func(e *evidence) { delete(e.Runs[1].Log, 2) }, func(v *verdict) int { return v.Lost }},
		{"a mail to who is unsubscribed", func(e *evidence) {
			e.Mails = append(e.Mails, mail{To: user(unsubscribed).email(), Subject: "summer for Zoë 9", ID: "x"})
		}, func(v *verdict) int { return v.Wrong }},
		{"a mail to nobody", func(e *evidence) { e.Mails = append(e.Mails, mail{To: "a@b.c", Subject: "summer for Zoë 9"}) }, func(v *verdict) int { return v.Wrong }},
		{"a Message-ID of two users", func(e *evidence) { e.Mails[1].ID = e.Mails[0].ID }, func(v *verdict) int { return v.Wrong }},
		{"a bit that is clear", func(e *evidence) { bits(e, 2, func(b []byte) []byte { return bitfield.Without(b, campaigns[0].bit) }) }, func(v *verdict) int { return v.Bits }},
		{"a bit that was there before", func(e *evidence) { bits(e, 23, func(b []byte) []byte { return bitfield.Without(b, campaigns[0].bit) }) }, func(v *verdict) int { return v.Bits }},
		{"counts that don't add up", func(e *evidence) { e.Runs[0].Counts.Sent++ }, func(v *verdict) int { return v.Counts }},
		{"a pass that is counted twice", func(e *evidence) { e.Runs[0].Counters.Skipped["address"] += 5 }, func(v *verdict) int { return v.Counts }},
		{"a run that was cancelled", func(e *evidence) { e.Runs[0].State = "cancelled" }, func(v *verdict) int { return v.Counts }},
		{"a hit that is missing", func(e *evidence) { e.Runs[0].Hits.answered++ }, func(v *verdict) int { return v.HitsMissing }},
		{"a hit that counts twice", func(e *evidence) { o := &e.Runs[0].Counters.Opens; o.Hits++; o.Human++ }, func(v *verdict) int { return v.HitsTwice }},
		{"a hit that was cut and counted", func(e *evidence) {
			e.Runs[0].Hits.unsure = 1
			o := &e.Runs[0].Counters.Opens
			o.Hits++
			o.Human++
		}, nil},
		{"an open that counts as nobody's", func(e *evidence) { e.Runs[0].Counters.Opens.Unique-- }, func(v *verdict) int { return v.Counts }},
		{"unconfirmed after a kill, with a mail", func(e *evidence) { e.Tally.waves = 1; unconfirmed(e, 2, crash, true) }, nil},
		{"unconfirmed after a kill, without a mail", func(e *evidence) { e.Tally.waves = 1; unconfirmed(e, 2, crash, true); drop(e, 2, 0) }, nil},
		{"unconfirmed though nobody was killed", func(e *evidence) { unconfirmed(e, 2, crash, true) }, func(v *verdict) int { return v.Unbounded }},
		{"unconfirmed by a connection that was cut", func(e *evidence) { e.Tally.mails = 1; unconfirmed(e, 2, cutOff, true) }, nil},
		{"unconfirmed by a connection, none of which was cut", func(e *evidence) { unconfirmed(e, 2, cutOff, true) }, func(v *verdict) int { return v.Unbounded }},
		{"unconfirmed and not listed", func(e *evidence) { e.Tally.waves = 1; unconfirmed(e, 2, crash, false) }, func(v *verdict) int { return v.Wrong }},
		{"a mail begun 1.9 s after a pause", func(e *evidence) { paused(e, 1900*time.Millisecond) }, nil},
		{"a mail begun 2.1 s after a pause", func(e *evidence) { paused(e, 2100*time.Millisecond) }, func(v *verdict) int { return v.Late }},
		{"a mail begun before a pause, at a slow server", func(e *evidence) {
			paused(e, 1900*time.Millisecond)
			e.Mails[5].At = e.Mails[5].Begun.Add(5 * time.Second)
		}, nil},
		{"a mail begun after a resume", func(e *evidence) { paused(e, 10*time.Second) }, nil},
		{"a mail of the other run", func(e *evidence) { paused(e, 3*time.Second); e.Pauses[0].campaign = campaigns[1].name }, nil},
		{"a mail begun while the database was away", func(e *evidence) {
			paused(e, 4*time.Second)
			e.Excused = []span{{pausedAt, pausedAt.Add(5 * time.Second)}}
		}, nil},
		{"a mail begun 1.9 s after the database was back", func(e *evidence) {
			paused(e, 4*time.Second)
			e.Excused = []span{{pausedAt, pausedAt.Add(2100 * time.Millisecond)}}
		}, nil},
		{"a mail begun 2.1 s after the database was back", func(e *evidence) {
			paused(e, 4*time.Second)
			e.Excused = []span{{pausedAt, pausedAt.Add(1900 * time.Millisecond)}, {pausedAt.Add(time.Minute), pausedAt.Add(time.Hour)}}
		}, func(v *verdict) int { return v.Late }},
		{"a journal that can't be read", func(e *evidence) { e.Broken = errors.New("cut") }, func(v *verdict) int { return v.Wrong }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := right(t, 200)
			tt.spoil(e)
			v := judge(e)
			if v.ok() != (tt.want == nil) {
				t.Fatalf("ok: %t\n%s", v.ok(), strings.Join(v.Details, "\n"))
			}
			if tt.want != nil && tt.want(v) != 1 {
				t.Errorf("%+v", v)
			}
		})
	}
	e := right(t, 200)
	e.Unended = "the runs did not end in time"
	if judge(e).ok() {
		t.Error("a run that did not end is no breach")
	}
}

// Both outcomes of a user come from the rules alone, whatever happens in between: whoever may load a pixel decides nothing by it.
func TestOpensDecideNothing(t *testing.T) {
	for i := range 1000 {
		u := user(i)
		for c := range campaigns {
			if u.wants(c) == "already_sent" && u.mayOpen() {
				t.Errorf("user %d: an open of the other campaign's mail would send him this one", i)
			}
		}
		if got := userOf(u.email()); u.kind() != noAddress && got != u {
			t.Errorf("%s is user %d, want %d", u.email(), got, u)
		}
	}
}

// What is judged of a pause is what is left of it after 2 s, less what is excused and 2 s behind that.
func TestWhatIsJudgedOfAPause(t *testing.T) {
	at := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	s := func(from, to int) span {
		return span{at.Add(time.Duration(from) * time.Second), at.Add(time.Duration(to) * time.Second)}
	}
	for _, tt := range []struct {
		name    string
		pause   span
		excused []span
		want    int
	}{
		{"nothing excused", s(0, 8), nil, 6},
		{"a short pause", s(0, 1), nil, 0},
		{"excused before and after", s(10, 18), []span{s(0, 9), s(18, 30)}, 6},
		{"excused at the end", s(0, 8), []span{s(6, 20)}, 4},
		{"excused in the middle", s(0, 20), []span{s(6, 8)}, 14},
		{"a worker that goes on", s(0, 20), []span{s(6, 6)}, 16},
		{"excused twice at once", s(0, 20), []span{s(6, 8), s(7, 9)}, 13},
		{"excused all along", s(0, 8), []span{s(-5, 40)}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := judge(&evidence{Pauses: []pauseSpan{{campaigns[0].name, tt.pause}}, Excused: tt.excused})
			if v.Judged != time.Duration(tt.want)*time.Second || v.Pauses != 1 {
				t.Errorf("%d pauses, judged %s, want %d s", v.Pauses, v.Judged, tt.want)
			}
		})
	}
}
