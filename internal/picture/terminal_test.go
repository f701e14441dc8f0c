package picture

import (
	"encoding/xml"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var letters = regexp.MustCompile(`<text[^>]* x="([0-9.]+)"[^>]*>([^<]*)</text>`)

func TestTerminal(t *testing.T) {
	for _, c := range []struct {
		name, text string
		words      []string // with the place that each begins at: 20 for the margin, and 8.4 for each column
		bars       int
	}{
		{"words stand in their columns", "a  bc", []string{"20.0:a", "45.2:bc"}, 0},
		{"markup is text", `<b>&"`, []string{"20.0:&lt;b&gt;&amp;&#34;"}, 0},
		{"neighbouring blocks are one bar", "x ████▌", []string{"20.0:x"}, 1},
		{"blocks apart are two", "██ ██", nil, 2},
		{"columns of a chart each stand alone", "1 │▁▃█", []string{"20.0:1"}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			svg := Terminal("x", "\n"+c.text+"\n")
			dec := xml.NewDecoder(strings.NewReader(svg))
			for {
				if _, err := dec.Token(); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("%v in\n%s", err, svg)
				}
			}
			var got []string
			for _, m := range letters.FindAllStringSubmatch(svg, -1) {
				got = append(got, m[1]+":"+m[2])
			}
			if got = got[1:]; !slices.Equal(got, c.words) { // without the command
				t.Errorf("%q, want %q", got, c.words)
			}
			if n := strings.Count(svg, `class="b"`); n != c.bars {
				t.Errorf("%d bars, want %d:\n%s", n, c.bars, svg)
			}
		})
	}
}
