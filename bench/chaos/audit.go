package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/bitfield"
	"postbit/internal/campaign"
	"postbit/internal/users"
)

// evidence is everything that is held against each other.
type evidence struct {
	Users   int
	Tally   tally
	Unended string // what did not come to its end; empty: everything did
	Mails   []mail
	Docs    map[user]bson.Raw // as they are now
	Runs    [2]runEvidence
	Broken  error // of the journal
	Pauses  []pauseSpan
	Excused []span
}

// runEvidence is what is known of one campaign's run.
type runEvidence struct {
	State    string
	Short    campaign.ShortID
	Log      map[user]campaign.UserOutcome
	Counts   campaign.Counts // campaigns show
	Listed   []string        // campaigns show --unconfirmed
	Counters counters        // report
	Hits     hits
}

// counters are what `report --json` says.
type counters struct {
	Sent, Failed, Unconfirmed int64
	Skipped                   map[string]int64
	Opens                     struct{ Hits, Human, Proxy, Prefetch, Machine, Unique int64 }
}

// evidence waits until everything is counted, and collects it.
func (h *house) evidence(ctx context.Context) (*evidence, error) {
	e := &evidence{Users: h.options.users, Mails: h.traffic.mails, Docs: map[user]bson.Raw{}, Broken: h.traffic.broken}
	runs, err := h.latest(ctx)
	if err != nil {
		return nil, err
	}
	for c := range campaigns {
		x := &e.Runs[c]
		x.State, x.Short, x.Hits = string(runs[c].State), runs[c].Short, h.traffic.hits[c]
		if err := h.awaitCounted(ctx, campaigns[c].name, x); err != nil {
			return nil, err
		}
	}
	h.say("counted; stopping everything but the database")
	h.stopKeep()
	h.keeping.Wait() // stopped workers have gone on
	sleep(ctx, 2*time.Second)
	for _, name := range []string{"web", "worker-1", "worker-2", "scheduler"} {
		h.members[name].proc.Stop(40 * time.Second)
	}
	h.traffic.follow()
	e.Mails = h.traffic.mails
	h.mu.Lock()
	e.Tally, e.Pauses, e.Excused = h.tally, h.pauses, h.excused
	h.mu.Unlock()
	for c := range campaigns {
		if err := h.readRun(ctx, campaigns[c].name, runs[c], &e.Runs[c]); err != nil {
			return nil, err
		}
	}
	cur, err := h.db.Collection("users").Find(ctx, bson.D{})
	if err != nil {
		return nil, err
	}
	defer cur.Close(ctx)
	for cur.Next(ctx) {
		n, _ := cur.Current.Lookup("n").Int32OK()
		e.Docs[user(n)] = append(bson.Raw(nil), cur.Current...)
	}
	return e, cur.Err()
}

// awaitCounted waits until the report has what the run has and every answered hit; a chunk of hits that was lost on the way is sent again
// after a minute. It waits for as long as there is progress.
func (h *house) awaitCounted(ctx context.Context, name string, x *runEvidence) error {
	var counted int64
	for until := time.Now().Add(3 * time.Minute); ; {
		var shown struct{ Counts campaign.Counts }
		if err := h.readJSON(ctx, &shown, "campaigns", "show", name); err != nil {
			return err
		}
		if err := h.readJSON(ctx, &x.Counters, "report", name); err != nil {
			return err
		}
		if n := x.Counters.Opens.Hits + x.Counters.Sent + x.Counters.Unconfirmed; n > counted {
			counted, until = n, time.Now().Add(3*time.Minute)
		}
		if x.Counters.Opens.Hits >= int64(x.Hits.answered) && x.Counters.Sent == shown.Counts.Sent && x.Counters.Unconfirmed == shown.Counts.Unconfirmed {
			return nil
		}
		if time.Now().After(until) || !sleep(ctx, time.Second) {
			h.say("%s: not everything is counted", name)
			return nil // the audit says what is missing
		}
	}
}

func (h *house) readJSON(ctx context.Context, v any, args ...string) error {
	for try := 0; ; try++ {
		out, err := h.cli(ctx, append(args, "--json")...)
		if err == nil {
			return json.Unmarshal(out, v)
		}
		if try == 20 || !sleep(ctx, time.Second) {
			return err
		}
	}
}

func (h *house) readRun(ctx context.Context, name string, run *campaign.Run, x *runEvidence) error {
	var shown struct {
		Counts      campaign.Counts
		Unconfirmed []struct{ User string }
	}
	if err := h.readJSON(ctx, &shown, "campaigns", "show", name, "--unconfirmed"); err != nil {
		return err
	}
	x.Counts = shown.Counts
	for _, u := range shown.Unconfirmed {
		x.Listed = append(x.Listed, u.User)
	}
	if err := h.readJSON(ctx, &x.Counters, "report", name); err != nil {
		return err
	}
	x.Log = map[user]campaign.UserOutcome{}
	return h.batches.Outcomes(ctx, run, func(o campaign.UserOutcome) error {
		var n user
		switch text, isText := o.User.StringValueOK(); {
		case isText:
			_, err := fmt.Sscanf(text, "user-%d", &n)
			if err != nil {
				return err
			}
		default:
			i, _ := o.User.AsInt64OK()
			n = user(i)
		}
		if _, twice := x.Log[n]; twice {
			return fmt.Errorf("user %d stands in two batches of %s", n, run.ID)
		}
		x.Log[n] = o
		return nil
	})
}

// verdict is what the audit came to.
type verdict struct {
	Copies      int // mails beyond the first of a user and campaign
	Lost        int // users who should have a mail, have none, and are not listed as unconfirmed
	Wrong       int // users with a mail that the rules forbid, or an outcome that is not theirs
	Bits        int // users whose bit doesn't say what they got
	Counts      int // sums that don't agree
	HitsMissing int
	HitsTwice   int
	Unconfirmed int
	Listed      int
	Unbounded   int // unconfirmed beyond what the faults allow
	Late        int // mails begun when their run had been paused for 2 s
	Pauses      int
	Judged      time.Duration // of the pauses, in which a mail would have been late
	Waves       int           // left unconfirmed
	CutMails    int           // left unconfirmed by their connection
	Unended     string
	Tally       tally
	Mails       int
	Hits        int
	Details     []string
}

func (v *verdict) ok() bool {
	return v.Copies+v.Lost+v.Wrong+v.Bits+v.Counts+v.HitsMissing+v.HitsTwice+v.Unbounded+v.Late == 0 && v.Listed == v.Unconfirmed && v.Unended == ""
}

func (v *verdict) print(w io.Writer) {
	for _, d := range v.Details[:min(len(v.Details), 40)] {
		fmt.Fprintln(w, " ", d)
	}
	if more := len(v.Details) - 40; more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
	t := v.Tally
	fmt.Fprintf(w, "%d faults, %d of them kill -9, %d after both runs had ended; %d processes ended by themselves, %d runs resumed after a worker had paused them\n",
		t.faults, t.kills, t.afterEnd, t.ended, t.resumed)
	fmt.Fprintf(w, "%d mails at the sink, %d hits answered; unconfirmed: %d waves (the faults allow %d) and %d single mails (%d)\n",
		v.Mails, v.Hits, v.Waves, t.waves, v.CutMails, t.mails)
	fmt.Fprintf(w, "%d pauses were acknowledged; in %.1f s of them, from 2 s on, no mail might begin\n", v.Pauses, v.Judged.Seconds())
	word := "ok"
	if !v.ok() {
		word = "BREACH"
	}
	fmt.Fprintf(w, "verdict %s copies=%d lost=%d hits_missing=%d hits_twice=%d unconfirmed=%d listed=%d wrong=%d bits=%d counts=%d unbounded=%d late_after_pause=%d\n", word,
		v.Copies, v.Lost, v.HitsMissing, v.HitsTwice, v.Unconfirmed, v.Listed, v.Wrong, v.Bits, v.Counts, v.Unbounded, v.Late)
}

func (v *verdict) note(n *int, format string, args ...any) {
	*n++
	v.Details = append(v.Details, fmt.Sprintf(format, args...))
}

// judge holds everything against each other.
func judge(e *evidence) *verdict {
	v := &verdict{Tally: e.Tally, Unended: e.Unended, Mails: len(e.Mails)}
	if v.Unended != "" {
		v.Details = append(v.Details, v.Unended)
	}
	if e.Broken != nil {
		v.note(&v.Wrong, "%v", e.Broken)
	}
	copies := v.copies(e)
	v.pauses(e)
	waves := map[string]bool{}
	for c := range campaigns {
		x := &e.Runs[c]
		for i := range e.Users {
			v.user(e, c, user(i), copies[c][user(i)])
		}
		v.lists(c, x)
		v.sums(e, c, x)
		v.hits(e, c, x)
		for _, o := range x.Log {
			switch {
			case o.Outcome != campaign.Unconfirmed:
			case strings.HasPrefix(o.Reply, "a worker ended"):
				waves[fmt.Sprintf("%d/%d/%d", c, o.Batch, o.Wave)] = true
			default:
				v.CutMails++
			}
		}
	}
	if v.Waves = len(waves); v.Waves > e.Tally.waves {
		v.note(&v.Unbounded, "%d waves were left unconfirmed, the faults allow %d", v.Waves, e.Tally.waves)
	}
	if v.CutMails > e.Tally.mails {
		v.note(&v.Unbounded, "%d mails were left unconfirmed by their connection, the faults allow %d", v.CutMails, e.Tally.mails)
	}
	return v
}

// copies counts the copies at the sink, by campaign and user.
func (v *verdict) copies(e *evidence) (out [2]map[user]int) {
	for c := range out {
		out[c] = map[user]int{}
	}
	ids := map[string]string{}
	for _, m := range e.Mails {
		c, u := m.campaign(), userOf(m.To)
		if c < 0 || u < 0 {
			v.note(&v.Wrong, "a mail to %s with subject %q", m.To, m.Subject)
			continue
		}
		if out[c][u]++; out[c][u] > 1 {
			v.note(&v.Copies, "%s: user %d got copy %d at %s", campaigns[c].name, u, out[c][u], m.At.Format(time.TimeOnly))
		}
		if to, taken := ids[m.ID]; taken && to != m.To {
			v.note(&v.Wrong, "%s and %s have mails with the same Message-ID", to, m.To)
		}
		ids[m.ID] = m.To
	}
	return out
}

// user looks at one user of one campaign: what the rules ask for, the log, the sink and his bit.
func (v *verdict) user(e *evidence, c int, u user, copies int) {
	o, logged := e.Runs[c].Log[u]
	name, wants := campaigns[c].name, u.wants(c)
	got := o.Outcome.String()
	if r := o.Outcome.Rule(); r != "" {
		got = r
	}
	if !logged {
		v.note(&v.Lost, "%s: user %d stands in no batch", name, u)
		return
	}
	unconfirmed := o.Outcome == campaign.Unconfirmed
	switch {
	case wants == "sent" && copies == 0 && !unconfirmed:
		v.note(&v.Lost, "%s: user %d has no mail, and the log says %s %s", name, u, got, o.Reply)
	case wants == "sent" && !unconfirmed && got != "sent":
		v.note(&v.Wrong, "%s: user %d has the mail, and the log says %s %s", name, u, got, o.Reply)
	case wants == "hard" && (got != "failed" && got != "suppressed" && !unconfirmed || copies > 0):
		v.note(&v.Wrong, "%s: user %d has no address, %d mails, and the log says %s %s", name, u, copies, got, o.Reply)
	case wants != "sent" && wants != "hard" && (got != wants || copies > 0):
		v.note(&v.Wrong, "%s: user %d is to be skipped (%s), has %d mails, and the log says %s", name, u, wants, copies, got)
	}
	doc, there := e.Docs[u]
	if !there {
		v.note(&v.Lost, "user %d is gone", u)
		return
	}
	if u.kind() == unreadable {
		return
	}
	blob, err := bitfield.Decode(doc.Lookup("tpls_sent_at_least_once"))
	has := bitfield.Has(blob, campaigns[c].bit)
	switch {
	case err != nil:
		v.note(&v.Bits, "user %d: %v", u, err)
	case copies > 0 && !has:
		v.note(&v.Bits, "%s: user %d has the mail, and his bit is clear", name, u)
	case u.had(c) && !has:
		v.note(&v.Bits, "%s: user %d has lost the bit that he had before", name, u)
	case copies == 0 && has && !u.had(c) && !unconfirmed && lastClaim(doc) == e.Runs[c].Short: // no claim is taken back that another one has followed
		v.note(&v.Bits, "%s: user %d has no mail, and his bit is set", name, u)
	}
}

// lastClaim is the run that claimed the user last.
func lastClaim(doc bson.Raw) (short campaign.ShortID) {
	if v, err := doc.LookupErr("postbit", "runs"); err == nil {
		_, runs, _ := v.BinaryOK()
		copy(short[:], runs)
	}
	return short
}

// lists holds the list of the unconfirmed against the log.
func (v *verdict) lists(c int, x *runEvidence) {
	listed := map[string]bool{}
	for _, u := range x.Listed {
		listed[u] = true
	}
	v.Listed += len(listed)
	for u, o := range x.Log {
		if o.Outcome != campaign.Unconfirmed {
			continue
		}
		v.Unconfirmed++
		if !listed[users.FormatID(o.User)] {
			v.note(&v.Wrong, "%s: user %d is unconfirmed and not listed", campaigns[c].name, u)
		}
	}
}

// sums holds the counts of the run and the counters against the log.
func (v *verdict) sums(e *evidence, c int, x *runEvidence) {
	log := map[string]int64{}
	for _, o := range x.Log {
		if r := o.Outcome.Rule(); r != "" {
			log[r]++
		} else {
			log[o.Outcome.String()]++
		}
	}
	same := func(what string, got, want int64) {
		if got != want {
			v.note(&v.Counts, "%s: %s says %d, want %d", campaigns[c].name, what, got, want)
		}
	}
	n := x.Counts
	if x.State != string(campaign.RunDone) {
		v.note(&v.Counts, "%s: the run is %s", campaigns[c].name, x.State)
	}
	same("audience", n.Audience, int64(e.Users))
	same("checked", n.Checked, int64(e.Users))
	same("deferred", n.Deferred, 0)
	same("sent", n.Sent, log["sent"])
	same("failed", n.Failed, log["failed"])
	same("unconfirmed", n.Unconfirmed, log["unconfirmed"])
	same("counter sent", x.Counters.Sent, log["sent"])
	same("counter failed", x.Counters.Failed, log["failed"])
	same("counter unconfirmed", x.Counters.Unconfirmed, log["unconfirmed"])
	for _, rule := range campaign.SkipReasons {
		same("skipped "+rule, n.Skipped[rule], log[rule])
		same("counter skipped "+rule, x.Counters.Skipped[rule], log[rule])
	}
}

// hits holds the counters against the requests that were answered. One that was cut may have been counted.
func (v *verdict) hits(e *evidence, c int, x *runEvidence) {
	o, h := x.Counters.Opens, x.Hits
	v.Hits += h.answered
	name := campaigns[c].name
	if n := h.answered - int(o.Hits); n > 0 {
		v.HitsMissing += n
		v.Details = append(v.Details, fmt.Sprintf("%s: %d hits were answered, %d are counted", name, h.answered, o.Hits))
	}
	if n := int(o.Hits) - h.answered - h.unsure; n > 0 {
		v.HitsTwice += n
		v.Details = append(v.Details, fmt.Sprintf("%s: %d hits were answered and %d cut, %d are counted", name, h.answered, h.unsure, o.Hits))
	}
	if sum := o.Human + o.Proxy + o.Prefetch + o.Machine; sum != o.Hits {
		v.note(&v.Counts, "%s: %d hits, and %d by kind", name, o.Hits, sum)
	}
	most := len(h.by)
	for u := range h.maybe {
		if !h.by[u] {
			most++
		}
	}
	if int(o.Unique) < len(h.by) || int(o.Unique) > most {
		v.note(&v.Counts, "%s: unique is %d, %d users had an answered hit and %d at most any", name, o.Unique, len(h.by), most)
	}
	for to := range h.by {
		if _, err := e.Docs[userOf(to)].LookupErr("postbit", "open_last_at"); err != nil {
			v.note(&v.HitsMissing, "%s: user %d has opened, and his document doesn't know", name, userOf(to))
		}
	}
}
