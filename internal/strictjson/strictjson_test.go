package strictjson_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"postbit/internal/strictjson"
)

type record struct {
	User   string   `json:"user"`
	Times  int      `json:"times"`
	Share  float64  `json:"share"`
	Again  bool     `json:"again,omitempty"`
	Others []string `json:"others"`
	Place  struct {
		City string `json:"city"`
	} `json:"place"`
	Date any `json:"date"`
}

func TestDecode(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"all as it should be", `{"user":"7","times":2,"share":0.5,"again":true,"others":["8"],"place":{"city":"Ulm"},"date":5}`, ""},
		{"null is nothing", `{"user":null}`, ""},
		{"spaces behind", "{}  \n", ""},
		{"a number for a text", `{"user":4}`, "user: must be a string, not a number"},
		{"an object for a text", `{"user":{"$oid":"x"}}`, "user: must be a string, not an object"},
		{"a text for a number", `{"times":"2"}`, "times: must be a whole number, not a string"},
		{"a fraction for a whole number", `{"times":2.5}`, "times: must be a whole number, not 2.5"},
		{"a number that is too large", `{"times":1e30}`, "times: must be a whole number, not 1e30"},
		{"a number beyond all", `{"share":1e999}`, "share: the number 1e999 is out of range"},
		{"a number beyond all, of any kind", `{"date":1e999}`, "date: the number 1e999 is out of range"},
		{"a text for a fraction", `{"share":"half"}`, "share: must be a number, not a string"},
		{"a text for a switch", `{"again":"yes"}`, "again: must be true or false, not a string"},
		{"a text for a list", `{"others":"8"}`, "others: must be an array, not a string"},
		{"a number in a list of texts", `{"others":[8]}`, "must be a string, not a number"},
		{"deeper", `{"place":{"city":true}}`, "place.city: must be a string, not true or false"},
		{"a list for the whole", `[]`, "must be an object, not an array"},
		{"a key that is not known", `{"usr":"7"}`, `unknown key "usr"; there are user, times, share, again, others, place, date`},
		{"no JSON", `user=7`, "not JSON: byte 1: invalid character 'u'"},
		{"a piece of it", `{"user":`, "not JSON: it ends in the middle"},
		{"two values", `{}{}`, "more than one JSON value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := strictjson.Decode(strings.NewReader(c.text), &record{})
			if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) && !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestNothingAndFaultsOfReadingAreTheCallers(t *testing.T) {
	if err := strictjson.Decode(strings.NewReader(" \n"), &record{}); !errors.Is(err, io.EOF) {
		t.Errorf("nothing: %v", err)
	}
	broken := errors.New("the line is cut")
	if err := strictjson.Decode(iotest.ErrReader(broken), &record{}); !errors.Is(err, broken) {
		t.Errorf("a broken reader: %v", err)
	}
}

// The faults speak of JSON, whatever the text is.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{`{"user":4}`, `{"times":1e999}`, `{"place":[{}]}`, `{"others":[null,[]]}`, `nul`, "{\"\x00\":1}", `{"again":"\ud800"}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		err := strictjson.Decode(strings.NewReader(text), &record{})
		if err == nil {
			return
		}
		for _, word := range []string{"json:", "unmarshal", "Go "} {
			if said := err.Error(); strings.Contains(said, word) && !strings.Contains(text, word) {
				t.Errorf("%q: %s", text, said)
			}
		}
	})
}
