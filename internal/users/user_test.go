package users

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"postbit/rules"
)

func parser(t testing.TB, cfg Config) *Store {
	t.Helper()
	s := &Store{cfg: cfg}
	for p, name := range map[*string]string{&s.cfg.Email: "email", &s.cfg.Timezone: "timezone", &s.cfg.Bits: "tpls_sent_at_least_once", &s.cfg.State: "postbit"} {
		if *p == "" {
			*p = name
		}
	}
	if err := s.cfg.check(); err != nil {
		t.Fatal(err)
	}
	if s.cfg.DefaultZone == nil {
		s.cfg.DefaultZone = time.UTC
	}
	s.paths.status = s.cfg.State + ".status"
	s.zones.Store(&map[string]*time.Location{})
	if err := s.compile(); err != nil {
		t.Fatal(err)
	}
	return s
}

func raw(t testing.TB, doc bson.D) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Anything may stand anywhere.
func TestParse(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	old, older := noon.Add(-24*time.Hour), noon.Add(-48*time.Hour)
	type want struct {
		email       string
		suppressed  bool
		unreadable  bool
		hasBit      bool
		unknownZone bool
		zone        *time.Location
		first, last time.Time
		opened      time.Time
	}
	tests := []struct {
		name string
		cfg  Config
		doc  bson.D
		want want
	}{
		{"a plain user", Config{}, d("_id", 1, "email", "ann@Example.com", "timezone", "Europe/Berlin", "tpls_sent_at_least_once", blob(0, bit)),
			want{email: "ann@example.com", hasBit: true, zone: berlin}},
		{"nothing", Config{}, d(), want{unknownZone: true}},
		{"all null", Config{}, d("_id", nil, "email", nil, "timezone", nil, "tpls_sent_at_least_once", nil, "postbit", nil), want{unknownZone: true}},
		{"email a number", Config{}, d("email", 7, "timezone", "UTC"), want{zone: time.UTC}},
		{"email a document", Config{}, d("email", d("to", "a@example.com"), "timezone", "UTC"), want{}},
		{"email of invalid UTF-8", Config{}, d("email", "a\xff@example.com", "timezone", "UTC"), want{}},
		{"email with a line break", Config{}, d("email", "a@example.com\r\nBcc: b@example.com", "timezone", "UTC"), want{}},
		{"email of a megabyte", Config{}, d("email", string(bytes.Repeat([]byte("a"), 1<<20))+"@example.com", "timezone", "UTC"), want{}},
		{"an address in another script", Config{}, d("email", "jörg@exämple.de", "timezone", "UTC"), want{email: "jörg@xn--exmple-cua.de"}},
		{"zone a number", Config{}, d("timezone", 2), want{unknownZone: true}},
		{"zone on Mars", Config{}, d("timezone", "Mars/Base"), want{unknownZone: true}},
		{"zone of this machine", Config{}, d("timezone", "Local"), want{unknownZone: true}},
		{"empty zone", Config{}, d("timezone", ""), want{unknownZone: true}},
		{"zone that leaves its folder", Config{}, d("timezone", "../../etc/passwd"), want{unknownZone: true}},
		{"unknown zone with a default", Config{DefaultZone: berlin}, d("timezone", "Mars/Base"), want{unknownZone: true, zone: berlin}},
		{"bits a string", Config{}, d("timezone", "UTC", "tpls_sent_at_least_once", "x"), want{unreadable: true}},
		{"bits an array", Config{}, d("timezone", "UTC", "tpls_sent_at_least_once", bson.A{1}), want{unreadable: true}},
		{"state a string", Config{}, d("timezone", "UTC", "postbit", "x"), want{unreadable: true}},
		{"state an array", Config{}, d("timezone", "UTC", "postbit", bson.A{d("status", "bounced")}), want{unreadable: true}},
		{"a date of ours a string", Config{}, d("timezone", "UTC", "postbit", d("last_at", "2026-12-01")), want{unreadable: true}},
		{"a date of ours in the year 300000", Config{}, d("timezone", "UTC", "postbit", d("last_at", bson.DateTime(1<<53))), want{unreadable: true}},
		{"an open of ours a number", Config{}, d("timezone", "UTC", "postbit", d("open_last_at", 5)), want{unreadable: true}},
		{"runs of a wrong length", Config{}, d("timezone", "UTC", "postbit", d("runs", bson.Binary{Data: []byte{1}})), want{unreadable: true}},
		{"status a number", Config{}, d("timezone", "UTC", "postbit", d("status", 5)), want{unreadable: true}},
		{"status seen beside a broken date", Config{}, d("timezone", "UTC", "postbit", d("status", "complained", "last_at", 5)), want{unreadable: true, suppressed: true}},
		{"unsubscribed", Config{}, d("timezone", "UTC", "postbit", d("status", "unsubscribed")), want{suppressed: true}},
		{"a status of a later version", Config{}, d("timezone", "UTC", "postbit", d("status", "paused")), want{suppressed: true}},
		{"dates of ours", Config{}, d("timezone", "UTC", "postbit", d("first_at", older, "last_at", old, "open_first_at", old, "open_last_at", old)),
			want{first: older, last: old, opened: old}},
		{"Go's zero time is never", Config{}, d("timezone", "UTC", "postbit", d("first_at", time.Time{}, "last_at", time.Time{})), want{}},

		{"nested paths", Config{Email: "profile.contact.email", Timezone: "profile.tz", Bits: "mail.sent", State: "mail.postbit"},
			d("profile", d("contact", d("email", "a@example.com"), "tz", "UTC"), "mail", d("sent", blob(0, bit), "postbit", d("last_at", old))),
			want{email: "a@example.com", hasBit: true, last: old}},
		{"nested paths that are not there", Config{Bits: "mail.sent", State: "mail.postbit", Timezone: "tz"}, d("tz", "UTC"), want{}},
		{"nested bits in a null", Config{Bits: "mail.sent", Timezone: "tz"}, d("tz", "UTC", "mail", nil), want{unreadable: true}},
		{"nested bits in an array", Config{Bits: "mail.sent", Timezone: "tz"}, d("tz", "UTC", "mail", bson.A{d("sent", blob(0))}), want{unreadable: true}},
		{"an address in an array, by position", Config{Email: "emails.1.address", Timezone: "tz"},
			d("tz", "UTC", "emails", bson.A{d("address", "a@example.com"), d("address", "b@example.com")}), want{email: "b@example.com"}},
		{"an address in an array, the first", Config{Email: "emails.address", Timezone: "tz"},
			d("tz", "UTC", "emails", bson.A{d("x", 1), d("address", "b@example.com")}), want{email: "b@example.com"}},

		{"mapped dates: the earlier for first, the later for last", Config{FirstAt: "m.first", LastAt: "m.last", OpenFirstAt: "m.o1", OpenLastAt: "m.o2"},
			d("timezone", "UTC", "postbit", d("first_at", old, "last_at", older, "open_last_at", older), "m", d("first", older, "last", old, "o2", old)),
			want{first: older, last: old, opened: old}},
		{"mapped dates that say less than ours", Config{FirstAt: "m.first", LastAt: "m.last"},
			d("timezone", "UTC", "postbit", d("first_at", older, "last_at", old), "m", d("first", old, "last", older)),
			want{first: older, last: old}},
		{"a mapped date that can't be read", Config{LastAt: "last"}, d("timezone", "UTC", "last", "yesterday"), want{unreadable: true}},
		{"a mapped date of null", Config{LastAt: "last"}, d("timezone", "UTC", "last", nil), want{}},
		{"a mapped timestamp", Config{LastAt: "last"}, d("timezone", "UTC", "last", bson.Timestamp{T: uint32(old.Unix())}), want{last: old}},

		{"suppressed when true", Config{SuppressedWhen: map[string][]any{"gone": {true}}}, d("timezone", "UTC", "gone", true), want{suppressed: true}},
		{"not suppressed when false", Config{SuppressedWhen: map[string][]any{"gone": {true}}}, d("timezone", "UTC", "gone", false), want{}},
		{"not suppressed when missing", Config{SuppressedWhen: map[string][]any{"gone": {true}}}, d("timezone", "UTC"), want{}},
		{"suppressed when one of several", Config{SuppressedWhen: map[string][]any{"state": {"deleted", "banned"}}}, d("timezone", "UTC", "state", "banned"), want{suppressed: true}},
		{"numbers compare by value", Config{SuppressedWhen: map[string][]any{"level": {3}}}, d("timezone", "UTC", "level", 3.0), want{suppressed: true}},
		{"an element of an array", Config{SuppressedWhen: map[string][]any{"tags": {"banned"}}}, d("timezone", "UTC", "tags", bson.A{"x", "banned"}), want{suppressed: true}},
		{"in documents of an array", Config{SuppressedWhen: map[string][]any{"subs.state": {"off"}}}, d("timezone", "UTC", "subs", bson.A{d("state", "on"), d("state", "off")}), want{suppressed: true}},
		{"null stands for missing", Config{SuppressedWhen: map[string][]any{"consent_at": {nil}}}, d("timezone", "UTC"), want{suppressed: true}},
		{"null does not suppress who has a value", Config{SuppressedWhen: map[string][]any{"consent_at": {nil}}}, d("timezone", "UTC", "consent_at", old), want{}},

		{"history: bits and no date", Config{HistoryBefore: older}, d("timezone", "UTC", "tpls_sent_at_least_once", blob(0, 3)), want{first: older, last: older}},
		{"history: no bits", Config{HistoryBefore: older}, d("timezone", "UTC", "tpls_sent_at_least_once", bson.Binary{Data: make([]byte, 9)}), want{}},
		{"history: a date is known", Config{HistoryBefore: older}, d("timezone", "UTC", "tpls_sent_at_least_once", blob(0, 3), "postbit", d("last_at", old)), want{last: old}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := parser(t, tt.cfg).Parse(raw(t, tt.doc), bit)
			r := u.Recipient
			if tt.want.zone == nil {
				tt.want.zone = time.UTC
			}
			got := want{u.Email, r.Suppressed, r.Unreadable, r.HasBit, u.UnknownZone, r.Zone, r.FirstAt, r.LastAt, r.OpenLastAt}
			got.zone, tt.want.zone = nil, nil
			if got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
			if r.AddressOK != (u.Email != "") {
				t.Errorf("AddressOK %v for %q", r.AddressOK, u.Email)
			}
			if r.Zone == nil {
				t.Error("no zone")
			}
		})
	}
}

func TestParseZone(t *testing.T) {
	s := parser(t, Config{})
	for range 2 { // the second time from memory
		u := s.Parse(raw(t, d("timezone", "Asia/Kolkata")), bit)
		if u.Recipient.Zone.String() != "Asia/Kolkata" || u.UnknownZone {
			t.Fatal(u.Recipient.Zone)
		}
	}
}

// Names of zones come from outside: wrong ones must neither grow without end nor push out the right ones.
func TestZonesAreBounded(t *testing.T) {
	s := parser(t, Config{})
	for i := range maxZones {
		s.zone([]byte{'Q', byte('a' + i%26), byte('a' + i/26%26), byte('a' + i/676)})
	}
	if n := len(*s.zones.Load()); n > maxZones/2 {
		t.Fatalf("%d wrong names are remembered", n)
	}
	if s.zone([]byte("Europe/Berlin")) == nil || (*s.zones.Load())["Europe/Berlin"] == nil {
		t.Fatal("a right name is not remembered")
	}
}

func TestParseBrokenDocuments(t *testing.T) {
	s := parser(t, Config{})
	good := raw(t, d("_id", 1, "email", "a@example.com", "postbit", d("last_at", noon)))
	for n := range len(good) {
		if u := s.Parse(good[:n], bit); !u.Recipient.Unreadable {
			t.Errorf("a document cut at %d of %d bytes is readable", n, len(good))
		}
	}
}

func FuzzParse(f *testing.F) {
	s := parser(f, Config{
		Email: "e.0.a", FirstAt: "m.first", LastAt: "m.last", Bits: "mail.bits", State: "mail.state",
		SuppressedWhen: map[string][]any{"tags": {"x", 1, nil}, "subs.state": {"off"}}, HistoryBefore: noon,
	})
	f.Add([]byte(raw(f, d("_id", 1, "e", bson.A{d("a", "a@example.com")}, "timezone", "UTC", "m", d("first", noon, "last", noon),
		"mail", d("bits", blob(0, 3), "state", d("first_at", noon, "last_at", noon, "runs", bson.Binary{Data: make([]byte, 16)}, "status", "x")),
		"tags", bson.A{1, "x", nil}, "subs", bson.A{d("state", "on")}))))
	f.Add([]byte(raw(f, d("mail", nil, "tags", d()))))
	f.Add([]byte{})
	for _, id := range []any{ // an _id is of any type
		nil, int32(-1), int64(1) << 60, math.NaN(), true, "", "\xff\xfe", bson.ObjectID{1}, bson.Binary{Subtype: 4, Data: make([]byte, 16)}, bson.DateTime(-1), bson.Timestamp{T: 1},
		bson.Decimal128{}, bson.Regex{Pattern: "(", Options: "i"}, bson.JavaScript("x"), bson.Symbol("s"), bson.MinKey{}, bson.MaxKey{}, bson.A{1}, d("a", d("b", nil)), bson.Undefined{},
		bson.DBPointer{DB: "x"}, bson.CodeWithScope{Code: "x", Scope: d()}, strings.Repeat("x", 2000),
	} {
		f.Add([]byte(raw(f, d("_id", id, "e", bson.A{d("a", "a@example.com")}, "timezone", "UTC"))))
	}
	deep := d("x", 1)
	for range 150 {
		deep = d("m", deep)
	}
	for _, doc := range []bson.D{ // wrong types, text that is no UTF-8, and what is huge
		d("_id", 1, "e", 7, "timezone", bson.A{}, "m", "x", "mail", d("bits", 3.5, "state", "x"), "tags", nil, "subs", 1),
		d("_id", 1, "e", bson.A{d("a", "\xff@\xc0.example")}, "timezone", "Europe/\xff", "mail", d("state", d("status", "\xff"))),
		d("_id", 1, "e", bson.A{d("a", strings.Repeat("x", 1<<16)+"@example.com")}, "timezone", strings.Repeat("A/", 1<<12), "mail", d("bits", bson.Binary{Data: make([]byte, 1<<16)})),
		d("_id", 1, "mail", d("bits", d("0", 1, "511", 255, "512", 1, "-1", 3, "x", 1))),
		d("_id", 1, "mail", d("state", d("first_at", "x", "last_at", int64(5), "runs", bson.Binary{Data: make([]byte, 7)}, "status", 1))),
		deep,
	} {
		f.Add([]byte(raw(f, doc)))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		u := s.Parse(doc, bit)
		if u.Recipient.AddressOK != (u.Email != "") || u.Recipient.Zone == nil {
			t.Fatalf("%+v", u)
		}
		for _, rule := range []rules.Rule{rules.Address, rules.Suppressed, rules.Unreadable, rules.TimeOfDay} {
			s.Facts(&u, rule)
		}
		FormatID(u.ID)
		if !u.Recipient.Unreadable {
			c := u.claim(bit, ours, noon)
			for _, made := range []bson.Raw{s.claimFilter(&u), s.claimUpdate(&u, &c)} {
				if u.ID.Type != 0 && made.Validate() != nil {
					t.Fatalf("a claim that is no BSON: %x", []byte(made))
				}
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	s := parser(b, Config{})
	doc := raw(b, d("_id", bson.NewObjectID(), "email", "ann.example@example.com", "name", "Ann Example", "timezone", "Europe/Berlin", "plan", "free",
		"tpls_sent_at_least_once", blob(0, 3, 147), "postbit", d("first_at", noon, "last_at", noon, "runs", bson.Binary{Data: make([]byte, 16)})))
	b.ReportAllocs()
	for b.Loop() {
		u := s.Parse(doc, bit)
		_ = u
	}
}
