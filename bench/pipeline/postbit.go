package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"postbit/bench/internal/lab"
)

const templateHead = `---
name: pipeline
bitIndex: 3
subject: "{{ .User.name }}, hello from {{ .User.city }}"
from: "Bench <a@example.com>"
---
<html><body><h1>Hello {{ .User.name | default "there" }}</h1><p><a href="{{ link "https://example.com/back" }}">back</a></p>
`

const templateFoot = `<p><a href="{{ unsubscribe }}">unsubscribe</a></p></body></html>
`

const campaignFile = `name: pipeline
template: pipeline
audience: { plan: free }
rules: { inactive_after: 90d, min_gap: 24h }
`

// templateText renders to a mail of about the size of the bare one.
func templateText() string {
	var b strings.Builder
	b.WriteString(templateHead)
	for b.Len() < mailBytes*2/3 { // the text part is made from it and adds the rest
		b.WriteString("<p>" + strings.Repeat("lorem ipsum ", 5) + "dolor {{ .User.plan }} sit</p>\n")
	}
	return b.String() + templateFoot
}

// campaign sends to all users through a scheduler and a worker, and returns the worker, still running.
func campaign(ctx context.Context, l *lab.Lab, postbit string, sink *lab.Sink, users int) (*lab.Proc, error) {
	for name, text := range map[string]string{"templates/pipeline.html": templateText(), "campaigns/pipeline.yaml": campaignFile} {
		path := filepath.Join(l.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	for _, args := range [][]string{{"templates", "push", "templates"}, {"campaigns", "apply", "campaigns"}} {
		if _, err := l.Run(ctx, l.Dir, postbit, args...); err != nil {
			return nil, err
		}
	}
	if _, err := l.Start("scheduler", postbit, "serve", "--roles", "scheduler"); err != nil {
		return nil, err
	}
	worker, err := l.Start("worker", postbit, "serve", "--roles", "worker")
	if err != nil {
		return nil, err
	}
	if _, err := l.Run(ctx, l.Dir, postbit, "campaigns", "run", "pipeline"); err != nil {
		return nil, err
	}
	for last, quiet := int64(0), 0; ; {
		st, err := sinkStats(ctx, sink)
		if err != nil {
			return nil, err
		}
		if st.Msgs >= int64(users) {
			return worker, nil
		}
		if st.Msgs != last {
			last, quiet = st.Msgs, 0
		} else if quiet++; quiet > 60 {
			return nil, fmt.Errorf("stuck at %d of %d mails\n%s", st.Msgs, users, worker.Tail(20))
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-worker.Exited():
			return nil, fmt.Errorf("the worker ended\n%s", worker.Tail(20))
		case <-time.After(time.Second):
		}
	}
}

func redisPeak(info string) float64 {
	var n float64
	for line := range strings.Lines(info) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && k == "used_memory_peak" {
			_, _ = fmt.Sscan(v, &n)
		}
	}
	return n
}
