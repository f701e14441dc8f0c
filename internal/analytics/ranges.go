package analytics

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// RangesCollection is where the ranges of the month of at are kept: "ranges.2026.12", by UTC.
func RangesCollection(at time.Time) string { return "ranges." + Month(at) }

// Fields of a document of ranges. Each holds counts by bucket; what has no bucket counts as Unknown.
const (
	ScreenWidth   = "sx"
	BrowserWidth  = "bx"
	BrowserHeight = "by"
	ClientField   = "client"
	DeviceField   = "device"
	OSField       = "os"
	KindField     = "kind"
	DelayField    = "delay"
)

// Unknown is the bucket of what is missing or makes no sense.
const Unknown = "unknown"

// The boundaries of sizes in pixels. A value belongs to the largest boundary that it reaches; the first takes what is
// smaller, too.
var (
	widths  = []int{320, 480, 800, 1024, 1280, 1440, 1600, 2000}
	heights = []int{480, 600, 768, 900, 1024}
)

// maxPixels is beyond any screen, also walls of them: a larger number is nonsense and no width.
const maxPixels = 100_000

// Delays are the boundaries of the time from send to open, by the same rule as sizes: "1h" is an hour or more and less than
// six, "5m" is anything below an hour, "7d" has no end.
var Delays = []struct {
	Name string
	From time.Duration
}{
	{"5m", 5 * time.Minute}, {"1h", time.Hour}, {"6h", 6 * time.Hour}, {"1d", 24 * time.Hour}, {"3d", 3 * 24 * time.Hour}, {"7d", 7 * 24 * time.Hour},
}

// Buckets lists the buckets of a field of sizes or of DelayField in their order, Unknown last; nil for fields without an order.
func Buckets(field string) []string {
	var names []string
	switch field {
	case ScreenWidth, BrowserWidth:
		names = sizeNames(widths)
	case BrowserHeight:
		names = sizeNames(heights)
	case DelayField:
		for _, d := range Delays {
			names = append(names, d.Name)
		}
	default:
		return nil
	}
	return append(names, Unknown)
}

func sizeNames(sizes []int) []string {
	names := make([]string, len(sizes))
	for i, n := range sizes {
		names[i] = strconv.Itoa(n)
	}
	return names
}

// SizeBucket is the bucket of a size as a page reported it, for ScreenWidth, BrowserWidth or BrowserHeight. Only a whole
// number of pixels from 1 to 100,000 is a size.
func SizeBucket(field, reported string) string {
	boundaries := widths
	if field == BrowserHeight {
		boundaries = heights
	}
	n, ok := pixels(reported)
	if !ok {
		return Unknown
	}
	reached := boundaries[0]
	for _, b := range boundaries {
		if n >= b {
			reached = b
		}
	}
	return strconv.Itoa(reached)
}

// pixels reads digits alone: no sign, no exponent, no space.
func pixels(s string) (int, bool) {
	if s == "" || len(s) > 6 {
		return 0, false
	}
	n := 0
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, n > 0 && n <= maxPixels
}

// DelayBucket is the bucket of the time from a send to an open; of an open before its send, Unknown.
func DelayBucket(d time.Duration) string {
	if d < 0 {
		return Unknown
	}
	reached := Delays[0].Name
	for _, b := range Delays {
		if d >= b.From {
			reached = b.Name
		}
	}
	return reached
}

// RangeTally collects what one chunk of hits counts in ranges. Its zero value is ready.
type RangeTally struct {
	counts map[docKey]map[string]int64
}

// Add counts one of a bucket for a campaign or site in the month of at.
func (t *RangeTally) Add(sid string, at time.Time, field, bucket string) {
	if t.counts == nil {
		t.counts = map[docKey]map[string]int64{}
	}
	key := docKey{RangesCollection(at), sid}
	if t.counts[key] == nil {
		t.counts[key] = map[string]int64{}
	}
	t.counts[key][field+"."+bucket]++
}

// Increments are what was collected, in a fixed order.
func (t *RangeTally) Increments() []Increment {
	keys := slices.SortedFunc(maps.Keys(t.counts), func(a, b docKey) int {
		return slices.Compare([]string{a.collection, a.id}, []string{b.collection, b.id})
	})
	incs := make([]Increment, 0, len(keys))
	for _, key := range keys {
		incs = append(incs, Increment{Collection: key.collection, ID: key.id, Inc: t.counts[key]})
	}
	return incs
}
