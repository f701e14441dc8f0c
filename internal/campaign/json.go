package campaign

import (
	"encoding/json"
	"strings"
	"time"
)

// specJSON is a Spec with the keys and the spellings of its file.
type specJSON struct {
	Name         string          `json:"name"`
	Template     string          `json:"template"`
	Audience     json.RawMessage `json:"audience"`
	Schedule     *scheduleJSON   `json:"schedule,omitempty"`
	Rules        rulesJSON       `json:"rules"`
	Limits       limitsJSON      `json:"limits"`
	ExpiresAfter string          `json:"expires_after"`
	MisfireGrace string          `json:"misfire_grace"`
}

type scheduleJSON struct {
	Cron     string    `json:"cron,omitempty"`
	At       time.Time `json:"at,omitzero"`
	Timezone string    `json:"timezone"`
}

type rulesJSON struct {
	Window        string `json:"window,omitempty"`
	Days          string `json:"days,omitempty"`
	InactiveAfter string `json:"inactive_after,omitempty"`
	MinGap        string `json:"min_gap,omitempty"`
}

type limitsJSON struct {
	Rate      []string            `json:"rate,omitempty"`
	PerDomain map[string][]string `json:"per_domain,omitempty"`
}

// MarshalJSON writes the spec as its file would be written, defaults included.
func (s Spec) MarshalJSON() ([]byte, error) {
	out := specJSON{
		Name:         s.Name,
		Template:     s.Template,
		Audience:     json.RawMessage(s.Audience),
		ExpiresAfter: FormatDuration(s.ExpiresAfter),
		MisfireGrace: FormatDuration(s.MisfireGrace),
		Limits:       limitsJSON{Rate: rateTexts(s.Limits.Rate)},
	}
	if s.Audience == "" { // the run of a single mail
		out.Audience = json.RawMessage("{}")
	}
	if !s.Schedule.ByHand() {
		zone := s.Schedule.Timezone
		if zone == "" {
			zone = "UTC"
		}
		out.Schedule = &scheduleJSON{Cron: s.Schedule.Cron, At: s.Schedule.At, Timezone: zone}
	}
	if w := s.Rules.Window; w.From != w.To {
		out.Rules.Window, _, _ = strings.Cut(w.String(), " ")
	}
	if d := s.Rules.Window.Days; d != 0 {
		out.Rules.Days = d.String()
	}
	if s.Rules.InactiveAfter > 0 {
		out.Rules.InactiveAfter = FormatDuration(s.Rules.InactiveAfter)
	}
	if s.Rules.MinGap > 0 {
		out.Rules.MinGap = FormatDuration(s.Rules.MinGap)
	}
	for _, d := range s.Limits.PerDomain {
		if out.Limits.PerDomain == nil {
			out.Limits.PerDomain = map[string][]string{}
		}
		out.Limits.PerDomain[d.Domain] = rateTexts(d.Rate)
	}
	return json.Marshal(out)
}

func rateTexts(rates []Rate) []string {
	texts := make([]string, len(rates))
	for i, r := range rates {
		texts[i] = r.String()
	}
	return texts
}
