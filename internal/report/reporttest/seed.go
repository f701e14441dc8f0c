// Package reporttest fills a store with counters that tests of reports can be held to.
package reporttest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/clock"
	"postbit/internal/report"
)

// Now is the time at which reports are asked for: the evening of the fifth day after the send.
var Now = time.Date(2026, 12, 4, 18, 0, 0, 0, time.UTC)

// Campaigns are the runs of each campaign that is known, the latest first.
type Campaigns map[string][]campaign.Run

// Get knows the names alone.
func (c Campaigns) Get(_ context.Context, name string) (*campaign.Campaign, error) {
	if _, ok := c[name]; !ok {
		return nil, fmt.Errorf("campaign %s: %w", name, campaign.ErrNotFound)
	}
	return &campaign.Campaign{Name: name}, nil
}

// RunsBetween gives the first ones of the range.
func (c Campaigns) RunsBetween(_ context.Context, name string, from, until time.Time, limit int) ([]campaign.Run, int64, error) {
	var in []campaign.Run
	for _, r := range c[name] {
		if !r.Slot.Before(from) && r.Slot.Before(until) {
			in = append(in, r)
		}
	}
	return in[:min(limit, len(in))], int64(len(in)), nil
}

// Seed counts a run of winback that began on 30 November and goes on in December, and one of september from long before. The
// campaign idle is known and has counted nothing; shop is a site. Some of what came from outside is hostile.
func Seed(t testing.TB, db *mongo.Database) report.Sources {
	t.Helper()
	s := seed{TB: t, db: db, day: time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)}
	s.sends()
	s.opens()
	s.ranges()
	s.apply()
	slot := s.day.Add(9 * time.Hour)
	return report.Sources{
		Counters: analytics.NewReader(db),
		Sites:    map[string][]string{"shop": {"shop.example.com"}},
		Runs: Campaigns{
			"idle": nil,
			"winback": {
				{ID: "winback@2026-12-04T17:00:00Z", Campaign: "winback", Slot: Now.Add(-time.Hour), State: campaign.RunSending, Paused: "421 \x1b[31mtry later",
					Counts: campaign.Counts{Audience: 2000, Checked: 700, Sent: 500, Deferred: 200}},
				{ID: "winback@2026-11-30T09:00:00Z", Campaign: "winback", Slot: slot, State: campaign.RunDone,
					Counts: campaign.Counts{Audience: 10000, Checked: 10000, Sent: 6200, Failed: 70, Unconfirmed: 5, Skipped: map[string]int64{"suppressed": 925}}},
				{ID: "winback@2026-09-01T09:00:00Z", Campaign: "winback", Slot: slot.AddDate(0, -3, 0), State: campaign.RunDone},
			},
		},
	}
}

type seed struct {
	testing.TB
	db     *mongo.Database
	day    time.Time // the first of the run
	incs   []analytics.Increment
	tally  analytics.RangeTally
	values []analytics.Seen
}

func (s *seed) count(metric string, day, hour int, n int64) {
	s.incs = append(s.incs, analytics.Day("winback", metric, s.day.AddDate(0, 0, day).Add(time.Duration(hour)*time.Hour+7*time.Minute), n)...)
}

func (s *seed) sends() {
	s.count(analytics.Sent, 0, 9, 6000)
	s.count(analytics.Sent, 1, 8, 200)
	s.count(analytics.Sent, 4, 17, 500)
	s.count("failed", 0, 9, 70)
	s.count("bounced", 0, 9, 64)
	s.count("unconfirmed", 0, 9, 5)
	for reason, n := range map[string]int64{"already_sent": 1400, "inactive": 1300, "suppressed": 925, "min_gap": 60, "expired": 40} {
		s.count(analytics.Skipped+reason, 0, 9, n)
	}
}

func (s *seed) opens() {
	for day, share := range []int64{10, 4, 2, 1} {
		for hour := 9; hour < 24; hour++ {
			n := share * int64(24-hour) * int64(1+hour%3)
			s.count(analytics.OpenedKind+"human", day, hour, n)
			s.count(analytics.OpenedKind+"proxy", day, hour, n/2)
			s.count(analytics.OpenedKind+"machine", day, hour, n/4)
			s.count(analytics.Hits, day, hour, n+n/2+n/4)
			s.count(analytics.Opened, day, hour, n+n/2)
			s.count(analytics.OpenedUnique, day, hour, (n+n/2)/2)
		}
		s.count(analytics.OpenedKind+"prefetch", day, 10, 90*share)
		s.count(analytics.Hits, day, 10, 90*share)
		s.count(analytics.Opened, day, 10, 90*share)
		s.count(analytics.OpenedUnique, day, 10, 90*share)
		s.count(analytics.Clicked, day, 12, 40*share)
		s.count(analytics.Opened, day, 12, 40*share)
	}
	s.count(analytics.Unsubscribed, 1, 12, 9)
	s.incs = append(s.incs, analytics.Day("september", analytics.Sent, s.day.AddDate(0, -3, 0), 100)...)
}

func (s *seed) ranges() {
	november, december := s.day, s.day.AddDate(0, 0, 1)
	add := func(sid string, at time.Time, field, bucket string, n int) {
		for range n {
			s.tally.Add(sid, at, field, bucket)
		}
	}
	for i, bucket := range []string{"5m", "1h", "6h", "1d"} {
		add("winback", november, analytics.DelayField, bucket, 40-10*i)
		add("winback", december, analytics.DelayField, bucket, 4-i)
	}
	for name, n := range map[string]int{"Apple Mail": 60, "Gmail": 45, "Outlook": 45, analytics.Unknown: 70, "Thunderbird": 1} {
		add("winback", november, analytics.ClientField, name, n)
	}
	add("winback", december, analytics.ClientField, "Gmail", 30)
	add("winback", november, analytics.DeviceField, "mobile", 100)
	add("winback", november, analytics.DeviceField, "desktop", 50)
	add("winback", november, analytics.OSField, "iOS", 100)
	add("shop", december, analytics.ScreenWidth, "320", 2)
	add("shop", december, analytics.ScreenWidth, "1280", 7)
	add("shop", december, analytics.ScreenWidth, analytics.Unknown, 1)
	see := func(kind analytics.ValueKind, sid, value, title string, at time.Time, n int) {
		for range n {
			s.values = append(s.values, analytics.Seen{Kind: kind, SID: sid, Value: value, Title: title, At: at})
		}
	}
	see(analytics.Links, "winback", "https://example.com/back", "", november, 5)
	see(analytics.Links, "winback", "https://example.com/back", "", december, 3)
	see(analytics.Links, "winback", "https://example.com/"+long, "", november, 2)
	see(analytics.Links, "winback", `=HYPERLINK("http://evil.example","x")`, "", november, 1)
	see(analytics.Pages, "shop", "https://shop.example.com/schöne-neue-welt", "Schöne neue Welt 新しい世界", december, 4)
	see(analytics.Pages, "shop", Hostile, "\x1b]0;title\x07+SUM(A1)", december, 2)
	see(analytics.Terms, "shop", "-2+3", "", december, 1)
	see(analytics.Referrers, "shop", "@evil.example", "", december, 1)
}

// Hostile is a page as another service may have written it, with what makes terminals do things: ESC, CSI in one character, a
// new line, a change of direction.
const Hostile = "+cmd|' /C calc'!A0\x1b[2J\u009b31m\r\n\u202egpj.exe"

const long = "a-page-whose-address-goes-on-and-on/and-on/and-on/and-on/and-on/and-on/and-on/and-on/and-on/until-it-fits-on-no-line"

func (s *seed) apply() {
	clk := clock.At(Now)
	w := analytics.NewWriter(s.db, clk, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	}()
	values, err := analytics.NewValues(s.db, clk).Increments(ctx, s.values)
	if err != nil {
		s.Fatal(err)
	}
	if err := w.Apply(ctx, "seed", append(append(s.incs, s.tally.Increments()...), values...)); err != nil {
		s.Fatal(err)
	}
}
