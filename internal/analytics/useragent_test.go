package analytics

import (
	"regexp"
	"strings"
	"testing"
)

func TestParseAgent(t *testing.T) {
	for _, row := range []struct {
		name, ua string
		want     Agent
	}{
		{"Chrome on Windows", "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36", Agent{"Chrome", "desktop", "Windows"}},
		{"Firefox on Linux", "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0", Agent{"Firefox", "desktop", "Linux"}},
		{"Safari on a Mac", "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Safari/605.1.15", Agent{"Safari", "desktop", "macOS"}},
		{"Safari on a phone", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Mobile/15E148 Safari/604.1", Agent{"Safari", "mobile", "iOS"}},
		{"Safari on a tablet", "Mozilla/5.0 (iPad; CPU OS 16_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/16.6 Mobile/15E148 Safari/604.1", Agent{"Safari", "tablet", "iOS"}},
		{"Edge", "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0", Agent{"Edge", "desktop", "Windows"}},
		{"Chrome on Android", "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile Safari/537.36", Agent{"Chrome", "mobile", "Android"}},
		{"Apple Mail on a Mac", "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko)", Agent{"Apple Mail", "desktop", "macOS"}},
		{"Apple Mail on a phone", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148", Agent{"Apple Mail", "mobile", "iOS"}},
		{"a bare agent, Apple's privacy proxy among others", "Mozilla/5.0", Agent{Unknown, Unknown, Unknown}},
		{"Gmail's proxy", "Mozilla/5.0 (Windows NT 5.1; rv:11.0) Gecko Firefox/11.0 (via ggpht.com GoogleImageProxy)", Agent{"Gmail", Unknown, Unknown}},
		{"Yahoo's proxy", "YahooMailProxy; https://help.yahoo.com/kb/yahoo-mail-proxy-SLN28749.html", Agent{"Yahoo Mail", Unknown, Unknown}},
		{"Thunderbird", "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Thunderbird/140.5.0", Agent{"Thunderbird", "desktop", "Windows"}},
		{"Outlook", "Mozilla/4.0 (compatible; MSIE 7.0; Windows NT 10.0; WOW64; Trident/7.0; .NET4.0C; Microsoft Outlook 16.0.5266; ms-office; MSOffice 16)", Agent{"Outlook", "desktop", "Windows"}},
		{"made up", "Foo/1.0 (Bar; $where: 1)", Agent{Unknown, Unknown, Unknown}},
		{"nothing", "", Agent{Unknown, Unknown, Unknown}},
		{"dots and dollars", "$a.b.c/1 ..$..", Agent{Unknown, Unknown, Unknown}},
		{"no UTF-8", "\xff\xfe\x00Chrome", Agent{Unknown, Unknown, Unknown}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := ParseAgent(row.ua); got != row.want {
				t.Errorf("got %+v, want %+v", got, row.want)
			}
		})
	}
}

var agentKey = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 !-]*$`)

func agentNames() map[string]bool {
	names := map[string]bool{Unknown: true, "Apple Mail": true, "desktop": true, "mobile": true, "tablet": true}
	for _, c := range mailClients {
		names[c.name] = true
	}
	for _, list := range []map[string]string{browsers, systems} {
		for _, n := range list {
			names[n] = true
		}
	}
	return names
}

func FuzzParseAgent(f *testing.F) {
	for _, s := range []string{"", "Mozilla/5.0 (Linux; Android", "Android Android tablet; en-us; x) Chrome/1 Safari/2", "(((;;;)))://http://[[[]]]", "Mozilla/5.0 (iPad; CPU OS", "Instagram 1.2", strings.Repeat("Android;", 200)} {
		f.Add(s)
	}
	names := agentNames()
	for n := range names {
		if !agentKey.MatchString(n) {
			f.Errorf("%q is no key of a document", n)
		}
	}
	f.Fuzz(func(t *testing.T, ua string) {
		a := ParseAgent(ua)
		for _, n := range []string{a.Client, a.Device, a.OS} {
			if !names[n] {
				t.Errorf("%q gives %q, which is not on the list", ua, n)
			}
		}
	})
}
