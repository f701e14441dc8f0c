package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/rivo/uniseg"

	"postbit/internal/analytics"
	"postbit/internal/campaign"
	"postbit/internal/quantity"
	"postbit/internal/report"
)

// reportPage is a report while it is written: sections, with an empty line between them.
type reportPage struct {
	screen
	out strings.Builder
}

func (p *reportPage) line(text string) { p.out.WriteString(strings.TrimRight(text, " ") + "\n") }

func (p *reportPage) section(title string, lines []string) {
	p.line("")
	p.line(p.title(title))
	for _, l := range lines {
		p.line(l)
	}
}

// printReport draws a report on a screen.
func printReport(w io.Writer, r *report.Report, s screen) error {
	p := &reportPage{screen: s}
	p.line(p.title(p.fit(r.Campaign)) + "  " + r.From + " to " + r.To + " UTC")
	p.runs(r.Runs, r.RunsAll)
	switch {
	case len(r.Days) > 0:
		p.funnel(r)
		p.opens(r)
		p.hours(r)
		p.course(r)
	case len(r.ByMonth.Pages) == 0: // of a site, nothing is kept by day
		p.line("")
		p.line("Nothing was counted in these days.")
	}
	p.byMonth(r)
	_, err := io.WriteString(w, p.out.String())
	return err
}

// fit makes a line of its own from a text from outside.
func (p *reportPage) fit(outside string) string { return p.text(outside, p.width) }

// shownRuns is how many runs the head of a report names.
const shownRuns = 3

func (p *reportPage) runs(runs []report.Run, all int64) {
	for i, r := range runs {
		if i == shownRuns {
			p.line("and " + quantity.Of(all-int64(i), "earlier run") + " of these days")
			return
		}
		line := r.ID + "  " + string(r.State)
		if !r.State.Finished() {
			line += fmt.Sprintf(", %s of %s decided", count(r.Counts.Checked-r.Counts.Deferred), quantity.Of(r.Counts.Audience, "user"))
		}
		if r.Paused != "" {
			line += ", paused: " + r.Paused
		}
		p.line(p.faint(p.fit(line)))
	}
}

func (p *reportPage) funnel(r *report.Report) {
	if r.Decided > 0 {
		l := shares{of: r.Decided}
		l.add("decided", r.Decided, 0)
		for _, reason := range campaign.SkipReasons {
			if n := r.Skipped[reason]; n > 0 {
				l.add("skipped "+reason, n, 1)
			}
		}
		if r.Failed > 0 {
			l.add("failed", r.Failed, 1)
		}
		if r.Unconfirmed > 0 {
			l.add("unconfirmed", r.Unconfirmed, 1)
		}
		l.add("sent", r.Sent, 1)
		p.section("FUNNEL, users", l.lines(p.screen))
	}
	after := shares{of: r.Sent}
	after.add("sent", r.Sent, 0)
	after.add("bounced", r.Bounced, 1)
	after.add("opened (unique)", r.Opens.Unique, 1)
	after.add("clicked", r.Clicked, 1)
	after.add("unsubscribed", r.Unsubscribed, 1)
	if r.Complained > 0 {
		after.add("complained", r.Complained, 1)
	}
	p.section("AFTER THE SEND", after.lines(p.screen))
}

func (p *reportPage) opens(r *report.Report) {
	if r.Opens.Hits == 0 {
		return
	}
	l := shares{of: r.Opens.Hits}
	l.add("hits", r.Opens.Hits, 0)
	for _, k := range []share{{"human", r.Opens.Human, 1}, {"proxy", r.Opens.Proxy, 1}, {"prefetch", r.Opens.Prefetch, 1}, {"machine", r.Opens.Machine, 1}} {
		l.rows = append(l.rows, k)
	}
	p.section("OPENS BY KIND, loads of the pixel", l.lines(p.screen))
}

func (p *reportPage) hours(r *report.Report) {
	labels, any := make([]string, 24), false
	for i, n := range r.Hours.Opened {
		labels[i] = fmt.Sprintf("%02d", i)
		any = any || n > 0
	}
	if any {
		p.section("OPENED BY HOUR OF THE DAY, UTC", p.columns(r.Hours.Opened[:], labels))
	}
}

// course is how it went: by day for a month or so, by month beyond that.
func (p *reportPage) course(r *report.Report) {
	type row struct {
		name    string
		metrics map[string]int64
	}
	var rows []row
	title := "BY DAY"
	if months := r.Months(); len(r.EveryDay()) > 45 {
		title = "BY MONTH"
		for _, m := range months {
			name := m.Month
			if m.Partly {
				name += ", " + m.From[8:] + " to " + m.To[8:]
			}
			rows = append(rows, row{name, m.Metrics})
		}
	} else {
		for _, d := range r.Days {
			rows = append(rows, row{d.Day, d.Metrics})
		}
	}
	if len(rows) < 2 {
		return // the sums have said it
	}
	columns := []struct {
		name, metric string
		width        int
	}{{name: "sent", metric: analytics.Sent}, {name: "hits", metric: analytics.Hits}, {name: "opened", metric: analytics.Opened},
		{name: "unique", metric: analytics.OpenedUnique}, {name: "clicked", metric: analytics.Clicked}}
	names, most := 0, int64(0)
	for _, r := range rows {
		names = max(names, len(r.name))
		most = max(most, r.metrics[analytics.Opened])
	}
	width := names
	for i, c := range columns {
		columns[i].width = len(c.name)
		for _, r := range rows {
			columns[i].width = max(columns[i].width, len(count(r.metrics[c.metric])))
		}
		width += 2 + columns[i].width
	}
	for width > p.width && len(columns) > 1 { // of what a narrow screen has no room for, opened goes last
		i := len(columns) - 1
		if columns[i].metric == analytics.Opened {
			i = 0
		}
		width -= 2 + columns[i].width
		columns = slices.Delete(columns, i, i+1)
	}
	head := pad("", names)
	for _, c := range columns {
		head += "  " + padLeft(c.name, c.width)
	}
	lines := []string{p.faint(head)}
	for _, r := range rows {
		line := pad(r.name, names)
		for _, c := range columns {
			line += "  " + padLeft(count(r.metrics[c.metric]), c.width)
		}
		if room := p.width - width - 3; room >= 8 {
			line += "  " + p.bar(r.metrics[analytics.Opened], most, min(room, 60))
		}
		lines = append(lines, line)
	}
	p.section(title, lines)
}

// delayName says what a bucket of the time to open means: it is named by its lower bound, and the first takes what is smaller
// as well.
func delayName(i int, buckets []report.Bucket) string {
	switch name := buckets[i].Name; name {
	case "5m":
		return "under an hour"
	case "1h":
		return "1 to 6 hours"
	case "6h":
		return "6 to 24 hours"
	case "1d":
		return "1 to 3 days"
	case "3d":
		return "3 to 7 days"
	case "7d":
		return "7 days or more"
	default:
		return name
	}
}

// sizeName does so for sizes in pixels.
func sizeName(i int, buckets []report.Bucket) string {
	known := buckets[:len(buckets)-1] // the last one is unknown
	switch {
	case i >= len(known):
		return buckets[i].Name
	case i == len(known)-1:
		return known[i].Name + " or more"
	}
	next, err := strconv.Atoi(known[i+1].Name)
	switch {
	case err != nil:
		return known[i].Name
	case i == 0:
		return "under " + known[1].Name
	}
	return fmt.Sprintf("%s to %d", known[i].Name, next-1)
}

func (p *reportPage) byMonth(r *report.Report) {
	m := &r.ByMonth
	start := p.out.Len()
	p.buckets("TIME TO OPEN, people", m.Delay, delayName)
	p.buckets("CLIENTS, opens and views", m.Clients, nil)
	p.buckets("DEVICES", m.Devices, nil)
	p.buckets("SYSTEMS", m.Systems, nil)
	p.buckets("SCREENS, width in pixels", m.ScreenWidths, sizeName)
	p.buckets("WINDOWS, width in pixels", m.BrowserWidths, sizeName)
	p.buckets("WINDOWS, height in pixels", m.BrowserHeights, sizeName)
	p.values("TOP LINKS, clicks", m.Links)
	p.values("TOP PAGES, views", m.Pages)
	p.values("TOP REFERRERS", m.Referrers)
	p.values("TOP SEARCH TERMS", m.Terms)
	if rest := p.out.String()[start:]; rest != "" {
		head := p.out.String()[:start]
		p.out.Reset()
		p.out.WriteString(head + "\n")
		p.note(m.Months, m.Exact)
		p.out.WriteString(rest)
	}
}

// note says of which months that is which follows.
func (p *reportPage) note(months []string, exact bool) {
	span := months[0]
	if len(months) > 1 {
		span += " to " + months[len(months)-1]
	}
	text := "Kept by month: " + span
	if !exact {
		text = "Kept by month: the whole of " + span + ", not just the days asked for"
	}
	for len(text) > p.width {
		cut := strings.LastIndexByte(text[:p.width], ' ')
		p.line(p.faint(text[:cut]))
		text = text[cut+1:]
	}
	p.line(p.faint(text))
}

// buckets draws a list of ranges. called gives those their names that have an order, and then all of them are shown but an
// unknown that is empty.
func (p *reportPage) buckets(title string, buckets []report.Bucket, called func(i int, buckets []report.Bucket) string) {
	var l shares
	for i, b := range buckets {
		l.of += b.N
		switch {
		case called != nil && (b.N > 0 || b.Name != analytics.Unknown):
			l.add(called(i, buckets), b.N, 0)
		case b.N > 0:
			l.add(b.Name, b.N, 0)
		}
	}
	if l.of > 0 {
		p.section(title, l.lines(p.screen))
	}
}

func (p *reportPage) values(title string, values []report.Value) {
	if len(values) > 0 {
		p.section(title, p.valueLines(values))
	}
}

// valueLines is a list of counts and values, each with its title behind it where there is room for one.
func (p *reportPage) valueLines(values []report.Value) []string {
	numbers := 0
	for _, v := range values {
		numbers = max(numbers, len(count(v.N)))
	}
	numbers = max(numbers, 6)
	var lines []string
	for _, v := range values {
		room := p.width - numbers - 3
		line := padLeft(count(v.N), numbers) + "  " + p.text(v.Value, room)
		if left := p.width - uniseg.StringWidth(line) - 3; v.Title != "" && left >= 16 {
			line += "  " + p.faint(p.text(v.Title, left))
		}
		lines = append(lines, line)
	}
	return lines
}

// printList draws a page of a top list.
func printList(w io.Writer, l *report.List, s screen) error {
	p := &reportPage{screen: s}
	p.line(p.title(p.fit(l.Campaign+"  "+l.List)) + "  " + strconv.Itoa(len(l.Values)) + " lines")
	p.note(l.Months, l.Exact)
	for _, line := range p.valueLines(l.Values) {
		p.line(line)
	}
	_, err := io.WriteString(w, p.out.String())
	return err
}

func percent(n, of int64) string {
	if of == 0 {
		return ""
	}
	return strconv.FormatFloat(100*float64(n)/float64(of), 'f', 1, 64) + "%"
}

// printCounts shows the funnel of a run.
func printCounts(w io.Writer, c campaign.Counts) error {
	return printFunnel(w, c, []outcome{{"failed", c.Failed}, {"unconfirmed", c.Unconfirmed}, {"sent", c.Sent}})
}

// outcome is what became of users whom no rule held back.
type outcome struct {
	name  string
	users int64
}

func printFunnel(w io.Writer, c campaign.Counts, outcomes []outcome) error {
	t := table{header: []string{"USERS", "", "OF AUDIENCE"}}
	line := func(name string, n int64) { t.add(name, count(n), percent(n, c.Audience)) }
	line("audience", c.Audience)
	line("checked", c.Checked)
	for _, reason := range campaign.SkipReasons {
		if n := c.Skipped[reason]; n > 0 {
			line("  skipped "+reason, n)
		}
	}
	if c.Deferred > 0 {
		line("  deferred", c.Deferred)
	}
	for _, o := range outcomes {
		line("  "+o.name, o.users)
	}
	if c.UnknownZone > 0 {
		t.add("in the default zone", count(c.UnknownZone), "")
	}
	return t.print(w)
}
