package track

import (
	"crypto/sha256"
	"encoding/base64"
	"html"
	"io"
	"net/http"
	"strconv"
)

// page is one of the few pages of our own.
type page struct {
	title, text string
	form        bool // with the button that unsubscribes
}

var (
	pageConfirm  = page{"Unsubscribe?", "You will get no more of these mails.", true}
	pageDone     = page{"You are unsubscribed", "You will get no more of these mails. One that is on its way already may still arrive.", false}
	pageBadForm  = page{"Nothing was changed", "This request did not say that it wants to unsubscribe. Please use the button.", true}
	pageBadLink  = page{"This link does not work", "It is not complete, or it has been changed on its way. Please use the one in the mail itself.", false}
	pageGone     = page{"This mail is not here any more", "The mail itself still is in your mailbox.", false}
	pageTrouble  = page{"Please try again", "This page can't be shown at the moment.", false}
	pageNotFound = page{"Not found", "There is nothing at this address.", false}
)

const pageStyle = `body{font:16px/1.5 system-ui,sans-serif;max-width:32em;margin:15vh auto 0;padding:0 1.5em;color:#222;background:#fff}` +
	`h1{font-size:1.4em}button{font:inherit;padding:.6em 1.4em;border:0;border-radius:4px;background:#1a56c4;color:#fff}` +
	`@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}}`

// pagePolicy allows a page of ours its one style sheet and a form to its own address.
var pagePolicy = func() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
}()

// mailPolicy is for a mail in the browser: images and styles as in a mail program, no script, no form, no frame; links open as they would from there.
const mailPolicy = "default-src 'none'; img-src https: http: data:; style-src 'unsafe-inline' https:; font-src https: data:; " +
	"form-action 'none'; frame-ancestors 'none'; base-uri 'none'; sandbox allow-popups allow-popups-to-escape-sandbox allow-top-navigation-by-user-activation"

// page writes a page; its form posts to the address it has.
func (h *handler) page(w http.ResponseWriter, r *http.Request, status int, p page) {
	body := "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><meta name=\"robots\" content=\"noindex\">" +
		"<title>" + html.EscapeString(p.title) + "</title><style>" + pageStyle + "</style></head><body><h1>" + html.EscapeString(p.title) + "</h1><p>" + html.EscapeString(p.text) + "</p>"
	if p.form {
		body += `<form method="post"><button name="` + fieldPage + `" value="` + valuePage + `">Unsubscribe</button></form>`
	}
	writeHTML(w, r, status, pagePolicy, body+"</body></html>")
}

func writeHTML(w http.ResponseWriter, r *http.Request, status int, policy, body string) {
	header := w.Header()
	header["Cache-Control"], header["X-Content-Type-Options"] = hNoStore, hNoSniff
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Robots-Tag", "noindex")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		io.WriteString(w, body)
	}
}
