package track

import (
	"testing"
	"time"
)

func TestClassify(t *testing.T) {
	const (
		firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
		apple   = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko)"
		google  = "Mozilla/5.0 (Windows NT 5.1; rv:11.0) Gecko Firefox/11.0 (via ggpht.com GoogleImageProxy)"
	)
	for _, tc := range []struct {
		name, ua string
		after    time.Duration
		want     OpenKind
	}{
		{"a browser", firefox, time.Hour, Human},
		{"Apple Mail", apple, time.Hour, Human},
		{"Outlook", "Mozilla/4.0 (compatible; MSIE 7.0; Windows NT 10.0; Microsoft Outlook 16.0.5257; ms-office; MSOffice 16)", time.Hour, Human},
		{"Thunderbird", "Mozilla/5.0 (X11; Linux x86_64; rv:115.0) Gecko/20100101 Thunderbird/115.6.0", time.Hour, Human},
		{"a phone whose maker's name ends in bot", "Mozilla/5.0 (Linux; Android 13; CUBOT P80 Build/TP1A) AppleWebKit/537.36", time.Hour, Human},
		{"O2: 1 s after the send", firefox, time.Second, Machine},
		{"just before 2 s", firefox, 2*time.Second - time.Millisecond, Machine},
		{"at 2 s", firefox, 2 * time.Second, Human},
		{"before the send, by clocks that differ", firefox, -time.Second, Machine},
		{"O2: the bare agent after ten minutes", "Mozilla/5.0", 10 * time.Minute, Prefetch},
		{"the bare agent at once", "Mozilla/5.0", time.Second, Machine},
		{"O3: Google's proxy", google, 10 * time.Minute, Proxy},
		{"Google's proxy at once", google, time.Second, Machine},
		{"Yahoo's proxy", "YahooMailProxy; https://help.yahoo.com/kb/yahoo-mail-proxy-SLN28749.html", time.Hour, Proxy},
		{"Seznam's proxy", "Mozilla/5.0 (compatible; SeznamEmailProxy/2.0.203)", time.Hour, Proxy},
		{"no agent", "", time.Hour, Machine},
		{"space", "  ", time.Hour, Machine},
		{"a crawler", "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)", time.Hour, Machine},
		{"a scanner", "Barracuda Sentinel (EE)", time.Hour, Machine},
		{"curl", "curl/8.5.0", time.Hour, Machine},
		{"a script", "python-requests/2.31.0", time.Hour, Machine},
		{"Go", "Go-http-client/1.1", time.Hour, Machine},
		{"bytes", "\xff\xfe\x00", time.Hour, Human},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Classify(tc.ua, noon, noon.Add(tc.after)); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
			h := Hit{UserAgent: tc.ua, SentAt: noon, At: noon.Add(tc.after)}
			if got := h.OpenKind(); got != tc.want {
				t.Errorf("of a hit: %v", got)
			}
		})
	}
}
