package backfill

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Where plainObjects does not give up it says what the driver's reader of Extended JSON says.
func TestPlainObjectsReadWhatTheDriverReads(t *testing.T) {
	paths := Columns{User: "user", Template: "template", SentAt: "sent_at", OpenedAt: "opened.at"}.paths()
	plain := &plainObjects{paths: &paths}
	values := []string{`""`, `"welcome"`, `"é\u00e9"`, `"é"`, "\"\xff\"", `"a\"b"`, "\"a\tb\"", `0`, `-0`, `-`, `01`, `7`, `-7`, `2147483647`, `2147483648`, `-2147483648`, `-2147483649`, `999999999999999999`, `9223372036854775807`, `9223372036854775808`,
		`1.0`, `1e3`, `7x`, `true`, `false`, `null`, `nul`, `truefalse`, `{}`, `[]`, `{"at":1}`, `{"$oid":"665544332211009988776655"}`, `{ "$oid" : "66554433221100998877665A" }`, `{"$oid":"66"}`, `{"$oid":"66554433221100998877665x"}`, `{"$oid":7}`,
		`{"$date":"2024-02-29T13:30:00Z"}`, `{"$date":"2024-02-29T13:30:00.123Z"}`, `{"$date":"2024-02-29T13:30:00.1234567891Z"}`, `{"$date":"2024-02-30T13:30:00Z"}`, `{"$date":"1960-02-29T13:30:00Z"}`, `{"$date":"2024-02-29T13:30:00+01:00"}`,
		`{"$date":{"$numberLong":"1709209800000"}}`, `{"$numberLong":"7"}`, `{"$oid":"665544332211009988776655","x":1}`, `{"$symbol":"x"}`, ``, `"`}
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		space := func() string {
			return rapid.SampledFrom([]string{"", "", "", " ", "\t", "\r", "\f", "\u00a0"}).Draw(t, "space")
		}
		var fields []string
		for range rapid.IntRange(0, 4).Draw(t, "fields") {
			name := rapid.SampledFrom([]string{"user", "template", "sent_at", "opened", "opened.at", "x", "us\\u0065r", "$oid", "$x", ""}).Draw(t, "name")
			value := rapid.SampledFrom(values).Draw(t, "value")
			fields = append(fields, fmt.Sprintf(`%s"%s"%s:%s%s%s`, space(), name, space(), space(), value, space()))
		}
		line := mangled(t, "{"+strings.Join(fields, ",")+space()+"}", `{}[]":, \x1`)
		if !strings.HasPrefix(line, "{") || strings.TrimSpace(line) != line {
			return
		}
		got, ok := plain.read(3, []byte(line))
		if !ok {
			return
		}
		taken++
		doc, err := parseLine([]byte(line))
		if err != nil {
			t.Fatalf("%q: %s, but %v", line, shown(got), err)
		}
		if want := paths.row(3, doc); shown(got) != shown(want) || got.Line != want.Line {
			t.Errorf("%q: %s, want %s", line, shown(got), shown(want))
		}
	})
	if taken == 0 {
		t.Error("no line was plain")
	}
	for _, line := range []string{
		`{"user":{"$oid":"665544332211009988776655"},"template":"welcome","sent_at":{"$date":"2024-02-29T13:30:00.5Z"},"x":null}`,
		`{ "user" : 17, "template" : "Grüße", "opened" : true }`, `{}`,
	} {
		if _, ok := plain.read(1, []byte(line)); !ok {
			t.Errorf("%s: given up", line)
		}
	}
}
