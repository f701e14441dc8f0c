package analytics

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"postbit/internal/minimongo/mongotest"
)

func date(s string) time.Time {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		panic(err)
	}
	return t
}

func TestTotalsAreExactByDayAndSpanMonths(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	var incs []Increment
	for i, at := range []time.Time{date("2026-11-30").Add(24*time.Hour - time.Second), date("2026-12-01"), date("2026-12-31"), date("2027-01-01")} {
		incs = append(incs, Day("winback", Hits, at, int64(1)<<i)...)
		incs = append(incs, Day("winback", OpenedKind+"human", at, 1)...)
		incs = append(incs, Day("winback2", Hits, at, 100)...) // not winback's
	}
	apply(t, w, "id", incs)
	r := NewReader(db)
	for _, row := range []struct {
		name, campaign, from, to string
		want                     map[string]int64
	}{
		{"one day", "winback", "2026-12-01", "2026-12-01", map[string]int64{"hits": 2, "opened_kind.human": 1}},
		{"both ends belong to it", "winback", "2026-11-30", "2026-12-31", map[string]int64{"hits": 7, "opened_kind.human": 3}},
		{"over a new year", "winback", "2026-12-31", "2027-01-31", map[string]int64{"hits": 12, "opened_kind.human": 2}},
		{"all campaigns", "all", "2026-12-01", "2026-12-01", map[string]int64{"hits": 102, "opened_kind.human": 1}},
		{"nothing counted", "winback", "2026-12-02", "2026-12-30", map[string]int64{}},
		{"nobody", "unknown", "2026-12-01", "2026-12-01", map[string]int64{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := r.Totals(t.Context(), row.campaign, date(row.from), date(row.to))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	names, err := r.Campaigns(t.Context(), date("2026-12-01"), date("2026-12-05"))
	if err != nil || !cmp.Equal(names, []string{"winback", "winback2"}) {
		t.Errorf("Campaigns = %v, %v", names, err)
	}
}

func TestRangesOfDaysThatMakeNoSense(t *testing.T) {
	r := NewReader(mongotest.DB(t))
	for _, row := range []struct{ from, to string }{{"2026-12-02", "2026-12-01"}, {"1900-01-01", "2026-12-01"}} {
		if _, err := r.Totals(t.Context(), "winback", date(row.from), date(row.to)); err == nil {
			t.Errorf("%v is accepted", row)
		}
	}
}

// A report may not be wrong because another service wrote numbers of another type, or something that is no number.
func TestReaderTakesAnyNumber(t *testing.T) {
	db := mongotest.DB(t)
	doc := bson.D{
		{Key: "_id", Value: "20261201/winback.hits"}, {Key: "daily", Value: 3.0},
		{Key: "hourly", Value: bson.D{{Key: "00", Value: int64(1)}, {Key: "01", Value: 2.0}, {Key: "02", Value: "x"}, {Key: "24", Value: 5}, {Key: "noon", Value: 5}}},
		{Key: "minute", Value: bson.D{{Key: "00", Value: bson.D{{Key: "59", Value: int32(4)}}}, {Key: "01", Value: 7}}},
	}
	odd := bson.D{{Key: "_id", Value: "20261201/winback.sent"}, {Key: "daily", Value: bson.D{}}, {Key: "hourly", Value: 3}}
	if _, err := db.Collection("days.2026.12").InsertMany(t.Context(), []any{doc, odd}); err != nil {
		t.Fatal(err)
	}
	r, day := NewReader(db), date("2026-12-01")
	totals, err := r.Totals(t.Context(), "winback", day, day)
	if diff := cmp.Diff(map[string]int64{"hits": 3}, totals); err != nil || diff != "" {
		t.Error(err, diff)
	}
	hours, err := r.Hours(t.Context(), "winback", Hits, day, day.AddDate(0, 0, 1))
	if err != nil || len(hours) != 48 {
		t.Fatalf("%d hours, %v; want 48", len(hours), err)
	}
	for i, h := range hours {
		if want := map[int]int64{0: 1, 1: 2}[i]; h.N != want || !h.At.Equal(day.Add(time.Duration(i)*time.Hour)) {
			t.Errorf("hour %d: %+v, want %d", i, h, want)
		}
	}
	if hours, err := r.Hours(t.Context(), "winback", Sent, day, day); err != nil || len(hours) != 24 {
		t.Errorf("%d hours, %v; want 24", len(hours), err)
	}
	minutes, err := r.Minutes(t.Context(), "winback", Hits, day)
	if err != nil || minutes[0][59] != 4 || minutes[1] != [60]int64{} {
		t.Errorf("minutes %v, %v", minutes[:2], err)
	}
}

// Whatever was counted when, the days, hours and minutes of a report add up to it.
func TestWhatWasWrittenIsRead(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	rapid.Check(t, func(rt *rapid.T) {
		campaign := "c" + newName()
		from := date("2026-11-20").AddDate(0, 0, rapid.IntRange(0, 60).Draw(rt, "first day"))
		want := map[string]int64{}
		byHour := map[time.Time]int64{}
		var incs []Increment
		for range rapid.IntRange(1, 6).Draw(rt, "events") {
			metric := rapid.SampledFrom([]string{Sent, Hits, Skipped + "min_gap"}).Draw(rt, "metric")
			at := from.Add(time.Duration(rapid.Int64Range(0, int64(72*time.Hour)-1).Draw(rt, "after")))
			n := rapid.Int64Range(1, 1000).Draw(rt, "n")
			want[metric] += n
			if metric == Hits {
				byHour[at.Truncate(time.Hour)] += n
			}
			incs = append(incs, Day(campaign, metric, at, n)...)
		}
		apply(t, w, campaign, incs)
		r := NewReader(db)
		totals, err := r.Totals(t.Context(), campaign, from, from.AddDate(0, 0, 2))
		if diff := cmp.Diff(want, totals); err != nil || diff != "" {
			rt.Fatal(err, diff)
		}
		hours, err := r.Hours(t.Context(), campaign, Hits, from, from.AddDate(0, 0, 2))
		if err != nil {
			rt.Fatal(err)
		}
		for _, h := range hours {
			if h.N != byHour[h.At] {
				rt.Fatalf("%s: %d, want %d", h.At, h.N, byHour[h.At])
			}
		}
	})
}
