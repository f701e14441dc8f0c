// Package picture draws what a command printed as an SVG of a terminal, for the docs.
package picture

import (
	"fmt"
	"html"
	"regexp"
	"strings"

	"github.com/rivo/uniseg"
)

// The grid of a drawn terminal, in units of SVG.
const (
	cellWidth  = 8.4
	cellHeight = 18
	margin     = 20
	barHeight  = 34 // of the window
)

var heading = regexp.MustCompile(`^[A-Z]{2}`)

// Terminal draws a command and what it printed. Blocks and lines are shapes rather than letters, so that the picture is the
// same with every font.
func Terminal(command, text string) string {
	lines := append([]string{"$ " + command, ""}, strings.Split(strings.TrimRight(text, "\n"), "\n")...)
	columns := 0
	for _, l := range lines {
		columns = max(columns, uniseg.StringWidth(l))
	}
	width, height := 2*margin+cellWidth*float64(columns), barHeight+margin+cellHeight*len(lines)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" role="img" aria-labelledby="t">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title id=\"t\">A terminal with the output of %s</title>\n", html.EscapeString(command))
	b.WriteString(`<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d7dde4;white-space:pre}.h{font-weight:700;fill:#fff}.p{fill:#7ee0a8}.b{fill:#4fb6c9}.l{fill:#5b6672}</style>` + "\n")
	fmt.Fprintf(&b, `<rect width="%.0f" height="%d" rx="10" fill="#12181f"/><circle cx="22" cy="18" r="6" fill="#ff5f57"/><circle cx="42" cy="18" r="6" fill="#febc2e"/><circle cx="62" cy="18" r="6" fill="#28c840"/>`+"\n", width, height)
	for i, l := range lines {
		class := ""
		switch {
		case i == 0:
			class = ` class="p"`
		case i == 2 || heading.MatchString(l):
			class = ` class="h"`
		}
		drawLine(&b, l, class, float64(barHeight+cellHeight*i))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// drawLine writes words at their columns, and blocks as rectangles, neighbours in one.
func drawLine(b *strings.Builder, line, class string, top float64) {
	rect := func(class string, x, y, w, h float64) {
		fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, class, margin+cellWidth*x, top+cellHeight*y, cellWidth*w, cellHeight*h)
	}
	column, word, wordAt, full, fullAt := 0, "", 0, 0.0, 0
	flush := func() {
		if text := strings.TrimRight(word, " "); text != "" {
			fmt.Fprintf(b, `<text%s x="%.1f" y="%.1f" textLength="%.1f">%s</text>`, class, margin+cellWidth*float64(wordAt), top+13, cellWidth*float64(uniseg.StringWidth(text)), html.EscapeString(text))
		}
		if full > 0 {
			rect("b", float64(fullAt), 0.12, full, 0.76)
		}
		word, full = "", 0
	}
	for g := uniseg.NewGraphemes(line); g.Next(); column += g.Width() {
		r := g.Runes()[0]
		across := strings.IndexRune("▏▎▍▌▋▊▉█", r)/len("█") + 1
		up := strings.IndexRune("▁▂▃▄▅▆▇█", r)/len("█") + 1
		switch chart := strings.Contains(line, "│"); {
		case r == '│':
			flush()
			rect("l", float64(column)+0.5, 0, 0.12, 1)
		case r == '└':
			flush()
			rect("l", float64(column)+0.5, 0, 0.5, 0.06)
		case r == '─':
			flush()
			rect("l", float64(column), 0, 1, 0.06)
		case chart && strings.ContainsRune("▁▂▃▄▅▆▇█", r):
			flush()
			rect("b", float64(column), 1-float64(up)/8, 1.04, float64(up)/8+0.02) // no seam to the next
		case strings.ContainsRune("▏▎▍▌▋▊▉█", r):
			if full == 0 {
				flush()
				fullAt = column
			}
			full += float64(across) / 8
		case r == ' ' && (word == "" || strings.HasSuffix(word, " ")):
			flush()
		default:
			if full > 0 {
				flush()
			}
			if word == "" {
				wordAt = column
			}
			word += g.Str()
		}
	}
	flush()
	b.WriteString("\n")
}
