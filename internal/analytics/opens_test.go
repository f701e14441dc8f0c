package analytics

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/minimongo/mongotest"
)

func rawValue(t testing.TB, v any) bson.RawValue {
	t.Helper()
	typ, data, err := bson.MarshalValue(v)
	if err != nil {
		t.Fatal(err)
	}
	return bson.RawValue{Type: typ, Value: data}
}

func TestFirstOpens(t *testing.T) {
	u7 := rawValue(t, int32(7))
	key := func(hit, kind string, user bson.RawValue) OpenKey {
		return OpenKey{Run: "winback@2026-12-01T09:00:00Z", Month: "2026.12", User: user, Kind: kind, Hit: hit, At: noon}
	}
	for _, row := range []struct {
		name  string
		calls [][]OpenKey
		want  [][]bool
	}{
		{"the first of ten is the first (O1)",
			[][]OpenKey{{key("h1", Person, u7), key("h2", Person, u7)}, {key("h3", Person, u7)}}, [][]bool{{true, false}, {false}}},
		{"asked again, it is still the first",
			[][]OpenKey{{key("h1", Person, u7)}, {key("h2", Person, u7)}, {key("h1", Person, u7)}}, [][]bool{{true}, {false}, {true}}},
		{"asked again with one that came in between",
			[][]OpenKey{{key("h1", Person, u7)}, {key("h2", Person, u7), key("h1", Person, u7)}}, [][]bool{{true}, {false, true}}},
		{"a scanner does not take a person's away (O2b)",
			[][]OpenKey{{key("h1", Machine, u7)}, {key("h2", Person, u7)}}, [][]bool{{true}, {true}}},
		{"one hit twice is one hit",
			[][]OpenKey{{key("h1", Person, u7), key("h1", Person, u7)}}, [][]bool{{true, false}}},
		{"ids of other types are other users",
			[][]OpenKey{{key("h1", Person, u7), key("h2", Person, rawValue(t, "7")), key("h3", Person, rawValue(t, bson.D{{Key: "$a", Value: 7}}))}}, [][]bool{{true, true, true}}},
		{"nothing asked", [][]OpenKey{nil}, [][]bool{{}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := NewOpens(mongotest.DB(t))
			for i, keys := range row.calls {
				got, err := o.First(t.Context(), keys)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got, row.want[i]) {
					t.Errorf("call %d: %v, want %v", i+1, got, row.want[i])
				}
			}
		})
	}
}

func TestFirstOpensOfSeveralMonths(t *testing.T) {
	db := mongotest.DB(t)
	o := NewOpens(db)
	u := rawValue(t, bson.NewObjectID())
	keys := []OpenKey{
		{Run: "a@2026-11-30T09:00:00Z", Month: "2026.11", User: u, Kind: Person, Hit: "h1", At: noon},
		{Run: "a@2026-12-01T09:00:00Z", Month: "2026.12", User: u, Kind: Person, Hit: "h2", At: noon},
	}
	first, err := o.First(t.Context(), keys)
	if err != nil || !slices.Equal(first, []bool{true, true}) {
		t.Fatalf("First = %v, %v", first, err)
	}
	var doc struct {
		ID  string        `bson:"_id"`
		U   bson.ObjectID `bson:"u"`
		Hit string
		At  time.Time
	}
	if err := db.Collection("opens.2026.11").FindOne(t.Context(), bson.D{}).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if doc.ID != keys[0].Run+"/person/07:"+u.ObjectID().Hex() || doc.U != u.ObjectID() || doc.Hit != "h1" || !doc.At.Equal(noon) {
		t.Errorf("document %+v", doc)
	}
}

// Whatever happens to a command, asking again until there is an answer gives each user one first open, and always the same.
func TestFirstOpensInTrouble(t *testing.T) {
	for _, trouble := range troubles[:5] { // one caller can't be held up
		t.Run(trouble.name, func(t *testing.T) {
			t.Parallel()
			srv, db := mongotest.Server(t)
			o := NewOpens(db)
			for nth := 1; nth <= 2; nth++ {
				keys := make([]OpenKey, 6)
				for i := range keys {
					keys[i] = OpenKey{Run: fmt.Sprint("run", nth), Month: "2026.12", User: rawValue(t, int32(i/2)), Kind: Person, Hit: fmt.Sprint("h", i), At: noon}
				}
				release := make(chan struct{})
				f := trouble.fault(release)
				f.Nth = nth
				remove := srv.Inject(f)
				for round := range 3 {
					if round == 2 {
						remove()
						close(release) // what was held back is applied now, after everything else
					}
					var first []bool
					err := fmt.Errorf("not asked")
					for err != nil && t.Context().Err() == nil {
						first, err = o.First(t.Context(), keys)
					}
					if want := []bool{true, false, true, false, true, false}; !slices.Equal(first, want) {
						t.Errorf("trouble at command %d: %v, want %v", nth, first, want)
					}
				}
			}
		})
	}
}

func TestFirstOpensAtOnce(t *testing.T) {
	db := mongotest.DB(t)
	var wg sync.WaitGroup
	firsts := make([]int, 8)
	for i := range firsts {
		wg.Go(func() {
			var keys []OpenKey
			for u := range 20 {
				keys = append(keys, OpenKey{Run: "r", Month: "2026.12", User: rawValue(t, int32(u)), Kind: Person, Hit: fmt.Sprint("h", i, "/", u), At: noon})
			}
			first, err := NewOpens(db).First(t.Context(), keys)
			if err != nil {
				t.Error(err)
			}
			for _, f := range first {
				if f {
					firsts[i]++
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range firsts {
		sum += n
	}
	if sum != 20 {
		t.Errorf("%d first opens of 20 users", sum)
	}
}
