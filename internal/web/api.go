package web

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"postbit/internal/strictjson"
)

type api struct{ Config }

// routes registers what the API answers; docs/openapi.yaml describes each of them.
func (a *api) routes(handle func(pattern string, h func(http.ResponseWriter, *http.Request))) {
	handle("GET /api/templates", a.answer(func(r *http.Request) (any, error) {
		return a.Operations.Templates(r.Context())
	}))
	handle("GET /api/campaigns", a.answer(func(r *http.Request) (any, error) {
		return a.Operations.Campaigns(r.Context())
	}))
	handle("GET /api/campaigns/{name}", a.answer(func(r *http.Request) (any, error) {
		return a.Operations.Campaign(r.Context(), r.PathValue("name"))
	}))
	handle("POST /api/campaigns/{name}/run", a.answer(func(r *http.Request) (any, error) {
		var req struct {
			Key string `json:"key"`
		}
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		return a.Operations.RunCampaign(r.Context(), r.PathValue("name"), req.Key)
	}))
	for _, action := range []string{"pause", "resume", "cancel"} {
		handle("POST /api/campaigns/{name}/"+action, a.answer(func(r *http.Request) (any, error) {
			return a.steer(r, action)
		}))
	}
	handle("POST /api/send", a.answer(func(r *http.Request) (any, error) {
		var req SendRequest
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		if req.Template == "" || req.User == "" {
			return nil, fmt.Errorf("%w: template and user are required", ErrInvalid)
		}
		return a.Operations.Send(r.Context(), req)
	}))
	handle("POST /api/pixels", a.answer(func(r *http.Request) (any, error) {
		var req struct {
			Campaign string `json:"campaign"`
			User     string `json:"user"`
		}
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		if req.Campaign == "" || req.User == "" {
			return nil, fmt.Errorf("%w: campaign and user are required", ErrInvalid)
		}
		return a.Operations.Pixel(r.Context(), req.Campaign, req.User)
	}))
	handle("GET /api/explain", a.answer(a.explain))
	handle("GET /api/report/{name}", a.answer(func(r *http.Request) (any, error) {
		q := r.URL.Query()
		return a.Operations.Report(r.Context(), r.PathValue("name"), q.Get("from"), q.Get("to"))
	}))
	handle("GET /api/report/{name}/{list}", a.answer(a.reportList))
}

func (a *api) steer(r *http.Request, action string) (any, error) {
	var req struct {
		Schedule bool   `json:"schedule"`
		Reason   string `json:"reason"`
	}
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	return a.Operations.Steer(r.Context(), r.PathValue("name"), action, req.Schedule, req.Reason)
}

func (a *api) explain(r *http.Request) (any, error) {
	q := r.URL.Query()
	if q.Get("campaign") == "" || q.Get("user") == "" {
		return nil, fmt.Errorf("%w: campaign and user are required", ErrInvalid)
	}
	var at time.Time // zero: now
	if s := q.Get("at"); s != "" {
		var err error
		if at, err = time.Parse(time.RFC3339, s); err != nil {
			return nil, fmt.Errorf("%w: at: not a time of RFC 3339", ErrInvalid)
		}
	}
	return a.Operations.Explain(r.Context(), q.Get("campaign"), q.Get("user"), at)
}

// maxLines is how many lines of a list may be asked for at once.
const maxLines = 1000

func (a *api) reportList(r *http.Request) (any, error) {
	q := r.URL.Query()
	n := 10
	if s := q.Get("n"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 1 || n > maxLines {
			return nil, fmt.Errorf("%w: n: not a number from 1 to %d", ErrInvalid, maxLines)
		}
	}
	return a.Operations.ReportList(r.Context(), r.PathValue("name"), r.PathValue("list"), q.Get("from"), q.Get("to"), n, q.Get("after"))
}

// decode reads a JSON object with known keys alone; no body is an empty object.
func decode(r *http.Request, v any) error {
	if t := r.Header.Get("Content-Type"); t != "" {
		if m, _, err := mime.ParseMediaType(t); err != nil || m != "application/json" {
			return fmt.Errorf("%w: the body must be application/json", ErrInvalid)
		}
	}
	if err := strictjson.Decode(r.Body, v); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: body: %w", ErrInvalid, err)
	}
	return nil
}

func (a *api) answer(do func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := do(r)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		write(w, http.StatusOK, v)
	}
}

func (a *api) noSuchPath(w http.ResponseWriter, r *http.Request) {
	if a.Operations == nil {
		a.fail(w, r, fmt.Errorf("%w: the API is served by processes with the role web", ErrNotFound))
		return
	}
	a.fail(w, r, fmt.Errorf("%w: no such path; the API is described in docs/openapi.yaml", ErrNotFound))
}

func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		writeError(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is over %d bytes", tooLarge.Limit))
	case errors.Is(err, ErrInvalid):
		writeError(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, ErrNotFound):
		writeError(w, http.StatusNotFound, err.Error())
	case errors.Is(err, ErrConflict):
		writeError(w, http.StatusConflict, err.Error())
	default:
		a.Log.Error("api", "method", r.Method, "path", r.URL.Path, "err", err)
		writeError(w, http.StatusInternalServerError, "failed; the log says why")
	}
}
