package backfill

import (
	"bytes"
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
		text, readable := textOf(v)
		if text = bytes.TrimSpace(text); len(text) == 0 {
			return 0, readable
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

func dateOfText(text []byte) (int64, bool) {
	if len(text) > 64 {
		return 0, false
	}
	if ms, ok := plainTime(text); ok {
		return ms, true
	}
	if beginsWithDay(text) {
		return parseDate(string(text), layoutsBehind(text[len("2006-01-02"):]))
	}
	if f, err := strconv.ParseFloat(string(text), 64); err == nil {
		return dateOfNumber(f)
	}
	return parseDate(string(text), layouts)
}

// plainTime reads what most logs have, 2006-01-02T15:04:05Z or with a fraction, of a year from 1970 on, and leaves all else to the layouts.
func plainTime(text []byte) (int64, bool) {
	const length = len("2006-01-02T15:04:05")
	if len(text) <= length || text[len(text)-1] != 'Z' || text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' || text[16] != ':' {
		return 0, false
	}
	ms, ok := milliseconds(text[length : len(text)-1])
	two := func(at int) int64 {
		high, low := text[at]-'0', text[at+1]-'0'
		ok = ok && high < 10 && low < 10
		return int64(high)*10 + int64(low)
	}
	year, month, day, hour, minute, second := two(0)*100+two(2), two(5), two(8), two(11), two(14), two(17)
	if !ok {
		return 0, false
	}
	if year < 1970 || month < 1 || month > 12 || day < 1 || day > 28 && day > daysOf(year, month) || hour > 23 || minute > 59 || second > 59 {
		return 0, false
	}
	if month < 3 { // a year that begins in March ends with the day that may be missing
		year, month = year-1, month+12
	}
	days := 365*year + year/4 - year/100 + year/400 + (153*(month-3)+2)/5 + day - 1 - 719468
	return (((days*24+hour)*60+minute)*60+second)*1000 + ms, true
}

// milliseconds reads nothing, or a point and up to nine digits.
func milliseconds(fraction []byte) (ms int64, ok bool) {
	if len(fraction) == 0 {
		return 0, true
	}
	if fraction[0] != '.' || len(fraction) < 2 || len(fraction) > 10 {
		return 0, false
	}
	for i, worth := 1, int64(100); i < len(fraction); i, worth = i+1, worth/10 {
		if fraction[i] < '0' || fraction[i] > '9' {
			return 0, false
		}
		ms += int64(fraction[i]-'0') * worth
	}
	return ms, true
}

func daysOf(year, month int64) int64 {
	return int64(time.Date(int(year), time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day())
}

func parseDate(text string, layouts []string) (int64, bool) {
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UnixMilli(), true
		}
	}
	return 0, false
}

// beginsWithDay finds the two hyphens of 2006-01-02. A text with both is no number.
func beginsWithDay(text []byte) bool {
	return len(text) >= len("2006-01-02") && text[4] == '-' && text[7] == '-'
}

// layoutsBehind is the layouts that a text can have, in their order, by what stands behind its day. To find out by trying all of them costs an
// error for each.
func layoutsBehind(day []byte) []string {
	switch {
	case len(day) == 0:
		return layoutsOfDays
	case day[0] == 'T':
		return layoutsWithT
	case day[0] == ' ':
		return layoutsWithSpace
	}
	return nil
}

var layoutsOfDays, layoutsWithT, layoutsWithSpace = layoutsThatGoOn(""), layoutsThatGoOn("T"), layoutsThatGoOn(" ")

// layoutsThatGoOn is the layouts that have a day and then this, or nothing where this is nothing.
func layoutsThatGoOn(with string) (out []string) {
	for _, layout := range layouts {
		if rest, ok := strings.CutPrefix(layout, time.DateOnly); ok && (rest == with || with != "" && strings.HasPrefix(rest, with)) {
			out = append(out, layout)
		}
	}
	return out
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
