package mail

import (
	"errors"
	"strings"
	"testing"
)

func TestNormalize(t *testing.T) {
	for _, tc := range []struct {
		name, in, addr, domain string
		utf8                   bool
	}{
		{"plain", "zoe@example.com", "zoe@example.com", "example.com", false},
		{"space around it", "  zoe@example.com\n", "zoe@example.com", "example.com", false},
		{"domain in capitals", "Zoe@EXAMPLE.Com", "Zoe@example.com", "example.com", false},
		{"plus and odd atoms", "a+b/{c}!#$%&'*=?^_`|~-@example.com", "a+b/{c}!#$%&'*=?^_`|~-@example.com", "example.com", false},
		{"IDNA domain", "jorg@exämple.de", "jorg@xn--exmple-cua.de", "xn--exmple-cua.de", false},
		{"UTF-8 local part and IDNA domain", "jörg@exämple.de", "jörg@xn--exmple-cua.de", "xn--exmple-cua.de", true},
		{"Cyrillic", "почта@пример.рф", "почта@xn--e1afmkfd.xn--p1ai", "xn--e1afmkfd.xn--p1ai", true},
		{"A-label as given", "a@XN--EXMPLE-CUA.de", "a@xn--exmple-cua.de", "xn--exmple-cua.de", false},
		{"ideographic dot", "a@example。com", "a@example.com", "example.com", false},
		{"one label", "root@mailhost", "root@mailhost", "mailhost", false},
		{"digits and hyphens in the domain", "a@1-2.example4.com", "a@1-2.example4.com", "1-2.example4.com", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			addr, domain, utf8, err := Normalize(tc.in)
			if err != nil || addr != tc.addr || domain != tc.domain || utf8 != tc.utf8 {
				t.Errorf("Normalize(%q) = %q, %q, %v, %v", tc.in, addr, domain, utf8, err)
			}
			again, _, _, err := Normalize(addr)
			if err != nil || again != addr {
				t.Errorf("a second time it is %q, %v", again, err)
			}
		})
	}
}

func TestNormalizeRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"empty": "", "space": "  ", "no @": "zoe", "two @": "a@b@example.com", "nothing before the @": "@example.com", "nothing behind it": "a@",
		"dot first": ".a@example.com", "dot last": "a.@example.com", "two dots": "a..b@example.com", "space within": "a b@example.com", "quoted": `"a"@example.com`,
		"angle": "a>@example.com", "line break": "a\r\nRCPT@example.com", "line break in the domain": "a@example.com\r\nX", "NUL": "a\x00@example.com",
		"label ends with a hyphen": "a@b-.com", "label begins with one": "a@-b.com", "empty label": "a@b..com", "trailing dot": "a@example.com.", "underscore": "a@b_c.com",
		"IPv4": "a@127.0.0.1", "literal": "a@[127.0.0.1]", "invalid UTF-8": "a\xff@example.com", "invisible": "a\u200b@example.com", "no-break space": "a\u00a0b@example.com", "bad A-label": "a@xn--\u00e4.de",
		"long local part": strings.Repeat("a", 65) + "@example.com", "long label": "a@" + strings.Repeat("b", 64) + ".com", "long": "a@" + strings.Repeat("b.", 130) + "com",
	} {
		t.Run(name, func(t *testing.T) {
			if addr, _, _, err := Normalize(in); !errors.Is(err, ErrAddress) {
				t.Errorf("Normalize(%q) = %q, %v", in, addr, err)
			}
		})
	}
}

func TestParseAddress(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want Address
	}{
		{"news@example.com", Address{"", "news@example.com"}},
		{"Postbit News <news@Example.com>", Address{"Postbit News", "news@example.com"}},
		{`"Doe, John \"J\"" <j@example.com>`, Address{`Doe, John "J"`, "j@example.com"}},
		{"=?utf-8?q?Zo=C3=AB?= <z@example.com>", Address{"Zoë", "z@example.com"}},
		{"Zoë <z@exämple.de>", Address{"Zoë", "z@xn--exmple-cua.de"}},
	} {
		got, err := ParseAddress(tc.in)
		if err != nil || got != tc.want {
			t.Errorf("ParseAddress(%q) = %+v, %v", tc.in, got, err)
		}
	}
	for _, in := range []string{"", "x", "x <y>", "a <a@example.com>, b <b@example.com>", "x\r\nBcc: y <a@example.com>"} {
		if got, err := ParseAddress(in); !errors.Is(err, ErrAddress) {
			t.Errorf("ParseAddress(%q) = %+v, %v", in, got, err)
		}
	}
}

func BenchmarkNormalize(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Normalize("zoe.miller@mail.example.com")
	}
}

// Whatever is accepted is one word on a line of the SMTP dialogue, and stays what it is.
func FuzzNormalize(f *testing.F) {
	for _, s := range []string{"a@b.c", "jörg@exämple.de", "a@b@c", "a\r\n@b", "a@[1.2.3.4]", "<a@b>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		addr, domain, utf8, err := Normalize(s)
		if err != nil {
			return
		}
		if strings.ContainsAny(addr, "\r\n\x00 <>\"") || strings.Count(addr, "@") != 1 || len(addr) > maxAddress || !isASCII(domain) || utf8 == isASCII(addr) {
			t.Errorf("Normalize(%q) = %q, %q, %v", s, addr, domain, utf8)
		}
		if again, _, _, err := Normalize(addr); err != nil || again != addr {
			t.Errorf("Normalize(%q) = %q, then %q, %v", s, addr, again, err)
		}
	})
}
