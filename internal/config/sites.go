package config

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

var (
	siteName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
	hostName = regexp.MustCompile(`^(\*\.)?[^\s/:*@?#]+$|^\*$`)
)

// setSites takes hosts by site. A site may bear the name of a campaign: its pages are then counted beside the campaign's mails.
func setSites(c *Config, v string) error {
	var raw map[string]any
	if err := yaml.Unmarshal([]byte(v), &raw); err != nil || raw == nil {
		return fmt.Errorf("is no map of sites and hosts; write {shop: [shop.example.com]}")
	}
	sites := map[string][]string{}
	for name, value := range raw {
		if !siteName.MatchString(name) || name == "all" {
			return fmt.Errorf("%q is no name of a site; names are a-z, 0-9, _ and -, at most 64, and not all", name)
		}
		list, ok := value.([]any)
		if one, single := value.(string); single {
			list, ok = []any{one}, true
		}
		if !ok || len(list) == 0 {
			return fmt.Errorf("%s: names no hosts; write %s: [www.example.com]", name, name)
		}
		for _, h := range list {
			host, ok := h.(string)
			if host = strings.TrimSpace(host); !ok || !hostName.MatchString(host) {
				return fmt.Errorf("%s: %v is no host; write www.example.com, *.example.com for all below it, or * for any", name, h)
			}
			sites[name] = append(sites[name], host)
		}
	}
	c.Sites = sites
	return nil
}

func setBool(to *bool, v string) error {
	switch v {
	case "true", "yes", "on":
		*to = true
	case "false", "no", "off":
		*to = false
	default:
		return fmt.Errorf("%q is neither true nor false", v)
	}
	return nil
}
