// Package mongotest gives tests a database of their own.
package mongotest

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"postbit/internal/minimongo"
)

// EnvURI names the variable with the connection string of another server that DB is to use.
const EnvURI = "POSTBIT_TEST_MONGO_URI"

// DB is an empty database, dropped when the test ends: on the server that POSTBIT_TEST_MONGO_URI names, or else on a
// minimongo in memory for this test alone. Everything is closed in t.Cleanup, before what was registered
// earlier, so a goleak check belongs at the beginning of the test.
func DB(t testing.TB) *mongo.Database {
	t.Helper()
	if uri := os.Getenv(EnvURI); uri != "" {
		return connect(t, uri, true)
	}
	_, db := Server(t)
	return db
}

// Server is a minimongo in memory with a database on it, for tests that need its hooks; it is always a
// minimongo, whatever POSTBIT_TEST_MONGO_URI says.
func Server(t testing.TB, change ...func(*minimongo.Config)) (*minimongo.Server, *mongo.Database) {
	t.Helper()
	var cfg minimongo.Config
	for _, f := range change {
		f(&cfg)
	}
	s, err := minimongo.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close minimongo: %v", err)
		}
	})
	if _, err := s.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	return s, connect(t, s.URI(), false) // the database goes with its server
}

func connect(t testing.TB, uri string, drop bool) *mongo.Database {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	db := client.Database("test_" + strings.ToLower(rand.Text()[:16]))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if drop {
			if err := db.Drop(ctx); err != nil {
				t.Errorf("drop the test database: %v", err)
			}
		}
		// A test may have closed its server; the driver would look for it all that time to end its sessions.
		bye, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := client.Disconnect(bye); err != nil && bye.Err() == nil {
			t.Errorf("disconnect: %v", err)
		}
	})
	return db
}
