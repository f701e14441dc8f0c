package track

import (
	"mime"
	"net/http"
	"strings"
)

const (
	maxForm    = 64 << 10 // bytes of a POST
	fieldClick = "List-Unsubscribe"
	valueClick = "One-Click" // RFC 8058 section 3.1
	fieldPage  = "confirm"
	valuePage  = "yes"
)

// unsubscribe changes nothing on GET and HEAD, which scanners send for every link in a mail, and acts on the POST of RFC 8058 or
// of the page's own form.
func (h *handler) unsubscribe(w http.ResponseWriter, r *http.Request, token string) {
	if !allow(w, r, http.MethodGet, http.MethodHead, http.MethodPost) {
		return
	}
	t, ok := h.verify(token, Unsubscribe)
	if !ok {
		h.page(w, r, http.StatusNotFound, pageBadLink)
		return
	}
	if r.Method != http.MethodPost {
		h.page(w, r, http.StatusOK, pageConfirm)
		return
	}
	switch wanted, err := asksToUnsubscribe(w, r); {
	case err != nil || !wanted:
		h.page(w, r, http.StatusBadRequest, pageBadForm)
	case h.record(w, r, t):
		h.page(w, r, http.StatusOK, pageDone)
	}
}

// asksToUnsubscribe reads the form, urlencoded or multipart.
func asksToUnsubscribe(w http.ResponseWriter, r *http.Request) (bool, error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	var err error
	if media == "multipart/form-data" {
		err = r.ParseMultipartForm(maxForm)
	} else {
		if media == "" { // some senders of one-click requests leave it out
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		err = r.ParseForm()
	}
	if r.MultipartForm != nil {
		defer r.MultipartForm.RemoveAll()
	}
	if err != nil {
		return false, err
	}
	return strings.EqualFold(r.PostForm.Get(fieldClick), valueClick) || r.PostForm.Get(fieldPage) == valuePage, nil
}
