package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/rivo/uniseg"
	"golang.org/x/term"
)

// screen is what a report is drawn on.
type screen struct {
	width   int  // columns
	unicode bool // blocks and names in every script; otherwise plain ASCII
	color   bool
}

const (
	minWidth     = 40
	maxWidth     = 160 // wider bars say nothing more
	defaultWidth = 80
)

// screenOf looks at what is written to. Off a terminal the width is that of COLUMNS, or 80, and there is no colour.
func screenOf(w io.Writer, ascii bool) screen {
	s := screen{width: defaultWidth, unicode: !ascii && speaksUnicode(os.Getenv, runtime.GOOS)}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		s.width = n
	}
	if isTerminal(w) {
		if n, _, err := term.GetSize(int(w.(*os.File).Fd())); err == nil && n > 0 {
			s.width = n
		}
		s.color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" // no-color.org
	}
	s.width = min(max(s.width, minWidth), maxWidth)
	return s
}

// speaksUnicode goes by the locale, in the order of POSIX: the first variable that is set decides.
func speaksUnicode(env func(string) string, system string) bool {
	if env("TERM") == "dumb" {
		return false
	}
	locale := strings.ToLower(cmp.Or(env("LC_ALL"), env("LC_CTYPE"), env("LANG")))
	if system == "windows" && locale == "" {
		return env("WT_SESSION") != "" // Windows Terminal
	}
	return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
}

// text makes a text from outside fit into so many columns of the screen, and safe for it.
func (s screen) text(outside string, width int) string {
	outside = visible(outside)
	more := "…"
	if !s.unicode {
		outside = strings.Map(func(r rune) rune {
			if r > '~' {
				return '?'
			}
			return r
		}, outside)
		more = "..."
	}
	if uniseg.StringWidth(outside) <= width {
		return outside
	}
	room := max(width-len([]rune(more)), 0)
	var b strings.Builder
	for g := uniseg.NewGraphemes(outside); g.Next() && g.Width() <= room; room -= g.Width() {
		b.WriteString(g.Str())
	}
	return b.String() + more
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(width-uniseg.StringWidth(text), 0))
}

func padLeft(text string, width int) string {
	return strings.Repeat(" ", max(width-uniseg.StringWidth(text), 0)) + text
}

// style wraps a text in an escape sequence of the terminal.
func (s screen) style(code, text string) string {
	if !s.color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s screen) title(text string) string { return s.style("1", text) }
func (s screen) faint(text string) string { return s.style("2", text) }
func (s screen) ink(text string) string   { return s.style("36", text) }

// bar is a line of up to width columns; anything that is not nothing shows.
func (s screen) bar(n, most int64, width int) string {
	if n <= 0 || most <= 0 || width < 1 {
		return ""
	}
	share := min(float64(n)/float64(most), 1)
	if !s.unicode {
		return s.ink(strings.Repeat("#", max(int(math.Round(share*float64(width))), 1)))
	}
	eighths := max(int(math.Round(share*float64(8*width))), 1)
	line := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		line += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return s.ink(line)
}

// chartRows is how high a chart of columns is.
const chartRows = 8

// columns draws one column for each count over an axis, lowest line last. The labels stand below, as many as there is room for.
func (s screen) columns(counts []int64, labels []string) []string {
	most := int64(0)
	for _, n := range counts {
		most = max(most, n)
	}
	axis := max(len(count(most)), 3)
	step := min(max((s.width-axis-2)/len(counts), 1), 4)
	if step == 4 {
		step = 3 + min(1, (s.width-axis-2)/(5*len(counts))) // 4 columns only where there is plenty
	}
	ink := max(step-1, 1)
	wall, floor := "│", "└"+strings.Repeat("─", step*len(counts))
	if !s.unicode {
		wall, floor = "|", "+"+strings.Repeat("-", step*len(counts))
	}
	var lines []string
	for row := chartRows - 1; row >= 0; row-- {
		mark := ""
		switch row {
		case chartRows - 1:
			mark = count(most)
		case chartRows/2 - 1:
			if most%2 == 0 {
				mark = count(most / 2)
			}
		}
		var line strings.Builder
		for _, n := range counts {
			line.WriteString(pad(strings.Repeat(s.block(n, most, row), ink), step))
		}
		lines = append(lines, s.faint(padLeft(mark, axis)+" "+wall)+s.ink(strings.TrimRight(line.String(), " ")))
	}
	lines = append(lines, s.faint(padLeft("0", axis)+" "+floor))
	every := 1
	for every*step < len(labels[0])+1 {
		every++
	}
	if step == 1 {
		every = 6 // hours of a narrow screen
	}
	var below strings.Builder
	for i := 0; i < len(labels); i += every {
		below.WriteString(pad(labels[i], every*step))
	}
	return append(lines, s.faint(strings.Repeat(" ", axis+2)+strings.TrimRight(below.String(), " ")))
}

// block is the part of a column that falls into a row: a space, a block of eighths, or in ASCII # and : for a half.
func (s screen) block(n, most int64, row int) string {
	if n <= 0 || most <= 0 {
		return " "
	}
	eighths := max(int(math.Round(float64(n)/float64(most)*8*chartRows)), 1) - 8*row
	switch {
	case eighths <= 0:
		return " "
	case s.unicode:
		return string([]rune("▁▂▃▄▅▆▇█")[min(eighths, 8)-1])
	case eighths > 4:
		return "#"
	default:
		return ":"
	}
}

// shares is a list of names and counts with bars of their shares.
type shares struct {
	rows []share
	of   int64 // what is 100 %
}

type share struct {
	name string
	n    int64
	rank int // 0: what the others are a part of; its name stands out to the left
}

func (l *shares) add(name string, n int64, rank int) { l.rows = append(l.rows, share{name, n, rank}) }

// lines draws the list. The names are made safe, and cut where they are too long for the screen.
func (l *shares) lines(s screen) []string {
	const percents = len("100.0%")
	names, numbers := 0, 6
	most := l.of
	for _, r := range l.rows {
		names = max(names, uniseg.StringWidth(visible(r.name))+2*r.rank)
		numbers = max(numbers, len(count(r.n)))
		most = max(most, r.n)
	}
	names = min(max(names, 22), s.width-numbers-percents-5)
	room := s.width - names - numbers - percents - 6
	if room < 8 {
		room = 0 // no bars rather than crumbs
	}
	var lines []string
	for _, r := range l.rows {
		indent := strings.Repeat("  ", r.rank)
		line := fmt.Sprintf("%s  %s  %s", pad(indent+s.text(r.name, names-len(indent)), names), padLeft(count(r.n), numbers), padLeft(percent(r.n, l.of), percents))
		if bar := s.bar(r.n, most, min(room, 60)); bar != "" {
			line += "  " + bar
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}
