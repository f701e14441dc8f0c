package minimongo

import (
	"bytes"
	"math"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"pgregory.net/rapid"
)

func anyNumber() *rapid.Generator[any] {
	return rapid.OneOf(
		rapid.Map(rapid.Int32(), func(n int32) any { return n }),
		rapid.Map(rapid.Int64(), func(n int64) any { return n }),
		rapid.Map(rapid.Float64(), func(f float64) any { return f }),
		rapid.SampledFrom([]any{
			math.NaN(), math.Inf(1), math.Inf(-1), 0.0, math.Copysign(0, -1), 0.1, 5e-324, -5e-324, math.MaxFloat64, -math.MaxFloat64,
			int64(1) << 53, int64(1)<<53 + 1, int64(-1)<<53 - 1, int64(math.MaxInt64), int64(math.MinInt64), math.Ldexp(1, 63), -math.Ldexp(1, 63),
		}),
		rapid.Map(rapid.SampledFrom([]string{
			"NaN", "Infinity", "-Infinity", "0", "-0", "1", "1.0", "0.1", "-0.1", "1E-6176", "-1E-6176", "9.999999999999999999999999999999999E+6144",
			"9007199254740993", "9007199254740993.5", "9223372036854775807", "9223372036854775808", "0.1000000000000000055511151231257827",
			"5E-324", "1E+400", "-1E+400", "123456.789", "3",
		}), func(s string) any {
			d, err := bson.ParseDecimal128(s)
			if err != nil {
				panic(err)
			}
			return d
		}),
		rapid.Custom(func(t *rapid.T) any {
			d, ok := bson.ParseDecimal128FromBigInt(bigInt(rapid.Int64().Draw(t, "c")), rapid.IntRange(-30, 30).Draw(t, "e"))
			if !ok {
				panic("decimal")
			}
			return d
		}),
	)
}

// anyValue draws values of all types, with many near each other.
func anyValue(depth int) *rapid.Generator[any] {
	text := rapid.StringOfN(rapid.SampledFrom([]rune{0, 1, 'a', 'b', 0xff, 0x10ffff}), 0, 4, -1)
	leaves := []*rapid.Generator[any]{
		anyNumber(), anyNumber(),
		rapid.Map(text, func(s string) any { return s }),
		rapid.Map(text, func(s string) any { return bson.Symbol(s) }),
		rapid.Map(text, func(s string) any { return bson.JavaScript(s) }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.SampledFrom([]any{bson.Null{}, bson.Undefined{}, bson.MinKey{}, bson.MaxKey{}}),
		rapid.Map(rapid.Int64(), func(n int64) any { return bson.DateTime(n) }),
		rapid.Custom(func(t *rapid.T) any {
			return bson.Timestamp{T: rapid.Uint32().Draw(t, "t"), I: rapid.Uint32().Draw(t, "i")}
		}),
		rapid.Custom(func(t *rapid.T) any {
			return bson.Binary{Subtype: rapid.SampledFrom([]byte{0, 2, 4, 128}).Draw(t, "sub"), Data: rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "data")}
		}),
		rapid.Custom(func(t *rapid.T) any {
			var id bson.ObjectID
			copy(id[:], rapid.SliceOfN(rapid.Byte(), 12, 12).Draw(t, "oid"))
			return id
		}),
		rapid.Custom(func(t *rapid.T) any {
			return bson.Regex{Pattern: rapid.SampledFrom([]string{"", "a", "ab"}).Draw(t, "p"), Options: rapid.SampledFrom([]string{"", "i"}).Draw(t, "o")}
		}),
	}
	if depth == 0 {
		return rapid.OneOf(leaves...)
	}
	return rapid.OneOf(append(leaves,
		rapid.Map(rapid.SliceOfN(anyValue(depth-1), 0, 3), func(l []any) any { return bson.A(l) }),
		rapid.Custom(func(t *rapid.T) any {
			d := bson.D{}
			for range rapid.IntRange(0, 3).Draw(t, "fields") {
				d = append(d, bson.E{Key: rapid.SampledFrom([]string{"", "a", "b", "ab"}).Draw(t, "k"), Value: anyValue(depth-1).Draw(t, "v")})
			}
			return d
		}),
	)...)
}

func toValue(t rapid.TB, x any) value {
	typ, data, err := bson.MarshalValue(x)
	if err != nil {
		t.Fatal(err)
	}
	return value{Type: bsoncore.Type(typ), Data: data}
}

// reference compares by the rules of the manual, value by value, without the encoding.
func reference(t rapid.TB, a, b value) int {
	if ca, cb := class(a.Type), class(b.Type); ca != cb {
		return sign(int(ca) - int(cb))
	}
	switch a.Type {
	case tDocument, tArray:
		x, y := elementsOf(a.Data), elementsOf(b.Data)
		for {
			kx, ex, okx := x.next()
			ky, ey, oky := y.next()
			switch {
			case !okx && !oky:
				return 0
			case !okx:
				return -1
			case !oky:
				return 1
			}
			if a.Type == tDocument {
				if c := sign(int(class(ex.Type)) - int(class(ey.Type))); c != 0 {
					return c
				}
				if c := bytes.Compare(kx, ky); c != 0 {
					return c
				}
			}
			if c := reference(t, ex, ey); c != 0 {
				return c
			}
		}
	case tInt32, tInt64, tDouble, tDecimal:
		return referenceNumbers(a, b)
	case tRegex:
		pa, oa := a.Regex()
		pb, ob := b.Regex()
		if c := bytes.Compare([]byte(pa), []byte(pb)); c != 0 {
			return c
		}
		return bytes.Compare([]byte(oa), []byte(ob))
	case tTimestamp:
		x, y := uint64(i64(a)), uint64(i64(b))
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}
	return compare(a, b) // strings, binaries, dates …: compared directly there
}

func sign(n int) int { return min(1, max(-1, n)) }

func TestKeyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gen := anyValue(2)
		if rapid.Bool().Draw(t, "numbers") {
			gen = anyNumber()
		}
		a, b := toValue(t, gen.Draw(t, "a")), toValue(t, gen.Draw(t, "b"))
		ka, kb := appendKey(nil, a), appendKey(nil, b)
		want := reference(t, a, b)
		if got := bytes.Compare(ka, kb); got != want {
			t.Fatalf("keys of %s and %s: %d, want %d\n%x\n%x", a, b, got, want, ka, kb)
		}
		if got := compare(a, b); got != want {
			t.Fatalf("compare(%s, %s) = %d, want %d", a, b, got, want)
		}
		if want != 0 && (bytes.HasPrefix(ka, kb) || bytes.HasPrefix(kb, ka)) {
			t.Fatalf("the key of %s is a prefix of that of %s", a, b)
		}
		invert(ka)
		invert(kb)
		if got := bytes.Compare(ka, kb); got != -want {
			t.Fatalf("descending keys of %s and %s: %d, want %d", a, b, got, -want)
		}
	})
}
