package analytics

import (
	"net/url"
	"slices"
	"strings"
)

// searchEngines are the engines whose result pages may still name what was searched for, by a label of their host, and the
// parameter that does. Most send the bare host by now (Google does since 2011 but for some old paths): then there is no term.
var searchEngines = []struct {
	label      string
	parameters []string
}{
	{"google", []string{"q"}}, {"bing", []string{"q"}}, {"duckduckgo", []string{"q"}}, {"yahoo", []string{"p", "q"}}, {"yandex", []string{"text"}}, {"ya", []string{"text"}},
	{"baidu", []string{"wd", "word"}}, {"ecosia", []string{"q"}}, {"qwant", []string{"q"}}, {"naver", []string{"query"}}, {"daum", []string{"q"}}, {"sogou", []string{"query", "keyword"}}, {"so", []string{"q"}},
	{"seznam", []string{"q"}}, {"startpage", []string{"query", "q"}}, {"brave", []string{"q"}}, {"kagi", []string{"q"}}, {"mojeek", []string{"q"}}, {"swisscows", []string{"query"}}, {"metager", []string{"eingabe"}},
	{"ask", []string{"q"}}, {"aol", []string{"q"}}, {"t-online", []string{"q"}}, {"petalsearch", []string{"query"}}, {"coccoc", []string{"query"}},
}

// engineHosts are the parts that a search engine's host may have in front of its name.
var engineHosts = []string{"", "www", "m", "search", "images", "news", "html", "lite", "cn", "r", "suche"}

// SearchTerm is what was searched for on the page that led here; "" where that was no search engine, or it does not tell.
func SearchTerm(referrer string) string {
	u, err := url.Parse(strings.TrimSpace(referrer))
	if err != nil || u.RawQuery == "" || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	labels := strings.Split(normaliseHost("", u.Hostname()), ".")
	for _, e := range searchEngines {
		i := slices.Index(labels, e.label)
		if i < 0 || !engineHost(labels, i) {
			continue
		}
		query := u.Query() // takes what it can read
		for _, p := range e.parameters {
			if term := NormaliseText(query.Get(p), MaxValueBytes); term != "" {
				return term
			}
		}
	}
	return ""
}

// engineHost says that the label at i is the name that was registered, and not a part of somebody else's: google.com,
// www.google.co.uk, de.search.yahoo.com, but not google.example.com or my.blog.bing.example.org.
func engineHost(labels []string, i int) bool {
	suffix := labels[i+1:]
	if len(suffix) < 1 || len(suffix) > 2 || len(suffix) == 2 && (len(suffix[1]) != 2 || suffix[0] != "co" && suffix[0] != "com") {
		return false
	}
	for _, l := range labels[:i] {
		if len(l) != 2 && !slices.Contains(engineHosts, l) {
			return false
		}
	}
	return true
}
