package campaign

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"postbit/internal/faults"
	"postbit/internal/spelling"
)

// FileError is one thing that is wrong with a campaign file.
type FileError struct {
	File string
	Line int    // from 1; 0: the file as a whole
	Key  string // "rules.inactive_after"; empty: none in particular
	Text string
}

func (e FileError) Error() string {
	at := e.File
	if e.Line > 0 {
		at += ":" + strconv.Itoa(e.Line)
	}
	if e.Key != "" {
		at += ": " + e.Key
	}
	return at + ": " + e.Text
}

// FileErrors are all that is wrong with one file or several, in the order of files and lines. Their text is that of faults.Text.
type FileErrors []FileError

func (es FileErrors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return faults.Text(lines)
}

// orNil keeps an empty list from becoming an error that is not nil.
func (es FileErrors) orNil() error {
	if len(es) == 0 {
		return nil
	}
	slices.SortStableFunc(es, func(a, b FileError) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		return a.Line - b.Line
	})
	return es
}

// reader walks the nodes of one YAML file and gathers everything that is wrong with it.
type reader struct {
	file  string
	errs  FileErrors
	lines map[string]int // by key: where it stands
}

const (
	maxFile  = 1 << 20
	maxDepth = 60 // of nested values; MongoDB itself stops at 100
)

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

// root parses the file and returns its top mapping, or nil after an error.
func (r *reader) root(data []byte) *yaml.Node {
	if len(data) > maxFile {
		r.fail(0, "", "larger than 1 MB")
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) || (err == nil && len(doc.Content) == 0) {
		r.fail(0, "", "empty; a campaign has at least name, template and audience")
		return nil
	}
	if err == nil {
		if err = dec.Decode(&more); errors.Is(err, io.EOF) {
			return doc.Content[0]
		} else if err == nil {
			r.fail(more.Line, "", "a second document; write one campaign per file")
			return nil
		}
	}
	text, line := err.Error(), 0
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	}
	r.fail(line, "", "not YAML: %s", strings.TrimPrefix(text, "yaml: "))
	return nil
}

func (r *reader) fail(line int, key, format string, args ...any) {
	r.errs = append(r.errs, FileError{File: r.file, Line: line, Key: key, Text: fmt.Sprintf(format, args...)})
}

// plain refuses what makes a file mean something else than it shows: anchors, aliases, merges and tags of one's own.
func (r *reader) plain(n *yaml.Node, key string) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		r.fail(n.Line, key, "anchors and aliases are not supported; write the value out")
	case n.Style&yaml.TaggedStyle != 0:
		r.fail(n.Line, key, "the tag %s is not supported", clip(n.Tag))
	default:
		return true
	}
	return false
}

// each calls f for every key of a mapping, once.
func (r *reader) each(n *yaml.Node, path string, f func(name, key string, k, v *yaml.Node)) {
	if !r.plain(n, path) {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.fail(n.Line, path, "must be a mapping of keys to values")
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if !r.plain(k, path) {
			continue
		}
		if k.Kind != yaml.ScalarNode || k.ShortTag() == "!!merge" || k.ShortTag() == "!!null" {
			r.fail(k.Line, path, "a key must be text")
			continue
		}
		key := join(path, k.Value)
		if line, twice := first[k.Value]; twice {
			r.fail(k.Line, clip(key), "stands on line %d already", line)
			continue
		}
		first[k.Value] = k.Line
		r.lines[key] = k.Line
		f(k.Value, key, k, v)
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// field reads one key of a mapping of known keys.
type field struct {
	name string
	read func(v *yaml.Node, key string)
}

// fields reads a mapping that has these keys and no others, and reports which were there.
func (r *reader) fields(n *yaml.Node, path string, known ...field) map[string]bool {
	there := map[string]bool{}
	r.each(n, path, func(name, key string, k, v *yaml.Node) {
		there[name] = true
		i := slices.IndexFunc(known, func(f field) bool { return f.name == name })
		if i >= 0 {
			known[i].read(v, key)
			return
		}
		names := make([]string, len(known))
		for i, f := range known {
			names[i] = f.name
		}
		r.fail(k.Line, clip(key), "unknown%s", spelling.Hint(name, names))
	})
	return there
}

// text is the value of a scalar; ok is false after an error.
func (r *reader) text(v *yaml.Node, key string) (s string, ok bool) {
	if !r.plain(v, key) {
		return "", false
	}
	if v.Kind != yaml.ScalarNode {
		r.fail(v.Line, key, "must be a single value")
		return "", false
	}
	if v.ShortTag() == "!!null" {
		r.fail(v.Line, key, "is empty")
		return "", false
	}
	return v.Value, true
}

// texts is the value of a scalar, or the values of a list of scalars, with their lines.
func (r *reader) texts(v *yaml.Node, key string) (list []string, lines []int) {
	if v.Kind != yaml.SequenceNode {
		if s, ok := r.text(v, key); ok {
			return []string{s}, []int{v.Line}
		}
		return nil, nil
	}
	if !r.plain(v, key) {
		return nil, nil
	}
	for _, item := range v.Content {
		if s, ok := r.text(item, key); ok {
			list, lines = append(list, s), append(lines, item.Line)
		}
	}
	if len(v.Content) == 0 {
		r.fail(v.Line, key, "is an empty list")
	}
	return list, lines
}
