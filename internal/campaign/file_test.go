package campaign

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/internal/faults"
	"postbit/rules"
)

const winback = `name: winback
template: winback
audience: { plan: free, created_at: { $lt: { $ago: 30d } } }
schedule: { cron: "0 9 * * MON", timezone: Europe/Berlin }
rules: { window: "09:00-20:00", days: mon-fri, inactive_after: 90d, min_gap: 24h }
limits: { rate: ["40/min", "2000/h"], per_domain: { gmail.com: "20/s" } }
expires_after: 36h
`

func TestParseFile(t *testing.T) {
	got, err := ParseFile("winback.yaml", []byte(winback))
	if err != nil {
		t.Fatal(err)
	}
	want := Spec{
		Name:     "winback",
		Template: "winback",
		Audience: `{"plan":"free","created_at":{"$lt":{"$ago":"30d"}}}`,
		Schedule: Schedule{Cron: "0 9 * * MON", Timezone: "Europe/Berlin"},
		Rules: RuleSet{
			Window:        rules.Window{From: 9 * 60, To: 20 * 60, Days: 0b0111110},
			InactiveAfter: 90 * day,
			MinGap:        day,
		},
		Limits: Limits{
			Rate:      []Rate{{40, time.Minute}, {2000, time.Hour}},
			PerDomain: []DomainLimits{{"gmail.com", []Rate{{20, time.Second}}}},
		},
		ExpiresAfter: 36 * time.Hour,
		MisfireGrace: time.Hour,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
}

func TestParseFileDefaults(t *testing.T) {
	got, err := ParseFile("x.yaml", []byte("name: x\ntemplate: t\naudience: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := Spec{Name: "x", Template: "t", Audience: "{}", ExpiresAfter: 24 * time.Hour, MisfireGrace: time.Hour}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
}

func TestParseFileSchedules(t *testing.T) {
	for _, c := range []struct{ name, schedule, want string }{
		{"at, on the clocks of a zone", `{ at: 2026-12-01 09:00, timezone: Europe/Berlin }`, "2026-12-01T08:00:00Z"},
		{"at, without a zone", `{ at: "2026-12-01T09:00" }`, "2026-12-01T09:00:00Z"},
		{"at, with an offset", `{ at: 2026-12-01T09:00:00+05:30, timezone: Europe/Berlin }`, "2026-12-01T03:30:00Z"},
		{"at, inside the spring gap", `{ at: 2026-03-29 02:30, timezone: Europe/Berlin }`, "2026-03-29T01:00:00Z"},
		{"at, in the autumn overlap", `{ at: 2026-10-25 02:30, timezone: Europe/Berlin }`, "2026-10-25T00:30:00Z"},
		{"cron, without a zone", `{ cron: "@daily" }`, "2026-01-02T00:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := ParseFile("x.yaml", []byte("name: x\ntemplate: t\naudience: {}\nschedule: "+c.schedule))
			if err != nil {
				t.Fatal(err)
			}
			next, err := s.Schedule.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			if got := next.Format(time.RFC3339); err != nil || got != c.want {
				t.Fatalf("fires at %s (%v), want %s", got, err, c.want)
			}
		})
	}
}

// A file that something else than a person wrote may be wrong on every line.
func TestManyErrorsAreNoLongText(t *testing.T) {
	const head = "name: x\ntemplate: t\naudience:\n"
	for _, c := range []struct {
		name, file string
		more       string
	}{
		{"every line", head + strings.Repeat("  a: 1\n", 10_001), "and 9,980 more"},
		{"every item of a list with a long name", head + "  " + strings.Repeat("k", 1000) + ":\n" + strings.Repeat("  - !x 1\n", 10_000), "and 9,980 more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseFile("x.yaml", []byte(c.file))
			if err == nil {
				t.Fatal("no error")
			}
			lines := strings.Split(err.Error(), "\n")
			if n := len(lines); n != 21 || !strings.HasPrefix(lines[0], "x.yaml:5: audience") || lines[n-1] != c.more {
				t.Errorf("%d lines: %.200s … %.200s", n, lines[0], lines[n-1])
			}
			if n := len(err.Error()); n > 21*(faults.Longest+10) {
				t.Errorf("%d bytes", n)
			}
			var all FileErrors
			if !errors.As(err, &all) || len(all) != 10_000 {
				t.Errorf("%d errors", len(all))
			}
		})
	}
}

func TestParseFileErrors(t *testing.T) {
	const rest = "template: t\naudience: {}\n"
	for _, c := range []struct{ name, file, want string }{
		{"a typing mistake", "name: x\n" + rest + "rules:\n  window: 09:00-20:00\n  inactive_afer: 90d\n", "x.yaml:6: rules.inactive_afer: unknown; inactive_after?"},
		{"a key like no other", "name: x\n" + rest + "colour: red\n", "x.yaml:4: colour: unknown"},
		{"everything at once", "name: All\naudience: { $where: 1 }\nexpires_after: soon\nrules: { days: mon-xyz }\n",
			`x.yaml:1: name: "All" is no name: at most 64 of a-z 0-9 _ - and a letter or digit first
x.yaml:1: template: missing
x.yaml:2: audience.$where: JavaScript in the database is refused: it runs on every user and cannot use an index
x.yaml:3: expires_after: "soon" is no duration; write a whole number and one of s m h d w, such as 90d, 36h or 1d12h
x.yaml:4: rules.days: "xyz" is not a day; say mon-fri, or mon,wed`},
		{"empty", "", "x.yaml: empty; a campaign has at least name, template and audience"},
		{"a comment", "# soon\n", "x.yaml: empty; a campaign has at least name, template and audience"},
		{"a list", "- name: x\n", "x.yaml:1: must be a mapping of keys to values"},
		{"not YAML", "name: x\ntemplate: t\n  audience: {}\n", "x.yaml:3: not YAML: mapping values are not allowed in this context"},
		{"two documents", "name: x\n" + rest + "---\nname: y\n", "x.yaml:4: a second document; write one campaign per file"},
		{"a key twice", "name: x\nname: y\n" + rest, "x.yaml:2: name: stands on line 1 already"},
		{"an alias", "name: &n x\ntemplate: *n\naudience: {}\n", "x.yaml:1: name: anchors and aliases are not supported; write the value out\nx.yaml:2: template: anchors and aliases are not supported; write the value out"},
		{"an alias to itself", "name: x\ntemplate: t\naudience: &a { b: *a }\n", "x.yaml:3: audience: anchors and aliases are not supported; write the value out"},
		{"a merge", "name: x\n" + rest + "<<: { a: 1 }\n", "x.yaml:4: a key must be text"},
		{"a tag", "name: !!binary eA==\n" + rest, "x.yaml:1: name: the tag !!binary is not supported"},
		{"the reserved name", "name: all\n" + rest, `x.yaml:1: name: "all" is reserved: it stands for all campaigns together`},
		{"no audience", "name: x\ntemplate: t\n", "x.yaml:1: audience: missing; { } means every user"},
		{"an empty value", "name:\n" + rest, "x.yaml:1: name: is empty"},
		{"a list for a value", "name: [x]\n" + rest, "x.yaml:1: name: must be a single value"},
		{"an audience that is text", "name: x\ntemplate: t\naudience: everybody\n", "x.yaml:3: audience: must be a MongoDB query such as { plan: free }; {} means every user"},
		{"cron that never fires", "name: x\n" + rest + "schedule:\n  cron: 0 0 30 2 *\n", `x.yaml:5: schedule.cron: "0 0 30 2 *" never fires: there is no such day`},
		{"both cron and at", "name: x\n" + rest + "schedule: { cron: '@daily', at: 2026-12-01 09:00 }\n", "x.yaml:4: schedule: has both cron and at; one of them"},
		{"a zone alone", "name: x\n" + rest + "schedule: { timezone: UTC }\n", "x.yaml:4: schedule: has neither cron nor at; leave it out for a campaign that is started by hand"},
		{"unknown zone and bad expression", "name: x\n" + rest + "schedule:\n  cron: 'TZ=UTC'\n  timezone: Mars/Base\n",
			`x.yaml:5: schedule.cron: "TZ=UTC" names a zone; set schedule.timezone instead
x.yaml:6: schedule.timezone: "Mars/Base" is no time zone; name one such as Europe/Berlin`},
		{"the zone of the machine", "name: x\n" + rest + "schedule: { cron: '@daily', timezone: Local }\n", "x.yaml:4: schedule.timezone: Local is another zone on every machine; name one such as Europe/Berlin"},
		{"no time", "name: x\n" + rest + "schedule: { at: tomorrow }\n", `x.yaml:4: schedule.at: "tomorrow" is no time such as 2026-12-01 09:00 or 2026-12-01T09:00:00+01:00`},
		{"a number for a duration", "name: x\n" + rest + "rules: { min_gap: 24 }\n", `x.yaml:4: rules.min_gap: "24" is no duration; write a whole number and one of s m h d w, such as 90d, 36h or 1d12h`},
		{"over at once", "name: x\n" + rest + "expires_after: 0s\n", "x.yaml:4: expires_after: 0s is less than 1m"},
		{"a rate twice", "name: x\n" + rest + "limits: { rate: [40/min, 50/min] }\n", `x.yaml:4: limits.rate: "50/min": there is a rate for that window already`},
		{"no rates", "name: x\n" + rest + "limits: { rate: [] }\n", "x.yaml:4: limits.rate: is an empty list"},
		{"no domain", "name: x\n" + rest + "limits: { per_domain: { gmail: 1/s } }\n", `x.yaml:4: limits.per_domain.gmail: "gmail" is no mail domain such as gmail.com`},
		{"a domain twice", "name: x\n" + rest + "limits: { per_domain: { gmail.com: 1/s, GMAIL.com: 2/s } }\n", "x.yaml:4: limits.per_domain.GMAIL.com: gmail.com is there twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseFile("x.yaml", []byte(c.file))
			if err == nil {
				t.Fatal("no error")
			}
			if d := cmp.Diff(c.want, err.Error()); d != "" {
				t.Fatal(d)
			}
		})
	}
}

// TestAudience compares with canonical Extended JSON, which shows the type of every value.
func TestAudience(t *testing.T) {
	start := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	const newYear = `{"$date":{"$numberLong":"1767225600000"}}` // 2026-01-01T00:00:00Z
	for _, c := range []struct{ name, yaml, want string }{
		{"nothing", "{}", `{}`},
		{"values", "{ a: x, b: 1, c: 1.5, d: true, e: null, f: 5000000000, g: '1' }",
			`{"a":"x","b":{"$numberInt":"1"},"c":{"$numberDouble":"1.5"},"d":true,"e":null,"f":{"$numberLong":"5000000000"},"g":"1"}`},
		{"order of keys", "{ z: b, a: c }", `{"z":"b","a":"c"}`},
		{"$ago", "{ a: { $lt: { $ago: 30d } } }", `{"a":{"$lt":{"$date":{"$numberLong":"1793523600000"}}}}`},
		{"$ago, nested anywhere", "{ $or: [ { a: { $elemMatch: { b: { $gte: { $ago: 1h } } } } } ] }",
			`{"$or":[{"a":{"$elemMatch":{"b":{"$gte":{"$date":{"$numberLong":"1796112000000"}}}}}}]}`},
		{"$oid", `{ _id: { $gt: { $oid: "0123456789abcdef01234567" } } }`, `{"_id":{"$gt":{"$oid":"0123456789abcdef01234567"}}}`},
		{"$date", "{ a: { $date: 2026-01-01T00:00:00Z } }", `{"a":` + newYear + `}`},
		{"$date, quoted and with an offset", `{ a: { $date: "2026-01-01T01:00:00+01:00" } }`, `{"a":` + newYear + `}`},
		{"$date, canonical", `{ a: { $date: { $numberLong: "1767225600000" } } }`, `{"a":` + newYear + `}`},
		{"a date of YAML", "{ a: { $lt: 2026-01-01 } }", `{"a":{"$lt":` + newYear + `}}`},
		{"numbers", `{ a: { $numberLong: "5" }, b: { $numberDecimal: "1.50" }, c: { $numberInt: 7 }, d: { $numberDouble: "-Infinity" } }`,
			`{"a":{"$numberLong":"5"},"b":{"$numberDecimal":"1.50"},"c":{"$numberInt":"7"},"d":{"$numberDouble":"-Infinity"}}`},
		{"infinity of YAML", "{ a: { $lt: .inf } }", `{"a":{"$lt":{"$numberDouble":"Infinity"}}}`},
		{"$uuid", `{ a: { $uuid: "00112233-4455-6677-8899-aabbccddeeff" } }`,
			`{"a":{"$binary":{"base64":"ABEiM0RVZneImaq7zN3u/w==","subType":"04"}}}`},
		{"$binary", `{ a: { $binary: { base64: "gQ==", subType: 00 } } }`, `{"a":{"$binary":{"base64":"gQ==","subType":"00"}}}`},
		{"$binary, the older form", `{ a: { $binary: "gQ==", $type: "00" } }`, `{"a":{"$binary":{"base64":"gQ==","subType":"00"}}}`},
		{"$type stays an operator", `{ a: { $type: string } }`, `{"a":{"$type":"string"}}`},
		{"$regex stays an operator", `{ a: { $regex: "^x", $options: i } }`, `{"a":{"$regex":"^x","$options":"i"}}`},
		{"$regularExpression", `{ a: { $regularExpression: { pattern: "^x", options: i } } }`,
			`{"a":{"$regularExpression":{"pattern":"^x","options":"i"}}}`},
		{"$timestamp, $minKey, $maxKey", `{ a: { $timestamp: { t: 1, i: 2 } }, b: { $minKey: 1 }, c: { $maxKey: 1 } }`,
			`{"a":{"$timestamp":{"t":1,"i":2}},"b":{"$minKey":1},"c":{"$maxKey":1}}`},
		{"$expr without JavaScript", "{ $expr: { $gt: [ $a, $b ] } }", `{"$expr":{"$gt":["$a","$b"]}}`},
		{"text that HTML would escape", `{ a: "<&>" }`, `{"a":"<&>"}`},
		{"dotted keys", "{ a.b.0: x }", `{"a.b.0":"x"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := ParseFile("x.yaml", []byte("name: x\ntemplate: t\naudience: "+c.yaml+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			q, err := s.AudienceQuery(start)
			if err != nil {
				t.Fatal(err)
			}
			got, err := bson.MarshalExtJSON(q, true, false)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, string(got)); d != "" {
				t.Fatal(d)
			}
		})
	}
}

func TestAudienceRefused(t *testing.T) {
	for _, c := range []struct{ name, yaml, want string }{
		{"$where", `{ a: 1, $where: "this.a" }`, "audience.$where: JavaScript"},
		{"$function", "{ $expr: { $function: { body: f, args: [], lang: js } } }", "audience.$expr.$function: JavaScript"},
		{"$accumulator", "{ $expr: { $accumulator: {} } }", "audience.$expr.$accumulator: JavaScript"},
		{"JavaScript as a value", `{ a: { $code: "x" } }`, "audience.a.$code: JavaScript"},
		{"$where, deep", "{ $or: [ { $and: [ { $where: x } ] } ] }", "$where: JavaScript"},
		{"$ago of nothing", "{ a: { $lt: { $ago: 30 } } }", "audience.a.$lt.$ago: must be a duration"},
		{"$ago of a bad duration", "{ a: { $lt: { $ago: 30x } } }", "audience.a.$lt.$ago: \"30x\" is no duration"},
		{"$ago among others", "{ a: { $lt: { $ago: 30d, b: 1 } } }", "audience.a.$lt.$ago: must be the only key"},
		{"$ago at the top", "{ $ago: 30d }", "must be a MongoDB query"},
		{"a short $oid", "{ _id: { $oid: abc } }", "audience._id.$oid: must be 24 hex digits"},
		{"a bad $date", "{ a: { $date: yesterday } }", "is no date"},
		{"a number beyond 64 bits", "{ a: 99999999999999999999 }", "audience.a: 99999999999999999999"},
		{"a zero byte in a key", `{ "a\0b": 1 }`, "a zero byte"},
		{"too deep", strings.Repeat("{ a: ", 70) + "1" + strings.Repeat(" }", 70), "nested deeper"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseFile("x.yaml", []byte("name: x\ntemplate: t\naudience: "+c.yaml+"\n"))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v; want an error with %q", err, c.want)
			}
		})
	}
	t.Run("the line of the key", func(t *testing.T) {
		_, err := ParseFile("x.yaml", []byte("name: x\ntemplate: t\naudience:\n  plan: free\n  a:\n    $lt: { $ago: 30 }\n"))
		if err == nil || !strings.HasPrefix(err.Error(), "x.yaml:6: audience.a.$lt.$ago: ") {
			t.Fatal(err)
		}
	})
}

func TestSpecAsJSON(t *testing.T) {
	s, err := ParseFile("winback.yaml", []byte(winback))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"winback","template":"winback","audience":{"plan":"free","created_at":{"$lt":{"$ago":"30d"}}},` +
		`"schedule":{"cron":"0 9 * * MON","timezone":"Europe/Berlin"},` +
		`"rules":{"window":"09:00-20:00","days":"mon-fri","inactive_after":"90d","min_gap":"1d"},` +
		`"limits":{"rate":["40/min","2000/h"],"per_domain":{"gmail.com":["20/s"]}},"expires_after":"1d12h","misfire_grace":"1h"}`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Fatal(d)
	}
	again, err := ParseFile("winback.json", got) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s, again); d != "" {
		t.Fatal(d)
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0s": 0, "30s": 30 * time.Second, "5m": 5 * time.Minute, "36h": 36 * time.Hour, "90d": 90 * day, "2w": 14 * day,
		"1d12h": 36 * time.Hour, "1w1d1h1m1s": 8*day + time.Hour + time.Minute + time.Second, "3650d": MaxDuration,
	} {
		got, err := ParseDuration(text)
		if err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %s, %v; want %s", text, got, err, want)
		}
		again, err := ParseDuration(FormatDuration(want))
		if err != nil || again != want {
			t.Errorf("%s is written %q and read %s, %v", want, FormatDuration(want), again, err)
		}
	}
	for _, text := range []string{"", "5", "d", "5 m", "-5m", "1.5h", "5ms", "1h1d", "5m5m", "3651d", "99999999999999999999s", "9223372036854775807w", "５m"} {
		if d, err := ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) = %s, want an error", text, d)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add([]byte(winback))
	f.Add([]byte("name: x\ntemplate: t\naudience: { a: [ { $date: 2026-01-01 }, .nan, 0x10, { $binary: { base64: '', subType: 00 } } ] }\n"))
	f.Add([]byte("name: &a [*a]\n? [x]\n: y\n<<: *a\n"))
	f.Add([]byte("schedule: { at: 2026-03-29 02:30, timezone: Europe/Berlin }\nlimits: { per_domain: { bücher.de: 1/s } }\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseFile("x.yaml", data)
		if err != nil {
			return
		}
		q, err := s.AudienceQuery(time.Unix(0, 0))
		if err != nil {
			t.Fatalf("the audience of a good file cannot be asked for: %v", err)
		}
		if _, err := bson.Marshal(q); err != nil {
			t.Fatalf("the audience of a good file is no BSON: %v", err)
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(text) {
			t.Fatalf("not JSON: %s", text)
		}
		stored, err := bson.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var again Spec
		if err := bson.Unmarshal(stored, &again); err != nil || !sameSpec(s, again) {
			t.Fatalf("stored and read again it differs: %v", err)
		}
	})
}

// TestAudienceOfOneUser: the run of a single mail asks for one _id, written as canonical Extended JSON, of whatever type it is.
func TestAudienceOfOneUser(t *testing.T) {
	decimal, err := bson.ParseDecimal128("1.50")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []any{
		int32(5), int64(5), int64(math.MaxInt64), 1.5, 2.0, math.Inf(1), math.NaN(), decimal, "", "a\"<\u2028\x7f\x00é😀", "$oid",
		bson.ObjectID{1}, bson.Binary{Data: []byte{0x81}}, bson.Binary{Subtype: 4, Data: make([]byte, 16)}, bson.Binary{Subtype: 0x80},
		true, nil, bson.DateTime(-1), bson.DateTime(1 << 60), bson.Timestamp{T: 1, I: 2}, bson.MinKey{}, bson.MaxKey{},
		bson.D{{Key: "b", Value: int32(1)}, {Key: "a", Value: bson.D{{Key: "x", Value: int64(2)}}}},
	} {
		want := bson.D{{Key: "_id", Value: id}}
		text, err := bson.MarshalExtJSON(want, true, false)
		if err != nil {
			t.Fatal(err)
		}
		s := Spec{Audience: string(text)}
		got, err := s.AudienceQuery(noon)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		a, errA := bson.Marshal(want)
		b, errB := bson.Marshal(got)
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s is asked for as %v (%v, %v)", text, got, errA, errB)
		}
	}
}
