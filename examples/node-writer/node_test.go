// Package nodewriter tests the example of another service that counts in the analytics model, beside postbit's own writers.
package nodewriter

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/analytics"
	"postbit/internal/clock"
	"postbit/internal/minimongo/mongotest"
)

var at = time.Date(2026, 12, 1, 9, 5, 0, 0, time.UTC)

// Two Node.js processes and two writers of postbit count in the same documents at the same time. The first Node.js process counts ids of its own, each
// given twice; the second counts the very ids that postbit counts. What is there in the end is each id once.
func TestNodeWriterBesidePostbit(t *testing.T) {
	if os.Getenv("POSTBIT_TEST_NODE") == "" {
		t.Skip("needs Node.js and npm; POSTBIT_TEST_NODE=1 runs it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	dir := install(ctx, t)
	uri, db := server(t)
	const own, shared = 150, 150 // ids
	var wg sync.WaitGroup
	for _, args := range [][]string{
		{"--ids", "order/", "--n", fmt.Sprint(own), "--writers", "2"},
		{"--ids", "shared/", "--n", fmt.Sprint(shared), "--writers", "2"},
	} {
		wg.Go(func() {
			run(ctx, t, dir, "node", append([]string{"count.mjs", uri, "--db", db.Name(), "--campaign", "shop", "--metric", "orders", "--at", at.Format(time.RFC3339)}, args...)...)
		})
	}
	for range 2 {
		w := writer(t, db)
		for i := range shared {
			wg.Go(func() {
				if err := w.Apply(ctx, fmt.Sprint("shared/", i), analytics.Day("shop", "orders", at, 1)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	for _, name := range []string{"shop", "all"} {
		doc, err := db.Collection("days.2026.12").FindOne(ctx, bson.D{{Key: "_id", Value: "20261201/" + name + ".orders"}}).Raw()
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range [][]string{{"daily"}, {"hourly", "09"}, {"minute", "09", "05"}} {
			if got := doc.Lookup(path...).AsInt64(); got != own+shared {
				t.Errorf("%s %v = %d, want %d", name, path, got, own+shared)
			}
		}
		if hours, err := doc.Lookup("hourly").Document().Elements(); err != nil || len(hours) != 24 {
			t.Errorf("%s has %d hours, %v; want the full shape", name, len(hours), err)
		}
	}
	if n, err := db.Collection("applied").CountDocuments(ctx, bson.D{{Key: "done_at", Value: nil}}); err != nil || n != 0 {
		t.Errorf("%d sets are left undone, %v", n, err)
	}
	ids := 0
	sets, err := db.Collection("applied").Find(ctx, bson.D{})
	for err == nil && sets.Next(ctx) {
		values, _ := sets.Current.Lookup("ids").Array().Values()
		ids += len(values)
	}
	if err != nil || ids != own+shared {
		t.Errorf("%d ids are remembered, %v; want %d", ids, err, own+shared)
	}
}

// server is a database and the address by which others reach it.
func server(t *testing.T) (string, *mongo.Database) {
	if uri := os.Getenv(mongotest.EnvURI); uri != "" {
		return uri, mongotest.DB(t)
	}
	s, db := mongotest.Server(t)
	return s.URI(), db
}

func writer(t *testing.T, db *mongo.Database) *analytics.Writer {
	w := analytics.NewWriter(db, clock.New(), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return w
}

// install copies the example into a folder of its own and gets what it needs.
func install(ctx context.Context, t *testing.T) string {
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "writer.mjs", "count.mjs"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(ctx, t, dir, "npm", "ci", "--no-audit", "--no-fund")
	return dir
}

func run(ctx context.Context, t *testing.T, dir, prog string, args ...string) {
	cmd := exec.CommandContext(ctx, prog, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("%s %v: %v\n%s", prog, args, err, out.Bytes())
	}
}
