package analytics

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNormaliseURL(t *testing.T) {
	for _, row := range []struct{ name, in, want string }{
		{"host in lower case", "HTTPS://Shop.Example.COM/A?B=C", "https://shop.example.com/A?B=C"},
		{"no path is the first page", "https://shop.example.com", "https://shop.example.com/"},
		{"no path but a query", "https://shop.example.com?a=1", "https://shop.example.com/?a=1"},
		{"the port that the scheme has", "https://shop.example.com:443/a", "https://shop.example.com/a"},
		{"another port", "http://shop.example.com:8080/a", "http://shop.example.com:8080/a"},
		{"a fragment", "https://shop.example.com/a#b?c", "https://shop.example.com/a"},
		{"who is logged in", "https://zoe:secret@shop.example.com/a", "https://shop.example.com/a"},
		{"utm_, gclid, fbclid in any case", "https://shop.example.com/a?utm_source=x&b=1&UTM_Medium=y&gclid=1&c=2&fbclid=3", "https://shop.example.com/a?b=1&c=2"},
		{"an escaped utm_", "https://shop.example.com/a?utm%5Fsource=x", "https://shop.example.com/a"},
		{"nothing but them", "https://shop.example.com/a?utm_source=x&", "https://shop.example.com/a"},
		{"parameters that only look like them", "https://shop.example.com/a?myutm_x=1&gclids=2", "https://shop.example.com/a?myutm_x=1&gclids=2"},
		{"a question mark alone", "https://shop.example.com/a?", "https://shop.example.com/a"},
		{"NFD becomes NFC", "https://shop.example.com/cafe\u0301", "https://shop.example.com/café"},
		{"escaped letters are the letters", "https://shop.example.com/caf%C3%A9?q=%c3%a9", "https://shop.example.com/café?q=é"},
		{"escaped NFD as well", "https://shop.example.com/cafe%CC%81", "https://shop.example.com/café"},
		{"escapes that mean something stay", "https://shop.example.com/a%2Fb?x=1%262&y=%24a.b", "https://shop.example.com/a%2Fb?x=1%262&y=%24a.b"},
		{"escapes that are no UTF-8 stay", "https://shop.example.com/%ff%fe", "https://shop.example.com/%FF%FE"},
		{"a host beyond ASCII", "https://MÜNCHEN.example/", "https://xn--mnchen-3ya.example/"},
		{"a path alone", "/pricing?utm_source=x#top", "/pricing"},
		{"an app", "android-app://com.google.android.gm/", "android-app://com.google.android.gm/"},
		{"a script", "javascript:alert(1)#x", "javascript:alert(1)"},
		{"no address at all", "$set.a.b", "$set.a.b"},
		{"empty", " \t", ""},
		{"NUL and control characters", "https://shop.example.com/a\x00b\x07", "https://shop.example.com/ab"},
		{"no UTF-8", "https://shop.example.com/\xff", "https://shop.example.com/%EF%BF%BD"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := NormaliseURL(row.in); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
			if again := NormaliseURL(row.want); again != row.want {
				t.Errorf("again: %s", again)
			}
		})
	}
}

func TestValuesAreCutAtACharacter(t *testing.T) {
	for _, in := range []string{"https://shop.example.com/" + strings.Repeat("é", 5000), strings.Repeat("€", 100_000), "https://shop.example.com/?q=" + strings.Repeat("%C3%A9", 1000)} {
		got := NormaliseURL(in)
		if len(got) > MaxValueBytes || len(got) < MaxValueBytes-3 || !utf8.ValidString(got) || strings.ContainsRune(got, utf8.RuneError) {
			t.Errorf("%d bytes: %.40q...", len(got), got)
		}
	}
}

func FuzzNormalise(f *testing.F) {
	for _, s := range []string{"https://a.example/%", "//", "http://[::1]:80/", "https://xn--/", "a:b", "?#", "https://a/%e2%82", "\x00", "http://a..b./", "https://A.example/?utm_%=1&%zz=2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, got := range []string{NormaliseURL(s), NormaliseText(s, MaxTitleBytes), SearchTerm(s)} {
			if len(got) > MaxValueBytes || !utf8.ValidString(got) || strings.ContainsRune(got, 0) {
				t.Errorf("%q gives %q", s, got)
			}
		}
	})
}

func TestSearchTerms(t *testing.T) {
	for _, row := range []struct{ name, in, want string }{
		{"Bing", "https://www.bing.com/search?q=red+shoes&form=x", "red shoes"},
		{"DuckDuckGo", "https://duckduckgo.com/?q=caf%C3%A9", "café"},
		{"Yahoo of a country", "https://de.search.yahoo.com/search?p=schuhe", "schuhe"},
		{"Yandex", "https://yandex.ru/search/?text=%D0%BE%D0%B1%D1%83%D0%B2%D1%8C", "обувь"},
		{"Baidu", "http://www.baidu.com/s?wd=%E9%9E%8B", "鞋"},
		{"Google, where it tells", "https://www.google.co.uk/search?q=Red%20%20shoes", "Red shoes"},
		{"Google, as it is today", "https://www.google.com/", ""},
		{"Ecosia", "https://www.ecosia.org/search?q=a%00b", "ab"},
		{"somebody else's q", "https://shop.example.com/?q=red", ""},
		{"an engine's name in another's host", "https://google.example.com/?q=red", ""},
		{"and as the name of a country's site", "https://bing.shop.de/?q=red", ""},
		{"a blog at an engine's", "https://blog.google.com/?q=red", ""},
		{"an empty term", "https://www.bing.com/search?q=+", ""},
		{"no UTF-8", "https://www.bing.com/search?q=%ff%fea", "\uFFFDa"},
		{"no web address", "android-app://com.google.bing/?q=a", ""},
		{"nonsense", "https://%zz", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := SearchTerm(row.in); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}
