package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// clean makes text from anywhere fit for a terminal and for one line: what cannot be printed is escaped.
func clean(s string) string {
	var b strings.Builder
	for _, r := range s { // bytes that are no UTF-8 come as U+FFFD
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// printJSON prints an object on a line of its own. An answer without a body prints nothing.
func (s *Session) printJSON(raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	line.WriteByte('\n')
	_, err := s.Stdout.Write(line.Bytes())
	return err
}

// say prints a line for people, or the answer for programs.
func (s *Session) say(raw json.RawMessage, format string, a ...any) error {
	if s.json {
		return s.printJSON(raw)
	}
	_, err := fmt.Fprintln(s.Stdout, clean(fmt.Sprintf(format, a...)))
	return err
}

// note tells people something beside the output.
func (s *Session) note(format string, a ...any) {
	_, _ = fmt.Fprintln(s.Stderr, clean(fmt.Sprintf(format, a...)))
}

// column is one of a table of T.
type column[T any] struct {
	head string
	cell func(*Session, T) string
}

// printer prints the entries of a list as they come, page by page.
type printer[T any] struct {
	*Session
	columns []column[T]
	widths  []int // of the columns so far
}

// print prints a page: entries for programs, or rows with a head above the first.
func (p *printer[T]) print(entries []json.RawMessage) error {
	if p.json {
		for _, e := range entries {
			if err := p.printJSON(e); err != nil {
				return err
			}
		}
		return nil
	}
	var rows [][]string
	if p.widths == nil {
		p.widths = make([]int, len(p.columns))
		rows = append(rows, cells(p.columns, func(c column[T]) string { return c.head }))
	}
	for _, e := range entries {
		var entry T
		if err := p.client.decode(e, &entry); err != nil {
			return err
		}
		rows = append(rows, cells(p.columns, func(c column[T]) string { return clean(c.cell(p.Session, entry)) }))
	}
	return p.align(rows)
}

func cells[T any](columns []column[T], of func(column[T]) string) []string {
	row := make([]string, len(columns))
	for i, c := range columns {
		row[i] = of(c)
	}
	return row
}

// align prints rows with two spaces between the columns. A column is as wide as it was on the pages before, or wider.
func (p *printer[T]) align(rows [][]string) error {
	for _, row := range rows {
		for i, cell := range row {
			p.widths[i] = max(p.widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s  ", p.widths[i], cell)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(p.Stdout, b.String())
	return err
}

// when shows a time; nothing for none.
func (s *Session) when(t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case !s.Ages:
		return stamp(t)
	case t.After(s.Now()):
		return "in " + age(t.Sub(s.Now()))
	default:
		return age(s.Now().Sub(t)) + " ago"
	}
}

// stamp shows a time as the API does.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// age shows a duration in its largest unit that is not too coarse.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	for _, unit := range []struct {
		above time.Duration
		of    time.Duration
		name  string
	}{{2 * day, day, "d"}, {2 * time.Hour, time.Hour, "h"}, {2 * time.Minute, time.Minute, "m"}} {
		if d >= unit.above {
			return strconv.FormatInt(int64(d/unit.of), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(max(d, 0)/time.Second), 10) + "s"
}

// took shows how long something lasted that has ended.
func took(from, to time.Time) string {
	switch d := to.Sub(from); {
	case from.IsZero() || to.IsZero():
		return ""
	case d >= time.Minute:
		return d.Round(time.Second).String()
	default:
		return d.Round(time.Millisecond).String()
	}
}

// pairs shows labels as key=value, in the order of their keys.
func pairs(labels map[string]string) string {
	list := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, key+"="+labels[key])
	}
	return strings.Join(list, " ")
}

// shortJSON is how long JSON may be to stand on one line.
const shortJSON = 90

// value shows a payload: its JSON, on one line if it is short, or why there is none to show.
func value(raw json.RawMessage, encoding string) string {
	if len(raw) == 0 {
		if encoding == "" || encoding == "none" {
			return ""
		}
		return "(" + encoding + ": it cannot be shown)"
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) == nil && b.Len() <= shortJSON {
		return clean(b.String())
	}
	b.Reset()
	if json.Indent(&b, raw, "", "  ") != nil {
		return clean(string(raw))
	}
	lines := strings.Split(b.String(), "\n")
	for i, line := range lines {
		lines[i] = clean(line)
	}
	return strings.Join(lines, "\n")
}

// field is a name and a value, which may have several lines; an empty one is not shown.
type field struct{ name, value string }

// fields prints them below each other.
func (s *Session) fields(list []field) error {
	width := 0
	for _, f := range list {
		if f.value != "" {
			width = max(width, len(f.name))
		}
	}
	indent := "\n" + strings.Repeat(" ", width+2)
	for _, f := range list {
		if f.value == "" {
			continue
		}
		text := strings.ReplaceAll(f.value, "\n", indent)
		if _, err := fmt.Fprintf(s.Stdout, "%-*s  %s\n", width, f.name, text); err != nil {
			return err
		}
	}
	return nil
}
