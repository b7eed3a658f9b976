package cast

import (
	_ "embed"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"text/template"
	"time"
)

// The end stays for this time before the animation begins again.
const holdTime = 8 * time.Second

const (
	fontSize   = 14
	charWidth  = 8.43
	lineHeight = 19
	descent    = 5 // from a line's baseline to its lower end
	padding    = 16
	titleBar   = 32
	gap        = 6 // above and below the lines
)

//go:embed recording.svg.tmpl
var svgTemplate string

var svg = template.Must(template.New("svg").Funcs(template.FuncMap{"escape": escape}).Parse(svgTemplate))

// SVG draws the recording. Who prefers reduced motion sees the end, as does who adds #still to the address.
func (r Recording) SVG(w io.Writer) error {
	lines := r.Lines()
	total := lines[len(lines)-1].At + holdTime
	percent := func(at time.Duration) string { return fmt.Sprintf("%.2f%%", 100*float64(at)/float64(total)) }
	type drawn struct {
		Y           int
		Class, Text string
	}
	type moment struct{ Class, At string }
	type scroll struct {
		At string
		Y  int
	}
	picture := struct {
		Title                    string
		Width, Height, Font, End int
		Padding, TitleBar, Rows  int
		Total                    string
		Lines                    []drawn
		Moments                  []moment
		Scrolls                  []scroll
	}{
		Title: r.Title, Width: int(float64(r.Width)*charWidth) + 2*padding, Font: fontSize,
		Height:  titleBar + r.Height*lineHeight + 2*gap,
		Padding: padding, TitleBar: titleBar, Rows: r.Height * lineHeight, Total: fmt.Sprintf("%dms", total.Milliseconds()),
		Scrolls: []scroll{{"0%", 0}},
	}
	for i, l := range lines {
		if at := percent(l.At); len(picture.Moments) == 0 || picture.Moments[len(picture.Moments)-1].At != at {
			picture.Moments = append(picture.Moments, moment{fmt.Sprintf("m%d", len(picture.Moments)), at})
		}
		now := picture.Moments[len(picture.Moments)-1]
		picture.Lines = append(picture.Lines, drawn{(i+1)*lineHeight - descent, now.Class + kind(l.Text), l.Text})
		if i >= r.Height {
			picture.End = -(i + 1 - r.Height) * lineHeight
			if last := &picture.Scrolls[len(picture.Scrolls)-1]; last.At == now.At {
				last.Y = picture.End
			} else {
				picture.Scrolls = append(picture.Scrolls, scroll{now.At, picture.End})
			}
		}
	}
	return svg.Execute(w, picture)
}

// kind is the class of a line by which it is coloured: a command, one that kills, or output.
func kind(line string) string {
	switch {
	case strings.HasPrefix(line, "$ kill"), strings.Contains(line, " Killed "):
		return " kill"
	case strings.HasPrefix(line, "$ "):
		return " command"
	}
	return ""
}

func escape(text string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(text)) // a Builder returns no error
	return out.String()
}
