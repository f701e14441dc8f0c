// Package config holds the settings of a postbit process: one struct, filled from flags, the environment and a file.
// A flag wins over the environment, the environment over the file, the file over the default. Every setting has one name
// in three spellings: users.state_field in the file is POSTBIT_USERS_STATE_FIELD and --users-state-field.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"postbit/internal/faults"
)

// DefaultFile is read from the working directory where no other file is named and it exists.
const DefaultFile = "postbit.yaml"

// Config is what the settings come to. Its zero value is of no use; Load makes it.
type Config struct {
	MongoURI URI
	MongoDB  string // database of postbit's own collections; "" means the one the URI names, or "postbit"
	RedisURI URI
	SMTPURL  URI

	PublicURL     string // without a slash at the end
	Secret        Secret // signing keys, see track.ParseKeys
	Listen        string // the public side: pixel, links, unsubscribe
	AdminListen   string // API, metrics, health
	MetricsListen string // metrics and health of a process without the web side; "" for none
	AdminToken    Secret // "": the API is closed, unless AdminListen is a loopback address
	DataDir       string

	Users  Users
	From   string // sender where a template names none
	Bounce string // envelope sender (MAIL FROM); "" means the address of From
	EHLO   string // the name given to SMTP servers; "" means the host's
	DKIM   []DKIMKey

	SignOfLife   []string      // kinds of opens that move a user's open times
	HitsMemory   time.Duration // the ids of what was counted are remembered this long
	Retention    time.Duration // batches and first opens of a month are kept this long after it
	SMTPPatience time.Duration // how long a connection fault is tried again before the run pauses
	MisfireGrace time.Duration // how late a missed slot may still fire, where the campaign does not say
	DefaultZone  *time.Location

	Concurrency int // batches one worker process works on at once
	Connections int // SMTP connections one wave uses
	SpoolSync   string

	Sites      map[string][]string // hosts by site whose pages are counted
	DoNotTrack string              // "honour" or "ignore"
	TopValues  int                 // distinct values per kind, site and month
	TopDays    bool                // values are counted by day, too

	LogLevel  slog.Level
	LogFormat string // "text" or "json"

	// Embedded is set where none of mongo_uri, redis_uri and smtp_url is: the document store, the queue and the outbox
	// then live in DataDir.
	Embedded bool

	origin map[string]string // key -> where its value came from, as an error names it
}

// Users maps the team's users collection.
type Users struct {
	DB, Collection               string // DB "": the same as postbit's own
	Email, Timezone, Bits, State string
	FirstAt, LastAt              string // what the team knows already; "" where it does not
	OpenFirstAt, OpenLastAt      string
	SuppressedWhen               map[string][]any
	HistoryBefore                time.Time
}

// Error is a fault in the settings: wrong usage, exit code 2. Its text is that of faults.Text.
type Error struct{ Faults []error }

func (e *Error) Error() string {
	texts := make([]string, len(e.Faults))
	for i, fault := range e.Faults {
		texts[i] = fault.Error()
	}
	return faults.Text(texts)
}

func (e *Error) Unwrap() []error { return e.Faults }

func (e *Error) add(format string, args ...any) {
	e.Faults = append(e.Faults, fmt.Errorf(format, args...))
}

func (e *Error) orNil() error {
	if len(e.Faults) == 0 {
		return nil
	}
	return e
}

// Load puts the settings together. flags holds what the command line set, by key; env looks a variable up, as
// os.LookupEnv does (an empty one counts as not set); file "" means DefaultFile if it is there. The error is an *Error.
func Load(flags map[string]string, env func(string) (string, bool), file string) (*Config, error) {
	var faults Error
	fromFile, err := readFile(file)
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return nil, &Error{Faults: []error{err}}
		}
		faults.Faults = append(faults.Faults, e.Faults...)
	}
	c := &Config{origin: map[string]string{}}
	for i := range Settings {
		s := &Settings[i]
		text, from := s.Default, ""
		if v, ok := fromFile[s.Key]; ok {
			text, from = v.text, v.where
		}
		if v, ok := env(s.Env()); ok && v != "" {
			text, from = v, s.Env()
		}
		if v, ok := flags[s.Key]; ok {
			text, from = v, s.Flag()
		}
		if from != "" {
			c.origin[s.Key] = from
		}
		if text == "" {
			continue
		}
		if err := s.set(c, text); err != nil {
			faults.add("%s: %w", where(from, s), err)
			delete(c.origin, s.Key)
		}
	}
	c.Embedded = c.MongoURI.IsZero() && c.RedisURI.IsZero() && c.SMTPURL.IsZero()
	if err := faults.orNil(); err != nil {
		return nil, err
	}
	return c, nil
}

// where names a setting in an error: the variable or flag itself, or its key after the place in the file.
func where(from string, s *Setting) string {
	switch from {
	case "", s.Env(), s.Flag():
		if from == "" {
			return s.Env()
		}
		return from
	}
	return from + ": " + s.Key
}

// readFile gives the values of a settings file by key.
func readFile(name string) (map[string]fileValue, error) {
	optional := name == ""
	if optional {
		name = DefaultFile
	}
	data, err := os.ReadFile(name)
	if err != nil {
		if optional && errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, fmt.Errorf("settings file: %w", err)
	}
	return parseFile(name, data)
}

// hidden pairs each text that must not be shown with what is shown instead.
func (c *Config) hidden() (pairs []string) {
	for _, u := range []URI{c.MongoURI, c.RedisURI, c.SMTPURL} {
		if raw := u.Reveal(); raw != u.String() {
			pairs = append(pairs, raw, u.String())
			if pw := u.password(); len(pw) >= 4 { // a shorter one would tear holes into ordinary words, and protects nothing
				pairs = append(pairs, pw, redacted)
			}
		}
	}
	for _, s := range []Secret{c.Secret, c.AdminToken} {
		if raw := s.Reveal(); len(raw) >= 4 {
			pairs = append(pairs, raw, redacted)
		}
	}
	return pairs
}

// Scrub takes secrets out of a text that other libraries had a hand in, such as an error of a driver.
func (c *Config) Scrub(text string) string {
	if c == nil {
		return text
	}
	pairs := c.hidden()
	for i := 0; i < len(pairs); i += 2 {
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// Default gives the settings of a process that looks neither at the environment nor at a file.
func Default() *Config {
	c := &Config{origin: map[string]string{}, Embedded: true}
	for i := range Settings {
		if s := &Settings[i]; s.Default != "" {
			if err := s.set(c, s.Default); err != nil {
				panic(fmt.Sprintf("config: the default of %s: %v", s.Key, err))
			}
		}
	}
	return c
}

// SuppressStates rules out users with one of the values in a field, as users.suppressed_when does.
func (c *Config) SuppressStates(field string, values ...any) {
	c.Users.SuppressedWhen = map[string][]any{field: values}
}
