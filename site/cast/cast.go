// Package cast keeps what a terminal showed, in the format asciicast v2 of asciinema, and draws it as an animated SVG.
package cast

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Recording is what a terminal showed. Its text has lines, and no control characters but newlines.
type Recording struct {
	Title         string
	Width, Height int           // in characters
	IdleLimit     time.Duration // a longer wait is shown as one of this length
	Output        []Output
}

// Output is a text that came At a time since the beginning, in whole milliseconds.
type Output struct {
	At   time.Duration
	Text string
}

type header struct {
	Version       int     `json:"version"`
	Width         int     `json:"width"`
	Height        int     `json:"height"`
	IdleTimeLimit float64 `json:"idle_time_limit"`
	Title         string  `json:"title"`
}

// Write writes the recording as an asciicast.
func (r Recording) Write(w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	if err := out.Encode(header{2, r.Width, r.Height, r.IdleLimit.Seconds(), r.Title}); err != nil {
		return err
	}
	for _, o := range r.Output {
		text := strings.ReplaceAll(o.Text, "\n", "\r\n")
		if err := out.Encode([]any{json.Number(fmt.Sprintf("%.3f", o.At.Seconds())), "o", text}); err != nil {
			return err
		}
	}
	return nil
}

// Read reads what Write has written.
func Read(from io.Reader) (Recording, error) {
	lines := bufio.NewScanner(from)
	if !lines.Scan() {
		return Recording{}, errors.Join(errors.New("the recording is empty"), lines.Err())
	}
	var h header
	if err := json.Unmarshal(lines.Bytes(), &h); err != nil || h.Version != 2 {
		return Recording{}, fmt.Errorf("this is no asciicast v2: %s (%w)", lines.Text(), err)
	}
	r := Recording{h.Title, h.Width, h.Height, seconds(h.IdleTimeLimit), nil}
	for lines.Scan() {
		var at float64
		var kind, text string
		if err := json.Unmarshal(lines.Bytes(), &[]any{&at, &kind, &text}); err != nil || kind != "o" {
			return Recording{}, fmt.Errorf("this is no output: %s (%w)", lines.Text(), err)
		}
		r.Output = append(r.Output, Output{seconds(at), strings.ReplaceAll(text, "\r\n", "\n")})
	}
	return r, lines.Err()
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
}

// Text is all that was shown.
func (r Recording) Text() string {
	var all strings.Builder
	for _, o := range r.Output {
		all.WriteString(o.Text)
	}
	return all.String()
}

// Line is a line of the terminal, and when the first of it came: in the time that is shown, which has no long waits.
type Line struct {
	At   time.Duration
	Text string
}

// Lines are all lines in their order. Longer ones than the terminal's width are several.
func (r Recording) Lines() []Line {
	var lines []Line
	var last, shown time.Duration
	open := false // the last line has not ended
	for _, o := range r.Output {
		shown += min(o.At-last, r.IdleLimit)
		last = o.At
		for part := range strings.Lines(o.Text) {
			text, ended := strings.CutSuffix(part, "\n")
			if !open {
				lines = append(lines, Line{At: shown})
			}
			lines[len(lines)-1].Text += text
			open = !ended
		}
	}
	return r.wrap(lines)
}

func (r Recording) wrap(lines []Line) []Line {
	var wrapped []Line
	for _, l := range lines {
		rest := []rune(l.Text)
		for len(rest) > r.Width {
			wrapped = append(wrapped, Line{l.At, string(rest[:r.Width])})
			rest = rest[r.Width:]
		}
		wrapped = append(wrapped, Line{l.At, string(rest)})
	}
	return wrapped
}
