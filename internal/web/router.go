package web

import (
	"fmt"
	"net/http"
)

// router is a ServeMux that gives a path it does not know to another handler, and refuses a method that a path does not have
// in the API's own shape.
type router struct {
	mux     *http.ServeMux
	missing http.Handler
}

func (rt router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, pattern := rt.mux.Handler(r)
	if pattern != "" {
		rt.mux.ServeHTTP(w, r) // not h: the mux fills in the path's values
		return
	}
	said := refusal{header: http.Header{}}
	h.ServeHTTP(&said, r)
	if said.status != http.StatusMethodNotAllowed {
		rt.missing.ServeHTTP(w, r)
		return
	}
	allow := said.header.Get("Allow")
	w.Header().Set("Allow", allow) // RFC 9110, section 15.5.6
	writeError(w, http.StatusMethodNotAllowed, fmt.Sprintf("%s is not answered here, but %s", r.Method, allow))
}

// refusal takes what a ServeMux would answer where none of its patterns fits, and forgets its plain text.
type refusal struct {
	header http.Header
	status int
}

func (a *refusal) Header() http.Header         { return a.header }
func (a *refusal) WriteHeader(status int)      { a.status = status }
func (a *refusal) Write(b []byte) (int, error) { return len(b), nil }
