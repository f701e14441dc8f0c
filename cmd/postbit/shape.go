package main

import (
	"fmt"

	"postbit/internal/quantity"
	"postbit/internal/users"
)

// shapeWarnings say what a sample of users lets one expect of the rules.
func shapeWarnings(s *users.Shape) []string {
	noOpens := 0
	if s.BitsNoOpen == s.HasBits { // nobody ever opened a mail: it is more likely that opens are kept elsewhere
		noOpens = s.BitsNoOpen
	}
	return warnings(s,
		warning{s.BadBits, "a bitfield that can't be read: they get no mail (unreadable)"},
		warning{s.BitsNoDate, "bits but no known date of a mail: inactive and min_gap can't hold for them. Map users.fields.first_at and last_at, or set users.history_before"},
		warning{noOpens, "bits but no known open: templates they have are not sent again (already_sent). Map users.fields.open_first_at if you know their opens"},
	)
}

// addressWarnings say what else it shows.
func addressWarnings(s *users.Shape) []string {
	return warnings(s,
		warning{s.BadAddress, "no address that can be mailed (address)"},
		warning{s.UnknownZone, "no known time zone: the default zone is theirs"},
	)
}

type warning struct {
	n    int
	text string // what they have
}

func warnings(s *users.Shape, all ...warning) (out []string) {
	for _, w := range all {
		if w.n > 0 {
			out = append(out, fmt.Sprintf("%d of %s sampled %s %s", w.n, quantity.Of(s.Sampled, "user"), quantity.Verb(w.n, "has", "have"), w.text))
		}
	}
	return out
}
