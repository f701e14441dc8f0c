package templates

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"postbit/internal/quantity"
	"postbit/internal/spelling"
)

// What mail programs put up with.
const (
	maxShownSubject = 78      // characters; more is cut by nearly all of them
	clippedAt       = 102_000 // bytes of HTML; Gmail hides the rest, and with it the pixel and the way to unsubscribe
)

// Warning is something that is allowed and probably not meant.
type Warning struct {
	Template string `json:"template"`
	What     string `json:"what"`
}

func (w Warning) String() string { return w.Template + ": " + w.What }

// Lint looks at the mail as it comes out for each of some users (or for a made-up one), and at which of the fields that it
// reads these users have.
func (c *Compiled) Lint(users []bson.Raw, now time.Time) []Warning {
	l := linter{c: c}
	l.fields(users)
	l.functions()
	if len(users) == 0 {
		users = []bson.Raw{SampleUser(c.fields, now)}
	}
	l.mails(users, now)
	return l.found
}

type linter struct {
	c     *Compiled
	found []Warning
}

func (l *linter) warn(format string, args ...any) {
	l.found = append(l.found, Warning{l.c.template.Name, fmt.Sprintf(format, args...)})
}

// fields names those that no user has, and those that would be printed as nothing for some.
func (l *linter) fields(users []bson.Raw) {
	if len(users) == 0 {
		return
	}
	printed := map[string]bool{}
	for _, sl := range l.c.slots {
		if sl.bare {
			printed[strings.Join(sl.path, ".")] = true
		}
	}
	for _, f := range l.c.fields {
		path, missing := strings.Split(f, "."), 0
		for _, u := range users {
			if !has(u, path) {
				missing++
			}
		}
		switch {
		case missing == len(users):
			l.warn(".User.%s: none of %s has it%s", f, quantity.Of(len(users), "user"), suggestField(users, path))
		case missing > 0 && printed[f]:
			l.warn(".User.%s: missing for %d of %s, whose mail has nothing there unless `default` or `with` provides", f, missing, quantity.Of(len(users), "user"))
		}
	}
}

// has reports whether a field is there and not null, in the document or in an element of an array on the way.
func has(doc []byte, path []string) bool {
	v, ok := element(doc, path[0])
	if !ok || v.Type == bsoncore.TypeNull || v.Type == bsoncore.TypeUndefined {
		return false
	}
	if len(path) == 1 {
		return true
	}
	switch v.Type {
	case bsoncore.TypeEmbeddedDocument:
		return has(v.Data, path[1:])
	case bsoncore.TypeArray:
		found := false
		each(v.Data, func(_ []byte, e bsoncore.Value) bool {
			found = e.Type == bsoncore.TypeEmbeddedDocument && has(e.Data, path[1:])
			return !found
		})
		return found
	}
	return false
}

func suggestField(users []bson.Raw, path []string) string {
	seen := map[string]bool{}
	for _, u := range users {
		if v, ok := find(u, path[:len(path)-1]); ok && v.Type == bsoncore.TypeEmbeddedDocument {
			each(v.Data, func(key []byte, _ bsoncore.Value) bool {
				seen[clean(string(key))] = true
				return len(seen) < 1000
			})
		}
	}
	return spelling.Hint(path[len(path)-1], sortedKeys(seen))
}

func (l *linter) functions() {
	t := l.c.template
	if !l.c.used["unsubscribe"] {
		l.warn("there is no {{ unsubscribe }} link; who can't find one reports the mail as spam")
	}
	if !t.Track && l.c.used["pixel"] {
		l.warn("{{ pixel }} is empty: track is false")
	}
	if !t.Track && l.c.used["link"] {
		l.warn("{{ link }} leads straight to its target: track is false")
	}
	if t.From == "" {
		l.warn("from is missing; the sender of the settings is used")
	}
}

// mails looks at rendered mails; every kind of finding is told once.
func (l *linter) mails(users []bson.Raw, now time.Time) {
	told := map[string]bool{}
	once := func(kind, format string, args ...any) {
		if !told[kind] {
			told[kind] = true
			l.warn(format, args...)
		}
	}
	for _, u := range users {
		out, err := l.c.Preview(u, now, nil)
		if err != nil {
			if !errors.Is(err, ErrTooLarge) {
				once("error", "%s", err)
				continue
			}
			once("large", "%s for some users", ErrTooLarge)
			continue
		}
		if n := utf8.RuneCountInString(out.Subject); n > maxShownSubject {
			once("subject", "the subject has %d characters; mail programs show %d at most: %.60s…", n, maxShownSubject, out.Subject)
		}
		if out.Subject == "" {
			once("no subject", "the subject is empty for some users")
		}
		if len(out.HTML) > clippedAt {
			once("clipped", "%d bytes of HTML; Gmail cuts at %d and hides what follows, the pixel and the unsubscribe link, too", len(out.HTML), clippedAt)
		}
		if strings.TrimSpace(out.Text) == "" {
			once("text", "there is no text part: the HTML has no words; write a %s.txt", l.c.template.label())
		}
		l.tags(out.HTML, once)
	}
}

func (l *linter) tags(src string, once func(kind, format string, args ...any)) {
	z := html.NewTokenizer(strings.NewReader(src))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return
		case html.StartTagToken, html.SelfClosingTagToken:
			t := z.Token()
			switch t.DataAtom {
			case atom.Script, atom.Form, atom.Iframe, atom.Object, atom.Embed, atom.Video:
				once(t.Data, "<%s>: mail programs leave it out", t.Data)
			case atom.Img:
				l.image(t, once)
			case atom.A:
				l.link(t, once)
			case atom.Link:
				once("link", "<link>: mail programs load no style sheets; put the styles into <style> or the tags")
			}
		}
	}
}

func attribute(t html.Token, name string) (string, bool) {
	for _, a := range t.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

func (l *linter) image(t html.Token, once func(kind, format string, args ...any)) {
	src, _ := attribute(t, "src")
	if _, ok := attribute(t, "alt"); !ok {
		once("alt", "image %.60q has no alt; it is what most people see first", src)
	}
	switch {
	case strings.HasPrefix(src, "http:"):
		once("http image", "image %.60q is loaded over http; some mail programs refuse", src)
	case strings.HasPrefix(src, "data:"):
		once("data image", "an image is part of the HTML (data:); Gmail and Outlook leave it out")
	case src == "" || !strings.Contains(src, ":"):
		once("relative image", "image %.60q has no full address", src)
	}
}

func (l *linter) link(t html.Token, once func(kind, format string, args ...any)) {
	href, ok := attribute(t, "href")
	switch {
	case !ok || strings.HasPrefix(href, "mailto:") || strings.HasPrefix(href, "tel:") || strings.HasPrefix(href, "https:"):
	case strings.HasPrefix(href, "http:"):
		once("http link", "link to %.60q is http; use https", href)
	case strings.HasPrefix(href, "#Zgotmpl"):
		once("unsafe link", "a link is not of the web or of mail and was taken out")
	case href == "":
		once("empty link", "a link leads nowhere")
	case !strings.HasPrefix(href, "#"):
		once("relative link", "link to %.60q has no full address", href)
	}
}
