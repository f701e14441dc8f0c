package templates

import (
	"bytes"
	"errors"
	"fmt"
	"net/mail"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"postbit/internal/faults"
	"postbit/internal/spelling"
	"postbit/rules"
)

// noIndex stands for a bitIndex that the file leaves to push --assign.
const noIndex = -1

// header is the front matter of a file, checked.
type header struct {
	name, subject, from, replyTo, preheader string
	bitIndex                                int
	repeat                                  rules.Repeat
	track                                   bool
}

// A fault is one thing wrong in one place of a file.
type fault struct {
	file string
	line int
	what string
}

func (f fault) Error() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.what) }

// source is a template file cut into its front matter and the body after it.
type source struct {
	front   []byte // YAML between two lines of ---
	frontAt int    // where it begins in the file
	body    []byte
	lines   int // what stands before the body
}

func isFence(line []byte) bool { return string(bytes.TrimRight(line, " \t\r\n")) == "---" }

func split(file []byte) (source, error) {
	start := len(file) - len(bytes.TrimPrefix(file, []byte("\xef\xbb\xbf")))
	var s source
	for at, n := start, 0; at < len(file); {
		next := len(file)
		if end := bytes.IndexByte(file[at:], '\n'); end >= 0 {
			next = at + end + 1
		}
		fence := isFence(file[at:next])
		switch n++; {
		case n == 1 && !fence:
			return s, errors.New("no front matter; begin with a line of --- and say name, bitIndex and subject")
		case n == 1:
			s.frontAt = next
		case fence:
			s.front, s.body, s.lines = file[s.frontAt:at], file[next:], n
			return s, nil
		}
		at = next
	}
	if s.frontAt == 0 {
		return s, errors.New("the file is empty")
	}
	return s, errors.New("the front matter has no end; close it with a line of ---")
}

var headerKeys = []string{"name", "bitIndex", "subject", "from", "reply_to", "repeat", "preheader", "track"}

// parseHeader reads the front matter of file. All faults are reported, each with its line.
func parseHeader(file string, front []byte) (header, error) {
	h := header{bitIndex: noIndex, track: true}
	at := func(line int, format string, args ...any) error {
		return fault{file, line + 1, fmt.Sprintf(format, args...)} // + 1: the first line of ---
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(front, &doc); err != nil {
		line, what := yamlError(err)
		return h, at(line, "%s", what)
	}
	if len(doc.Content) == 0 {
		return h, fault{file, 1, "the front matter is empty; say name, bitIndex and subject"}
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return h, at(root.Line, "the front matter is not a list of key: value")
	}
	var wrong []error
	seen := map[string]bool{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, val := root.Content[i], root.Content[i+1]
		if seen[key.Value] {
			wrong = append(wrong, at(key.Line, "%s: stands there twice", printable(key.Value)))
			continue
		}
		seen[key.Value] = true
		if err := h.set(key, val); err != nil {
			wrong = append(wrong, at(key.Line, "%s: %s", printable(key.Value), err))
		}
	}
	if !seen["subject"] {
		wrong = append(wrong, at(root.Line, "subject is missing"))
	}
	return h, faults.Join(wrong...)
}

func (h *header) set(key, val *yaml.Node) (err error) {
	if key.Kind != yaml.ScalarNode || !slices.Contains(headerKeys, key.Value) {
		return errors.New("unknown" + spelling.Hint(key.Value, headerKeys))
	}
	if val.Kind != yaml.ScalarNode {
		return errors.New("takes a single value")
	}
	if key.Value == "bitIndex" && val.Tag == "!!null" {
		return nil
	}
	switch key.Value {
	case "bitIndex":
		n, err := strconv.Atoi(val.Value)
		if err != nil || val.Tag != "!!int" {
			return fmt.Errorf("%q is not a whole number", val.Value)
		}
		if n < 0 || n > MaxBitIndex {
			return fmt.Errorf("%d is outside 0 to %d", n, MaxBitIndex)
		}
		h.bitIndex = n
		return nil
	case "track":
		if val.Tag != "!!bool" {
			return fmt.Errorf("%q is neither true nor false", val.Value)
		}
		return val.Decode(&h.track)
	case "repeat":
		h.repeat, err = rules.ParseRepeat(val.Value)
		return err
	}
	if val.Tag == "!!null" || strings.TrimSpace(val.Value) == "" {
		return errors.New("is empty")
	}
	if !utf8.ValidString(val.Value) {
		return errors.New("is not valid UTF-8")
	}
	switch key.Value {
	case "name":
		h.name = val.Value
		if !validName.MatchString(val.Value) {
			return fmt.Errorf("%q is no name; use a-z, 0-9, _ and -, at most 64, the first a letter or digit", val.Value)
		}
	case "subject":
		h.subject = strings.TrimSpace(val.Value)
	case "preheader":
		h.preheader = strings.TrimSpace(val.Value)
	case "from":
		h.from, err = address(val.Value)
	case "reply_to":
		h.replyTo, err = address(val.Value)
	}
	return err
}

// address checks a sender. It is the same for all users, so it is no template.
func address(s string) (string, error) {
	s = strings.TrimSpace(s)
	if strings.Contains(s, "{{") {
		return "", errors.New("is the same for everybody; fields are not filled in here")
	}
	if _, err := mail.ParseAddress(s); err != nil {
		return "", fmt.Errorf("%q is no address; write Name <name@example.org>", s)
	}
	return s, nil
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): (.*)`)

func yamlError(err error) (line int, what string) {
	first, _, _ := strings.Cut(err.Error(), "\n")
	if m := yamlLine.FindStringSubmatch(first); m != nil {
		line, _ = strconv.Atoi(m[1])
		return line, m[2]
	}
	return 0, strings.TrimPrefix(first, "yaml: ")
}

// printable keeps control characters of a file out of a message.
func printable(s string) string {
	if q := strconv.Quote(s); q != `"`+s+`"` {
		return q
	}
	return s
}

var (
	indexLine = regexp.MustCompile(`(?m)^(["']?bitIndex["']?[ \t]*:)(?:[ \t]*(?:null|~))?([ \t]*(?:#[^\r\n]*)?)(\r?)$`)
	nameLine  = regexp.MustCompile(`(?m)^["']?name["']?[ \t]*:[^\r\n]*(\r?)$`)
)

// withIndex returns the file with bitIndex: n in its front matter, on the line that is there for it, or after the name, or
// first. Nothing else changes.
func withIndex(file []byte, n int) ([]byte, error) {
	s, err := split(file)
	if err != nil {
		return nil, err
	}
	entry := "bitIndex: " + strconv.Itoa(n)
	from, to := 0, 0 // what of the front matter gives way
	if m := indexLine.FindSubmatchIndex(s.front); m != nil {
		entry, from, to = " "+strconv.Itoa(n), m[3], m[4]
	} else {
		eol := "\n"
		if bytes.HasSuffix(file[:s.frontAt], []byte("\r\n")) {
			eol = "\r\n"
		}
		entry += eol
		if m := nameLine.FindIndex(s.front); m != nil {
			from = min(m[1]+1, len(s.front))
			to = from
		}
	}
	out := slices.Concat(file[:s.frontAt+from], []byte(entry), file[s.frontAt+to:])
	after, err := split(out)
	if err == nil {
		var h header
		if h, err = parseHeader("", after.front); err == nil && h.bitIndex != n {
			err = errors.New("it reads differently afterwards")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("bitIndex: %d can't be put into the front matter, write it by hand: %w", n, err)
	}
	return out, nil
}
