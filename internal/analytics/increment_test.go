package analytics

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"
)

func TestIncrementsThatCouldBeReadOtherwiseAreRefused(t *testing.T) {
	ok := func(path string) Increment {
		return Increment{Collection: "pages.2026.12", ID: "x:1", Inc: map[string]int64{path: 1}}
	}
	with := func(f func(*Increment)) Increment { i := ok("v"); f(&i); return i }
	for _, row := range []struct {
		name string
		inc  Increment
	}{
		{"an empty path", ok("")},
		{"an operator", ok("$where")},
		{"an operator further down", ok("d.$[]")},
		{"an empty part", ok("d..1")},
		{"a dot at the end", ok("d.")},
		{"a dot at the start", ok(".d")},
		{"a NUL", ok("d.\x00")},
		{"not UTF-8", ok("d.\xff")},
		{"a huge path", ok(strings.Repeat("d", MaxPathBytes+1))},
		{"the marks of the writers", ok("w")},
		{"a mark of a writer", ok("w.abc")},
		{"the id", ok("_id")},
		{"an empty document id", with(func(i *Increment) { i.ID = "" })},
		{"a document id that is not UTF-8", with(func(i *Increment) { i.ID = "\xc3\x28" })},
		{"no collection", with(func(i *Increment) { i.Collection = "" })},
		{"the sets themselves", with(func(i *Increment) { i.Collection = "applied" })},
		{"first opens", with(func(i *Increment) { i.Collection = "opens.2026.12" })},
		{"users", with(func(i *Increment) { i.Collection = "users" })},
		{"system.views", with(func(i *Increment) { i.Collection = "system.views" })},
		{"a collection with $", with(func(i *Increment) { i.Collection = "da$ys" })},
		{"an id set on insert", with(func(i *Increment) { i.OnInsert = bson.D{{Key: "_id", Value: 1}} })},
		{"a mark set on insert", with(func(i *Increment) { i.OnInsert = bson.D{{Key: "w", Value: 1}} })},
		{"a dotted field set on insert", with(func(i *Increment) { i.OnInsert = bson.D{{Key: "a.b", Value: 1}} })},
		{"a field set twice on insert", with(func(i *Increment) { i.OnInsert = bson.D{{Key: "a", Value: 1}, {Key: "a", Value: 2}} })},
		{"a field that is counted, set on insert", with(func(i *Increment) { i.OnInsert = bson.D{{Key: "v", Value: 1}} })},
		{"a field that BSON cannot hold", with(func(i *Increment) { i.OnInsert = bson.D{{Key: "a", Value: make(chan int)}} })},
		{"an operator deep in a field set on insert", with(func(i *Increment) { i.OnInsert = bson.D{{Key: "a", Value: bson.A{bson.D{{Key: "$b", Value: 1}}}}} })},
		{"a dot deep in a field set on insert", with(func(i *Increment) { i.OnInsert = bson.D{{Key: "a", Value: bson.D{{Key: "b.c", Value: 1}}}} })},
		{"a path inside another", with(func(i *Increment) { i.Inc["v.x"] = 1 })},
		{"a path two levels inside another", with(func(i *Increment) { i.Inc["v.x.y"] = 1 })},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, err := sum([]Increment{row.inc}); !errors.Is(err, ErrUnsafe) {
				t.Errorf("got %v, want ErrUnsafe", err)
			}
		})
	}
}

func TestIncrementsOfOddButHarmlessNamesPass(t *testing.T) {
	for _, path := range []string{"v", "hourly.00", "by.a$b", "d.14", "sx.unknown", "k.ключ", "ww", "x.w", "x._id"} {
		if _, err := sum([]Increment{{Collection: "ranges.2026.12", ID: "winback", Inc: map[string]int64{path: 1}}}); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestIncrementsOfOneDocumentAreMerged(t *testing.T) {
	at := time.Date(2026, 12, 1, 9, 5, 0, 0, time.UTC)
	s, err := sum(append(Day("winback", Hits, at, 2), Day("winback", Hits, at.Add(time.Minute), 3)...))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.docs) != 2 {
		t.Errorf("%d documents, want those of the campaign and of all", len(s.docs))
	}
	want := map[string]int64{"daily": 5, "hourly.09": 5, "minute.09.05": 2, "minute.09.06": 3}
	for _, id := range []string{"20261201/winback.hits", "20261201/all.hits"} {
		if diff := cmp.Diff(want, s.docs[docKey{"days.2026.12", id}].inc); diff != "" {
			t.Errorf("%s: %s", id, diff)
		}
	}
}

func TestTooMuchUnderOneIDIsRefused(t *testing.T) {
	paths := map[string]int64{}
	for i := range maxSetPaths {
		paths[fmt.Sprint("d.", i)] = 1
	}
	inc := []Increment{{Collection: "pages.2026.12", ID: "x:1", Inc: paths}}
	s, err := sum(inc)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := bson.Marshal(newSet("writer", 1, []string{"id"}, s, time.Time{}))
	if err != nil || len(raw) > 12<<20 {
		t.Errorf("the largest set: %d bytes, %v", len(raw), err)
	}
	paths["one.more"] = 1
	if _, err := sum(inc); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
}

func TestJoinKeepsApartWhatTheServerRefusesTogether(t *testing.T) {
	one := func(path string, n int64, onInsert bson.D) *sums {
		s, err := sum([]Increment{{Collection: "pages.2026.12", ID: "x:1", Inc: map[string]int64{path: n}, OnInsert: onInsert}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, row := range []struct {
		name string
		a, b *sums
		want bool
	}{
		{"the same path", one("v", 1, nil), one("v", 2, nil), true},
		{"neighbours", one("d.1", 1, nil), one("d.2", 1, nil), true},
		{"outer after inner", one("d.1", 1, nil), one("d", 1, nil), false},
		{"inner after outer", one("d", 1, nil), one("d.1", 1, nil), false},
		{"counted after set", one("v", 1, bson.D{{Key: "t", Value: "x"}}), one("t", 1, nil), false},
		{"set after counted", one("t", 1, nil), one("v", 1, bson.D{{Key: "t", Value: "x"}}), false},
		{"set after counted inside", one("t.x", 1, nil), one("v", 1, bson.D{{Key: "t", Value: "x"}}), false},
		{"set twice", one("v", 1, bson.D{{Key: "t", Value: "x"}}), one("v", 1, bson.D{{Key: "t", Value: "y"}}), true},
		{"beyond 64 bits", one("v", math.MaxInt64, nil), one("v", 1, nil), false},
		{"below 64 bits", one("v", math.MinInt64, nil), one("v", -1, nil), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := len(row.a.docs[docKey{"pages.2026.12", "x:1"}].inc)
			if got := row.a.join(row.b); got != row.want {
				t.Errorf("join = %t, want %t", got, row.want)
			} else if !got && len(row.a.docs[docKey{"pages.2026.12", "x:1"}].inc) != before {
				t.Error("said no, and joined all the same")
			}
		})
	}
}

// Whatever is accepted is an update that no server has a reason to refuse for its form.
func TestAcceptedPathsAreWellFormed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		paths := rapid.SliceOfN(rapid.StringMatching(`([a-c$w._\x00]{0,4}\.)?[a-c$.]{0,3}`), 1, 4).Draw(t, "paths")
		inc := map[string]int64{}
		for _, p := range paths {
			inc[p] = 1
		}
		if _, err := sum([]Increment{{Collection: "c", ID: "i", Inc: inc}}); err != nil {
			return
		}
		for p := range inc {
			for _, part := range strings.Split(p, ".") {
				if part == "" || part[0] == '$' || strings.Contains(part, "\x00") {
					t.Fatalf("accepted %q", p)
				}
			}
			for q := range inc {
				if p != q && strings.HasPrefix(q, p+".") {
					t.Fatalf("accepted %q beside %q", p, q)
				}
			}
		}
	})
}

func TestDayIsThatOfUTC(t *testing.T) {
	auckland := time.FixedZone("UTC+13", 13*3600)
	at := time.Date(2027, 1, 1, 3, 30, 0, 0, auckland) // 2026-12-31 14:30 UTC
	incs := Day("winback", OpenedKind+"human", at, 1)
	want := []Increment{
		{Collection: "days.2026.12", ID: "20261231/all.opened_kind.human", Inc: map[string]int64{"daily": 1, "hourly.14": 1, "minute.14.30": 1},
			OnInsert: bson.D{{Key: "metadata", Value: bson.D{{Key: "date", Value: time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC)}, {Key: "metric", Value: "all.opened_kind.human"}}}}},
		{Collection: "days.2026.12", ID: "20261231/winback.opened_kind.human", Inc: map[string]int64{"daily": 1, "hourly.14": 1, "minute.14.30": 1},
			OnInsert: bson.D{{Key: "metadata", Value: bson.D{{Key: "date", Value: time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC)}, {Key: "metric", Value: "winback.opened_kind.human"}}}}},
	}
	if diff := cmp.Diff(want, incs); diff != "" {
		t.Error(diff)
	}
	if got := Day("", Hits, at, 1); len(got) != 1 || got[0].ID != "20261231/all.hits" {
		t.Errorf("without a campaign: %v, want those of all alone", got)
	}
}
