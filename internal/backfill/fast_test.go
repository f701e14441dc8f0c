package backfill

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"
)

// What is made fast says the same as the plain way of saying it.

// mangled is a text with a few bytes of it changed, left out or doubled.
func mangled(t *rapid.T, text, with string) string {
	for range rapid.IntRange(0, 2).Draw(t, "changes") {
		at := rapid.IntRange(0, len(text)).Draw(t, "at")
		to := min(len(text), at+rapid.IntRange(0, 2).Draw(t, "without"))
		text = text[:at] + rapid.StringOfN(rapid.RuneFrom([]rune(with)), 0, 2, -1).Draw(t, "put") + text[to:]
	}
	return text
}

func TestDateOfTextTriesAllLayouts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(-1e9, 5e9).Draw(t, "second"), rapid.Int64Range(0, 999).Draw(t, "ms")*1e6).In(time.FixedZone("", 60*rapid.IntRange(-720, 840).Draw(t, "zone")))
		text := mangled(t, rapid.OneOf(
			rapid.Map(rapid.SampledFrom(layouts), at.Format),
			rapid.StringMatching(`(19[67]|20[02])[0-9]-(0[0-3]|1[0-3])-(0[01]|2[89]|3[0-2])T[0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{1,11})?Z`),
			rapid.Map(rapid.Float64(), func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }),
			rapid.StringMatching(`-?[0-9a-fx_]{2,4}[-p]?[0-9]{1,3}-[0-9]{1,3}[T ]?[0-9:]*`),
		).Draw(t, "text"), "0123456789-+:.,TZtz exp")
		var want int64
		ok := false
		if f, err := strconv.ParseFloat(text, 64); len(text) <= 64 && err == nil {
			want, ok = dateOfNumber(f)
		} else if len(text) <= 64 {
			want, ok = parseDate(text, layouts)
		}
		if got, gotOK := dateOfText([]byte(text)); got != want || gotOK != ok {
			t.Errorf("%q: %d %v, want %d %v", text, got, gotOK, want, ok)
		}
	})
}

func TestIntegerIsWhatAnIntegerIsWrittenLike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := mangled(t, strconv.FormatInt(rapid.Int64().Draw(t, "n"), 10), "0123456789-+_ex ")
		n, err := strconv.ParseInt(text, 10, 64)
		want := err == nil && strconv.FormatInt(n, 10) == text
		if got, ok := integer([]byte(text)); ok != want || ok && got != n {
			t.Errorf("%q: %d %v, want %d %v", text, got, ok, n, want)
		}
	})
}

func TestObjectIDIsTheDrivers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := mangled(t, rapid.StringMatching(`[0-9a-f]{24}|[0-9a-fA-F]{24}`).Draw(t, "text"), "0123456789abcdefABCDEFgG/:@`x\xff")
		want, err := bson.ObjectIDFromHex(text)
		got, upper, ok := objectID([]byte(text))
		if ok != (err == nil) || ok && (got != want || upper != (strings.ToLower(text) != text)) {
			t.Errorf("%s: %s %v %v, want %s %v", text, got, upper, ok, want, err)
		}
	})
}

func TestAppendLowerIsToLower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		if got := string(appendLower(nil, []byte(text))); got != strings.ToLower(text) {
			t.Errorf("%q, want %q", got, strings.ToLower(text))
		}
	})
}

func TestTextOfIsTheDriversString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := stringValue(rapid.String().Draw(t, "text"))
		if !bytes.Equal(appendText(nil, v.Value[4:len(v.Value)-1]), v.Value) {
			t.Errorf("%x, want %x", appendText(nil, v.Value[4:len(v.Value)-1]), v.Value)
		}
		v.Type = rapid.SampledFrom([]bson.Type{bson.TypeString, bson.TypeString, bson.TypeSymbol, 0}).Draw(t, "type")
		if rapid.Bool().Draw(t, "cut") {
			v.Value = v.Value[:rapid.IntRange(0, len(v.Value)).Draw(t, "to")]
		}
		if len(v.Value) >= 4 && rapid.Bool().Draw(t, "another length") {
			copy(v.Value, rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 4, 128, 255}), 4, 4).Draw(t, "length"))
		}
		want, ok := v.StringValueOK()
		if got, gotOK := textOf(v); gotOK != ok || string(got) != want {
			t.Errorf("%x: %q %v, want %q %v", v.Value, got, gotOK, want, ok)
		}
	})
}

func drawFacts(t *rapid.T) *facts {
	f := &facts{}
	f.text = rapid.Bool().Draw(t, "text")
	for _, at := range []*int64{&f.first, &f.last, &f.openFirst, &f.openLast} {
		*at = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(earliest, earliest+10), rapid.Int64Range(earliest, 1e14)).Draw(t, "at")
	}
	for _, bit := range rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 9), rapid.IntRange(0, 4095)), 1, 6).Draw(t, "bits") {
		f.set(bit)
	}
	return f
}

func TestCombineFactsIsTheirUnion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawFacts(t), drawFacts(t)
		x, y := a.append(nil), b.append(nil)
		got := combineFacts(slices.Clone(x), y)
		a.add(&b.about)
		for bit := range 4096 {
			if len(b.bits) > bit>>3 && b.bits[bit>>3]&(0x80>>(bit&7)) != 0 {
				a.set(bit)
			}
		}
		if want := a.append(nil); !bytes.Equal(got, want) {
			t.Fatalf("%x and %x: %x, want %x", x, y, got, want)
		}
		if !bytes.Equal(y, b.append(nil)) {
			t.Error("the second one is changed")
		}
		if got := b.about.appendRow(nil, 17); !bytes.Equal(got, (&facts{about: b.about, bits: []byte{0, 0, 0x40}}).append(nil)) {
			t.Errorf("a row: %x", got)
		}
	})
}

func TestCombineAddressKeepsFactsAndUsers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func() (a address) {
			if rapid.Bool().Draw(t, "named by the source") {
				a.facts = drawFacts(t).append(nil)
			}
			for range rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, maxShared)).Draw(t, "users") {
				a.users = append(a.users, rapid.SliceOfN(rapid.Byte(), 1, 3).Draw(t, "user"))
			}
			return a
		}
		a, b := draw(), draw()
		y := b.append(nil)
		var got address
		got.read(combineAddress(a.append(nil), y))
		want := address{facts: a.facts, users: append(slices.Clone(a.users), b.users...)}
		switch {
		case a.facts == nil:
			want.facts = b.facts
		case b.facts != nil:
			want.facts = combineFacts(slices.Clone(a.facts), b.facts)
		}
		want.users = want.users[:min(len(want.users), maxShared)]
		if !bytes.Equal(got.append(nil), want.append(nil)) || !bytes.Equal(y, b.append(nil)) {
			t.Errorf("%x and %x: %x, want %x", a, b, got, want)
		}
	})
}

// Keys with much or nothing in common, one the beginning of another or followed by zeros: the order is that of bytes.Compare, and each key
// comes once, also where gathering has no room for what it combines.
func TestSorterSortsBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSorter("", func(a, b []byte) []byte { return append(a, b...) })
		defer s.close()
		s.limit = rapid.SampledFrom([]int{sortMemory, 400, 2000}).Draw(t, "limit")
		common := rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "common")
		want := map[string]int{}
		for range rapid.IntRange(0, 5*fewSpans).Draw(t, "records") {
			key := append(slices.Clone(common), rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 'b', 255}), 0, 11).Draw(t, "key")...)
			if rapid.IntRange(0, 9).Draw(t, "short") == 0 {
				key = key[:rapid.IntRange(0, len(key)).Draw(t, "length")]
			}
			if err := s.add(key, []byte{1}); err != nil {
				t.Fatal(err)
			}
			want[string(key)]++
		}
		for i := range 3 {
			if i == 1 {
				s.gather()
			}
			var keys []string
			err := s.each(func(key, value []byte) error {
				if keys = append(keys, string(key)); len(value) != want[string(key)] {
					t.Errorf("%x: %d values, want %d", key, len(value), want[string(key)])
				}
				return nil
			})
			if err != nil || len(keys) != len(want) || !slices.IsSorted(keys) {
				t.Fatalf("%x %v, want %d keys", keys, err, len(want))
			}
		}
	})
}
