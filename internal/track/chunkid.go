package track

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A chunk's id is the millisecond in which it was begun, the random name of this start of the process, and a number: three fields of hex of fixed
// width, so that ids sort by time as strings and never meet.
const idLayout = "%012x-%s-%06x"

// idSource makes ids. It is used by one goroutine.
type idSource struct {
	start string
	last  int64
	n     uint32
}

func newIDSource() idSource {
	var b [4]byte
	rand.Read(b[:])
	return idSource{start: hex.EncodeToString(b[:])}
}

// next never goes back, whatever the clock does.
func (s *idSource) next(now time.Time) string {
	s.last = max(s.last, now.UnixMilli())
	s.n++
	return fmt.Sprintf(idLayout, s.last, s.start, s.n&0xffffff)
}

func (s *idSource) ours(id string) bool {
	parts := strings.Split(id, "-")
	return len(parts) == 3 && parts[1] == s.start
}

// ChunkTime returns when a chunk was begun, by its id. Whoever applies chunks refuses those that are older than the memory of what was applied.
func ChunkTime(id string) (time.Time, error) {
	parts := strings.Split(id, "-")
	if len(parts) == 3 && len(parts[0]) == 12 && len(parts[1]) == 8 && len(parts[2]) == 6 {
		if ms, err := strconv.ParseInt(parts[0], 16, 64); err == nil && ms >= 0 {
			return time.UnixMilli(ms).UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%w: %q is not a chunk's id", ErrChunk, clean(id, 80))
}
