package config

import (
	"fmt"
	"net"
	"net/mail"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"postbit/internal/spelling"
)

// Setting is one row of the table of settings.
type Setting struct {
	Key     string // as in the file
	Default string
	Help    string
	Common  bool // shown in --help; the others are in docs/settings.md
	set     func(*Config, string) error
}

// Env is the name of the setting's environment variable.
func (s *Setting) Env() string {
	return "POSTBIT_" + strings.ToUpper(strings.ReplaceAll(s.Key, ".", "_"))
}

// Flag is the name of the setting's flag, with its dashes.
func (s *Setting) Flag() string { return "--" + s.FlagName() }

// FlagName is the name of the setting's flag, without the dashes in front.
func (s *Setting) FlagName() string { return strings.NewReplacer(".", "-", "_", "-").Replace(s.Key) }

// Settings are all there are, in the order of docs/settings.md.
var Settings = []Setting{
	{"mongo_uri", "", "MongoDB, as mongodb://… or mongodb+srv://…", true, func(c *Config, v string) error { return setURI(&c.MongoURI, v, "mongodb", "mongodb+srv") }},
	{"mongo_db", "", "database of postbit's collections; the one in the URI, else postbit", true, func(c *Config, v string) error { return setName(&c.MongoDB, v) }},
	{"redis_uri", "", "Redis: redis://, rediss://, redis-socket:, redis-sentinel:// or redis-cluster://", true, setRedis},
	{"smtp_url", "", "where mails go: smtp://user:pass@host:587, smtps://…, or outbox:DIR", true, func(c *Config, v string) error { return setURI(&c.SMTPURL, v, "smtp", "smtps", "outbox") }},
	{"public_url", "", "the address under which recipients reach this server", true, setPublicURL},
	{"secret", "", "signing keys, id:base64[,id:base64], 32 bytes or more each; the first signs, all verify", true, func(c *Config, v string) error { c.Secret = NewSecret(v); return nil }},
	{"listen", ":8080", "address of the public side: pixel, links, unsubscribe", true, func(c *Config, v string) error { return setListen(&c.Listen, v) }},
	{"admin_listen", "127.0.0.1:8081", "address of the API, metrics and health", true, func(c *Config, v string) error { return setListen(&c.AdminListen, v) }},
	{"metrics_listen", "", "address of metrics and health where the role web is not there to serve them; nowhere otherwise", false, func(c *Config, v string) error { return setListen(&c.MetricsListen, v) }},
	{"admin_token", "", "bearer token that the API asks for", true, func(c *Config, v string) error { c.AdminToken = NewSecret(v); return nil }},
	{"data_dir", ".postbit", "folder of the hit spool, and of everything else where it is embedded", true, func(c *Config, v string) error { c.DataDir = v; return nil }},

	{"users.db", "", "database of the users, if it is another one", false, func(c *Config, v string) error { return setName(&c.Users.DB, v) }},
	{"users.collection", "users", "collection of the users", false, func(c *Config, v string) error { return setName(&c.Users.Collection, v) }},
	{"users.email", "email", "field of the address", false, func(c *Config, v string) error { return setPath(&c.Users.Email, v) }},
	{"users.timezone", "timezone", "field of the IANA zone", false, func(c *Config, v string) error { return setPath(&c.Users.Timezone, v) }},
	{"users.bits", "tpls_sent_at_least_once", "field of the bits: which templates were ever sent", false, func(c *Config, v string) error { return setPath(&c.Users.Bits, v) }},
	{"users.state_field", "postbit", "sub-document that postbit writes", false, func(c *Config, v string) error { return setPath(&c.Users.State, v) }},
	{"users.fields.first_at", "", "your own field for a user's first mail", false, func(c *Config, v string) error { return setPath(&c.Users.FirstAt, v) }},
	{"users.fields.last_at", "", "your own field for a user's last mail", false, func(c *Config, v string) error { return setPath(&c.Users.LastAt, v) }},
	{"users.fields.open_first_at", "", "your own field for a user's first open", false, func(c *Config, v string) error { return setPath(&c.Users.OpenFirstAt, v) }},
	{"users.fields.open_last_at", "", "your own field for a user's last open", false, func(c *Config, v string) error { return setPath(&c.Users.OpenLastAt, v) }},
	{"users.suppressed_when", "", "your own fields that rule a user out: {unsubscribed: [true], state: [deleted, banned]}", false, setSuppressedWhen},
	{"users.history_before", "", "users with bits and no known mail date count as mailed then", false, setHistoryBefore},

	{"mail.from", "", "sender where a template names none, as Name <address>", true, func(c *Config, v string) error { return setAddress(&c.From, v) }},
	{"mail.bounce", "", "envelope sender; the address of the sender otherwise", false, func(c *Config, v string) error { return setAddress(&c.Bounce, v) }},
	{"mail.ehlo", "", "name given to SMTP servers; the host's otherwise", false, func(c *Config, v string) error { return setName(&c.EHLO, v) }},
	{"mail.dkim", "", "keys that mails are signed with: [{domain: example.com, selector: s1, key_file: /run/secrets/dkim.pem}]", false, setDKIM},
	{"smtp_patience", "5m", "how long a connection fault is tried again before the run pauses", false, func(c *Config, v string) error { return setDuration(&c.SMTPPatience, v, time.Second) }},
	{"connections", "8", "SMTP connections of one wave", false, func(c *Config, v string) error { return setInt(&c.Connections, v, 1, 32) }},
	{"concurrency", "4", "batches that one worker process has in work at once", false, func(c *Config, v string) error { return setInt(&c.Concurrency, v, 1, 256) }},

	{"default_zone", "UTC", "zone of users whose own is missing or unknown", false, setZone},
	{"misfire_grace", "1h", "how late a missed slot may still fire, at least 1m; a campaign whose file does not say takes it when it is applied", false, func(c *Config, v string) error { return setDuration(&c.MisfireGrace, v, time.Minute) }},
	{"retention", "180d", "how long batches and first opens are kept", false, func(c *Config, v string) error { return setDuration(&c.Retention, v, 24*time.Hour) }},
	{"opens.sign_of_life", "[human, proxy, prefetch]", "kinds of opens that count as the user's own", false, setSignOfLife},
	{"sites", "", "sites whose pages are counted, with their hosts: {shop: [shop.example.com, \"*.shop.example.com\"]}", false, setSites},
	{"do_not_track", "honour", "what becomes of pages seen by browsers that send DNT or Sec-GPC: honour (not counted) or ignore", false, func(c *Config, v string) error { return setOneOf(&c.DoNotTrack, v, "honour", "ignore") }},
	{"top_values", "100000", "distinct pages, referrers, terms and links kept per site or campaign and month; new ones beyond count as (other)", false, func(c *Config, v string) error { return setInt(&c.TopValues, v, 1, 100_000_000) }},
	{"top_days", "true", "count pages, referrers, terms and links by day as well: true or false", false, func(c *Config, v string) error { return setBool(&c.TopDays, v) }},
	{"hits.memory", "7d", "how long it is remembered which hits were counted; those of a web host that was away for longer are put aside", false, setHitsMemory},
	{"spool.sync", "200ms", "how often the hit spool is synced to disk: always (before every answer), never, or a time such as 200ms", false, setSpoolSync},

	{"log.level", "info", "debug, info, warn or error", true, setLogLevel},
	{"log.format", "text", "text or json", true, func(c *Config, v string) error { return setOneOf(&c.LogFormat, v, "text", "json") }},
}

func setURI(to *URI, v string, schemes ...string) error {
	u := NewURI(strings.TrimSpace(v))
	if !slices.Contains(schemes, u.Scheme()) {
		return fmt.Errorf("must begin with %s:", strings.Join(schemes, ": or "))
	}
	rest := u.Reveal()[len(u.Scheme())+1:]
	if u.Scheme() == "outbox" {
		if rest == "" {
			return fmt.Errorf("names no folder; write outbox:DIR")
		}
	} else if host, ok := strings.CutPrefix(rest, "//"); !ok || host == "" || strings.HasSuffix(host, "@") {
		return fmt.Errorf("names no host; write %s://host", u.Scheme())
	}
	*to = u
	return nil
}

func setRedis(c *Config, v string) error {
	u := NewURI(strings.TrimSpace(v))
	if _, err := RedisConnOpt(u); err != nil {
		return err
	}
	c.RedisURI = u
	return nil
}

func setPublicURL(c *Config, v string) error {
	u, err := url.Parse(v)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q is no web address; write https://mail.example.com", v)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("must be scheme, host and path alone: https://mail.example.com")
	}
	c.PublicURL = strings.TrimRight(u.String(), "/")
	return nil
}

func setListen(to *string, v string) error {
	if _, port, err := net.SplitHostPort(v); err != nil || port == "" {
		return fmt.Errorf("%q is no address to listen on; write host:port or :port", v)
	}
	*to = v
	return nil
}

func setName(to *string, v string) error {
	if strings.ContainsAny(v, " \t\r\n/\\\"$\x00") {
		return fmt.Errorf("%q is no name; it has a space or one of / \\ \" $", v)
	}
	*to = v
	return nil
}

// setPath takes a dotted path of a document's field.
func setPath(to *string, v string) error {
	for _, part := range strings.Split(v, ".") {
		if part == "" || part[0] == '$' || strings.ContainsAny(part, "\x00 ") {
			return fmt.Errorf("%q is no field of a document", v)
		}
	}
	*to = v
	return nil
}

func setAddress(to *string, v string) error {
	if _, err := mail.ParseAddress(v); err != nil {
		return fmt.Errorf("%q is no mail address; write address or Name <address>", v)
	}
	*to = v
	return nil
}

func setDuration(to *time.Duration, v string, least time.Duration) error {
	d, err := ParseDuration(v)
	if err != nil {
		return err
	}
	if d < least {
		return fmt.Errorf("%s is too short; at least %s", v, FormatDuration(least))
	}
	*to = d
	return nil
}

func setInt(to *int, v string, least, most int) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most {
		return fmt.Errorf("%q is not a number from %d to %d", v, least, most)
	}
	*to = n
	return nil
}

func setOneOf(to *string, v string, choices ...string) error {
	if !slices.Contains(choices, v) {
		return fmt.Errorf("%q is none of %s", v, strings.Join(choices, ", "))
	}
	*to = v
	return nil
}

// maxMemory is more than any host is away, and fits into the 32 bits that an index has for the seconds until it forgets.
const maxMemory = 10 * 365 * 24 * time.Hour

func setHitsMemory(c *Config, v string) error {
	d := c.HitsMemory
	if err := setDuration(&d, v, 24*time.Hour); err != nil {
		return err
	}
	if d > maxMemory {
		return fmt.Errorf("%s is too long; at most %s", v, FormatDuration(maxMemory))
	}
	c.HitsMemory = d
	return nil
}

// setSpoolSync takes what track.ParseSync reads.
func setSpoolSync(c *Config, v string) error {
	if v != "always" && v != "never" {
		if d, err := time.ParseDuration(v); err != nil || d <= 0 {
			return fmt.Errorf("%q is not always, never or a time such as 200ms", v)
		}
	}
	c.SpoolSync = v
	return nil
}

func setZone(c *Config, v string) error {
	zone, err := time.LoadLocation(v)
	if err != nil || v == "Local" {
		return fmt.Errorf("%q is no IANA zone; write one such as Europe/Berlin", v)
	}
	c.DefaultZone = zone
	return nil
}

func setLogLevel(c *Config, v string) error {
	var name string
	if err := setOneOf(&name, v, "debug", "info", "warn", "error"); err != nil {
		return err
	}
	return c.LogLevel.UnmarshalText([]byte(name))
}

func setHistoryBefore(c *Config, v string) error {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, v); err == nil {
			c.Users.HistoryBefore = t.UTC()
			return nil
		}
	}
	return fmt.Errorf("%q is no date; write 2026-01-31, or a time as in RFC 3339", v)
}

var openKinds = []string{"human", "proxy", "prefetch", "machine"}

func setSignOfLife(c *Config, v string) error {
	var kinds []string
	if err := yaml.Unmarshal([]byte(v), &kinds); err != nil {
		kinds = strings.Split(v, ",") // the short form of a flag: human,proxy
	}
	c.SignOfLife = []string{}
	for _, k := range kinds {
		k = strings.TrimSpace(k)
		if !slices.Contains(openKinds, k) {
			return fmt.Errorf("%q is no kind of open; %s%s", k, strings.Join(openKinds, ", "), spelling.Hint(k, openKinds))
		}
		c.SignOfLife = append(c.SignOfLife, k)
	}
	return nil
}

func setSuppressedWhen(c *Config, v string) error {
	var raw map[string]any
	if err := yaml.Unmarshal([]byte(v), &raw); err != nil {
		return fmt.Errorf("is no map of fields and values; write {unsubscribed: [true], state: [deleted, banned]}")
	}
	when := map[string][]any{}
	for field, values := range raw {
		var path string
		if err := setPath(&path, field); err != nil {
			return err
		}
		list, ok := values.([]any)
		if !ok || len(list) == 0 {
			return fmt.Errorf("%s: is no list of values; write %s: [true]", field, field)
		}
		for _, one := range list {
			switch one.(type) {
			case map[string]any, []any, map[any]any:
				return fmt.Errorf("%s: the values are single ones: texts, numbers, true, false, null", field)
			}
		}
		when[field] = list
	}
	c.Users.SuppressedWhen = when
	return nil
}
