// Package users reads and writes the team's users collection: a raw view of documents in which anything may stand
// anywhere, the claim that gives a run the right to mail a user, the bits, opens and suppression.
package users

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// Errors that callers decide by.
var (
	ErrNotFound   = errors.New("no such user")
	ErrStateShape = errors.New("the state field holds something that postbit did not write")
)

// Values of the state's status. Any other text there suppresses the user just as well.
const (
	Unsubscribed = "unsubscribed"
	Bounced      = "bounced"
	Complained   = "complained"
)

// Config says where in a user document things stand. Paths are dotted; in paths that are only read, a number is a
// position in an array ("emails.0.address"). Empty Email, Timezone, Bits and State are the defaults.
type Config struct {
	Email    string // "email"
	Timezone string // "timezone": an IANA name
	Bits     string // "tpls_sent_at_least_once"
	State    string // "postbit": the one sub-document that is ours

	// Dates that the team keeps itself, read beside our own and never written. The earlier wins for first, the later for last.
	FirstAt, LastAt         string
	OpenFirstAt, OpenLastAt string

	// SuppressedWhen lists values by path; a user who has one of them gets no mail. A nil value stands for null or missing.
	SuppressedWhen map[string][]any

	// HistoryBefore is the date of the first and last mail of users who have any bit but no known date of a mail. Zero: off.
	HistoryBefore time.Time

	// DefaultZone is for users whose zone is missing or unknown; nil is UTC.
	DefaultZone *time.Location
}

// Store is the users collection. It is safe for concurrent use.
type Store struct {
	coll   *mongo.Collection
	cfg    Config
	fields *field // what Parse looks for
	when   []suppressedWhen
	zones  atomic.Pointer[map[string]*time.Location] // nil location: unknown; replaced, never changed
	paths  statePaths

	attempt time.Duration // how long one command of a claim may take
}

// statePaths are the dotted names that updates and filters use.
type statePaths struct {
	firstAt, lastAt, runs, openFirstAt, openLastAt, status, statusAt string
}

// New gives the store of the collection. Whatever the client's settings say, it reads from the primary with majority and
// writes with w: majority, j: true.
func New(coll *mongo.Collection, cfg Config) (*Store, error) {
	for _, d := range []struct {
		path *string
		name string
	}{{&cfg.Email, "email"}, {&cfg.Timezone, "timezone"}, {&cfg.Bits, "tpls_sent_at_least_once"}, {&cfg.State, "postbit"}} {
		if *d.path == "" {
			*d.path = d.name
		}
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.DefaultZone == nil {
		cfg.DefaultZone = time.UTC
	}
	cfg.HistoryBefore = cfg.HistoryBefore.UTC().Truncate(time.Millisecond)
	journaled := true
	s := &Store{
		coll: coll.Clone(options.Collection().
			SetReadPreference(readpref.Primary()).
			SetReadConcern(readconcern.Majority()).
			SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled})),
		cfg:     cfg,
		attempt: attemptTimeout,
		paths: statePaths{
			firstAt: cfg.State + ".first_at", lastAt: cfg.State + ".last_at", runs: cfg.State + ".runs",
			openFirstAt: cfg.State + ".open_first_at", openLastAt: cfg.State + ".open_last_at",
			status: cfg.State + ".status", statusAt: cfg.State + ".status_at",
		},
	}
	s.zones.Store(&map[string]*time.Location{})
	if err := s.compile(); err != nil {
		return nil, err
	}
	return s, nil
}

func (c Config) check() error {
	named := map[string]string{
		"email": c.Email, "timezone": c.Timezone, "bits": c.Bits, "state": c.State,
		"first_at": c.FirstAt, "last_at": c.LastAt, "open_first_at": c.OpenFirstAt, "open_last_at": c.OpenLastAt,
	}
	for path := range c.SuppressedWhen {
		if path == "" {
			return errors.New("users: suppressed_when names an empty field")
		}
		named["suppressed_when."+path] = path
	}
	for name, path := range named {
		if path == "" {
			continue
		}
		for part := range strings.SplitSeq(path, ".") {
			if part == "" || part[0] == '$' || strings.ContainsRune(part, 0) {
				return fmt.Errorf("users: the field %s is %q, which is no path of a field", name, path)
			}
		}
	}
	for _, written := range []struct{ name, path string }{{"bits", c.Bits}, {"state", c.State}} {
		parts := strings.Split(written.path, ".")
		if parts[0] == "_id" || slices.ContainsFunc(parts, isPosition) {
			return fmt.Errorf("users: the field %s is %q, but postbit writes it, so it can't lie in _id or in an array", written.name, written.path)
		}
	}
	if within(c.Bits, c.State) || within(c.State, c.Bits) {
		return fmt.Errorf("users: the fields bits (%q) and state (%q) lie in each other", c.Bits, c.State)
	}
	return nil
}

// within reports whether path is outer or lies in it.
func within(path, outer string) bool {
	return path == outer || strings.HasPrefix(path, outer+".")
}

func isPosition(part string) bool {
	return part != "" && strings.Trim(part, "0123456789") == ""
}

// Fields is the projection that loads what the rules read and the fields named, never more. A path into an array loads
// the array.
func (s *Store) Fields(extra []string) bson.D {
	all := []string{s.cfg.Email, s.cfg.Timezone, s.cfg.Bits, s.cfg.State, s.cfg.FirstAt, s.cfg.LastAt, s.cfg.OpenFirstAt, s.cfg.OpenLastAt}
	for _, w := range s.when {
		all = append(all, w.path)
	}
	return projection(append(all, extra...))
}

// projection leaves out what lies in another path: a server refuses paths that collide.
func projection(paths []string) bson.D {
	var kept []string
	for _, path := range paths {
		if path = projectable(path); path != "" {
			kept = append(kept, path)
		}
	}
	slices.Sort(kept)
	kept = slices.Compact(kept)
	out := bson.D{}
	for _, path := range kept {
		if !slices.ContainsFunc(kept, func(other string) bool { return other != path && within(path, other) }) {
			out = append(out, bson.E{Key: path, Value: 1})
		}
	}
	return out
}

// projectable cuts a path before its first position in an array, which projections don't know, and gives "" for what
// comes anyhow or can't be asked for.
func projectable(path string) string {
	parts := strings.Split(path, ".")
	for i, part := range parts {
		if part == "" || part[0] == '$' || strings.ContainsRune(part, 0) {
			return ""
		}
		if isPosition(part) && i > 0 {
			parts = parts[:i]
			break
		}
	}
	if parts[0] == "_id" {
		return ""
	}
	return strings.Join(parts, ".")
}
