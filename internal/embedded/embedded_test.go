package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	mongooptions "go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"postbit/internal/clock"
	"postbit/internal/config"
)

// TestMain is also the process that is killed in TestAKilledOwnerLeavesNothingInTheWay.
func TestMain(m *testing.M) {
	if dir := os.Getenv("POSTBIT_TEST_OWN"); dir != "" {
		if _, err := Start(context.Background(), Options{Dir: dir, Clock: clock.New(), Log: slog.New(slog.DiscardHandler)}); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Stdout.WriteString("up\n")
		select {} // until it is killed
	}
	goleak.VerifyTestMain(m)
}

func options(dir string) Options {
	return Options{Dir: dir, Clock: clock.New(), Log: slog.New(slog.DiscardHandler)}
}

func up(t *testing.T, dir string) *Stack {
	t.Helper()
	s, err := Start(t.Context(), options(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func redisOf(t *testing.T, uri string) redis.UniversalClient {
	t.Helper()
	opt, err := config.RedisConnOpt(config.NewURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	c := opt.MakeRedisClient().(redis.UniversalClient)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func insert(t *testing.T, uri string) {
	t.Helper()
	c, err := mongo.Connect(mongooptions.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Disconnect(context.Background()) }()
	if _, err := c.Database("x").Collection("x").InsertOne(t.Context(), bson.D{{Key: "a", Value: 1}}); err != nil {
		t.Fatal(err)
	}
}

func TestTheStoreAndTheQueueAnswerOnTheirSockets(t *testing.T) {
	s := up(t, t.TempDir())
	insert(t, s.MongoURI)
	if err := redisOf(t, s.RedisURI).Set(t.Context(), "a", 1, 0).Err(); err != nil {
		t.Error(err)
	}
}

func TestKeysExpireInRealTime(t *testing.T) {
	s := up(t, t.TempDir())
	c := redisOf(t, s.RedisURI)
	if err := c.Set(t.Context(), "a", 1, 10*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	for c.Exists(t.Context(), "a").Val() == 1 { // no key tells that it goes: look again
		<-time.After(5 * time.Millisecond)
	}
}

func TestAFolderHasOneOwner(t *testing.T) {
	dir := t.TempDir()
	s := up(t, dir)
	other, err := Attach(t.Context(), options(dir))
	if err != nil {
		t.Fatal(err)
	}
	if other.Owner || other.Parts != s.Parts {
		t.Errorf("got %+v, want %+v", other.Parts, s.Parts)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	insert(t, s.MongoURI) // the owner's parts are still there
}

func TestAFolderInUseIsWaitedFor(t *testing.T) {
	dir := t.TempDir()
	short, err := Start(t.Context(), options(dir))
	if err != nil {
		t.Fatal(err)
	}
	said := make(lines, 1)
	o := options(dir)
	o.Log, o.Patience = slog.New(slog.NewTextHandler(said, nil)), time.Hour
	var wg sync.WaitGroup
	wg.Go(func() {
		s, err := Start(t.Context(), o)
		if err != nil {
			t.Error(err)
			return
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if line := <-said; !strings.Contains(line, "waits for the data directory") {
		t.Error(line)
	}
	if err := short.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func TestWhoHoldsAFolderIsNamed(t *testing.T) {
	for _, c := range []struct{ name, command, want string }{
		{"a command", "postbit templates push", fmt.Sprintf(": `postbit templates push` (pid %d)", os.Getpid())},
		{"a process that says nothing of itself", "", fmt.Sprintf(": pid %d", os.Getpid())},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(t.TempDir())
			o.Command, o.Patience = c.command, time.Nanosecond
			first, err := Start(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Start(t.Context(), o); !errors.Is(err, ErrInUse) || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("got %v, want …%s", err, c.want)
			}
			if err := first.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// lines takes what a log writes, line by line.
type lines chan string

func (l lines) Write(b []byte) (int, error) { l <- string(b); return len(b), nil }

func TestAttachStartsThePartsWhereNobodyDoes(t *testing.T) {
	dir := t.TempDir()
	var secrets []string
	for range 2 { // one after the other; the secret stays
		s, err := Attach(t.Context(), options(dir))
		if err != nil {
			t.Fatal(err)
		}
		if !s.Owner {
			t.Error("not the owner")
		}
		insert(t, s.MongoURI)
		secrets = append(secrets, s.Secret)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if secrets[0] != secrets[1] || !strings.HasPrefix(secrets[0], "k1:") {
		t.Errorf("secrets differ or are none")
	}
	info, err := os.Stat(filepath.Join(dir, secretFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestALongPathDoesNotMatter(t *testing.T) {
	insert(t, up(t, filepath.Join(t.TempDir(), strings.Repeat("long", 30))).MongoURI)
}

func TestAKilledOwnerLeavesNothingInTheWay(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "POSTBIT_TEST_OWN="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	insert(t, up(t, dir).MongoURI)
}
