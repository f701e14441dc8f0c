package track

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"postbit/internal/clock"
)

// HandlerConfig is what the public handler needs.
type HandlerConfig struct {
	Keys  *Keys
	Spool Appender
	Clock *clock.Clock
	// Browser renders a mail again for the web; nil: there is no browser version. ErrNoPage: there is none of this mail (any more).
	Browser func(ctx context.Context, t Token) (html string, err error)
	Sites   *Sites // whose pages are counted; nil: none
	// HonourDoNotTrack leaves out pages seen by browsers that send DNT or Sec-GPC. It does not concern mails.
	HonourDoNotTrack bool
	Log              *slog.Logger // nil: silent
}

// Appender takes answered hits: a *Spool.
type Appender interface {
	Append(ctx context.Context, h Hit) error
}

// ErrNoPage is for HandlerConfig.Browser.
var ErrNoPage = errors.New("there is no such page")

// pixelGIF is a transparent image of 1x1.
var pixelGIF = []byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;")

// Values of headers, made once: a map entry per request is cheaper than Set.
var (
	hGIF       = []string{"image/gif"}
	hGIFLength = []string{strconv.Itoa(len(pixelGIF))}
	hNoStore   = []string{"no-store"}
	hNoSniff   = []string{"nosniff"}
	hCross     = []string{"cross-origin"} // webmail that isolates itself may still show the image (Cross-Origin-Resource-Policy)
)

type handler struct {
	HandlerConfig
}

// NewHandler answers everything under the public URL: /o/ pixels, /c/ links, /u/ unsubscribing, /b/ mails in the browser, h.gif pages of sites. An answered hit has been
// appended to the spool; where that fails the answer is 503. No answer sets a cookie.
func NewHandler(c HandlerConfig) http.Handler {
	if c.Clock == nil {
		c.Clock = clock.New()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &handler{c}
}

// ServeHTTP looks at the last two parts of the path only: a public URL may have a path of its own, and the proxy in front may take it off or not.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	i := max(strings.LastIndexByte(path, '/'), 0)
	kind, token := path[:i], strings.TrimPrefix(path[i:], "/")
	switch {
	case strings.HasSuffix(kind, "/o"):
		h.pixel(w, r, strings.TrimSuffix(token, ".gif"))
	case strings.HasSuffix(kind, "/c"):
		h.click(w, r, token)
	case strings.HasSuffix(kind, "/u"):
		h.unsubscribe(w, r, token)
	case strings.HasSuffix(kind, "/b"):
		h.browser(w, r, token)
	case token == "h.gif":
		h.view(w, r)
	default:
		h.page(w, r, http.StatusNotFound, pageNotFound)
	}
}

// allow answers other methods with 405.
func allow(w http.ResponseWriter, r *http.Request, methods ...string) bool {
	for _, m := range methods {
		if r.Method == m {
			return true
		}
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	w.Header()["X-Content-Type-Options"] = hNoSniff
	http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	return false
}

// verify takes only tokens made for this purpose: a pixel's token, which any proxy has seen, unsubscribes nobody.
func (h *handler) verify(token string, kind Kind) (Token, bool) {
	t, err := h.Keys.Verify(token)
	return t, err == nil && t.Kind == kind
}

// pixel gives everybody the same image; who holds a token that isn't ours learns nothing.
func (h *handler) pixel(w http.ResponseWriter, r *http.Request, token string) {
	if r.Method != http.MethodGet && !allow(w, r, http.MethodGet, http.MethodHead) {
		return
	}
	if r.Method == http.MethodGet {
		if t, ok := h.verify(token, Open); ok && !h.record(w, r, t) {
			return
		}
	}
	sendGIF(w, r)
}

func sendGIF(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header["Content-Type"], header["Content-Length"] = hGIF, hGIFLength
	header["Cache-Control"], header["X-Content-Type-Options"] = hNoStore, hNoSniff
	header["Cross-Origin-Resource-Policy"] = hCross
	if r.Method == http.MethodGet {
		w.Write(pixelGIF)
	}
}

// record appends the hit, or answers 503.
func (h *handler) record(w http.ResponseWriter, r *http.Request, t Token) bool {
	return h.append(w, r, Hit{
		Kind: t.Kind, Run: t.Run, User: t.User, SentAt: t.SentAt, At: h.Clock.Now(),
		Method: r.Method, UserAgent: r.UserAgent(), URL: t.URL,
	})
}

func (h *handler) append(w http.ResponseWriter, r *http.Request, hit Hit) bool {
	err := h.Spool.Append(r.Context(), hit)
	if err == nil {
		return true
	}
	if r.Context().Err() == nil {
		h.Log.Warn("a hit was refused", "kind", hit.Kind, "err", err)
	}
	w.Header()["Cache-Control"], w.Header()["X-Content-Type-Options"] = hNoStore, hNoSniff
	w.Header().Set("Retry-After", "5")
	http.Error(w, "please try again in a moment", http.StatusServiceUnavailable)
	return false
}

// click sends on to the URL that was signed, so it can't be made to send anybody anywhere else.
func (h *handler) click(w http.ResponseWriter, r *http.Request, token string) {
	if !allow(w, r, http.MethodGet, http.MethodHead) {
		return
	}
	t, ok := h.verify(token, Click)
	if !ok {
		h.page(w, r, http.StatusNotFound, pageBadLink)
		return
	}
	if r.Method == http.MethodGet && !h.record(w, r, t) {
		return
	}
	header := w.Header()
	header["Cache-Control"], header["X-Content-Type-Options"] = hNoStore, hNoSniff
	header.Set("Referrer-Policy", "no-referrer") // the token is nobody else's business
	header.Set("Location", t.URL)
	w.WriteHeader(http.StatusFound)
}

func (h *handler) browser(w http.ResponseWriter, r *http.Request, token string) {
	if !allow(w, r, http.MethodGet, http.MethodHead) {
		return
	}
	t, ok := h.verify(token, Browser)
	if !ok || h.Browser == nil {
		h.page(w, r, http.StatusNotFound, pageBadLink)
		return
	}
	html, err := h.Browser(r.Context(), t)
	switch {
	case errors.Is(err, ErrNoPage):
		h.page(w, r, http.StatusNotFound, pageGone)
	case err != nil:
		h.Log.Error("the browser version of a mail could not be made", "run", t.Run, "err", err)
		w.Header().Set("Retry-After", "30")
		h.page(w, r, http.StatusServiceUnavailable, pageTrouble)
	default:
		writeHTML(w, r, http.StatusOK, mailPolicy, html)
	}
}
