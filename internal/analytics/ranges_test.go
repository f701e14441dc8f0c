package analytics

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"postbit/internal/minimongo/mongotest"
)

func TestSizeBuckets(t *testing.T) {
	for _, row := range []struct{ field, reported, want string }{
		{ScreenWidth, "1", "320"}, {ScreenWidth, "319", "320"}, {ScreenWidth, "320", "320"}, {ScreenWidth, "479", "320"}, {ScreenWidth, "480", "480"},
		{ScreenWidth, "799", "480"}, {ScreenWidth, "800", "800"}, {ScreenWidth, "1023", "800"}, {ScreenWidth, "1024", "1024"}, {ScreenWidth, "1280", "1280"},
		{ScreenWidth, "1440", "1440"}, {ScreenWidth, "1599", "1440"}, {ScreenWidth, "1600", "1600"}, {ScreenWidth, "1999", "1600"}, {ScreenWidth, "2000", "2000"},
		{ScreenWidth, "7680", "2000"}, {ScreenWidth, "100000", "2000"}, {BrowserWidth, "1439", "1280"}, {BrowserWidth, "2001", "2000"},
		{BrowserHeight, "1", "480"}, {BrowserHeight, "599", "480"}, {BrowserHeight, "600", "600"}, {BrowserHeight, "767", "600"}, {BrowserHeight, "768", "768"},
		{BrowserHeight, "899", "768"}, {BrowserHeight, "900", "900"}, {BrowserHeight, "1023", "900"}, {BrowserHeight, "1024", "1024"}, {BrowserHeight, "2000", "1024"},
		{ScreenWidth, "", Unknown}, {ScreenWidth, "0", Unknown}, {ScreenWidth, "-5", Unknown}, {ScreenWidth, "1000000000", Unknown}, {ScreenWidth, "1e9", Unknown}, {ScreenWidth, "100001", Unknown},
		{ScreenWidth, "NaN", Unknown}, {ScreenWidth, "Infinity", Unknown}, {ScreenWidth, "undefined", Unknown}, {ScreenWidth, "1024.5", Unknown}, {ScreenWidth, "+1024", Unknown},
		{ScreenWidth, " 1024", Unknown}, {ScreenWidth, "0x400", Unknown}, {ScreenWidth, "１０２４", Unknown}, {ScreenWidth, strings.Repeat("9", 10_000), Unknown}, {ScreenWidth, "$inc", Unknown},
	} {
		if got := SizeBucket(row.field, row.reported); got != row.want {
			t.Errorf("%s of %.20q: %s, want %s", row.field, row.reported, got, row.want)
		}
	}
}

func TestDelayBuckets(t *testing.T) {
	for _, row := range []struct {
		d    time.Duration
		want string
	}{
		{-time.Millisecond, Unknown}, {0, "5m"}, {5 * time.Minute, "5m"}, {time.Hour - 1, "5m"}, {time.Hour, "1h"}, {6*time.Hour - 1, "1h"}, {6 * time.Hour, "6h"},
		{24*time.Hour - 1, "6h"}, {24 * time.Hour, "1d"}, {72 * time.Hour, "3d"}, {7*24*time.Hour - 1, "3d"}, {7 * 24 * time.Hour, "7d"}, {10 * 365 * 24 * time.Hour, "7d"},
	} {
		if got := DelayBucket(row.d); got != row.want {
			t.Errorf("%s: %s, want %s", row.d, got, row.want)
		}
	}
}

// Whatever a page or a mail program says, what comes of it is one of a few keys that a document can bear.
func TestBucketsAreAClosedList(t *testing.T) {
	allowed := map[string]bool{}
	for _, field := range []string{ScreenWidth, BrowserHeight} {
		for _, b := range Buckets(field) {
			allowed[b] = true
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringMatching(`-?[0-9]{1,12}`)).Draw(t, "reported")
		if b := SizeBucket(rapid.SampledFrom([]string{ScreenWidth, BrowserWidth, BrowserHeight}).Draw(t, "field"), s); !allowed[b] {
			t.Fatalf("%q gives %q", s, b)
		}
	})
}

func TestRangesAreSummedOverMonths(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	var tally RangeTally
	for i, at := range []time.Time{date("2026-11-30"), date("2026-12-01"), date("2026-12-31"), date("2027-01-01")} {
		for range 1 << i {
			tally.Add("winback", at, ClientField, "Gmail")
		}
		tally.Add("winback", at, DelayField, "1h")
		tally.Add("other", at, ClientField, "Outlook")
	}
	apply(t, w, "id", tally.Increments())
	apply(t, w, "id", tally.Increments())
	if got := value(t, db, "ranges.2026.12", "winback", "client", "Gmail"); got != 6 {
		t.Errorf("winback of December: %d, want 6", got)
	}
	r := NewReader(db)
	for _, row := range []struct {
		from, to string
		want     map[string]map[string]int64
	}{
		{"2026-12-05", "2026-12-06", map[string]map[string]int64{"client": {"Gmail": 6}, "delay": {"1h": 2}}},
		{"2026-11-30", "2027-01-01", map[string]map[string]int64{"client": {"Gmail": 15}, "delay": {"1h": 4}}},
		{"2027-02-01", "2027-02-01", map[string]map[string]int64{}},
	} {
		got, err := r.Ranges(t.Context(), "winback", date(row.from), date(row.to))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s to %s: %s", row.from, row.to, diff)
		}
	}
	if _, err := r.Ranges(t.Context(), "winback", date("2026-12-02"), date("2026-12-01")); err == nil {
		t.Error("a range that ends before it begins is accepted")
	}
}
