package analytics

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"pgregory.net/rapid"

	"postbit/internal/minimongo/mongotest"
)

// store puts a list of a month there as it is, without counting.
func storeList(t rapid.TB, db *mongo.Database, month, sid string, ns []int) []Value {
	var docs []any
	var list []Value
	for i, n := range ns {
		v := Value{ID: fmt.Sprintf("%s:%016x", sid, (uint64(i)+1)*0x9e3779b97f4a7c15), Value: fmt.Sprint("page ", i), N: int64(n)}
		list = append(list, v)
		docs = append(docs, bson.D{{Key: "_id", Value: v.ID}, {Key: "sid", Value: sid}, {Key: "k", Value: v.Value}, {Key: "v", Value: n}})
	}
	docs = append(docs, bson.D{{Key: "_id", Value: sid}, {Key: "n", Value: len(ns)}})
	for part := range slices.Chunk(docs, 5000) {
		if _, err := db.Collection("pages."+month).InsertMany(context.Background(), part); err != nil {
			t.Fatal(err)
		}
	}
	slices.SortFunc(list, byFrequency)
	return list
}

func indexTop(t testing.TB, db *mongo.Database, months ...string) {
	t.Helper()
	for _, m := range months {
		if _, err := db.Collection("pages."+m).Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: topIndexKeys}); err != nil {
			t.Fatal(err)
		}
	}
}

// readAll pages through a list.
func readAll(t rapid.TB, r *Reader, sid string, from, to time.Time, n int) []Value {
	var all []Value
	for after := (PageKey{}); ; {
		page, err := r.TopValues(context.Background(), Pages, sid, from, to, n, after)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Values...)
		if page.Next == (PageKey{}) {
			return all
		}
		if len(page.Values) != n {
			t.Fatalf("a page of %d, and not the last one", len(page.Values))
		}
		key, err := ParsePageKey(page.Next.String())
		if err != nil || key != page.Next {
			t.Fatalf("key %v comes back as %v, %v", page.Next, key, err)
		}
		after = key
	}
}

// Whatever ties there are, the pages of a month put together are the whole list, in order, nothing twice.
func TestPagesOfAMonthAreTheList(t *testing.T) {
	db := mongotest.DB(t)
	indexTop(t, db, "2026.12")
	storeList(t, db, "2026.12", "neighbour", []int{5, 3, 1, 1})
	r, lists := NewReader(db), 0
	rapid.Check(t, func(t *rapid.T) {
		lists++
		sid := fmt.Sprint("shop", lists)
		most := rapid.SampledFrom([]int{1, 2, 3, 100}).Draw(t, "most")
		want := storeList(t, db, "2026.12", sid, rapid.SliceOfN(rapid.IntRange(1, most), 0, 30).Draw(t, "counts"))
		got := readAll(t, r, sid, noon, noon, rapid.IntRange(1, 10).Draw(t, "n"))
		if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
			t.Fatal(diff)
		}
	})
}

// A long tail of values that were seen once is read along _id.
func TestPagesOfALongTail(t *testing.T) {
	db := mongotest.DB(t)
	indexTop(t, db, "2026.12")
	ns := make([]int, fewTies+1000)
	for i := range ns {
		ns[i] = 1 + max(0, 500-i)/100
	}
	want := storeList(t, db, "2026.12", "shop", ns)
	storeList(t, db, "2026.12", "shop2", []int{1, 1, 7})
	if got := readAll(t, NewReader(db), "shop", noon, noon, 700); !cmp.Equal(got, want) {
		t.Errorf("%d values in pages, of %d; or in another order", len(got), len(want))
	}
}

func TestPagesOverMonthsAreTheSum(t *testing.T) {
	db := mongotest.DB(t)
	months := []string{"2026.11", "2026.12", "2027.01"}
	indexTop(t, db, months...)
	r, lists := NewReader(db), 0
	rapid.Check(t, func(t *rapid.T) {
		lists++
		sid := fmt.Sprint("shop", lists)
		sum := map[string]Value{}
		for _, m := range months {
			for _, v := range storeList(t, db, m, sid, rapid.SliceOfN(rapid.IntRange(1, 20), 0, 20).Draw(t, m)) {
				v.N += sum[v.Value].N
				sum[v.Value] = v
			}
		}
		var want []Value
		for _, v := range sum {
			want = append(want, v)
		}
		slices.SortFunc(want, byFrequency)
		got := readAll(t, r, sid, date("2026-11-30"), date("2027-01-01"), rapid.IntRange(1, 15).Draw(t, "n"))
		if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
			t.Fatal(diff)
		}
	})
}

// The merge stops when nothing that it did not meet can be among the first.
func TestTheHeadOverMonthsNeedsNoTail(t *testing.T) {
	db := mongotest.DB(t)
	indexTop(t, db, "2026.11", "2026.12")
	ns := make([]int, 3000)
	for i := range ns {
		ns[i] = 10_000 - i
	}
	storeList(t, db, "2026.11", "shop", ns)
	storeList(t, db, "2026.12", "shop", ns)
	page, err := NewReader(db).TopValues(t.Context(), Pages, "shop", date("2026-11-01"), date("2026-12-31"), 2, PageKey{})
	if err != nil || len(page.Values) != 2 || page.Values[0].N != 20_000 || page.Values[1].N != 19_998 {
		t.Errorf("%+v, %v", page, err)
	}
}

// Another service may have made the collection, and without the index.
func TestPagesWithoutTheIndex(t *testing.T) {
	db := mongotest.DB(t)
	want := storeList(t, db, "2026.12", "shop", []int{3, 1, 1, 2, 1, 1})
	if got := readAll(t, NewReader(db), "shop", noon, noon, 2); !cmp.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTopOfNothing(t *testing.T) {
	r := NewReader(mongotest.DB(t))
	page, err := r.TopValues(t.Context(), Pages, "shop", noon, noon, 15, PageKey{})
	if err != nil || len(page.Values) != 0 || page.Next != (PageKey{}) {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestPageKeysFromOutside(t *testing.T) {
	for _, s := range []string{"x", ":", "5", "5:", ":a", "-1:a", "0:a", "1e3:a", "99999999999999999999:a"} {
		if k, err := ParsePageKey(s); err == nil {
			t.Errorf("%q is read as %+v", s, k)
		}
	}
}
