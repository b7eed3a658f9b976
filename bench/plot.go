package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// series is one line of a plot.
type series struct {
	name   string
	points [][2]float64
	dashed bool
	color  string
}

// plot is a line chart. Its x axis is logarithmic, and its y axis if logY is set.
type plot struct {
	title, x, y string
	logY        bool
	lines       []series
}

const (
	plotWidth, plotHeight                      = 720.0, 400.0
	plotLeft, plotRight, plotTop, plotBottom   = 70.0, 150.0, 40.0, 50.0
	wireColor, contractColor, neutral, gridded = "#2563eb", "#d97706", "#6b7280", "#d1d5db"
	goColor                                    = "#059669"
)

// plots returns the report's plots by file name.
func plots(all []results) map[string]string {
	files := map[string]string{}
	for _, r := range all {
		if r.Part == "overload" {
			files["overload.svg"] = overloadPlot(r.Rows).svg()
		}
		if r.Part != "engine" {
			continue
		}
		rows := merge(r.Rows)
		throughput := plot{title: "3-step runs per second", x: "runs in flight", y: "runs/s"}
		latency := plot{title: "3-step runs at given rates, from the intended start", x: "runs/s wanted", y: "ms", logY: true}
		for _, d := range []struct{ variant, color string }{{"wire", wireColor}, {"contract", contractColor}} {
			throughput.add(series{name: d.variant, color: d.color}, rows, d.variant, false,
				func(r row) (float64, float64) { return float64(r.Clients), r.perSecond() })
			latency.add(series{name: d.variant + " p50", color: d.color}, rows, d.variant, true,
				func(r row) (float64, float64) { return r.Rate, r.Latency.P50 })
			latency.add(series{name: d.variant + " p99", color: d.color, dashed: true}, rows, d.variant, true,
				func(r row) (float64, float64) { return r.Rate, r.Latency.P99 })
		}
		files["throughput.svg"], files["latency.svg"] = throughput.svg(), latency.svg()
	}
	return files
}

// add adds a line for the 3-step runs of a variant, in the open or the closed loop.
func (p *plot) add(s series, rows []row, variant string, open bool, at func(row) (float64, float64)) {
	for _, r := range rows {
		if r.Case == "seq-3" && r.Variant == variant && (r.Rate > 0) == open {
			x, y := at(r)
			s.points = append(s.points, [2]float64{x, y})
		}
	}
	p.lines = append(p.lines, s)
}

// svg renders the plot.
func (p plot) svg() string {
	low, high := [2]float64{math.Inf(1), math.Inf(1)}, [2]float64{math.Inf(-1), math.Inf(-1)}
	for _, l := range p.lines {
		for _, at := range l.points {
			for i := range at {
				low[i], high[i] = min(low[i], at[i]), max(high[i], at[i])
			}
		}
	}
	x := scale{low[0], high[0], true, plotLeft, plotWidth - plotRight}
	y := scale{0, high[1] * 1.05, false, plotHeight - plotBottom, plotTop}
	if p.logY {
		y = scale{low[1], high[1], true, plotHeight - plotBottom, plotTop}
	}
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" `+
		`font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&s, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	text(&s, plotLeft, plotTop-16, "start", p.title)
	text(&s, (plotLeft+plotWidth-plotRight)/2, plotHeight-10, "middle", p.x)
	text(&s, 8, plotTop-16, "start", p.y)
	for _, v := range y.marks() {
		at := y.place(v)
		fmt.Fprintf(&s, `<path d="M%.1f %.1fH%.1f" stroke="%s"/>`+"\n", plotLeft, at, plotWidth-plotRight, gridded)
		text(&s, plotLeft-8, at+4, "end", fmt.Sprintf("%g", v))
	}
	for _, v := range x.values(p.lines) {
		text(&s, x.place(v), plotHeight-plotBottom+18, "middle", fmt.Sprintf("%g", v))
	}
	for i, l := range p.lines {
		l.draw(&s, x, y)
		text(&s, plotWidth-plotRight+38, plotTop+20*float64(i)+4, "start", l.name)
		key := series{color: l.color, dashed: l.dashed}
		key.path(&s, fmt.Sprintf("M%.1f %.1fh24", plotWidth-plotRight+8, plotTop+20*float64(i)))
	}
	return s.String() + "</svg>\n"
}

func text(s *strings.Builder, x, y float64, anchor, what string) {
	fmt.Fprintf(s, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, neutral,
		html.EscapeString(what))
}

func (l series) draw(s *strings.Builder, x, y scale) {
	var path strings.Builder
	for i, at := range l.points {
		fmt.Fprintf(&path, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[i == 0], x.place(at[0]), y.place(at[1]))
		fmt.Fprintf(s, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x.place(at[0]), y.place(at[1]), l.color)
	}
	l.path(s, path.String())
}

func (l series) path(s *strings.Builder, d string) {
	dashes := ""
	if l.dashed {
		dashes = ` stroke-dasharray="5 4"`
	}
	fmt.Fprintf(s, `<path d="%s" fill="none" stroke="%s" stroke-width="2"%s/>`+"\n", d, l.color, dashes)
}

// scale maps values between low and high to positions between from and to.
type scale struct {
	low, high float64
	log       bool
	from, to  float64
}

func (s scale) place(v float64) float64 {
	low, high := s.low, s.high
	if s.log {
		low, high, v = math.Log(max(low, 1e-3)), math.Log(max(high, 1e-3)), math.Log(max(v, 1e-3))
	}
	if high == low {
		return (s.from + s.to) / 2
	}
	return s.from + (v-low)/(high-low)*(s.to-s.from)
}

// marks returns the values for grid lines: 1, 2 and 5 times powers of ten on a logarithmic scale, else at least four
// equal steps.
func (s scale) marks() []float64 {
	var all []float64
	if s.log {
		for power := math.Floor(math.Log10(max(s.low, 1e-3))); power <= math.Log10(max(s.high, 1e-3)); power++ {
			for _, times := range []float64{1, 2, 5} {
				if v := times * math.Pow(10, power); v >= s.low && v <= s.high {
					all = append(all, v)
				}
			}
		}
		return all
	}
	step := math.Pow(10, math.Floor(math.Log10(max(s.high, 1e-3))))
	for s.high/step < 4 {
		step /= 2
	}
	for v := 0.0; v <= s.high; v += step {
		all = append(all, v)
	}
	return all
}

// values returns the distinct x values of the lines.
func (s scale) values(lines []series) []float64 {
	var all []float64
	seen := map[float64]bool{}
	for _, l := range lines {
		for _, at := range l.points {
			if !seen[at[0]] {
				seen[at[0]] = true
				all = append(all, at[0])
			}
		}
	}
	return all
}
