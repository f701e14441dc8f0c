package track

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Hit is one request of a pixel, a link, an unsubscription or a page's pixel that was answered.
type Hit struct {
	// ID names the hit for good: the chunk's id, a slash and the hit's place in it. Set by DecodeChunk; Append ignores it.
	ID        string
	Kind      Kind
	Run       [8]byte
	User      bson.RawValue
	SentAt    time.Time // of the mail, UTC, to the millisecond
	At        time.Time // of the answer, UTC, to the millisecond
	Method    string    // GET or POST
	UserAgent string    // at most 512 bytes of valid UTF-8
	URL       string    // Click: where it went; View: the page
	View      PageView  // View only; such a hit has no run and no user (null)
}

// OpenKind classifies a hit of the kind Open.
func (h *Hit) OpenKind() OpenKind { return Classify(h.UserAgent, h.SentAt, h.At) }

const (
	maxUserAgent = 512
	maxMethod    = 16
	minRecord    = 9       // kind and run; eight zeros, as a crash of the machine may leave, must not be a record whose checksum is right
	maxRecord    = 8 << 10 // bytes of a hit's encoding; a user id, a URL and a user agent at their longest fit
)

// ErrChunk is what DecodeChunk's errors wrap.
var ErrChunk = errors.New("not a chunk of hits")

// A chunk is a head and records. Head: "PBHITS1\n", the length of the id (1 byte), the id, crc32c of all that. Record: length of the payload and
// crc32c of the payload (4 bytes each, little-endian), payload. A record that isn't whole ends the chunk: only the last ones can be torn, and those were never answered.
const chunkMagic = "PBHITS1\n"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendHead(b []byte, id string) []byte {
	start := len(b)
	b = append(append(append(b, chunkMagic...), byte(len(id))), id...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// cutHead returns the chunk's id and what follows the head.
func cutHead(b []byte) (id string, rest []byte, ok bool) {
	n := len(chunkMagic)
	if len(b) <= n || string(b[:n]) != chunkMagic {
		return "", nil, false
	}
	end := n + 1 + int(b[n])
	if len(b) < end+4 || binary.LittleEndian.Uint32(b[end:]) != crc32.Checksum(b[:end], castagnoli) {
		return "", nil, false
	}
	return string(b[n+1 : end]), b[end+4:], true
}

// cutRecord returns the first payload and what follows it; ok is false where no whole record stands.
func cutRecord(b []byte) (payload, rest []byte, ok bool) {
	if len(b) < 8 {
		return nil, nil, false
	}
	n := binary.LittleEndian.Uint32(b)
	if n < minRecord || n > maxRecord || uint64(len(b)) < 8+uint64(n) {
		return nil, nil, false
	}
	payload = b[8 : 8+n]
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return nil, nil, false
	}
	return payload, b[8+n:], true
}

// intact returns how many bytes of a chunk can be read, and how many hits they hold.
func intact(b []byte) (size, hits int) {
	_, rest, ok := cutHead(b)
	if !ok {
		return 0, 0
	}
	for {
		_, next, ok := cutRecord(rest)
		if !ok {
			return len(b) - len(rest), hits
		}
		rest = next
		hits++
	}
}

// appendRecord frames a hit. What is too long in it is cut, what isn't UTF-8 replaced.
func appendRecord(b []byte, h *Hit) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0, byte(h.Kind))
	b = append(b, h.Run[:]...)
	b = appendUser(b, h.User)
	b = binary.AppendVarint(b, h.SentAt.UnixMilli())
	b = binary.AppendVarint(b, h.At.UnixMilli())
	b = appendString(b, h.Method, maxMethod)
	b = appendString(b, h.UserAgent, maxUserAgent)
	b = appendString(b, h.URL, maxURL)
	if h.Kind == View {
		for _, f := range h.View.fields() {
			b = appendString(b, *f.text, f.limit)
		}
	}
	payload := b[start+8:]
	binary.LittleEndian.PutUint32(b[start:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[start+4:], crc32.Checksum(payload, castagnoli))
	return b
}

func appendString(b []byte, s string, limit int) []byte {
	s = clean(s, limit)
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// clean cuts s to n bytes without splitting a character and makes it valid UTF-8.
func clean(s string, n int) string {
	if len(s) > n {
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	if utf8.ValidString(s) {
		return s
	}
	// U+FFFD would be longer than the byte it stands for.
	return strings.ToValidUTF8(s, "?")
}

// DecodeChunk returns the hits of a chunk, in the order in which they were answered, each with its id. A torn end is no error: what stood
// there was never answered. Errors wrap ErrChunk.
func DecodeChunk(data []byte) ([]Hit, error) {
	id, rest, ok := cutHead(data)
	if !ok {
		return nil, fmt.Errorf("%w: no head", ErrChunk)
	}
	var hits []Hit
	for {
		payload, next, ok := cutRecord(rest)
		if !ok {
			return hits, nil
		}
		h, err := decodeHit(payload)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: hit %d: %v", ErrChunk, id, len(hits), err)
		}
		h.ID = id + "/" + strconv.Itoa(len(hits))
		hits = append(hits, h)
		rest = next
	}
}

var errPayload = errors.New("its payload can't be read")

func decodeHit(b []byte) (h Hit, err error) {
	if len(b) < 9 {
		return h, errPayload
	}
	h.Kind, h.Run = Kind(b[0]), [8]byte(b[1:9])
	user, b, ok := cutUser(b[9:])
	if !ok {
		return h, errPayload
	}
	h.User = user
	sent, b, ok1 := cutVarint(b)
	at, b, ok2 := cutVarint(b)
	if !ok1 || !ok2 {
		return h, errPayload
	}
	h.SentAt, h.At = time.UnixMilli(sent).UTC(), time.UnixMilli(at).UTC()
	texts := []*string{&h.Method, &h.UserAgent, &h.URL}
	if h.Kind == View {
		for _, f := range h.View.fields() {
			texts = append(texts, f.text)
		}
	}
	for _, s := range texts {
		if *s, b, ok = cutString(b); !ok {
			return h, errPayload
		}
	}
	return h, nil // what follows was added by a later version
}

func cutVarint(b []byte) (v int64, rest []byte, ok bool) {
	v, n := binary.Varint(b)
	if n <= 0 {
		return 0, nil, false
	}
	return v, b[n:], true
}

func cutString(b []byte) (s string, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return "", nil, false
	}
	end := n + int(size)
	return string(b[n:end]), b[end:], true
}
