package returned

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.uber.org/goleak"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/minimongo/mongotest"
	"postbit/internal/track"
	"postbit/internal/users"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is an intake on a database, with the run whose mails come back.
type desk struct {
	testing.TB
	ctx   context.Context
	db    *mongo.Database
	clk   *clock.Clock
	users *users.Store
	cfg   Config
	log   bytes.Buffer
}

func openDesk(t testing.TB) *desk {
	t.Helper()
	db := mongotest.DB(t)
	d := &desk{TB: t, ctx: t.Context(), db: db, clk: clock.At(start.Add(time.Hour))}
	log := slog.New(slog.NewTextHandler(&d.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if d.users, err = users.New(db.Collection("users"), users.Config{}); err != nil {
		t.Fatal(err)
	}
	runs := campaign.NewStore(db)
	run := &campaign.Run{ID: "winback@2026-12-01T09:00:00Z", Short: runID, Campaign: "winback", Slot: start, State: campaign.RunDone}
	if err := errors.Join(runs.EnsureIndexes(d.ctx), runs.InsertRun(d.ctx, run)); err != nil {
		t.Fatal(err)
	}
	writer := analytics.NewWriter(db, d.clk, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	var counting sync.WaitGroup
	counting.Go(func() { _ = writer.Run(ctx) })
	t.Cleanup(func() { stop(); counting.Wait() })
	d.cfg = Config{Keys: keys(t), Users: d.users, Runs: runs, Counters: writer, Clock: d.clk, Log: log}
	return d
}

func (d *desk) insert(id int, email string, more ...bson.E) {
	d.Helper()
	doc := append(bson.D{{Key: "_id", Value: id}, {Key: "email", Value: email}}, more...)
	if _, err := d.db.Collection("users").InsertOne(d.ctx, doc); err != nil {
		d.Fatal(err)
	}
}

func mark(status string, since time.Time) bson.E {
	return bson.E{Key: "postbit", Value: bson.D{{Key: "status", Value: status}, {Key: "status_at", Value: since}}}
}

func (d *desk) status(id int) string {
	d.Helper()
	raw, err := d.db.Collection("users").FindOne(d.ctx, bson.D{{Key: "_id", Value: id}}).Raw()
	if err != nil {
		d.Fatal(err)
	}
	s, _ := raw.Lookup("postbit", "status").StringValueOK()
	return s
}

// counted is what was counted for a campaign and for all, of every metric.
func (d *desk) counted() map[string]int64 {
	d.Helper()
	cur, err := d.db.Collection("days.2026.12").Find(d.ctx, bson.D{})
	if err != nil {
		d.Fatal(err)
	}
	var days []struct {
		ID    string `bson:"_id"`
		Daily int64  `bson:"daily"`
	}
	if err := cur.All(d.ctx, &days); err != nil {
		d.Fatal(err)
	}
	sum := map[string]int64{}
	for _, day := range days {
		_, metric, _ := strings.Cut(day.ID, "/")
		sum[metric] += day.Daily
	}
	return sum
}

func (d *desk) take(file, token string) Result {
	d.Helper()
	res, err := NewIntake(d.cfg).Take(d.ctx, readSample(d, file, token))
	if err != nil {
		d.Fatal(err)
	}
	return res
}

// The heart of it: what comes of a mail, by what it says, who signed it, and who the user is now.
func TestTake(t *testing.T) {
	otherKeys, err := track.ParseKeys("b:" + strings.Repeat("QUFB", 16))
	if err != nil {
		t.Fatal(err)
	}
	good := token(t, 7)
	of := func(k *track.Keys, kind track.Kind) string {
		return k.Sign(track.Token{Kind: kind, Run: runID, User: id(t, 7), SentAt: start})
	}
	unknownRun := keys(t).Sign(track.Token{Kind: track.Unsubscribe, Run: [8]byte{9}, User: id(t, 7), SentAt: start})
	recently, longAgo := start.Add(-24*time.Hour), start.Add(-30*24*time.Hour)
	for _, c := range []struct {
		name    string
		file    string
		token   string
		user    bson.E // of user 7, beside his address
		address string // of user 7; "": gil's
		trust   bool
		outcome Outcome
		status  string
		changed bool
		count   string // what is counted once, for the campaign and for all
	}{
		{name: "a hard bounce", file: "postfix-hard.eml", outcome: Bounced, status: "bounced", changed: true, count: "bounced"},
		{name: "a complaint", file: "yahoo-complaint.eml", outcome: Complained, status: "complained", changed: true, count: "complained"},
		{name: "a complaint that hides the address", file: "outlook-complaint-redacted.eml", outcome: Complained, status: "complained", changed: true, count: "complained"},
		{name: "an opt-out", file: "opt-out.eml", outcome: Unsubscribed, status: "unsubscribed", changed: true, count: "unsubscribed"},
		{name: "a full mailbox", file: "postfix-full.eml", outcome: Soft},
		{name: "gave up waiting", file: "postfix-expired.eml", outcome: Soft},
		{name: "a policy", file: "exim-policy.eml", outcome: Policy},
		{name: "a delay", file: "postfix-delayed.eml", outcome: Noticed},
		{name: "out of office", file: "outlook-out-of-office.eml", outcome: AutoReplied},
		{name: "a read receipt", file: "read-receipt.eml", outcome: Noticed},
		{name: "not spam", file: "not-spam.eml", outcome: Reported},
		{name: "fraud", file: "fraud.eml", outcome: Reported},
		{name: "a report that a person forwards", file: "forwarded-report.eml", outcome: Ignored},
		{name: "a person's reply that quotes the mail", file: "ordinary.eml", outcome: Ignored},
		{name: "in other letters", file: "exchange-hard.eml", outcome: Bounced, status: "bounced", changed: true, count: "bounced"},
		{name: "the address has another case and an IDN", file: "smtputf8-hard.eml", address: "Zoë@KÖLN.example", outcome: Bounced, status: "bounced", changed: true, count: "bounced"},

		{name: "the user has another address now", file: "postfix-hard.eml", address: "gil@new.example", outcome: OtherAddress},
		{name: "the user has no address now", file: "postfix-hard.eml", address: "nobody", outcome: OtherAddress},
		{name: "he has another address, and complained", file: "yahoo-complaint.eml", address: "gil@new.example", outcome: Complained, status: "complained", changed: true, count: "complained"},
		{name: "it bounced where the mail was forwarded to", file: "forwarded-elsewhere.eml", outcome: OtherAddress},
		{name: "one of the mailboxes behind the address took it", file: "alias-partly.eml", outcome: Noticed},

		{name: "no token", file: "postfix-hard.eml", token: "none", outcome: Unverified},
		{name: "a token that was changed", file: "postfix-hard.eml", token: good[:len(good)-1] + "A", outcome: Unverified},
		{name: "another's key", file: "postfix-hard.eml", token: of(otherKeys, track.Unsubscribe), outcome: Unverified},
		{name: "the token of a pixel", file: "postfix-hard.eml", token: of(keys(t), track.Open), outcome: Unverified},
		{name: "a complaint without a token", file: "yahoo-complaint.eml", token: "none", outcome: Unverified},
		{name: "a soft bounce without a token", file: "postfix-full.eml", token: "none", outcome: Soft},
		{name: "a run that nobody remembers", file: "postfix-hard.eml", token: unknownRun, outcome: Bounced, status: "bounced", changed: true, count: "all alone"},

		{name: "the address is trusted", file: "postfix-hard.eml", token: "none", trust: true, outcome: Bounced, status: "bounced", changed: true},
		{name: "the address of a complaint is trusted", file: "yahoo-complaint.eml", token: "none", trust: true, outcome: Complained, status: "complained", changed: true},
		{name: "trusted, and nobody has it", file: "postfix-hard.eml", token: "none", trust: true, address: "gil@new.example", outcome: Gone},
		{name: "trusted, and hidden", file: "outlook-complaint-redacted.eml", token: "none", trust: true, outcome: Unverified},
		{name: "trust does not outdo a token", file: "forwarded-elsewhere.eml", trust: true, outcome: OtherAddress},

		{name: "no room in the document", file: "postfix-hard.eml", user: bson.E{Key: "postbit", Value: "ours"}, outcome: Refused, count: "bounced"},
		{name: "he complained long ago", file: "postfix-hard.eml", user: mark("complained", longAgo), outcome: Bounced, status: "complained"},
		{name: "he unsubscribed yesterday", file: "postfix-hard.eml", user: mark("unsubscribed", recently), outcome: Bounced, status: "unsubscribed", count: "bounced"},
		{name: "he bounced long ago, and complains", file: "yahoo-complaint.eml", user: mark("bounced", longAgo), outcome: Complained, status: "complained", changed: true, count: "complained"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := openDesk(t)
			d.cfg.TrustAddresses = c.trust
			if c.token == "" {
				c.token = good
			}
			if c.address == "" {
				c.address = gil
			}
			var more []bson.E
			if c.user.Key != "" {
				more = append(more, c.user)
			}
			d.insert(7, c.address, more...)
			d.insert(8, "other@post.example")
			for nth := range 2 { // a second reading changes nothing and counts nothing
				res := d.take(c.file, c.token)
				if res.Outcome != c.outcome || res.Changed != (c.changed && nth == 0) {
					t.Errorf("reading %d: %+v", nth+1, res)
				}
				if got := d.status(7); got != c.status {
					t.Errorf("reading %d: the status is %q", nth+1, got)
				}
			}
			if got := d.status(8); got != "" {
				t.Errorf("another user is %s", got)
			}
			want := map[string]int64{}
			switch c.count {
			case "":
			case "all alone":
				want["all.bounced"] = 1
			default:
				want["all."+c.count], want["winback."+c.count] = 1, 1
			}
			got := d.counted()
			if len(got) != len(want) {
				t.Errorf("counted %v, want %v", got, want)
			}
			for metric, n := range want {
				if got[metric] != n {
					t.Errorf("counted %v, want %v", got, want)
				}
			}
			if log := d.log.String(); c.token != "none" && strings.Contains(log, c.token[:20]) {
				t.Errorf("a token in the log: %s", log)
			}
		})
	}
}

func TestKeysRotate(t *testing.T) {
	d := openDesk(t)
	d.insert(7, gil)
	var err error
	if d.cfg.Keys, err = track.ParseKeys("new:" + strings.Repeat("QUFB", 16) + ",a:" + secret); err != nil {
		t.Fatal(err)
	}
	if res := d.take("postfix-hard.eml", token(t, 7)); res.Outcome != Bounced || !res.Changed {
		t.Errorf("%+v", res)
	}
}

// Whoever has a mail of his own can say of any address that it bounced, and suppresses nobody but himself.
func TestATokenOfOneUserIsNoOthers(t *testing.T) {
	d := openDesk(t)
	d.insert(7, gil)
	d.insert(666, "mallory@post.example")
	if res := d.take("postfix-hard.eml", token(t, 666)); res.Outcome != OtherAddress {
		t.Errorf("%+v", res)
	}
	if a, b := d.status(7), d.status(666); a != "" || b != "" {
		t.Errorf("%q, %q", a, b)
	}
}

func TestSeveralUsersOfATrustedAddress(t *testing.T) {
	d := openDesk(t)
	d.cfg.TrustAddresses = true
	d.insert(7, gil)
	d.insert(9, gil)
	if res := d.take("postfix-hard.eml", "none"); res.Outcome != Bounced || len(res.Users) != 2 {
		t.Errorf("%+v", res)
	}
	if a, b := d.status(7), d.status(9); a != "bounced" || b != "bounced" {
		t.Errorf("%q, %q", a, b)
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	d := openDesk(t)
	d.cfg.DryRun = true
	d.insert(7, gil)
	for range 2 {
		if res := d.take("postfix-hard.eml", token(t, 7)); res.Outcome != Bounced || !res.Changed || res.Campaign != "winback" {
			t.Errorf("%+v", res)
		}
	}
	if got := d.status(7); got != "" || len(d.counted()) > 0 {
		t.Errorf("%q, %v", got, d.counted())
	}
}

func TestTheSameMailManyTimesAtOnce(t *testing.T) {
	d := openDesk(t)
	d.insert(7, gil)
	in, r := NewIntake(d.cfg), readSample(t, "postfix-hard.eml", token(t, 7))
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if res, err := in.Take(d.ctx, r); err != nil || res.Outcome != Bounced {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
	all.Wait()
	if got := d.counted(); d.status(7) != "bounced" || got["winback.bounced"] != 1 {
		t.Errorf("the status is %q, counted %v", d.status(7), got)
	}
}

// failing users can't be written to the first time.
type failing struct {
	*users.Store
	left int
}

func (f *failing) SuppressMany(ctx context.Context, list []users.Suppression) ([]users.Merged, error) {
	if f.left--; f.left >= 0 {
		return nil, errors.New("pulled the plug")
	}
	return f.Store.SuppressMany(ctx, list)
}

func TestTheDatabaseGoesAwayInBetween(t *testing.T) {
	d := openDesk(t)
	d.insert(7, gil)
	d.cfg.Users = &failing{d.users, 1}
	in, r := NewIntake(d.cfg), readSample(t, "postfix-hard.eml", token(t, 7))
	if _, err := in.Take(d.ctx, r); err == nil {
		t.Fatal("no error")
	}
	if res, err := in.Take(d.ctx, r); err != nil || res.Outcome != Bounced || !res.Changed {
		t.Errorf("%+v, %v", res, err)
	}
	if got := d.counted(); got["winback.bounced"] != 1 || d.status(7) != "bounced" {
		t.Errorf("counted %v, the status is %q", got, d.status(7))
	}
}

// Long after, when ids are forgotten, the mark itself says that this is an old story.
func TestReadAgainAMonthLater(t *testing.T) {
	d := openDesk(t)
	d.insert(7, gil)
	d.take("postfix-hard.eml", token(t, 7))
	d.clk.Advance(20 * 24 * time.Hour)
	if _, err := d.db.Collection(analytics.AppliedCollection).DeleteMany(d.ctx, bson.D{}); err != nil {
		t.Fatal(err)
	}
	if res := d.take("postfix-hard.eml", token(t, 7)); res.Outcome != Bounced || res.Changed {
		t.Errorf("%+v", res)
	}
	if got := d.counted(); got["winback.bounced"] != 1 {
		t.Errorf("counted %v", got)
	}
}
