package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

var pixelURL = regexp.MustCompile(`https?://[^"'\s<>]+/o/[^"'\s<>]+\.gif`)

// pixels requests the pixels of the mails that the sink kept and waits until the report has counted every one.
func (t *trial) pixels(ctx context.Context) error {
	paths, err := t.pixelPaths()
	if err != nil {
		return err
	}
	file := t.write("paths.txt", strings.Join(paths, "\n"))
	hitpx, err := t.Build(ctx, "./bench/hitpx")
	if err != nil {
		return err
	}
	out, err := t.Run(ctx, t.Dir, hitpx, "-addr", t.public, "-n", fmt.Sprint(t.hits), "-c", "32", "-paths", file)
	if err != nil {
		return err
	}
	fmt.Print(string(out))
	if !strings.Contains(string(out), " bad=0 ") {
		return fmt.Errorf("not every hit was answered")
	}
	return t.awaitHits(ctx, min(len(paths), t.hits))
}

// pixelPaths are the paths of the pixels in the kept mails, at most as many as there are hits to make.
func (t *trial) pixelPaths() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(t.sink.Dir, "*.eml"))
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, name := range files {
		if len(paths) == t.hits {
			break
		}
		body, err := htmlOf(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		u, err := url.Parse(pixelURL.FindString(body))
		if err != nil || u.Path == "" {
			return nil, fmt.Errorf("%s: no pixel in the HTML", name)
		}
		paths = append(paths, u.Path)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("the sink kept no mail")
	}
	return paths, nil
}

// htmlOf is the decoded HTML part of a mail.
func htmlOf(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	m, err := mail.ReadMessage(f)
	if err != nil {
		return "", err
	}
	_, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		return "", err
	}
	for parts := multipart.NewReader(m.Body, params["boundary"]); ; {
		p, err := parts.NextRawPart()
		if err != nil {
			return "", fmt.Errorf("no HTML part: %w", err)
		}
		if strings.HasPrefix(p.Header.Get("Content-Type"), "text/html") {
			b, err := io.ReadAll(quotedprintable.NewReader(p))
			return string(b), err
		}
	}
}

// opens is the part of `report --json` that this looks at.
type opens struct{ Hits, Human, Proxy, Prefetch, Machine, Unique int64 }

func (t *trial) awaitHits(ctx context.Context, distinct int) error {
	for deadline := time.Now().Add(2 * time.Minute); ; {
		out, err := t.Run(ctx, t.Dir, t.postbit, "report", "acceptance", "--json")
		if err != nil {
			return err
		}
		var r struct{ Opens opens }
		if err := json.Unmarshal(out, &r); err != nil {
			return fmt.Errorf("report --json: %w", err)
		}
		o, want := r.Opens, int64(t.hits)
		if o.Hits == want && o.Human+o.Proxy+o.Prefetch+o.Machine == want {
			fmt.Printf("%d hits on %d pixels, %d counted: human %d, proxy %d, prefetch %d, machine %d, unique %d\n", t.hits, distinct, o.Hits, o.Human, o.Proxy, o.Prefetch, o.Machine, o.Unique)
			return nil
		}
		if time.Now().After(deadline) || o.Hits > want {
			return fmt.Errorf("%d hits were answered, the report says %+v", want, o)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}
