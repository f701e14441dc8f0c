package analytics

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/clock"
	"postbit/internal/minimongo"
	"postbit/internal/minimongo/mongotest"
)

func page(sid, value string) Seen { return Seen{Kind: Pages, SID: sid, Value: value, At: noon} }

// count has a process see values and count them under an id.
func (v *Values) count(t testing.TB, w *Writer, id string, seen ...Seen) {
	t.Helper()
	incs, err := v.Increments(t.Context(), seen)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, w, id, incs)
}

// counted is what a site has counted by value.
func counted(t testing.TB, db *mongo.Database, kind ValueKind, sid string) map[string]int64 {
	t.Helper()
	got := map[string]int64{}
	r := NewReader(db)
	for after := (PageKey{}); ; {
		page, err := r.TopValues(t.Context(), kind, sid, noon, noon, 100, after)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range page.Values {
			if _, twice := got[v.Value]; twice {
				t.Errorf("%q stands in the list twice", v.Value)
			}
			got[v.Value] = v.N
		}
		if after = page.Next; after == (PageKey{}) {
			return got
		}
	}
}

func wantCounted(t testing.TB, db *mongo.Database, kind ValueKind, sid string, want map[string]int64) {
	t.Helper()
	if diff := cmp.Diff(want, counted(t, db, kind, sid)); diff != "" {
		t.Errorf("%s of %s: %s", kind, sid, diff)
	}
}

func TestADocumentPerValueAndMonth(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	v := NewValues(db, clock.At(noon))
	const home = "https://shop.example.com/"
	titled := func(at time.Time, title string) Seen {
		return Seen{Kind: Pages, SID: "shop", Value: home, Title: title, At: at}
	}
	v.count(t, w, "id1", titled(noon, ""), titled(noon, "Shop"), titled(noon.AddDate(0, 0, 13), "Other"), titled(noon.AddDate(0, 1, 0), "Shop"))
	v.count(t, w, "id1", titled(noon, "Shop"))
	var doc bson.D
	if err := db.Collection("pages.2026.12").FindOne(t.Context(), bson.D{{Key: "_id", Value: "shop:1de23b7de1e2d7d0"}}).Decode(&doc); err != nil {
		var all []bson.M
		cur, _ := db.Collection("pages.2026.12").Find(t.Context(), bson.D{})
		_ = cur.All(t.Context(), &all)
		t.Fatalf("%v; there are %v", err, all)
	}
	got := map[string]any{}
	for _, e := range doc {
		if e.Key != "w" {
			got[e.Key] = e.Value
		}
	}
	want := map[string]any{"_id": "shop:1de23b7de1e2d7d0", "sid": "shop", "k": home, "t": "Shop", "v": int32(3), "d": bson.D{{Key: "1", Value: int32(2)}, {Key: "14", Value: int32(1)}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := value(t, db, "pages.2027.01", "shop:1de23b7de1e2d7d0", "v"); got != 1 {
		t.Errorf("January counts %d, want 1", got)
	}
	specs, err := db.Collection("pages.2026.12").Indexes().ListSpecifications(t.Context())
	if err != nil || len(specs) != 2 {
		t.Fatalf("indexes: %v, %v; want two, that of _id among them", specs, err)
	}
	for _, s := range specs {
		var keys bson.D
		if err := bson.Unmarshal(s.KeysDocument, &keys); err != nil {
			t.Fatal(err)
		}
		if s.Name != "_id_" && !cmp.Equal(keys, bson.D{{Key: "sid", Value: int32(1)}, {Key: "v", Value: int32(-1)}}) {
			t.Errorf("index %s over %v", s.Name, keys)
		}
	}
}

func TestDaysAreNotCountedWhereNobodyAsks(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	v := NewValues(db, clock.At(noon), WithDays(false))
	v.count(t, w, "id", page("shop", "a"))
	n, err := db.Collection("pages.2026.12").CountDocuments(t.Context(), bson.D{{Key: "d", Value: bson.D{{Key: "$exists", Value: true}}}})
	if err != nil || n != 0 {
		t.Errorf("%d documents with days, %v", n, err)
	}
	wantCounted(t, db, Pages, "shop", map[string]int64{"a": 1})
}

// sameForAll is a hash by which all values collide.
func sameForAll(string) uint64 { return 0x0123456789abcdef }

func TestTwoValuesOfOneHashAreTwoDocuments(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	one, other := NewValues(db, clock.At(noon)), NewValues(db, clock.At(noon))
	one.hash, other.hash = sameForAll, sameForAll
	one.count(t, w, "id1", page("shop", "a"), page("shop", "b"), page("blog", "b"))
	other.count(t, w, "id2", page("shop", "c"), page("shop", "b"), page("shop", "b"))
	one.count(t, w, "id3", page("shop", "c"))
	wantCounted(t, db, Pages, "shop", map[string]int64{"a": 1, "b": 3, "c": 2})
	wantCounted(t, db, Pages, "blog", map[string]int64{"b": 1})
	for _, id := range []string{"shop:0123456789abcdef", "shop:0123456789abcdef~2", "shop:0123456789abcdef~3", "blog:0123456789abcdef"} {
		if value(t, db, "pages.2026.12", id, "v") == 0 {
			t.Errorf("there is no %s", id)
		}
	}
	// Somebody who finds values of one hash on purpose gets no further than this.
	var flood []Seen
	for i := range 20 {
		flood = append(flood, page("shop", fmt.Sprint("x", i)))
	}
	one.count(t, w, "id4", flood...)
	if got := counted(t, db, Pages, "shop"); got[OtherValues] != 15 || len(got) != 9 {
		t.Errorf("got %v, want 8 values and 15 others", got)
	}
}

// Processes that meet the same new values of one hash at the same moment give every value its own document, and the same one.
func TestCollisionsUnderARace(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	values := []string{"a", "b", "c", "d"}
	var wg sync.WaitGroup
	const processes = 4
	for p := range processes {
		wg.Go(func() {
			v := NewValues(db, clock.At(noon))
			v.hash = func(s string) uint64 { return uint64(s[0]) & 1 }
			for i := range values {
				seen := page("shop", values[(i+p)%len(values)])
				incs, err := v.Increments(t.Context(), []Seen{seen})
				if err == nil {
					err = w.Apply(t.Context(), fmt.Sprint(p, "/", i), incs)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	wantCounted(t, db, Pages, "shop", map[string]int64{"a": processes, "b": processes, "c": processes, "d": processes})
	if got := value(t, db, "pages.2026.12", "shop", "n"); got != int64(len(values)) {
		t.Errorf("room for %d values is taken, want %d", got, len(values))
	}
}

// A flood of new values, from several processes, makes as many documents as there may be; what was there before goes on being counted.
func TestLimitOfValues(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	const limit, processes, each = 50, 4, 40
	NewValues(db, clock.At(noon), WithValueLimit(limit)).count(t, w, "before", page("shop", "home"), page("blog", "home"))
	var wg sync.WaitGroup
	for p := range processes {
		wg.Go(func() {
			v := NewValues(db, clock.At(noon), WithValueLimit(limit))
			for i := range each {
				incs, err := v.Increments(t.Context(), []Seen{page("shop", fmt.Sprint(p, "/", i)), page("shop", fmt.Sprint("shared", i)), page("shop", "home")})
				if err == nil {
					err = w.Apply(t.Context(), fmt.Sprint(p, "/", i), incs)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got := counted(t, db, Pages, "shop")
	sum := int64(0)
	for _, n := range got {
		sum += n
	}
	if want := int64(1 + 3*processes*each); sum != want || got["home"] != 1+processes*each {
		t.Errorf("counted %d in all and %d of home, want %d and %d", sum, got["home"], want, 1+processes*each)
	}
	if got[OtherValues] == 0 || len(got) != limit+1 {
		t.Errorf("%d values, %d other; want %d and some", len(got)-1, got[OtherValues], limit)
	}
	wantCounted(t, db, Pages, "blog", map[string]int64{"home": 1})
}

// A higher limit makes room again, after a while.
func TestLimitIsRaised(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	clk := clock.At(noon)
	v := NewValues(db, clk, WithValueLimit(1))
	v.count(t, w, "id1", page("shop", "a"), page("shop", "b"))
	v.count(t, w, "id2", page("shop", "c"))
	raised := NewValues(db, clk, WithValueLimit(2))
	raised.count(t, w, "id3", page("shop", "b"))
	wantCounted(t, db, Pages, "shop", map[string]int64{"a": 1, "b": 1, OtherValues: 2})
	clk.Advance(fullFor)
	v.limit = 3
	v.count(t, w, "id4", page("shop", "c"))
	wantCounted(t, db, Pages, "shop", map[string]int64{"a": 1, "b": 1, "c": 1, OtherValues: 2})
}

// Room that was taken for documents that then could not be made is used when the chunk comes again.
func TestTroubleBetweenRoomAndDocument(t *testing.T) {
	srv, db := mongotest.Server(t)
	w, _ := start(t, db)
	v := NewValues(db, clock.At(noon), WithValueLimit(2))
	v.count(t, w, "id1", page("shop", "a"))
	srv.Inject(minimongo.Fault{Command: "insert", After: minimongo.Action{Drop: true}}) // made, but the answer is lost
	if _, err := v.Increments(t.Context(), []Seen{page("shop", "b")}); err != nil {
		v.count(t, w, "id2", page("shop", "b"))
	} else {
		v.count(t, w, "id2", page("shop", "b")) // the driver has tried again
	}
	wantCounted(t, db, Pages, "shop", map[string]int64{"a": 1, "b": 1})
}

func TestHostileValuesDoNoHarm(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	v := NewValues(db, clock.At(noon))
	want := map[string]int64{}
	var seen []Seen
	for _, raw := range []string{"$set.$inc.a..b", "..", "$", "", " \t\x00", "https://a.example/" + strings.Repeat("x", 1<<20), "\xff\xfe\xfd", `{"$gt": ""}`, "_id", "w", "(other)", "https://a.example/?" + strings.Repeat("utm_a=1&", 1<<14)} {
		s := page("shop", NormaliseURL(raw))
		s.Title = NormaliseText(raw, MaxTitleBytes)
		seen = append(seen, s)
		if s.Value != "" {
			want[s.Value]++
		}
	}
	v.count(t, w, "id", seen...)
	wantCounted(t, db, Pages, "shop", want)
	if n := undone(t, db); n != 0 {
		t.Errorf("%d sets are left undone", n)
	}
}

// What stands under a value's _id and is none, because another service put it there, is not counted in.
func TestSomethingElseStandsInTheWay(t *testing.T) {
	db := mongotest.DB(t)
	w, _ := start(t, db)
	v := NewValues(db, clock.At(noon))
	v.hash = sameForAll
	if _, err := db.Collection("pages.2026.12").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "shop:0123456789abcdef"}, {Key: "k", Value: 7}}); err != nil {
		t.Fatal(err)
	}
	v.count(t, w, "id", page("shop", "a"))
	wantCounted(t, db, Pages, "shop", map[string]int64{"a": 1})
}

func TestValuesOfADatabaseThatDoesNotAnswer(t *testing.T) {
	v := NewValues(mongotest.DB(t), clock.At(noon))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.Increments(ctx, []Seen{page("shop", "a")}); err == nil {
		t.Error("no error")
	}
	if incs, err := v.Increments(ctx, nil); err != nil || len(incs) != 0 {
		t.Errorf("of nothing: %v, %v", incs, err)
	}
}
