package users

import (
	"maps"
	"time"
)

const (
	maxZoneName = 64   // the longest IANA name has 32
	maxZones    = 2048 // remembered; there are some 600, the rest is room for wrong ones
)

// zone is the location of an IANA name, or nil. Names come from user documents: none is opened as a file that does not
// look like one, and "Local", which to Go is this machine's zone, is no zone of a user.
func (s *Store) zone(name []byte) *time.Location {
	if loc, ok := (*s.zones.Load())[string(name)]; ok {
		return loc
	}
	if !zoneName(name) {
		return nil
	}
	loc, err := time.LoadLocation(string(name))
	if err != nil {
		loc = nil
	}
	for {
		known := s.zones.Load()
		if len(*known) >= maxZones || loc == nil && len(*known) >= maxZones/2 {
			return loc // wrong names must not crowd out the right ones
		}
		more := maps.Clone(*known)
		more[string(name)] = loc
		if s.zones.CompareAndSwap(known, &more) {
			return loc
		}
	}
}

func zoneName(name []byte) bool {
	if len(name) == 0 || len(name) > maxZoneName || string(name) == "Local" {
		return false
	}
	for _, c := range name {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '/', c == '_', c == '-', c == '+':
		default:
			return false
		}
	}
	return name[0] != '/'
}
