package config

import (
	"fmt"
	"reflect"
	"strings"
)

// Flags is the settings' side of the command line: a struct with one optional text for each setting, made for kong.Embed.
// The texts are read by Load and not by kong, whose errors would repeat a value that may be a secret.
type Flags struct{ v reflect.Value }

// NewFlags makes an empty set. With show, --help lists those that are common; it lists none otherwise.
func NewFlags(show bool) *Flags {
	fields := make([]reflect.StructField, len(Settings))
	for i := range Settings {
		s := &Settings[i]
		tag := fmt.Sprintf("name:%q help:%q group:\"settings\" placeholder:%q", s.FlagName(), kongText(s.Help)+" ("+s.Env()+")", kongText(s.placeholder()))
		if !show || !s.Common {
			tag += ` hidden:""`
		}
		fields[i] = reflect.StructField{Name: fmt.Sprintf("S%d", i), Type: reflect.TypeFor[*string](), Tag: reflect.StructTag(tag)}
	}
	return &Flags{reflect.New(reflect.StructOf(fields))}
}

// Target is the pointer to give to kong.Embed.
func (f *Flags) Target() any { return f.v.Interface() }

// Values gives what the command line set, by key.
func (f *Flags) Values() map[string]string {
	out := map[string]string{}
	for i := range Settings {
		if p := f.v.Elem().Field(i).Interface().(*string); p != nil {
			out[Settings[i].Key] = *p
		}
	}
	return out
}

func (s *Setting) placeholder() string {
	if s.Default != "" {
		return s.Default
	}
	return "…"
}

// kongText escapes what kong would take for a variable.
func kongText(s string) string { return strings.ReplaceAll(s, "$", "$$") }
