package main

import (
	"fmt"

	"postbit/internal/users"
)

// shapeWarnings say what a sample of users lets one expect.
func shapeWarnings(s *users.Shape) []string {
	var out []string
	warn := func(n int, format string) {
		if n > 0 {
			out = append(out, fmt.Sprintf("%d of %d users sampled ", n, s.Sampled)+format)
		}
	}
	warn(s.BadBits, "have a bitfield that can't be read: they get no mail (unreadable)")
	warn(s.BitsNoDate, "have bits but no known date of a mail: inactive and min_gap can't hold for them. Map users.fields.first_at and last_at, or set users.history_before")
	warn(s.BitsNoOpen, "have bits but no known open: a template they have is not sent again (already_sent). Map users.fields.open_first_at if you know their opens")
	warn(s.BadAddress, "have no address that can be mailed (address)")
	warn(s.UnknownZone, "have no known time zone: the default zone is theirs")
	return out
}
