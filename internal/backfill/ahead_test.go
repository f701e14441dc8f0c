package backfill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestAhead(t *testing.T) {
	defer goleak.VerifyNone(t)
	malformed, full := errors.New("malformed"), errors.New("the disk is full")
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 4*chunkBytes/chunkRows), 0, 20).Draw(t, "sizes")
		n := rapid.IntRange(0, 5*chunkRows/2).Draw(t, "rows")
		values := []bson.RawValue{{}} // of the rows, again and again
		for i, size := range sizes {
			values = append(values, stringValue(strings.Repeat(fmt.Sprint(i%10), size)))
		}
		value := func(i int) bson.RawValue { return values[i%len(values)] }
		readFault := rapid.SampledFrom([]error{nil, malformed}).Draw(t, "read")
		failAt := rapid.SampledFrom([]int{-1, 0, n / 2, n - 1}).Draw(t, "fail at")
		ctx, kill := context.WithCancel(context.Background())
		defer kill()
		killAt := rapid.SampledFrom([]int{-1, -1, 0, n / 2}).Draw(t, "kill at")
		i := 0
		err := ahead(ctx, func(_ context.Context, f func(*Row) error) error {
			var buf []byte // as a source has it: of one row at a time
			for i := range n {
				buf = append(buf[:0], value(i).Value...)
				if err := f(&Row{Line: int64(i), User: bson.RawValue{Type: value(i).Type, Value: buf}}); err != nil {
					return err
				}
			}
			return readFault
		}, func(row *Row) error {
			if row.Line != int64(i) || !row.User.Equal(value(i)) || row.Template.Type != 0 {
				t.Fatalf("row %d: %+v", i, row)
			}
			switch i {
			case failAt:
				return full
			case killAt:
				kill()
			}
			i++
			return nil
		})
		switch {
		case killAt >= 0 && killAt < i && errors.Is(err, context.Canceled): // how far it comes then is left to it
		case failAt >= 0 && failAt < n && i == failAt:
			if !errors.Is(err, full) {
				t.Errorf("%v, want %v", err, full)
			}
		case i != n || !errors.Is(err, readFault):
			t.Errorf("%d rows of %d, %v, want %v", i, n, err, readFault)
		}
	})
}
