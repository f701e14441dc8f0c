package main

import (
	"fmt"
	"strings"
)

const (
	width, height            = 760, 420
	left, right, top, bottom = 70, 200, 40, 50
)

var colours = map[string]string{"flat_grown": "#c0392b", "flat_preallocated": "#e08e0b", "by_hour_grown": "#2e86c1", "by_hour_preallocated": "#1e8449"}

// chart draws the rates by hour: solid through Apply, dashed with a bare $inc.
func chart(r *result) string {
	most := 0.0
	for _, o := range r.Shapes {
		for h := range 24 {
			most = max(most, o.Rates[h], o.Bare.Rates[h])
		}
	}
	step := niceStep(most / 5)
	most = step * float64(int(most/step)+1)
	x := func(h int) float64 { return left + float64(h)*(width-left-right)/23 }
	y := func(v float64) float64 { return height - bottom - v/most*(height-top-bottom) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="Updates per second by hour of the day">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/><text x="%d" y="22" font-size="14" font-weight="600">Counter updates per second through a day (%s)</text>`+"\n", width, height, left, r.Server)
	for v := 0.0; v <= most; v += step {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.0f</text>`+"\n", left, y(v), width-right, left-8, y(v)+4, v)
	}
	for h := 0; h < 24; h += 3 {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%02d</text>`+"\n", x(h), height-bottom+18, h)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">hour of the day, UTC</text>`+"\n", (left+width-right)/2, height-12)
	fmt.Fprintf(&b, `<text transform="translate(16 %d) rotate(-90)" text-anchor="middle">updates per second</text>`+"\n", (top+height-bottom)/2)
	for i, s := range shapes {
		o, colour := r.Shapes[s.name], colours[s.name]
		for _, l := range []struct {
			rates [24]float64
			dash  string
		}{{o.Rates, ""}, {o.Bare.Rates, ` stroke-dasharray="5 4"`}} {
			var points []string
			for h, v := range l.rates {
				points = append(points, fmt.Sprintf("%.1f,%.1f", x(h), y(v)))
			}
			fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>`+"\n", strings.Join(points, " "), colour, l.dash)
		}
		ly := top + 20 + 22*i
		fmt.Fprintf(&b, `<path d="M%d %dh22" stroke="%s" stroke-width="3"/><text x="%d" y="%d">%s</text>`+"\n", width-right+14, ly-4, colour, width-right+42, ly, strings.ReplaceAll(s.name, "_", " "))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d">solid: through Apply</text><text x="%d" y="%d">dashed: a bare $inc</text>`+"\n</svg>\n", width-right+14, top+120, width-right+14, top+138)
	return b.String()
}

// niceStep is 1, 2 or 5 times a power of ten, at least v.
func niceStep(v float64) float64 {
	step := 1.0
	for {
		for _, k := range []float64{1, 2, 5} {
			if step*k >= v {
				return step * k
			}
		}
		step *= 10
	}
}
