package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"postbit/internal/spelling"
)

type fileValue struct {
	text  string
	where string // file:line
}

// parseFile reads a settings file strictly: a key that is not a setting is a fault, with its line and the key that may
// have been meant. Values that are lists or maps come back as YAML text, as they would be written in a flag.
func parseFile(name string, data []byte) (map[string]fileValue, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, fmt.Errorf("%s: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: holds more than one document", name)
	}
	f := settingsFile{name: name, values: map[string]fileValue{}}
	f.walk("", doc.Content[0])
	return f.values, f.faults.orNil()
}

type settingsFile struct {
	name   string
	values map[string]fileValue
	faults Error
}

func (f *settingsFile) at(n *yaml.Node) string { return fmt.Sprintf("%s:%d", f.name, n.Line) }

// walk reads the mapping n, whose keys stand under prefix ("" or "users.").
func (f *settingsFile) walk(prefix string, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		what := "the file"
		if prefix != "" {
			what = strings.TrimSuffix(prefix, ".")
		}
		f.faults.add("%s: %s must hold keys and values", f.at(n), what)
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		key := prefix + k.Value
		switch {
		case seen[key]:
			f.faults.add("%s: %s: stands here twice", f.at(k), key)
		case isSetting(key):
			f.take(key, v)
		case isGroup(key):
			f.walk(key+".", v)
		default:
			f.faults.add("%s: %s: unknown%s", f.at(k), key, spelling.Hint(k.Value, keysUnder(prefix)))
		}
		seen[key] = true
	}
}

func (f *settingsFile) take(key string, v *yaml.Node) {
	if v.Kind == yaml.AliasNode {
		v = v.Alias
	}
	value := fileValue{where: f.at(v)}
	switch {
	case v.Kind == yaml.ScalarNode && v.Tag == "!!null":
		return
	case v.Kind == yaml.ScalarNode:
		value.text = v.Value
	default:
		text, err := yaml.Marshal(v)
		if err != nil {
			f.faults.add("%s: %s: %w", f.at(v), key, err)
			return
		}
		value.text = string(text)
	}
	f.values[key] = value
}

func isSetting(key string) bool {
	for i := range Settings {
		if Settings[i].Key == key {
			return true
		}
	}
	return false
}

func isGroup(key string) bool {
	for i := range Settings {
		if strings.HasPrefix(Settings[i].Key, key+".") {
			return true
		}
	}
	return false
}

// keysUnder lists the keys that may stand directly under prefix.
func keysUnder(prefix string) []string {
	var keys []string
	for i := range Settings {
		if rest, ok := strings.CutPrefix(Settings[i].Key, prefix); ok {
			key, _, _ := strings.Cut(rest, ".")
			keys = append(keys, key)
		}
	}
	return keys
}
