// Package embedded runs what postbit otherwise finds elsewhere in one process: minimongo, miniredis and an outbox, in one
// data directory. One process owns a directory; others reach it by its sockets.
package embedded

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"postbit/internal/clock"
)

// ErrInUse is wrapped where another process owns the directory.
var ErrInUse = errors.New("in use by another postbit process")

// Options say where and how the parts run.
type Options struct {
	Dir       string // made where it is missing, for the owner alone
	Clock     *clock.Clock
	Log       *slog.Logger
	Throwaway bool   // the directory is a temporary one: nothing is synced to disk
	PublicURL string // where the owner will be reached; others learn it from the owner
	Command   string // what this process does, such as "postbit serve", for who finds the directory in use
	// Patience is how long to wait for a directory that another process holds; 0 means 5 s.
	Patience time.Duration
}

// Parts are the addresses of the embedded parts, as the settings would name them.
type Parts struct {
	MongoURI string `json:"mongo_uri"`
	RedisURI string `json:"redis_uri"`
	PID      int    `json:"pid"`
	// PublicURL is that of the owner's Options.
	PublicURL string `json:"public_url"`

	SMTPURL string `json:"-"` // the outbox
	Secret  string `json:"-"` // signing keys, kept in the directory
}

// Stack is a set of parts. Owner is set where they run in this process and Close ends them.
type Stack struct {
	Parts
	Owner bool

	close []func() error // in the order of starting
}

const (
	addressFile = "embedded.json"
	secretFile  = "secret"
	lockFile    = "lock"

	// patience is how long a directory is waited for: a short command such as `templates push` may hold it just now.
	patience = 5 * time.Second
	// lookAgain is how often: no lock tells others that it is free.
	lookAgain = 50 * time.Millisecond
	// maxSocketPath is what a unix socket's address can hold everywhere (macOS has 104 bytes, Linux 108).
	maxSocketPath = 100
)

// Start takes the directory and starts the parts in it. Where another process has it, Start waits for as long as the
// Patience says; the error then wraps ErrInUse and names that process.
func Start(ctx context.Context, o Options) (*Stack, error) {
	for deadline, waits := o.deadline(), false; ; waits = true {
		s, err := start(ctx, o)
		if !errors.Is(err, ErrInUse) || time.Now().After(deadline) {
			return s, err
		}
		if !waits {
			o.Log.Info("waits for the data directory", "err", err)
		}
		if err := clock.Sleep(ctx, lookAgain); err != nil {
			return nil, err
		}
	}
}

// Attach gives the parts of the process that owns the directory, or starts them where nobody does.
func Attach(ctx context.Context, o Options) (*Stack, error) {
	for deadline := o.deadline(); ; {
		s, err := start(ctx, o)
		if !errors.Is(err, ErrInUse) {
			return s, err
		}
		parts, perr := find(o.Dir)
		if perr == nil {
			return &Stack{Parts: parts}, nil
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(err, perr)
		}
		// The owner has not come so far, or is going away.
		if err := clock.Sleep(ctx, lookAgain); err != nil {
			return nil, err
		}
	}
}

func (o Options) deadline() time.Time { return time.Now().Add(cmp.Or(o.Patience, patience)) }

func start(ctx context.Context, o Options) (_ *Stack, err error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	lock, err := takeLock(filepath.Join(dir, lockFile), holder{os.Getpid(), o.Command})
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	s := &Stack{Owner: true, close: []func() error{lock.Close}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	_ = os.Remove(filepath.Join(dir, addressFile)) // of an owner that was killed
	s.PID, s.PublicURL = os.Getpid(), o.PublicURL
	s.SMTPURL = outbox(dir)
	if s.Secret, err = keepSecret(filepath.Join(dir, secretFile)); err != nil {
		return nil, err
	}
	sockets, err := s.socketDir(dir)
	if err != nil {
		return nil, err
	}
	if err := s.startMongo(filepath.Join(dir, "minimongo"), filepath.Join(sockets, "mongo.sock"), o); err != nil {
		return nil, err
	}
	if err := s.startRedis(ctx, filepath.Join(sockets, "redis.sock")); err != nil {
		return nil, err
	}
	return s, s.announce(filepath.Join(dir, addressFile))
}

// Close ends the parts, newest first, and waits for them. On parts of another process it does nothing.
func (s *Stack) Close() error {
	var errs []error
	for i := len(s.close) - 1; i >= 0; i-- {
		errs = append(errs, s.close[i]())
	}
	s.close = nil
	return errors.Join(errs...)
}

func outbox(dir string) string { return "outbox:" + filepath.Join(dir, "outbox") }

// socketDir is the data directory, or a short one of its own where the path would not fit into a socket's address.
func (s *Stack) socketDir(dir string) (string, error) {
	if len(filepath.Join(dir, "mongo.sock")) <= maxSocketPath {
		return dir, nil
	}
	short, err := os.MkdirTemp("", "postbit-")
	if err != nil {
		return "", fmt.Errorf("folder for sockets: %w", err)
	}
	s.close = append(s.close, func() error { return os.RemoveAll(short) })
	return short, nil
}

// announce writes the addresses down for other commands, in one step: who finds the file finds all of it.
func (s *Stack) announce(name string) error {
	data, err := json.Marshal(s.Parts)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", data, 0o600); err != nil {
		return fmt.Errorf("announce the embedded parts: %w", err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		return fmt.Errorf("announce the embedded parts: %w", err)
	}
	s.close = append(s.close, func() error { return os.Remove(name) })
	return nil
}

// find reads the addresses of the process that owns dir.
func find(dir string) (Parts, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Parts{}, err
	}
	data, err := os.ReadFile(filepath.Join(dir, addressFile))
	if err != nil {
		return Parts{}, fmt.Errorf("its addresses: %w", err)
	}
	var p Parts
	if err := json.Unmarshal(data, &p); err != nil {
		return Parts{}, fmt.Errorf("its addresses: %w", err)
	}
	secret, err := os.ReadFile(filepath.Join(dir, secretFile))
	if err != nil {
		return Parts{}, fmt.Errorf("its secret: %w", err)
	}
	p.SMTPURL, p.Secret = outbox(dir), strings.TrimSpace(string(secret))
	return p, nil
}

// keepSecret reads the signing key of the directory, and makes it the first time. Links in mails stay valid as long as the file does.
func keepSecret(name string) (string, error) {
	data, err := os.ReadFile(name)
	if err == nil {
		return strings.TrimSpace(string(data)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("secret: %w", err)
	}
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails, by its documentation
	secret := "k1:" + base64.StdEncoding.EncodeToString(key[:])
	f, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", fmt.Errorf("secret: %w", err)
	}
	_, err = f.WriteString(secret + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", fmt.Errorf("secret: %w", err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		return "", fmt.Errorf("secret: %w", err)
	}
	return secret, nil
}
