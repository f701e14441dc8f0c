// Package faults words what is wrong with files that people write: everything at once, but no more than somebody reads.
package faults

import (
	"strings"
	"unicode/utf8"

	"postbit/internal/quantity"
)

// Bounds of a text.
const (
	Named   = 20    // faults; of the others it says how many they are
	Longest = 1_000 // bytes of one
)

// Text has a line for each fault. What several files have from one part of theirs stands there once.
func Text(list []string) string {
	var lines []string
	seen := make(map[string]bool, len(list))
	for _, fault := range list {
		if seen[fault] {
			continue
		}
		seen[fault] = true
		if len(lines) < Named {
			lines = append(lines, cut(fault))
		}
	}
	if more := len(seen) - len(lines); more > 0 {
		lines = append(lines, "and "+quantity.Digits(int64(more))+" more")
	}
	return strings.Join(lines, "\n")
}

func cut(s string) string {
	if len(s) <= Longest {
		return s
	}
	n := Longest
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// Join is errors.Join for faults: its text is that of Text, and what was joined already counts one by one.
func Join(errs ...error) error {
	all := &joined{}
	for _, err := range errs {
		if list, ok := err.(*joined); ok {
			all.list = append(all.list, list.list...)
		} else if err != nil {
			all.list = append(all.list, err)
		}
	}
	if len(all.list) == 0 {
		return nil
	}
	return all
}

type joined struct{ list []error }

func (j *joined) Error() string {
	texts := make([]string, len(j.list))
	for i, err := range j.list {
		texts[i] = err.Error()
	}
	return Text(texts)
}

func (j *joined) Unwrap() []error { return j.list }
