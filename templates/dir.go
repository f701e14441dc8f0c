package templates

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"postbit/internal/faults"
)

// mailFile is one template of a folder, parsed.
type mailFile struct {
	path     string
	raw      []byte
	template *Template // BitIndex is noIndex where the file leaves it to --assign
}

// ReadDir reads and compiles the templates of a folder: each NAME.html with the NAME.txt beside it, the layout and the
// partials (files that begin with _). All faults of all files are reported.
func ReadDir(dir string) ([]*Template, error) {
	mails, err := readDir(dir)
	out := make([]*Template, len(mails))
	for i, m := range mails {
		out[i] = m.template
	}
	return out, err
}

func readDir(dir string) ([]mailFile, error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("%s: that is a file; name its folder", dir)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: no such folder", dir)
	case err != nil:
		return nil, fmt.Errorf("templates: %w", err)
	}
	sources, parts := map[string][]byte{}, []Part(nil)
	var wrong []error
	for _, e := range entries {
		name := e.Name()
		if ext := filepath.Ext(name); e.IsDir() || strings.HasPrefix(name, ".") || ext != ".html" && ext != ".txt" {
			continue
		}
		src, err := readSource(filepath.Join(dir, name))
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
			continue
		}
		if strings.HasPrefix(name, "_") {
			parts = append(parts, Part{name, string(bytes.TrimPrefix(src, []byte("\xef\xbb\xbf")))})
		} else {
			sources[name] = src
		}
	}
	var mails []mailFile
	for _, name := range sortedKeys(sources) {
		base, isText := strings.CutSuffix(name, ".txt")
		if isText {
			if sources[base+".html"] == nil {
				wrong = append(wrong, fmt.Errorf("%s: there is no %s.html beside it", name, base))
			}
			continue
		}
		base = strings.TrimSuffix(name, ".html")
		t, err := parseMail(name, sources[name], sources[base+".txt"], parts)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		mails = append(mails, mailFile{filepath.Join(dir, name), sources[name], t})
	}
	if len(mails) == 0 && len(wrong) == 0 {
		wrong = append(wrong, fmt.Errorf("%s: no templates there; they are files like welcome.html", dir))
	}
	return mails, faults.Join(append(wrong, sameName(mails)...)...)
}

func readSource(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > MaxSource {
		return nil, fmt.Errorf("%d bytes are more than a template may have, %d", info.Size(), MaxSource)
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if at := invalidAt(src); at >= 0 {
		return nil, fmt.Errorf("line %d is not valid UTF-8", 1+bytes.Count(src[:at], []byte("\n")))
	}
	return src, nil
}

func invalidAt(src []byte) int {
	for i := 0; i < len(src); {
		r, n := utf8.DecodeRune(src[i:])
		if r == utf8.RuneError && n == 1 || r == 0 {
			return i
		}
		i += n
	}
	return -1
}

// parseMail makes a template of a file, keeps the parts that it uses, and checks it by compiling it.
func parseMail(name string, src, text []byte, parts []Part) (*Template, error) {
	s, err := split(src)
	if err != nil {
		return nil, fault{name, 1, err.Error()}
	}
	h, err := parseHeader(name, s.front)
	if err != nil {
		return nil, err
	}
	base := strings.TrimSuffix(name, ".html")
	if h.name == "" {
		h.name = base
		if !validName.MatchString(base) {
			return nil, fault{name, 1, fmt.Sprintf("the file's name %q is no name for a template; say another with name:", base)}
		}
	}
	t := &Template{
		Name: h.name, BitIndex: h.bitIndex, Subject: h.subject, HTML: string(s.body), Text: string(text), From: h.from,
		ReplyTo: h.replyTo, Preheader: h.preheader, Repeat: h.repeat, Track: h.track, Parts: parts, Line: s.lines,
	}
	if strings.TrimSpace(t.HTML) == "" {
		return nil, fault{name, s.lines, "there is no mail below the front matter"}
	}
	if scanHTML(t.HTML).document { // it brings its own frame
		t.Parts = slices.DeleteFunc(slices.Clone(parts), func(p Part) bool { return p.File == "_layout.html" })
	}
	t.file = base
	c, err := t.Compile()
	if err != nil {
		return nil, err
	}
	t.Parts = c.parts
	return t, nil
}

func sameName(mails []mailFile) (wrong []error) {
	first := map[string]string{}
	for _, m := range mails {
		file := filepath.Base(m.path)
		if other, twice := first[m.template.Name]; twice {
			wrong = append(wrong, fmt.Errorf("%s: name %s is that of %s, too", file, m.template.Name, other))
			continue
		}
		first[m.template.Name] = file
	}
	return wrong
}
