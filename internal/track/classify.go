package track

import (
	"strings"
	"time"
)

// OpenKind is who loaded a pixel.
type OpenKind string

const (
	Human    OpenKind = "human"
	Proxy    OpenKind = "proxy"    // an image proxy: a person, seen through a cache
	Prefetch OpenKind = "prefetch" // Apple's privacy proxy: the mail has arrived, whether somebody read it can't be known
	Machine  OpenKind = "machine"  // a scanner
)

// machineWithin is how soon after the send no person opens a mail.
const machineWithin = 2 * time.Second

// imageProxies and scanners are parts of user agents in lower case.
var imageProxies = []string{
	"googleimageproxy", "yahoomailproxy", "seznamemailproxy",
	"imageproxy", "image-proxy", "mailproxy", "emailproxy",
}

var scanners = []string{
	"bot/", "bot;", "bot)", "bot-", "+http", "crawler", "spider", "scanner", "preview", "headless", "phantomjs", "monitor",
	"barracuda", "proofpoint", "mimecast", "symantec", "forcepoint", "fortinet", "trendmicro", "ironport", "sophos", "cloudmark", "urldefense", "safelinks",
	"facebookexternalhit", "whatsapp/",
	"curl/", "wget/", "python", "go-http-client", "java/", "libwww", "perl", "ruby", "php/", "guzzle", "node-fetch", "axios/", "okhttp", "apache-httpclient", "aiohttp", "scrapy", "httpx",
}

// Classify tells who loaded a pixel from the user agent and from how long after the send it was. It is a guess, see
// docs/pixel.md for its limits. No user agent at all is a machine: mail programs and browsers send one.
func Classify(ua string, sentAt, at time.Time) OpenKind {
	ua = strings.TrimSpace(ua)
	switch {
	case at.Sub(sentAt) < machineWithin, ua == "":
		return Machine
	case ua == "Mozilla/5.0":
		return Prefetch
	}
	lower := strings.ToLower(ua)
	switch {
	case containsAny(lower, imageProxies):
		return Proxy
	case strings.HasSuffix(lower, "bot"), containsAny(lower, scanners):
		return Machine
	}
	return Human
}

func containsAny(s string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}
