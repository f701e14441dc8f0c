package templates

import (
	"fmt"
	"html/template"
	"net/url"
	"regexp"
	"strings"
	texttemplate "text/template"
	"time"
	"unicode/utf8"
)

// Functions that postbit adds to a template after it was parsed without them, so that a file can't name them.
const (
	fnField = "postbit_field"     // a field of a value that is known at run time only
	fnShow  = "postbit_show"      // a value as text
	fnTruth = "postbit_truth"     // what if asks
	fnIfAny = "postbit_if_any"    // what with asks
	fnEach  = "postbit_each"      // what a range may walk over, within the mail's budget
	fnRaw   = "postbit_raw"       // a marker of a conditional comment
	fnHide  = "postbit_preheader" // the rendered preheader
	fnPixel = "postbit_pixel"     // the pixel where the template puts none itself
)

// function says how often a function may be given an argument, a piped one included. most < 0: any number.
type function struct {
	least, most int
	slot        string // without arguments: the name of the value in the data of a mail
	data        bool   // gets the data of the mail as its first argument
	text        bool   // gives text already
}

var functions = map[string]function{
	// ours
	"date":        {least: 1, most: 2, data: true, text: true},
	"default":     {least: 2, most: 2},
	"link":        {least: 1, most: 1, data: true, text: true},
	"pixel":       {slot: slotPixel, text: true},
	"unsubscribe": {slot: slotUnsubscribe, text: true},
	"browser":     {slot: slotBrowser, text: true},
	fnHide:        {slot: slotPreheader, text: true},
	fnPixel:       {slot: slotAutoPixel, text: true},
	fnRaw:         {least: 1, most: 1, text: true},
	// those of Go's templates that make sense here; none of ours can fail because of what a user document holds
	"and":      {least: 1, most: -1},
	"or":       {least: 1, most: -1},
	"not":      {least: 1, most: 1},
	"eq":       {least: 2, most: -1},
	"ne":       {least: 2, most: 2},
	"lt":       {least: 2, most: 2},
	"le":       {least: 2, most: 2},
	"gt":       {least: 2, most: 2},
	"ge":       {least: 2, most: 2},
	"len":      {least: 1, most: 1},
	"index":    {least: 2, most: -1},
	"slice":    {least: 2, most: 3},
	"print":    {least: 1, most: -1, text: true},
	"printf":   {least: 1, most: -1, text: true},
	"urlquery": {least: 1, most: 1, text: true},
}

// refused are functions of Go's templates that have no place here.
var refused = map[string]string{
	"html":    "values are escaped where they stand",
	"js":      "mails carry no scripts",
	"call":    "there is nothing to call",
	"println": "use print",
}

// bodies are the functions as Go's template packages call them; program.go has its own way to them (calls).
var bodies = texttemplate.FuncMap{
	"date":     func(data map[string]any, layout any, v ...any) string { return stateOf(data).date(layout, v...) },
	"link":     func(data map[string]any, target any) string { return stateOf(data).link(show(target)) },
	"default":  orElse,
	"and":      and,
	"or":       or,
	"not":      func(v any) bool { return !truth(v) },
	"eq":       equalAny,
	"ne":       func(a, b any) bool { return !equal(a, b) },
	"lt":       func(a, b any) bool { return ordered(a, b, -1, -1) },
	"le":       func(a, b any) bool { return ordered(a, b, -1, 0) },
	"gt":       func(a, b any) bool { return ordered(a, b, 1, 1) },
	"ge":       func(a, b any) bool { return ordered(a, b, 0, 1) },
	"len":      length,
	"index":    index,
	"slice":    slice,
	"print":    printAll,
	"printf":   printFormat,
	"urlquery": queryEscaped,
	fnField:    field,
	fnShow:     showSafe,
	fnTruth:    truth,
	fnIfAny:    ifAny,
	fnEach:     func(data map[string]any, v any) (any, error) { return stateOf(data).each(v) },
	fnRaw:      raw,
}

func raw(s any) template.HTML { return template.HTML(show(s)) }

func queryEscaped(v any) string { return url.QueryEscape(show(v)) }

// orElse is `default`.
func orElse(fallback, v any) any {
	if blank(v) {
		return fallback
	}
	return v
}

// and is its first argument that is not true, or the last; or the first that is.
func and(v any, more ...any) any {
	for _, next := range more {
		if !truth(v) {
			break
		}
		v = next
	}
	return v
}

func or(v any, more ...any) any {
	for _, next := range more {
		if truth(v) {
			break
		}
		v = next
	}
	return v
}

func ordered(a, b any, least, most int) bool {
	c, ok := compare(a, b)
	return ok && least <= c && c <= most
}

// ifAny is v for a `with`: nothing if it is not true.
func ifAny(v any) any {
	if truth(v) {
		return v
	}
	return nil
}

// field is a field of a document that only the run tells; of anything else it is missing.
func field(v any, path ...string) any {
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok || name == present {
			return nil
		}
		v = m[name]
	}
	return v
}

// showSafe leaves alone what postbit itself made.
func showSafe(v any) any {
	if h, ok := v.(template.HTML); ok {
		return h
	}
	return show(v)
}

func equal(a, b any) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	c, ok := compare(a, b)
	return ok && c == 0
}

func equalAny(a any, others ...any) bool {
	for _, b := range others {
		if equal(a, b) {
			return true
		}
	}
	return false
}

// length counts the letters of a string, the elements of a list, the fields of a document.
func length(v any) int64 {
	switch v := v.(type) {
	case string:
		return int64(utf8.RuneCountInString(v))
	case list:
		return int64(len(v))
	case map[string]any:
		return int64(len(sortedNames(v)))
	}
	return 0
}

// index follows numbers into lists and names into documents; what is not there is missing.
func index(v any, at ...any) any {
	for _, i := range at {
		if l, ok := v.(list); ok {
			if n, ok := integer(i); ok && n >= 0 && n < len(l) {
				v = l[n]
				continue
			}
			return nil
		}
		v = field(v, show(i))
	}
	return v
}

// slice cuts a string by letters or a list by elements; bounds outside are moved to the ends.
func slice(v any, bounds ...any) any {
	clamp := func(size int) (from, to int) {
		to = size
		if n, ok := integer(bounds[0]); ok {
			from = max(0, min(n, size))
		}
		if len(bounds) > 1 {
			if n, ok := integer(bounds[1]); ok {
				to = max(from, min(n, size))
			}
		}
		return from, to
	}
	switch v := v.(type) {
	case string:
		runes := []rune(v)
		from, to := clamp(len(runes))
		return string(runes[from:to])
	case list:
		from, to := clamp(len(v))
		return v[from:to]
	}
	return nil
}

func integer(v any) (int, bool) {
	f, ok := float(v)
	if !ok || f != f || f < -1e9 || f > 1e9 {
		return 0, false
	}
	return int(f), true
}

// maxText is the most that one call of print or printf may give, so that a loop can't double a string for ever.
const maxText = 64 << 10

var errText = fmt.Errorf("%w: print gives more than %d bytes", ErrTooLarge, maxText)

func printAll(vs ...any) (string, error) {
	var b strings.Builder
	for _, v := range vs {
		b.WriteString(show(v))
		if b.Len() > maxText {
			return "", errText
		}
	}
	return b.String(), nil
}

// verb is one of a format. Widths have two digits at most, so a value can't ask for megabytes of blanks.
var verb = regexp.MustCompile(`%[-+# 0]*(?:\d{1,2})?(?:\.\d{0,2})?([a-zA-Z%])`)

// checkFormat refuses what printFormat would not do right, when the template is compiled.
func checkFormat(format string, values int) error {
	rest := verb.ReplaceAllStringFunc(format, func(v string) string {
		if v == "%%" {
			return ""
		}
		if !strings.ContainsAny(v[len(v)-1:], "sqvdfeg") {
			return "%"
		}
		values--
		return ""
	})
	if strings.Contains(rest, "%") {
		return fmt.Errorf("printf %q: only %%s %%q %%v %%d %%f %%e %%g, with at most two digits of width", format)
	}
	if values != 0 {
		return fmt.Errorf("printf %q: the number of values does not fit", format)
	}
	return nil
}

// printFormat is Printf with every value brought to what its verb wants; what is missing is 0 or empty.
func printFormat(format string, vs ...any) (string, error) {
	at := 0
	out := verb.ReplaceAllStringFunc(format, func(spec string) string {
		if spec == "%%" || at >= len(vs) {
			return strings.TrimPrefix(spec, "%")
		}
		v := vs[at]
		at++
		switch spec[len(spec)-1] {
		case 'd':
			if n, ok := v.(int64); ok {
				return fmt.Sprintf(spec, n)
			}
			f, _ := float(v)
			return fmt.Sprintf(spec, int64(max(-1<<62, min(f, 1<<62))))
		case 'f', 'e', 'g':
			f, _ := float(v)
			return fmt.Sprintf(spec, f)
		}
		return fmt.Sprintf(spec, show(v))
	})
	if len(out) > maxText {
		return "", errText
	}
	return out, nil
}

// date is `date LAYOUT` (now) and `date LAYOUT VALUE`, in Go's layouts ("2 January 2006") and in the user's zone. A value
// may be a date, text in RFC 3339 or as 2006-01-02, or milliseconds since 1970; anything else is empty.
func (s *state) date(layout any, v ...any) string {
	if len(v) == 0 {
		return s.links.Now.In(s.zone).Format(show(layout))
	}
	var d any
	switch v := v[0].(type) {
	case date:
		d = v
	case int64:
		d = dateOf(time.UnixMilli(v), s.zone)
	case string:
		if t, err := time.Parse(time.RFC3339, v); err == nil {
			d = dateOf(t, s.zone)
		} else if t, err := time.Parse("2006-01-02", v); err == nil {
			d = dateOf(t, s.zone)
		}
	}
	if d, ok := d.(date); ok {
		return d.at.Format(show(layout))
	}
	return ""
}
