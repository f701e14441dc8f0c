package campaign

import (
	"context"
	"fmt"
	"time"

	"postbit/internal/quantity"
	"postbit/rules"
)

// warnings are what is allowed, and is probably not what was meant.
func (f *file) warnings(ctx context.Context, o ApplyOptions) ([]string, error) {
	s := &f.spec
	list := []string{}
	warn := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if !s.Schedule.At.IsZero() && !s.Schedule.At.After(o.Now) {
		warn("schedule.at %s has passed: it will never fire", s.Schedule.At.Format(time.RFC3339))
	}
	if shut := longestShut(s.Rules.Window); shut > s.ExpiresAfter {
		warn("window and days can stay shut for %s, longer than expires_after (%s): whoever falls into that is skipped as expired",
			FormatDuration(shut), FormatDuration(s.ExpiresAfter))
	}
	if s.Schedule.Recurring() {
		t, err := o.Templates.TemplateInfo(ctx, s.Template)
		if err != nil {
			return nil, fmt.Errorf("campaign %s: template %s: %w", s.Name, s.Template, err)
		}
		if t.Repeat == rules.UntilFirstOpen {
			warn("the schedule recurs and template %s is sent until_first_open: whoever has opened any mail gets it at every firing", s.Template)
		}
	}
	text, err := f.audienceWarning(ctx, o)
	if err != nil {
		return nil, err
	}
	if text != "" {
		warn("%s", text)
	}
	return list, nil
}

// audienceWarning asks MongoDB for the audience, no further than the limits can serve it.
func (f *file) audienceWarning(ctx context.Context, o ApplyOptions) (string, error) {
	if o.Count == nil {
		return "", nil
	}
	s := &f.spec
	q, err := s.AudienceQuery(o.Now)
	if err != nil {
		return "", err
	}
	most, slowest := capacity(s.Limits.Rate, s.ExpiresAfter)
	limit := int64(1)
	if slowest != (Rate{}) {
		limit = most + 1
	}
	n, err := o.Count(ctx, q, limit)
	switch {
	case err != nil && unanswered(err):
		return "", fmt.Errorf("campaign %s: count the audience: %w", s.Name, err)
	case err != nil:
		return "", FileErrors{{File: f.file, Line: f.lines["audience"], Key: "audience", Text: err.Error()}}
	case n == 0:
		return "the audience is empty now", nil
	case slowest != (Rate{}) && n > most:
		return fmt.Sprintf("limits.rate %s lets through at most %s within expires_after (%s), and the audience is larger: the rest is skipped as expired",
			slowest, quantity.Of(most, "mail"), FormatDuration(s.ExpiresAfter)), nil
	}
	return "", nil
}

// capacity is how many mails the rates let through within d, and the rate that decides; no rates: no limit.
func capacity(rates []Rate, d time.Duration) (most int64, slowest Rate) {
	for _, r := range rates {
		windows := int64((d + r.Per - 1) / r.Per)
		if n := r.N * windows; slowest == (Rate{}) || n < most {
			most, slowest = n, r
		}
	}
	return most, slowest
}

// longestShut is the longest time that a window and its days stay shut on one wall clock.
func longestShut(w rules.Window) time.Duration {
	const week = 7 * 24 * 60
	var open [week]bool
	from, to := int(w.From), int(w.To)
	if to <= from {
		to += 24 * 60 // across midnight, or the whole day
	}
	for d := range 7 {
		if w.Days != 0 && w.Days&(1<<d) == 0 {
			continue
		}
		for m := from; m < to; m++ {
			open[(d*24*60+m)%week] = true
		}
	}
	longest, run := 0, 0
	for m := range 2 * week { // twice around, for what spans the end of the week
		run++
		if open[m%week] {
			run = 0
		}
		longest = max(longest, run)
	}
	return time.Duration(longest) * time.Minute
}
