package templates

import (
	"bytes"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Cache keeps the compiled templates of the runs that a process works on. The zero value is ready; it is safe for
// concurrent use.
type Cache struct {
	mu      sync.Mutex
	entries []cacheEntry // the one used last stands last
}

type cacheEntry struct {
	snapshot bson.Raw
	compiled *Compiled
}

const cacheSize = 64

// Compiled is the template of a snapshot (see FromSnapshot), compiled the first time it is asked for.
func (c *Cache) Compiled(snapshot bson.Raw) (*Compiled, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, e := range c.entries {
		if bytes.Equal(e.snapshot, snapshot) {
			copy(c.entries[i:], c.entries[i+1:])
			c.entries[len(c.entries)-1] = e
			return e.compiled, nil
		}
	}
	t, err := FromSnapshot(snapshot)
	if err != nil {
		return nil, err
	}
	compiled, err := t.Compile()
	if err != nil {
		return nil, err
	}
	if len(c.entries) == cacheSize {
		c.entries = append(c.entries[:0], c.entries[1:]...)
	}
	c.entries = append(c.entries, cacheEntry{bytes.Clone(snapshot), compiled})
	return compiled, nil
}
