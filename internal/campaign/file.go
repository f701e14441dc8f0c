package campaign

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/net/idna"

	"postbit/rules"
)

// Defaults of a campaign file.
const (
	DefaultExpiresAfter = 24 * time.Hour
	DefaultMisfireGrace = time.Hour
)

// ReservedName is no campaign's: the analytics count all campaigns together under it.
const ReservedName = "all"

var nameFormat = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// CheckName refuses what can't be the name of a campaign. Names become part of ids, metrics and addresses.
func CheckName(name string) error {
	switch {
	case !nameFormat.MatchString(name):
		return fmt.Errorf("%q is no name: at most 64 of a-z 0-9 _ - and a letter or digit first", clip(name))
	case name == ReservedName:
		return fmt.Errorf("%q is reserved: it stands for all campaigns together", name)
	}
	return nil
}

// ParseFile reads a campaign file. The error is FileErrors with everything that is wrong with it; nothing outside of the
// file is looked at, so the template may not exist.
func ParseFile(name string, data []byte) (Spec, error) {
	f := parseFile(name, data)
	return f.spec, f.errs.orNil()
}

// file is a campaign file that has been read.
type file struct {
	reader
	spec       Spec
	graceGiven bool // it names its misfire_grace
}

func parseFile(name string, data []byte) *file {
	f := &file{
		reader: reader{file: name, lines: map[string]int{}},
		spec:   Spec{ExpiresAfter: DefaultExpiresAfter, MisfireGrace: DefaultMisfireGrace},
	}
	top := f.root(data)
	if top == nil {
		return f
	}
	s := &f.spec
	there := f.fields(top, "",
		field{"name", func(v *yaml.Node, key string) { s.Name = f.name(v, key) }},
		field{"template", func(v *yaml.Node, key string) { s.Template, _ = f.text(v, key) }},
		field{"audience", func(v *yaml.Node, key string) { s.Audience = f.audience(v, key) }},
		field{"schedule", f.schedule},
		field{"rules", f.rules},
		field{"limits", f.limits},
		field{"expires_after", f.duration(&s.ExpiresAfter, time.Minute)},
		field{"misfire_grace", f.duration(&s.MisfireGrace, time.Minute)},
	)
	f.graceGiven = there["misfire_grace"]
	if top.Kind == yaml.MappingNode {
		for _, key := range []string{"name", "template", "audience"} {
			if !there[key] {
				text := "missing"
				if key == "audience" {
					text += "; { } means every user"
				}
				f.fail(top.Line, key, "%s", text)
			}
		}
	}
	return f
}

func (f *file) name(v *yaml.Node, key string) string {
	s, ok := f.text(v, key)
	if ok {
		if err := CheckName(s); err != nil {
			f.fail(v.Line, key, "%v", err)
		}
	}
	return s
}

// duration reads into d what must be at least the given time.
func (f *file) duration(d *time.Duration, least time.Duration) func(v *yaml.Node, key string) {
	return func(v *yaml.Node, key string) {
		s, ok := f.text(v, key)
		if !ok {
			return
		}
		read, err := ParseDuration(s)
		if err == nil && read < least {
			err = fmt.Errorf("%s is less than %s", s, FormatDuration(least))
		}
		if err != nil {
			f.fail(v.Line, key, "%v", err)
			return
		}
		*d = read
	}
}

func (f *file) schedule(n *yaml.Node, path string) {
	s := &f.spec.Schedule
	var at string
	before := len(f.errs)
	there := f.fields(n, path,
		field{"cron", func(v *yaml.Node, key string) { s.Cron, _ = f.text(v, key) }},
		field{"at", func(v *yaml.Node, key string) { at, _ = f.text(v, key) }},
		field{"timezone", func(v *yaml.Node, key string) { s.Timezone, _ = f.text(v, key) }},
	)
	if len(f.errs) > before {
		return
	}
	switch {
	case there["cron"] && there["at"]:
		f.fail(n.Line, path, "has both cron and at; one of them")
		return
	case !there["cron"] && !there["at"]:
		f.fail(n.Line, path, "has neither cron nor at; leave it out for a campaign that is started by hand")
		return
	}
	zone, err := s.Zone()
	if err != nil {
		f.fail(f.lines[path+".timezone"], path+".timezone", "%v", err)
		zone = time.UTC // go on, so that a bad expression is reported too
	}
	if there["cron"] {
		if _, err := ParseCron(s.Cron, zone); err != nil {
			f.fail(f.lines[path+".cron"], path+".cron", "%v", err)
		}
		return
	}
	if s.At, err = parseAt(at, zone); err != nil {
		f.fail(f.lines[path+".at"], path+".at", "%v", err)
	}
}

// parseAt reads a time with an offset, or a wall clock time of the zone.
func parseAt(s string, zone *time.Location) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return utcMillis(t), nil
	}
	for _, layout := range []string{"2006-01-02 15:04", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02T15:04:05"} {
		if wall, err := time.Parse(layout, s); err == nil {
			return utcMillis(instantOf(wall, zone)), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time such as 2026-12-01 09:00 or 2026-12-01T09:00:00+01:00", clip(s))
}

func (f *file) rules(n *yaml.Node, path string) {
	var window, days *yaml.Node
	s := &f.spec.Rules
	f.fields(n, path,
		field{"window", func(v *yaml.Node, key string) { window = v }},
		field{"days", func(v *yaml.Node, key string) { days = v }},
		field{"inactive_after", f.duration(&s.InactiveAfter, 0)},
		field{"min_gap", f.duration(&s.MinGap, 0)},
	)
	if window != nil {
		if text, ok := f.text(window, path+".window"); ok {
			w, err := rules.ParseWindow(text)
			if err != nil {
				f.fail(window.Line, path+".window", "%s", strings.TrimPrefix(err.Error(), "window: "))
			}
			s.Window = w
		}
	}
	if days != nil {
		if list, _ := f.texts(days, path+".days"); list != nil {
			d, err := rules.ParseDays(strings.Join(list, ","))
			if err != nil {
				f.fail(days.Line, path+".days", "%s", strings.TrimPrefix(err.Error(), "days: "))
			}
			s.Window.Days = d
		}
	}
}

func (f *file) limits(n *yaml.Node, path string) {
	l := &f.spec.Limits
	f.fields(n, path,
		field{"rate", func(v *yaml.Node, key string) { l.Rate = f.rates(v, key) }},
		field{"per_domain", func(v *yaml.Node, key string) { l.PerDomain = f.perDomain(v, key) }},
	)
}

func (f *file) rates(v *yaml.Node, key string) []Rate {
	var read []Rate
	texts, lines := f.texts(v, key)
	for i, text := range texts {
		rate, err := ParseRate(text)
		if err != nil {
			f.fail(lines[i], key, "%v", err)
			continue
		}
		if slices.ContainsFunc(read, func(r Rate) bool { return r.Per == rate.Per }) {
			f.fail(lines[i], key, "%q: there is a rate for that window already", clip(text))
			continue
		}
		read = append(read, rate)
	}
	return read
}

func (f *file) perDomain(n *yaml.Node, path string) []DomainLimits {
	var list []DomainLimits
	there := map[string]bool{}
	f.each(n, path, func(name, key string, k, v *yaml.Node) {
		domain, err := idna.Lookup.ToASCII(strings.TrimSuffix(name, "."))
		if err != nil || !strings.Contains(domain, ".") {
			f.fail(k.Line, clip(key), "%q is no mail domain such as gmail.com", clip(name))
			return
		}
		if there[domain] {
			f.fail(k.Line, clip(key), "%s is there twice", domain)
			return
		}
		there[domain] = true
		list = append(list, DomainLimits{Domain: domain, Rate: f.rates(v, key)})
	})
	slices.SortFunc(list, func(a, b DomainLimits) int { return strings.Compare(a.Domain, b.Domain) })
	return list
}
