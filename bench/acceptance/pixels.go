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

	"postbit/internal/picture"
)

var pixelURL = regexp.MustCompile(`https?://[^"'\s<>]+/o/[^"'\s<>]+\.gif`)

// readers are the programs that mails are read with, what an open through each counts as, and its share of all. The sum of shares is 20.
var readers = []struct {
	name, agent, kind string
	share             int
}{
	{"Apple Mail on a phone", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148", "human", 5},
	{"a browser on a phone", "Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Mobile Safari/537.36", "human", 3},
	{"Outlook", "Microsoft Office/16.0 (Windows NT 10.0; Microsoft Outlook 16.0.18827; Pro)", "human", 3},
	{"Thunderbird", "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Thunderbird/140.1.0", "human", 2},
	{"Gmail's proxy", "Mozilla/5.0 (Windows NT 5.1; rv:11.0) Gecko Firefox/11.0 (via ggpht.com GoogleImageProxy)", "proxy", 4},
	{"Apple's privacy proxy", "Mozilla/5.0", "prefetch", 3},
}

// pixels requests the pixels of the mails that the sink kept, with programs of several kinds, and waits until the report has counted every one.
func (t *trial) pixels(ctx context.Context) error {
	paths, err := t.pixelPaths()
	if err != nil {
		return err
	}
	hitpx, err := t.Build(ctx, "./bench/hitpx")
	if err != nil {
		return err
	}
	want, hits, from := map[string]int64{}, 0, 0
	for i, r := range readers {
		n, to := t.hits*r.share/20, from+len(paths)*r.share/20
		if i == len(readers)-1 {
			n, to = t.hits-hits, len(paths)
		}
		if n == 0 || from == to {
			continue
		}
		file := t.write("paths.txt", strings.Join(paths[from:to], "\n"))
		out, err := t.Run(ctx, t.Dir, hitpx, "-addr", t.public, "-n", fmt.Sprint(n), "-c", "32", "-paths", file, "-agent", r.agent)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s", r.name, out)
		if !strings.Contains(string(out), " bad=0 ") {
			return fmt.Errorf("not every hit was answered")
		}
		want[r.kind] += int64(n)
		hits, from = hits+n, to
	}
	return t.awaitHits(ctx, min(len(paths), t.hits), want)
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

// awaitHits waits until as many hits are counted as there were, each under its kind.
func (t *trial) awaitHits(ctx context.Context, distinct int, kinds map[string]int64) error {
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
		if o.Hits == want && o.Human == kinds["human"] && o.Proxy == kinds["proxy"] && o.Prefetch == kinds["prefetch"] && o.Machine == 0 {
			fmt.Printf("%d hits on %d pixels, %d counted: human %d, proxy %d, prefetch %d, machine %d, unique %d\n", t.hits, distinct, o.Hits, o.Human, o.Proxy, o.Prefetch, o.Machine, o.Unique)
			return nil
		}
		if time.Now().After(deadline) || o.Hits > want {
			return fmt.Errorf("%d hits were answered, %v, the report says %+v", want, kinds, o)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// drawReport draws what `postbit report` says of the run in a terminal.
func (t *trial) drawReport(ctx context.Context) error {
	if t.picture == "" {
		return nil
	}
	t.Env = append(t.Env, "LC_ALL=C.UTF-8", "TERM=xterm", "COLUMNS=84")
	out, err := t.Run(ctx, t.Dir, t.postbit, "report", "acceptance")
	if err != nil {
		return err
	}
	return os.WriteFile(t.picture, []byte(picture.Terminal("postbit report acceptance", string(out))), 0o644)
}
