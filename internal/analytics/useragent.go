package analytics

import (
	"strings"

	"github.com/mileusna/useragent"
)

// Agent is what a user agent tells, each a name of a closed list, or Unknown. They are keys of documents, so nothing that
// somebody made up gets there.
type Agent struct{ Client, Device, OS string }

// AppleMail is the client of those whose images come through Apple's privacy proxy. That proxy names nobody: its agent is a bare
// Mozilla/5.0, which of any other request tells nothing, so ParseAgent leaves it Unknown.
const AppleMail = "Apple Mail"

// mailClients are parts of user agents, in lower case, of mail programs and the proxies of webmail. Browsers stand behind
// them; Thunderbird says Gecko, too, and Outlook says almost everything.
var mailClients = []struct{ part, name string }{
	{"googleimageproxy", "Gmail"}, {"yahoomailproxy", "Yahoo Mail"}, {"seznamemailproxy", "Seznam"},
	{"thunderbird/", "Thunderbird"}, {"betterbird/", "Thunderbird"}, {"icedove/", "Thunderbird"},
	{"outlook-ios", "Outlook"}, {"outlook-android", "Outlook"}, {"microsoft outlook", "Outlook"}, {"ms-office", "Outlook"}, {"msoffice", "Outlook"}, {"macoutlook", "Outlook"},
	{"windows live mail", "Windows Mail"}, {"microsoft mail", "Windows Mail"},
	{"k-9", "K-9 Mail"}, {"fairemail", "FairEmail"}, {"samsung email", "Samsung Email"}, {"samsungemail", "Samsung Email"},
	{"airmail", "Airmail"}, {"sparkdesktop", "Spark"}, {"postbox/", "Postbox"}, {"lotus-notes", "Notes"}, {"em client", "eM Client"}, {"emclient", "eM Client"},
	{"evolution/", "Evolution"}, {"kmail", "KMail"}, {"the bat!", "The Bat!"}, {"yahoomobilemail", "Yahoo Mail"}, {"superhuman", "Superhuman"},
}

// browsers are the names by which the library knows a client that is worth a line of a report.
var browsers = map[string]string{
	useragent.Chrome: "Chrome", useragent.Firefox: "Firefox", useragent.Safari: "Safari", useragent.MobileSafari: "Safari", useragent.Edge: "Edge",
	useragent.Opera: "Opera", useragent.OperaMini: "Opera", useragent.OperaTouch: "Opera", useragent.Vivaldi: "Vivaldi", useragent.SamsungBrowser: "Samsung Browser",
	useragent.InternetExplorer: "Internet Explorer", "Android browser": "Android Browser", "Huawei Browser": "Huawei Browser", "Miui Browser": "Miui Browser",
	"YaBrowser": "Yandex Browser", "DuckDuckGo": "DuckDuckGo", "UCBrowser": "UC Browser", useragent.FacebookApp: "Facebook", useragent.InstagramApp: "Instagram", useragent.TiktokApp: "TikTok",
}

var systems = map[string]string{
	useragent.Windows: "Windows", useragent.WindowsPhone: "Windows Phone", useragent.Android: "Android", useragent.IOS: "iOS", useragent.MacOS: "macOS",
	useragent.Linux: "Linux", useragent.FreeBSD: "FreeBSD", useragent.ChromeOS: "ChromeOS", useragent.BlackBerry: "BlackBerry", useragent.Harmony: "HarmonyOS",
}

// maxAgent is how much of a user agent is looked at.
const maxAgent = 512

// ParseAgent tells the mail client or browser, the device (desktop, mobile, tablet) and the system.
func ParseAgent(ua string) Agent {
	ua = strings.TrimSpace(ua[:min(len(ua), maxAgent)])
	lower := strings.ToLower(ua)
	// The proxies of webmail name a browser and a system that nobody has.
	if name := mailClient(lower); strings.Contains(lower, "proxy") && name != "" {
		return Agent{name, Unknown, Unknown}
	}
	p := useragent.Parse(ua)
	a := Agent{Client: mailClient(lower), Device: device(p), OS: named(systems, p.OS)}
	switch {
	case a.Client != "":
	case appleMail(ua):
		a.Client = AppleMail
	default:
		a.Client = named(browsers, p.Name)
	}
	return a
}

func mailClient(lower string) string {
	for _, c := range mailClients {
		if strings.Contains(lower, c.part) {
			return c.name
		}
	}
	return ""
}

// appleMail knows Apple's mail programs, and others that show mails in the system's view of web pages: WebKit, and
// nothing behind it that names a browser.
func appleMail(ua string) bool {
	i := strings.Index(ua, "(KHTML, like Gecko)")
	if i < 0 || !strings.Contains(ua, "Macintosh") && !strings.Contains(ua, "iPhone") && !strings.Contains(ua, "iPad") {
		return false
	}
	rest := strings.TrimSpace(ua[i+len("(KHTML, like Gecko)"):])
	return rest == "" || strings.HasPrefix(rest, "Mobile/") && !strings.Contains(rest, " ")
}

func device(p useragent.UserAgent) string {
	switch {
	case p.Bot:
		return Unknown
	case p.Tablet:
		return "tablet"
	case p.Mobile:
		return "mobile"
	case p.Desktop:
		return "desktop"
	}
	return Unknown
}

func named(names map[string]string, name string) string {
	if n, ok := names[name]; ok {
		return n
	}
	return Unknown
}
