package track

import (
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/net/idna"
)

// Sites are the sites whose pages are counted, each with the hosts that it lives on.
type Sites struct{ hosts map[string][]string }

// NewSites takes hosts by site: example.com is that host, *.example.com any below it, * any at all. nil: no site.
func NewSites(hosts map[string][]string) *Sites {
	s := &Sites{hosts: make(map[string][]string, len(hosts))}
	for site, list := range hosts {
		for _, h := range list {
			if below, ok := strings.CutPrefix(h, "*."); ok {
				h = "*." + spellHost(below)
			} else if h != "*" {
				h = spellHost(h)
			}
			s.hosts[site] = append(s.hosts[site], h)
		}
	}
	return s
}

// known says whether there is such a site.
func (s *Sites) known(site string) bool { return s != nil && len(s.hosts[site]) > 0 }

// lives says whether a host is one of the site's. anywhere is what * is worth: a site that may be anywhere has no host of its own.
func (s *Sites) lives(site, host string, anywhere bool) bool {
	if host == "" {
		return false
	}
	for _, h := range s.hosts[site] {
		below, wild := strings.CutPrefix(h, "*.")
		switch {
		case h == "*" && anywhere, h == host, wild && strings.HasSuffix(host, "."+below):
			return true
		}
	}
	return false
}

// hostOf is the host of a web address as hosts are compared, without its port; "" where it is none.
func hostOf(address string) string {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	return spellHost(u.Hostname())
}

// spellHost gives a host's one spelling: lower case, IDNA, no dot at the end.
func spellHost(name string) string {
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.String()
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if ascii, err := idna.Lookup.ToASCII(name); err == nil {
		return ascii
	}
	return name
}
