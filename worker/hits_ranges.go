package worker

import (
	"context"

	"postbit/internal/analytics"
	"postbit/internal/track"
)

// HitValues gives each value that was seen its document, and tells what is to be added to it.
type HitValues interface {
	Increments(ctx context.Context, seen []analytics.Seen) ([]analytics.Increment, error)
}

// countRanges counts what has endless variety by ranges: of the loads of a pixel who made them, with what program if it was a
// person, and how long after the send a person saw the mail first; of the pages of sites sizes and browsers. Mails count for
// their campaign and for all.
func (c *chunk) countRanges() {
	for i := range c.hits {
		hit := &c.hits[i]
		if hit.Kind == track.View {
			c.viewRanges(hit)
			continue
		}
		sids := []string{analytics.All}
		if run := c.runs[i]; run != nil && run.campaign != "" {
			sids = append(sids, run.campaign)
		}
		for _, sid := range sids {
			if hit.Kind == track.Open {
				c.openRanges(sid, hit)
			}
			if c.first[i] {
				c.ranges.Add(sid, hit.At, analytics.DelayField, analytics.DelayBucket(hit.At.Sub(hit.SentAt)))
			}
		}
	}
}

func (c *chunk) openRanges(sid string, hit *track.Hit) {
	c.ranges.Add(sid, hit.At, analytics.KindField, string(hit.OpenKind()))
	if !c.person(hit) {
		return // what a scanner calls itself says nothing about readers
	}
	agent := analytics.ParseAgent(hit.UserAgent)
	if hit.OpenKind() == track.Prefetch { // of a mail's pixel that is Apple's privacy proxy, which nobody else's mail program uses
		agent.Client = analytics.AppleMail
	}
	c.agentRanges(sid, hit, agent)
}

func (c *chunk) agentRanges(sid string, hit *track.Hit, agent analytics.Agent) {
	c.ranges.Add(sid, hit.At, analytics.ClientField, agent.Client)
	c.ranges.Add(sid, hit.At, analytics.DeviceField, agent.Device)
	c.ranges.Add(sid, hit.At, analytics.OSField, agent.OS)
}

func (c *chunk) viewRanges(hit *track.Hit) {
	v := &hit.View
	c.ranges.Add(v.Site, hit.At, analytics.ScreenWidth, analytics.SizeBucket(analytics.ScreenWidth, v.ScreenWidth))
	c.ranges.Add(v.Site, hit.At, analytics.BrowserWidth, analytics.SizeBucket(analytics.BrowserWidth, v.BrowserWidth))
	c.ranges.Add(v.Site, hit.At, analytics.BrowserHeight, analytics.SizeBucket(analytics.BrowserHeight, v.BrowserHeight))
	c.ranges.Add(v.Site, hit.At, analytics.KindField, string(hit.OpenKind()))
	c.agentRanges(v.Site, hit, analytics.ParseAgent(hit.UserAgent))
}

// findValues collects what has a document for each value: links that were followed, for their campaign, and pages,
// referrers and search terms of sites.
func (c *chunk) findValues(ctx context.Context) error {
	if c.h.cfg.Values == nil {
		return nil
	}
	var seen []analytics.Seen
	for i := range c.hits {
		switch hit := &c.hits[i]; hit.Kind {
		case track.Click:
			if run := c.runs[i]; run != nil && run.campaign != "" {
				seen = append(seen, analytics.Seen{Kind: analytics.Links, SID: run.campaign, Value: analytics.NormaliseURL(hit.URL), At: hit.At})
			}
		case track.View:
			v := &hit.View
			seen = append(seen,
				analytics.Seen{Kind: analytics.Pages, SID: v.Site, Value: analytics.NormaliseURL(hit.URL), Title: analytics.NormaliseText(v.Title, analytics.MaxTitleBytes), At: hit.At},
				analytics.Seen{Kind: analytics.Referrers, SID: v.Site, Value: analytics.NormaliseURL(v.Referrer), At: hit.At},
				analytics.Seen{Kind: analytics.Terms, SID: v.Site, Value: analytics.SearchTerm(v.Referrer), At: hit.At})
		}
	}
	var err error
	c.values, err = c.h.cfg.Values.Increments(ctx, seen)
	return err
}
