package templates

import (
	"errors"
	"fmt"
	"html"
	htmltemplate "html/template"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	// MaxOutput is the most that the HTML or the text of one mail may hold, in bytes.
	MaxOutput = 1 << 20
	// MaxSubject is where a subject is cut, in bytes.
	MaxSubject = 1000
	// maxRounds is how often the ranges of one mail go round, all together.
	maxRounds = 10_000
)

// ErrTooLarge is returned by Render for a user whose mail would be larger than MaxOutput or goes round for too long.
var ErrTooLarge = errors.New("the mail grows too large")

// Links are what a mail points to for one user. An empty one renders empty.
type Links struct {
	Pixel, Unsubscribe, Browser string
	Click                       func(url string) string // nil: links go straight to their target
	Now                         time.Time
	Zone                        *time.Location // of the user, for dates; nil: UTC
}

// Content is a rendered mail. Subject and Preheader are one line of text without control characters.
type Content struct {
	Subject, HTML, Text, Preheader string
}

// Names in the data of a mail. Those of user fields begin with . or =.
const (
	slotUser        = "User"
	slotState       = "state"
	slotPixel       = "pixel"
	slotAutoPixel   = "auto pixel"
	slotUnsubscribe = "unsubscribe"
	slotBrowser     = "browser"
	slotPreheader   = "preheader"
)

// state is what one rendering works with; it is used again for the next.
type state struct {
	compiled *Compiled
	values   []any    // by slot: fields that are looked at
	shown    []string // by slot: fields that are printed
	vars     []any
	args     []any // of the functions that are being called
	clicks   []click
	out      output
	text     textWriter
	links    Links
	zone     *time.Location
	rounds   int

	preheader        string
	pixel, autoPixel any // HTML, or ""

	data map[string]any // the same for Go's template packages; nil until one needs it
}

func newState(c *Compiled) *state {
	return &state{compiled: c, values: make([]any, len(c.slots)), shown: make([]string, len(c.slots))}
}

func stateOf(data map[string]any) *state { return data[slotState].(*state) }

// Render fills in the fields of one user. Nothing that a document holds makes it fail but its size (ErrTooLarge).
func (c *Compiled) Render(user bson.Raw, l Links) (Content, error) {
	s := c.states.Get().(*state)
	defer c.states.Put(s)
	s.begin(user, l)
	content, err := c.render(s)
	s.end()
	if err != nil {
		return Content{}, fmt.Errorf("template %s: %w", c.template.Name, err)
	}
	return content, nil
}

func (c *Compiled) render(s *state) (out Content, err error) {
	if out.Subject, err = s.execute(c.subject); err != nil {
		return out, err
	}
	out.Subject = oneLine(out.Subject)
	if c.preheader.reference != nil {
		if out.Preheader, err = s.execute(c.preheader); err != nil {
			return out, err
		}
		out.Preheader = oneLine(out.Preheader)
	}
	if c.text.reference != nil {
		if out.Text, err = s.execute(c.text); err != nil {
			return out, err
		}
	}
	s.preheader = out.Preheader
	s.setPixel()
	if out.HTML, err = s.execute(c.html); err != nil {
		return out, err
	}
	if c.text.reference == nil {
		out.Text, err = s.makeText(out.HTML)
	}
	return out, err
}

// begin takes the fields out of the user document.
func (s *state) begin(user bson.Raw, l Links) {
	s.links, s.zone = l, l.Zone
	if s.zone == nil {
		s.zone = time.UTC
	}
	s.preheader, s.pixel, s.autoPixel, s.data = "", "", "", nil
	for i, sl := range s.compiled.slots {
		var value any
		if v, ok := find(user, sl.path); ok {
			value = plain(v, sl.need, s.zone, 0)
		}
		s.values[i] = value
		if sl.shown {
			s.shown[i] = show(value)
		}
	}
}

// end lets go of what belongs to the user.
func (s *state) end() {
	clear(s.values)
	clear(s.shown)
	clear(s.clicks)
	s.clicks = s.clicks[:0]
	s.links, s.data, s.preheader = Links{}, nil, ""
	s.args = s.args[:0]
	if cap(s.out.b) > 128<<10 {
		s.out.b = nil
	}
}

// setPixel allows pixels from here on: they stand in HTML only.
func (s *state) setPixel() {
	if !s.compiled.template.Track || s.links.Pixel == "" {
		return
	}
	img := htmltemplate.HTML(`<img src="` + html.EscapeString(s.links.Pixel) + `" width="1" height="1" alt="" style="display:block;border:0">`)
	s.pixel = img
	if s.compiled.autoPixel {
		s.autoPixel = img
	}
	s.data = nil
}

func (s *state) execute(p part) (string, error) {
	s.out.b, s.rounds = s.out.b[:0], 0
	var err error
	if p.program != nil {
		err = p.program.call(s)
	} else {
		err = p.reference.Execute(&s.out, s.asData())
	}
	if err != nil {
		return "", err
	}
	return string(s.out.b), nil
}

// makeText is the text part of a mail that has none of its own.
func (s *state) makeText(html string) (string, error) {
	if s.compiled.textMaker == nil {
		return textOf(html), nil
	}
	s.text.reset()
	s.rounds = 0
	if err := s.compiled.textMaker.call(s); err != nil {
		return "", err
	}
	return s.text.String(), nil
}

// asData is the data of the mail as the trees name it.
func (s *state) asData() map[string]any {
	if s.data == nil {
		s.data = map[string]any{slotState: s}
		for i, sl := range s.compiled.slots {
			s.data[sl.valueAt], s.data[sl.text] = s.values[i], s.shown[i]
		}
		for name, read := range own {
			s.data[name] = read(s)
		}
	}
	return s.data
}

// link is target by way of the click counter. Only the web may be pointed to. Most links stand in the HTML and in the text, and
// are signed once.
func (s *state) link(target string) string {
	for _, c := range s.clicks {
		if c.target == target {
			return c.by
		}
	}
	u, err := url.Parse(strings.TrimSpace(target))
	by := ""
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
	case s.links.Click == nil || !s.compiled.template.Track:
		by = target
	default:
		by = s.links.Click(target)
	}
	if len(s.clicks) < maxClicks {
		s.clicks = append(s.clicks, click{target, by})
	}
	return by
}

// click is a link of this mail, and the way to it.
type click struct{ target, by string }

const maxClicks = 64

// each lets a range walk over lists and documents, as long as the mail's budget of rounds lasts.
func (s *state) each(v any) (any, error) {
	n := 0
	switch v := v.(type) {
	case list:
		n = len(v)
	case map[string]any:
		if _, partial := v[present]; partial {
			return nil, nil // its fields were asked for as those of elements, and it is no list
		}
		n = len(v)
	default:
		return nil, nil
	}
	if s.rounds += n; s.rounds > maxRounds {
		return nil, fmt.Errorf("%w: its ranges go round more than %d times", ErrTooLarge, maxRounds)
	}
	return v, nil
}

// output is a buffer that refuses to grow beyond MaxOutput.
type output struct{ b []byte }

func (o *output) Write(p []byte) (int, error) {
	o.b = append(o.b, p...)
	return len(p), o.check()
}

func (o *output) WriteString(p string) (int, error) {
	o.b = append(o.b, p...)
	return len(p), o.check()
}

func (o *output) check() error {
	if len(o.b) > MaxOutput {
		return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, MaxOutput)
	}
	return nil
}

// oneLine makes a header line of a text: line breaks and other control characters become spaces, so that nothing can be
// smuggled behind them, and it is cut at MaxSubject.
func oneLine(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n")
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s))
	if len(s) <= MaxSubject {
		return s
	}
	cut := MaxSubject - len("…")
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
