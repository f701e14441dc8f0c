package main

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata"
)

// template asks for fields, links and everything else that a mail of this kind has.
const template = `---
name: comeback
bitIndex: 23
subject: "{{ .User.name }}, it is quiet without you"
from: "Acceptance <news@example.com>"
---
<html><body><h1>Hello {{ .User.name | default "there" }}</h1>
<p>Your plan is {{ .User.plan }}. <a href="{{ link "https://example.com/back?x=1&y=2" }}">Come back</a></p>
<p><a href="{{ unsubscribe }}">unsubscribe</a></p></body></html>
`

const campaign = `name: acceptance
template: comeback
audience: { plan: { $in: [free, pro] }, created_at: { $lt: { $ago: 30d } } }
rules: { window: "%s", inactive_after: 90d, min_gap: 24h }
expires_after: 30m
`

// owned are the other 147 templates of the team, whose bits the seeded users carry.
func owned() string {
	var names []string
	for i := range 148 {
		if i != 23 {
			names = append(names, fmt.Sprintf("\"t%d\": %d", i, i))
		}
	}
	return "{" + strings.Join(names, ", ") + "}"
}

// window is the campaign's, in whole hours.
type window struct{ from, to int }

func (w window) String() string { return fmt.Sprintf("%02d:00-%02d:00", w.from, w.to) }

// clear says that a clock that shows this hour and minute now is more than an hour away from both ends, so that nobody's
// decision depends on when in the run his turn comes.
func (w window) clear(at time.Time) bool {
	m := at.Hour()*60 + at.Minute()
	for _, edge := range []int{w.from * 60, w.to * 60} {
		d := (m - edge + 1440) % 1440
		if d < 65 || d > 1440-65 {
			return false
		}
	}
	return true
}

// chooseWindow takes the first window that is clear for UTC, which is also where users without a known zone are.
func chooseWindow(now time.Time) window {
	for _, w := range []window{{9, 20}, {7, 22}, {11, 18}} {
		if w.clear(now.UTC()) {
			return w
		}
	}
	return window{8, 16}
}

// zones are those of the list that are clear of the window's ends for the time that a run may take.
func (w window) zones(now time.Time) []string {
	var out []string
	for _, name := range []string{
		"UTC", "Europe/Berlin", "Europe/London", "Europe/Lisbon", "Europe/Kyiv", "Europe/Moscow", "Africa/Lagos", "Africa/Nairobi",
		"Asia/Dubai", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Dhaka", "Asia/Bangkok", "Asia/Shanghai", "Asia/Tokyo", "Australia/Adelaide",
		"Australia/Lord_Howe", "Pacific/Auckland", "Pacific/Apia", "Pacific/Honolulu", "America/Anchorage", "America/Los_Angeles",
		"America/Denver", "America/Chicago", "America/New_York", "America/Santiago", "America/St_Johns", "America/Sao_Paulo", "Atlantic/Azores",
	} {
		loc, err := time.LoadLocation(name)
		if err == nil && w.clear(now.In(loc)) && w.clear(now.Add(35*time.Minute).In(loc)) {
			out = append(out, name)
		}
	}
	return out
}
