package mongotest

import (
	"maps"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Commands counts what a server is asked, for tests that let each command fail in turn: they are whole only while the list of commands that
// they are about is. It is safe for concurrent use.
type Commands struct {
	mu    sync.Mutex
	times map[string]int // by command and collection: "update runs"
}

// Count takes note of a command, as Where of a minimongo.Fault is given it.
func (c *Commands) Count(command bson.Raw) {
	kind := "(unreadable)"
	if first, err := command.IndexErr(0); err == nil {
		collection, _ := first.Value().StringValueOK()
		kind = first.Key() + " " + collection
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.times == nil {
		c.times = map[string]int{}
	}
	c.times[kind]++
}

// Times is how often each command was given, whatever the collection.
func (c *Commands) Times() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	byName := map[string]int{}
	for kind, n := range c.times {
		name, _, _ := strings.Cut(kind, " ")
		byName[name] += n
	}
	return byName
}

// Expect fails the test where a command was given that is not listed, or one is listed that was not given. listed says what each is for.
func (c *Commands) Expect(t testing.TB, listed map[string]string) {
	t.Helper()
	c.mu.Lock()
	times := maps.Clone(c.times)
	c.mu.Unlock()
	for kind, n := range times {
		t.Logf("%3d × %s: %s", n, kind, listed[kind])
		if listed[kind] == "" {
			t.Errorf("%q is said, which is not listed", kind)
		}
	}
	for kind := range listed {
		if times[kind] == 0 {
			t.Errorf("no %q was said", kind)
		}
	}
}
