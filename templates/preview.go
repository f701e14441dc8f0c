package templates

import (
	"net/url"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// PreviewLinks point to names that exist nowhere (RFC 2606), so that nothing in a preview counts.
func PreviewLinks(now time.Time, zone *time.Location) Links {
	const base = "https://preview.invalid/"
	return Links{
		Unsubscribe: base + "unsubscribe",
		Browser:     base + "browser",
		Click:       func(target string) string { return base + "click?to=" + url.QueryEscape(target) },
		Now:         now,
		Zone:        zone,
	}
}

// SampleUser is a made-up user document that has all of these dotted fields, with values guessed from their names.
func SampleUser(fields []string, now time.Time) bson.Raw {
	doc := bson.D{}
	for _, f := range fields {
		doc = setPath(doc, strings.Split(f, "."), sampleValue(f, now))
	}
	raw, err := bson.Marshal(doc)
	if err != nil {
		return emptyDocument
	}
	return raw
}

func setPath(doc bson.D, path []string, v any) bson.D {
	for i := range doc {
		if doc[i].Key == path[0] {
			if inner, ok := doc[i].Value.(bson.D); ok && len(path) > 1 {
				doc[i].Value = setPath(inner, path[1:], v)
			}
			return doc
		}
	}
	if len(path) > 1 {
		v = setPath(bson.D{}, path[1:], v)
	}
	return append(doc, bson.E{Key: path[0], Value: v})
}

// samples are values by a part of the last name of a field; the first that fits is taken.
var samples = []struct {
	part  string
	value any
}{
	{"email", "zoe@example.org"}, {"first", "Zoë"}, {"last_name", "O'Neil"}, {"lastname", "O'Neil"}, {"name", "Zoë O'Neil"},
	{"city", "Lisbon"}, {"country", "Portugal"}, {"plan", "free"}, {"lang", "en"}, {"company", "Example & Sons"},
	{"url", "https://example.org/path"}, {"link", "https://example.org/path"}, {"title", "A title"}, {"price", 12.5},
	{"amount", 12.5}, {"balance", 12.5}, {"count", 3}, {"total", 3}, {"number", 3}, {"points", 420}, {"age", 37},
}

func sampleValue(field string, now time.Time) any {
	name := strings.ToLower(field[strings.LastIndexByte(field, '.')+1:])
	if strings.HasSuffix(name, "_at") || strings.HasSuffix(name, "date") || strings.Contains(name, "since") || name == "due" {
		return now.AddDate(0, 0, -30).UTC().Truncate(time.Millisecond)
	}
	for _, s := range samples {
		if strings.Contains(name, s.part) {
			return s.value
		}
	}
	if strings.HasSuffix(name, "s") {
		return bson.A{"one " + strings.TrimSuffix(name, "s"), "another " + strings.TrimSuffix(name, "s")}
	}
	return name
}

// Preview renders the mail for a user, or for a made-up one if user is nil. Its links count nothing.
func (c *Compiled) Preview(user bson.Raw, now time.Time, zone *time.Location) (Content, error) {
	if user == nil {
		user = SampleUser(c.fields, now)
	}
	return c.Render(user, PreviewLinks(now, zone))
}
