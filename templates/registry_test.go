package templates

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"postbit/internal/minimongo/mongotest"
)

func registry(t testing.TB) (*Registry, *mongo.Database) {
	t.Helper()
	db := mongotest.DB(t)
	r, err := Open(db)
	if err != nil {
		t.Fatal(err)
	}
	r.patience = 0
	if err := r.EnsureIndexes(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r, db
}

// folder writes templates "name bitIndex subject" (bitIndex - leaves it out) and returns their folder.
func folder(t testing.TB, lines ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, line := range lines {
		put(t, dir, line)
	}
	return dir
}

func put(t testing.TB, dir, line string) {
	t.Helper()
	f := strings.SplitN(line, " ", 3)
	index := "bitIndex: " + f[1] + "\n"
	if f[1] == "-" {
		index = ""
	}
	write(t, dir, f[0]+".html", "---\nname: "+f[0]+"\n"+index+"subject: "+f[2]+"\n---\n<p>{{ .User.name }}</p>\n")
}

func pushed(t testing.TB, r *Registry, dir string, o PushOptions) *Plan {
	t.Helper()
	p, err := r.PlanPush(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func importNames(t testing.TB, r *Registry, data string) {
	t.Helper()
	p, err := r.PlanImport(t.Context(), []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

func retire(t testing.TB, r *Registry, name string) {
	t.Helper()
	p, err := r.PlanRetire(t.Context(), testNow, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

func lines(p *Plan) []string {
	var out []string
	for _, c := range p.Changes {
		out = append(out, c.String())
	}
	return out
}

// listing is name:bit@revision of all entries.
func listing(t testing.TB, r *Registry) string {
	t.Helper()
	entries, err := r.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		s := fmt.Sprintf("%s:%d@%d", e.Name, e.BitIndex, e.Revision)
		if e.RetiredAt != nil {
			s += " retired"
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

func users(counts map[int]int64) BitsInUse {
	return func(context.Context, []int) (map[int]int64, error) { return counts, nil }
}

func TestPush(t *testing.T) {
	r, _ := registry(t)
	dir := folder(t, "welcome 0 Hi", "winback 7 Come back")
	p := pushed(t, r, dir, PushOptions{})
	if diff := cmp.Diff([]string{"create    welcome: bit 0, revision 1", "create    winback: bit 7, revision 1"}, lines(p)); diff != "" {
		t.Error(diff)
	}
	got, err := r.Get(t.Context(), "winback")
	if err != nil || got.Subject != "Come back" || got.Revision != 1 || got.BitIndex != 7 || got.HTML != "<p>{{ .User.name }}</p>\n" || !got.Track {
		t.Errorf("%+v, %v", got, err)
	}
	compile(t, got)

	again := pushed(t, r, dir, PushOptions{})
	if !again.Empty() || again.Changes[0].Action != Unchanged {
		t.Errorf("unchanged: %v", lines(again))
	}
	put(t, dir, "winback 7 Come back soon")
	put(t, dir, "digest 2 News")
	edited := pushed(t, r, dir, PushOptions{})
	if diff := cmp.Diff([]string{"create    digest: bit 2, revision 1", "unchanged welcome: bit 0, revision 1", "update    winback: bit 7, revision 2"}, lines(edited)); diff != "" {
		t.Error(diff)
	}
	if got := listing(t, r); got != "welcome:0@1, digest:2@1, winback:7@2" {
		t.Errorf("%s", got)
	}
}

func TestALayoutIsPartOfTheRevision(t *testing.T) {
	r, _ := registry(t)
	dir := folder(t, "welcome 0 Hi")
	write(t, dir, "_layout.html", `<body>{{ template "content" . }}</body>`)
	pushed(t, r, dir, PushOptions{})
	write(t, dir, "_other.html", "not used")
	if p := pushed(t, r, dir, PushOptions{}); !p.Empty() {
		t.Errorf("%v", lines(p))
	}
	write(t, dir, "_layout.html", `<body class="new">{{ template "content" . }}</body>`)
	if p := pushed(t, r, dir, PushOptions{}); p.Empty() {
		t.Errorf("%v", lines(p))
	}
}

func TestPushRefusals(t *testing.T) {
	r, _ := registry(t)
	pushed(t, r, folder(t, "welcome 7 Hi", "winback 12 x", "sale2024 3 x"), PushOptions{})
	retire(t, r, "sale2024")
	importNames(t, r, `{"theirs": 9}`)
	before := listing(t, r)
	for _, c := range []struct {
		name string
		push []string
		want string
	}{
		{"another index", []string{"winback 7 x"}, "winback: bitIndex 7 was 12; an index is forever"},
		{"an index of another", []string{"digest 7 x"}, "digest: bitIndex 7 belongs to welcome"},
		{"of a retired one", []string{"digest 3 x"}, "digest: bitIndex 3 belongs to sale2024 (retired)"},
		{"of another service", []string{"digest 9 x"}, "digest: bitIndex 9 belongs to theirs"},
		{"a retired one itself", []string{"sale2024 3 y"}, "sale2024: retired; its index is never given out again, give the mail a new name"},
		{"two of one push", []string{"a 20 x", "b 20 x"}, "b: bitIndex 20 belongs to a"},
		{"a bit that users have", []string{"digest 0 x"}, "digest: bit 0 is set on 4,112,009 users but no template owns it: import it, or --adopt"},
		{"no index", []string{"digest - x"}, "digest: bitIndex is missing; pick one that is free, or push with --assign"},
		{"no index, and it is known", []string{"winback - x"}, "winback: bitIndex is missing; it is 12, write it into the file or push with --assign"},
		{"all of them", []string{"good 30 x", "digest 7 x", "winback 8 x"}, "digest: bitIndex 7 belongs to welcome\nwinback: bitIndex 8 was 12; an index is forever"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := r.PlanPush(t.Context(), folder(t, c.push...), PushOptions{BitsInUse: users(map[int]int64{0: 4112009})})
			var refused *Refusal
			if !errors.As(err, &refused) || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			if got := listing(t, r); got != before {
				t.Errorf("changed: %s", got)
			}
		})
	}
}

func TestManyRefusalsAreNoLongText(t *testing.T) {
	r, _ := registry(t)
	var names strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&names, `, "mail%05d": 70000`, i)
	}
	_, err := r.PlanImport(t.Context(), []byte("{"+names.String()[1:]+"}"))
	var refused *Refusal
	if !errors.As(err, &refused) || len(refused.Reasons) != 10_000 {
		t.Fatalf("%.200v", err)
	}
	told := strings.Split(err.Error(), "\n")
	if n := len(told); n != 21 || !strings.HasPrefix(told[0], "mail00000: bitIndex 70000 is outside") || told[n-1] != "and 9,980 more" {
		t.Errorf("%d lines: %s … %s", n, told[0], told[n-1])
	}
}

func TestAFaultInAFileIsARefusal(t *testing.T) {
	r, _ := registry(t)
	dir := folder(t, "good 1 x", "bad 2 x\nsubjct: y")
	_, err := r.PlanPush(t.Context(), dir, PushOptions{})
	var refused *Refusal
	if !errors.As(err, &refused) || len(refused.Reasons) != 1 || refused.Reasons[0] != "bad.html:5: subjct: unknown; subject?" {
		t.Errorf("%v", err)
	}
}

func TestAdopt(t *testing.T) {
	r, _ := registry(t)
	p := pushed(t, r, folder(t, "welcome 0 x"), PushOptions{Adopt: true, BitsInUse: users(map[int]int64{0: 1234})})
	if diff := cmp.Diff([]string{"create    welcome: bit 0, revision 1, adopted from 1,234 users"}, lines(p)); diff != "" {
		t.Error(diff)
	}
}

func TestOwnedBitsAreNotLookedAt(t *testing.T) {
	r, _ := registry(t)
	importNames(t, r, `{"welcome": 0}`)
	p := pushed(t, r, folder(t, "welcome 0 x"), PushOptions{BitsInUse: users(map[int]int64{0: 1234})})
	if diff := cmp.Diff([]string{"update    welcome: bit 0, revision 1"}, lines(p)); diff != "" {
		t.Error(diff)
	}
	if got, err := r.Get(t.Context(), "welcome"); err != nil || got.Imported() {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAssign(t *testing.T) {
	r, _ := registry(t)
	importNames(t, r, `{"theirs": 1}`)
	dir := folder(t, "a - x", "b 2 x", "c - x", "d - x")
	p := pushed(t, r, dir, PushOptions{Assign: true, BitsInUse: users(map[int]int64{0: 5, 3: 1})})
	want := []string{"create    a: bit 4, revision 1, index assigned", "create    b: bit 2, revision 1",
		"create    c: bit 5, revision 1, index assigned", "create    d: bit 6, revision 1, index assigned"}
	if diff := cmp.Diff(want, lines(p)); diff != "" {
		t.Error(diff)
	}
	src, err := os.ReadFile(filepath.Join(dir, "a.html"))
	if want := "---\nname: a\nbitIndex: 4\nsubject: x\n---\n<p>{{ .User.name }}</p>\n"; err != nil || string(src) != want {
		t.Errorf("%q, %v", src, err)
	}
	if again := pushed(t, r, dir, PushOptions{}); !again.Empty() {
		t.Errorf("%v", lines(again))
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 4 {
		t.Errorf("%d files in the folder, %v", len(left), err)
	}
}

func TestAssignWritesAKnownIndex(t *testing.T) {
	r, _ := registry(t)
	pushed(t, r, folder(t, "winback 12 x"), PushOptions{})
	dir := folder(t, "winback - x")
	p := pushed(t, r, dir, PushOptions{Assign: true})
	if diff := cmp.Diff([]string{"unchanged winback: bit 12, revision 1, index assigned"}, lines(p)); diff != "" {
		t.Error(diff)
	}
	if src, _ := os.ReadFile(filepath.Join(dir, "winback.html")); !strings.Contains(string(src), "\nbitIndex: 12\n") {
		t.Errorf("%s", src)
	}
}

func TestNothingIsAssignedBeforeAllIsValid(t *testing.T) {
	r, _ := registry(t)
	pushed(t, r, folder(t, "welcome 7 x"), PushOptions{})
	dir := folder(t, "a - x", "b 7 x")
	if _, err := r.PlanPush(t.Context(), dir, PushOptions{Assign: true}); err == nil {
		t.Fatal("accepted")
	}
	if src, _ := os.ReadFile(filepath.Join(dir, "a.html")); strings.Contains(string(src), "bitIndex") {
		t.Errorf("%s", src)
	}
}

func TestAFileThatWasEditedMeanwhileIsLeftAlone(t *testing.T) {
	r, _ := registry(t)
	dir := folder(t, "a - x")
	p, err := r.PlanPush(t.Context(), dir, PushOptions{Assign: true})
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "a - y")
	if err := r.Apply(t.Context(), p); err == nil || !strings.Contains(err.Error(), "a is registered with bitIndex 0, but the file does not say so") {
		t.Errorf("%v", err)
	}
	pushed(t, r, dir, PushOptions{Assign: true})
	if src, _ := os.ReadFile(filepath.Join(dir, "a.html")); string(src) != "---\nname: a\nbitIndex: 0\nsubject: y\n---\n<p>{{ .User.name }}</p>\n" {
		t.Errorf("%s", src)
	}
}

func TestEveryIndexTaken(t *testing.T) {
	r, _ := registry(t)
	all := map[int]int64{}
	for i := range MaxBitIndex + 1 {
		all[i] = 1
	}
	_, err := r.PlanPush(t.Context(), folder(t, "a - x"), PushOptions{Assign: true, BitsInUse: users(all)})
	if err == nil || err.Error() != "a: no bit index is free, 0 to 4095 are all taken" {
		t.Errorf("%v", err)
	}
}

func TestImport(t *testing.T) {
	r, _ := registry(t)
	importNames(t, r, `{"welcome": 0, "digest": 3}`)
	importNames(t, r, `{"welcome": 0, "digest": 3, "more": 5}`)
	if got := listing(t, r); got != "welcome:0@0, digest:3@0, more:5@0" {
		t.Errorf("%s", got)
	}
	got, err := r.Get(t.Context(), "digest")
	if err != nil || !got.Imported() {
		t.Errorf("%+v, %v", got, err)
	}
	m, err := r.ListMap(t.Context())
	if err != nil || !maps.Equal(m, map[string]int{"welcome": 0, "digest": 3, "more": 5}) {
		t.Errorf("%v, %v", m, err)
	}
	for data, want := range map[string]string{
		`{"welcome": 1}`:            "welcome: bitIndex 1 was 0; an index is forever",
		`{"new": 3}`:                "new: bitIndex 3 belongs to digest",
		`{"new": 4096}`:             "new: bitIndex 4096 is outside 0 to 4095",
		`{"new": -1}`:               "new: bitIndex -1 is outside 0 to 4095",
		`{"new": 1.5}`:              "import: new: the index is no whole number",
		`{"new": "1"}`:              "import: new: the index is no whole number",
		`{"new": 10, "new": 11}`:    "import: new: stands there twice",
		`{"New\r\n": 10}`:           `"New\r\n": no name for a template`,
		`["new"]`:                   "import: the file must be one JSON object",
		`{"new": 10} {"other": 11}`: "import: the file must be one JSON object",
		`{"new": 10`:                "import: the file must be one JSON object",
		``:                          "import: the file must be one JSON object",
	} {
		if _, err := r.PlanImport(t.Context(), []byte(data)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", data, err, want)
		}
	}
}

func TestRetire(t *testing.T) {
	r, _ := registry(t)
	pushed(t, r, folder(t, "sale2024 3 x"), PushOptions{})
	retire(t, r, "sale2024")
	got, err := r.Get(t.Context(), "sale2024")
	if err != nil || !got.Retired() || !got.RetiredAt.Equal(testNow) || got.HTML == "" {
		t.Errorf("%+v, %v", got, err)
	}
	if s := listing(t, r); s != "sale2024:3@1 retired" {
		t.Errorf("%s", s)
	}
	if p, err := r.PlanRetire(t.Context(), testNow.Add(time.Hour), "sale2024"); err != nil || !p.Empty() {
		t.Errorf("again: %v, %v", lines(p), err)
	}
	if _, err := r.PlanRetire(t.Context(), testNow, "sale2024", "nope"); err == nil || err.Error() != "nope: no such template" {
		t.Errorf("%v", err)
	}
}

func TestGetOfNothing(t *testing.T) {
	r, _ := registry(t)
	if _, err := r.Get(t.Context(), "nope"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	if got, err := r.List(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestListUsed(t *testing.T) {
	r, _ := registry(t)
	importNames(t, r, `{"a": 0, "b": 1}`)
	var asked []int
	got, err := r.ListUsed(t.Context(), func(_ context.Context, bits []int) (map[int]int64, error) {
		asked = bits
		return map[int]int64{1: 42}, nil
	})
	if err != nil || *got[0].Used != 0 || *got[1].Used != 42 || !slices.Equal(asked, []int{0, 1}) {
		t.Errorf("%+v, %v, asked %v", got, err, asked)
	}
}

// Two pushes are planned with the same registry; the second to be applied finds it changed, and changes nothing.
func TestTwoPushesAtOnce(t *testing.T) {
	for name, second := range map[string][]string{
		"the same name":     {"alpha 1 x", "winback 7 other"},
		"the same bit":      {"alpha 1 x", "other 7 x"},
		"the same revision": {"alpha 1 x", "old 2 other"},
	} {
		t.Run(name, func(t *testing.T) {
			r, db := registry(t)
			pushed(t, r, folder(t, "old 2 x"), PushOptions{})
			first, err := r.PlanPush(t.Context(), folder(t, "winback 7 x", "old 2 y"), PushOptions{})
			if err != nil {
				t.Fatal(err)
			}
			late, err := r.PlanPush(t.Context(), folder(t, second...), PushOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Apply(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			if err := r.Apply(t.Context(), late); !errors.Is(err, ErrConflict) {
				t.Errorf("%v", err)
			}
			if got := listing(t, r); got != "old:2@2, winback:7@1" {
				t.Errorf("%s", got)
			}
			tidy(t, db)
		})
	}
}

// tidy checks that no push has left anything.
func tidy(t testing.TB, db *mongo.Database) {
	t.Helper()
	for coll, filter := range map[string]bson.D{
		PushCollection: {},
		Collection:     {{Key: "push", Value: bson.D{{Key: "$exists", Value: true}}}},
	} {
		if err := db.Collection(coll).FindOne(t.Context(), filter).Err(); !errors.Is(err, mongo.ErrNoDocuments) {
			t.Errorf("%s: something is left: %v", coll, err)
		}
	}
}
