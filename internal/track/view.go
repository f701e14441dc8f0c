package track

import (
	"net/http"
	"net/url"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// PageView is what a page says of itself and of the screen that it is on. All of it comes from outside and may be anything; it is
// cut and made valid UTF-8 when it is spooled. The page's address is the hit's URL.
type PageView struct {
	Site     string // one of the settings' sites
	Title    string
	Referrer string // where the visitor came from, if that was another site
	// Sizes in pixels: of the screen, and of the window inside. As they were sent.
	ScreenWidth, BrowserWidth, BrowserHeight string
}

// nobody is the user of a view.
var nobody = bson.RawValue{Type: bson.TypeNull}

const (
	maxSite  = 64
	maxTitle = 512
	maxSize  = 16
)

// fields are the texts of a view in the order in which they are spooled, with their limits.
func (v *PageView) fields() []struct {
	text  *string
	limit int
} {
	return []struct {
		text  *string
		limit int
	}{{&v.Site, maxSite}, {&v.Title, maxTitle}, {&v.Referrer, maxURL}, {&v.ScreenWidth, maxSize}, {&v.BrowserWidth, maxSize}, {&v.BrowserHeight, maxSize}}
}

// view is the pixel of landing pages: GET /h.gif?sid=&p=&t=&r=&sx=&bx=&by=. Everybody gets the image; what is not to be
// counted is not told apart from outside.
func (h *handler) view(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && !allow(w, r, http.MethodGet, http.MethodHead) {
		return
	}
	if r.Method == http.MethodGet {
		if hit, ok := h.seen(r); ok && !h.append(w, r, hit) {
			return
		}
	}
	sendGIF(w, r)
}

// seen reads a view. It is none of a site that nobody named, of a page that lives elsewhere, or of a visitor who does not want to be counted.
func (h *handler) seen(r *http.Request) (Hit, bool) {
	if h.HonourDoNotTrack && (r.Header.Get("DNT") == "1" || r.Header.Get("Sec-GPC") == "1") {
		return Hit{}, false
	}
	q := r.URL.Query() // what it can't read it leaves out
	site := q.Get("sid")
	if !h.Sites.known(site) {
		return Hit{}, false
	}
	page, ok := h.pageOf(r, site, q.Get("p"))
	if !ok {
		return Hit{}, false
	}
	view := PageView{Site: site, Title: q.Get("t"), Referrer: q.Get("r"), ScreenWidth: q.Get("sx"), BrowserWidth: q.Get("bx"), BrowserHeight: q.Get("by")}
	if from := hostOf(view.Referrer); from != "" && (from == hostOf(page) || h.Sites.lives(site, from, false)) {
		view.Referrer = "" // a step within the site
	}
	return Hit{Kind: View, At: h.Clock.Now(), Method: r.Method, UserAgent: r.UserAgent(), URL: page, View: view}, true
}

// pageOf is the address of the page that was seen, if it is one of the site's. Browsers tell by Referer or Origin where an
// image stands, and a page cannot change that: where they do, it must be one of the site's hosts as well.
func (h *handler) pageOf(r *http.Request, site, p string) (string, bool) {
	referer := r.Header.Get("Referer")
	for _, from := range []string{referer, r.Header.Get("Origin")} {
		if host := hostOf(from); host != "" && !h.Sites.lives(site, host, true) {
			return "", false
		}
	}
	switch {
	case p == "":
		p = referer
	case hostOf(p) == "" && hostOf(referer) != "": // a path alone
		base, err1 := url.Parse(strings.TrimSpace(referer))
		rel, err2 := url.Parse(strings.TrimSpace(p))
		if err1 != nil || err2 != nil {
			return "", false
		}
		p = base.ResolveReference(rel).String()
	}
	return p, h.Sites.lives(site, hostOf(p), true)
}
