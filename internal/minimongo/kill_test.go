package minimongo

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"
)

const envServe = "MINIMONGO_TEST_SERVE_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envServe); dir != "" {
		serveUntilKilled(dir)
	}
	os.Exit(m.Run())
}

// serveUntilKilled is what the process of TestKill does.
func serveUntilKilled(dir string) {
	s, err := Open(Config{Dir: dir})
	if err == nil {
		_, err = s.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.URI())
	select {}
}

// TestKill: what a server has acknowledged is there after it was killed, and what is there is whole.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	var acked atomic.Int64
	for round := range 3 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), envServe+"="+dir)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		uri, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		client, err := mongo.Connect(options.Client().ApplyURI(strings.TrimSpace(uri)))
		if err != nil {
			t.Fatal(err)
		}
		c := client.Database("db").Collection("c")
		_, err = c.Indexes().CreateOne(context.Background(), mongo.IndexModel{Keys: bson.M{"u": 1}, Options: options.Index().SetUnique(true)})
		if err != nil {
			t.Fatal(err)
		}
		var g errgroup.Group
		ctx, gone := context.WithCancel(context.Background())
		before := acked.Load()
		for w := range 8 {
			g.Go(func() error {
				for i := 0; ; i++ {
					if _, err := c.InsertOne(ctx, bson.M{"u": fmt.Sprintf("%d/%d/%d", round, w, i)}); err != nil {
						return nil // the server is gone
					}
					if acked.Add(1) == before+100 {
						err := cmd.Process.Kill()
						gone() // or the driver would look for another server for half a minute
						if err != nil {
							return err
						}
					}
				}
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		gone()
		cmd.Wait() // killed
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		client.Disconnect(ctx) // there is nobody to say good-bye to
		cancel()
	}
	s := open(t, Config{Dir: dir})
	if got := int64(count(t, s, "c")); got < acked.Load() {
		t.Errorf("%d documents of %d acknowledged", got, acked.Load())
	}
	checkIndexes(t, s, "c")
}
