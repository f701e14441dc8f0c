package backfill

import (
	"math"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// layouts of dates in texts. Where a text names no zone it is UTC.
var layouts = []string{
	time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00",
	"2006-01-02 15:04:05.999999999 -0700", "2006-01-02 15:04:05.999999999 -0700 MST", "2006-01-02 15:04:05.999999999 UTC", "2006-01-02 15:04",
	"2006-01-02T15:04", "2006-01-02", time.RFC1123Z, "Mon, 02 Jan 2006 15:04:05 GMT",
}

// earliest is before the first mail that anybody may have logged; earlier dates are zeros of some kind.
var earliest = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// dateOf reads when something happened, in milliseconds since 1970. 0, true: there is no date. Not ok: there is one, and it can't be
// read or can't be true. Numbers are seconds, milliseconds from 10¹¹ on. latest is now.
func dateOf(v bson.RawValue, latest int64) (ms int64, ok bool) {
	switch v.Type {
	case 0, bson.TypeNull, bson.TypeUndefined:
		return 0, true
	case bson.TypeDateTime:
		ms, ok = v.DateTimeOK()
	case bson.TypeTimestamp:
		sec, _, readable := v.TimestampOK()
		ms, ok = int64(sec)*1000, readable
	case bson.TypeString:
		text, readable := v.StringValueOK()
		if text = strings.TrimSpace(text); text == "" && readable {
			return 0, true
		}
		ms, ok = dateOfText(text)
	default:
		var f float64
		if f, ok = number(v); ok {
			ms, ok = dateOfNumber(f)
		}
	}
	return ms, ok && ms >= earliest && ms <= latest
}

func dateOfText(text string) (int64, bool) {
	if len(text) > 64 {
		return 0, false
	}
	if !beginsWithDay(text) { // to find out that it is no number would cost an error
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			return dateOfNumber(f)
		}
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UnixMilli(), true
		}
	}
	return 0, false
}

// beginsWithDay finds the two hyphens of 2006-01-02. A text with both is no number.
func beginsWithDay(text string) bool {
	return len(text) >= len("2006-01-02") && text[4] == '-' && text[7] == '-'
}

func dateOfNumber(f float64) (int64, bool) {
	if math.IsNaN(f) || math.Abs(f) > 1e14 {
		return 0, false
	}
	if math.Abs(f) < 1e11 {
		f *= 1000
	}
	return int64(f), true
}
