package templates

import (
	"slices"
	"strings"
)

// need is a field of the user document that a template reads: whole, or only some of its own fields. Elements of an array
// share the need of the array, as they do in a projection of MongoDB.
type need struct {
	name   string
	parent *need // nil: the user document itself
	whole  bool
	fields map[string]*need
}

func (n *need) field(name string) *need {
	if n.fields == nil {
		n.fields = map[string]*need{}
	}
	f := n.fields[name]
	if f == nil {
		f = &need{name: name, parent: n}
		n.fields[name] = f
	}
	return f
}

// path is the names from the user document down to n.
func (n *need) path() []string {
	var path []string
	for ; n.parent != nil; n = n.parent {
		path = append(path, n.name)
	}
	slices.Reverse(path)
	return path
}

func (n *need) String() string {
	return strings.Join(append([]string{".User"}, n.path()...), ".")
}

// covered reports whether an outer field is taken whole already.
func (n *need) covered() bool {
	for p := n.parent; p != nil; p = p.parent {
		if p.whole {
			return true
		}
	}
	return false
}

// paths are the dotted fields to load, none within another, sorted.
func (n *need) paths() []string {
	var out []string
	var walk func(n *need)
	walk = func(n *need) {
		if n.parent != nil && (n.whole || len(n.fields) == 0) {
			out = append(out, strings.Join(n.path(), "."))
			return
		}
		for _, f := range n.fields {
			walk(f)
		}
	}
	walk(n)
	slices.Sort(out)
	return out
}
