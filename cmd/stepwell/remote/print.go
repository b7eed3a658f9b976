package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stepwell-dev/stepwell/handlers/rest/api"
)

// escape escapes unprintable characters, so that untrusted text fits on one line and cannot control the terminal.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s { // invalid UTF-8 becomes U+FFFD
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// printJSON prints an object on one line, or nothing for an empty response.
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

// printResult prints a line of text, or the response with --json.
func (s *Session) printResult(raw json.RawMessage, format string, a ...any) error {
	if s.json {
		return s.printJSON(raw)
	}
	_, err := fmt.Fprintln(s.Stdout, escape(fmt.Sprintf(format, a...)))
	return err
}

// change sends a request, and prints a line of text or the response as printResult does.
func (s *Session) change(ctx context.Context, method, path string, body any, format string, a ...any) error {
	raw, err := s.client.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	return s.printResult(raw, format, a...)
}

// note prints a line to standard error.
func (s *Session) note(format string, a ...any) {
	_, _ = fmt.Fprintln(s.Stderr, escape(fmt.Sprintf(format, a...)))
}

// tablePrinter prints a list of T page by page.
type tablePrinter[T any] struct {
	*Session
	columns func(T) []field
	widths  []int // of the columns so far; nil before the first page
}

// print prints a page as a table, with a header on the first page, or as JSON.
func (p *tablePrinter[T]) print(entries []json.RawMessage) error {
	if p.json {
		for _, e := range entries {
			if err := p.printJSON(e); err != nil {
				return err
			}
		}
		return nil
	}
	items := make([]T, len(entries))
	for i, e := range entries {
		if err := p.client.decode(e, &items[i]); err != nil {
			return err
		}
	}
	return p.table(items)
}

// printTable prints a list that has only one page.
func printTable[T any](s *Session, columns func(T) []field, entries []json.RawMessage) error {
	p := tablePrinter[T]{Session: s, columns: columns}
	return p.print(entries)
}

// printItems prints a table of items.
func printItems[T any](s *Session, columns func(T) []field, items []T) error {
	p := tablePrinter[T]{Session: s, columns: columns}
	return p.table(items)
}

// table prints items as a table, with a header on the first page.
func (p *tablePrinter[T]) table(items []T) error {
	var rows [][]string
	if p.widths == nil {
		var header []string
		for _, c := range p.columns(*new(T)) {
			header = append(header, strings.ToUpper(c.name))
		}
		p.widths = make([]int, len(header))
		rows = append(rows, header)
	}
	for _, item := range items {
		var row []string
		for _, c := range p.columns(item) {
			row = append(row, p.format(c.value, p.formatTime))
		}
		rows = append(rows, row)
	}
	return p.align(rows)
}

// format formats a value of any type. Everything but [multiline] text is escaped.
func (s *Session) format(value any, formatTime func(time.Time) string) string {
	switch v := value.(type) {
	case api.Time:
		return formatTime(v.Time)
	case api.RunReason:
		value = v.Summary + s.times(v.Since, v.At, v.Until)
	case api.Attributes:
		value = keyValues(v)
	case []string:
		value = strings.Join(v, ", ")
	case multiline:
		return s.cut(string(v))
	}
	return s.cut(escape(fmt.Sprint(value)))
}

// align prints rows with two spaces between the columns. text/tabwriter would need all rows; this prints page by page,
// and columns only grow from page to page.
func (p *tablePrinter[T]) align(rows [][]string) error {
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

// formatTime returns a time as RFC 3339, or relative to now at a terminal. The zero time is "".
func (s *Session) formatTime(t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case !s.RelativeTimes:
		return timestamp(t)
	case t.After(s.Now()):
		return "in " + age(t.Sub(s.Now()))
	default:
		return age(s.Now().Sub(t)) + " ago"
	}
}

// timeAndAge returns a time as RFC 3339 and, at a terminal, also relative to now.
func (s *Session) timeAndAge(t time.Time) string {
	if t.IsZero() || !s.RelativeTimes {
		return s.formatTime(t)
	}
	return timestamp(t) + " (" + s.formatTime(t) + ")"
}

// timestamp formats a time as the API does.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// age formats a duration in the largest unit of which it has at least two.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= 2*unit.length {
			return strconv.FormatInt(int64(d/unit.length), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(max(d, 0)/time.Second), 10) + "s"
}

// elapsed formats the time between two times, or returns "" if one of them is zero.
func elapsed(from, to api.Time) string {
	switch d := to.Sub(from.Time); {
	case from.IsZero() || to.IsZero():
		return ""
	case d >= time.Minute:
		return d.Round(time.Second).String()
	default:
		return d.Round(time.Millisecond).String()
	}
}

// countText formats a count. A plus means that there are more.
func countText(n int64, more bool) string {
	if more {
		return strconv.FormatInt(n, 10) + "+"
	}
	return strconv.FormatInt(n, 10)
}

// keyValues formats attributes as key=value, sorted by key.
func keyValues(attributes map[string]string) string {
	list := make([]string, 0, len(attributes))
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		list = append(list, key+"="+attributes[key])
	}
	return strings.Join(list, " ")
}

// maxInlineJSON is how long JSON may be to be printed on one line.
const maxInlineJSON = 90

// multiline is text that is already escaped and may have several lines.
type multiline string

// escapeLines escapes everything but line breaks.
func escapeLines(text string) multiline {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = escape(line)
	}
	return multiline(strings.Join(lines, "\n"))
}

// payloadText formats a payload's JSON, on one line if it is short, or names the encoding of one that is not JSON.
func payloadText(raw json.RawMessage, encoding string) multiline {
	if len(raw) == 0 {
		if encoding == "" || encoding == "none" {
			return ""
		}
		return multiline("(" + encoding + ": cannot be displayed)")
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) == nil && b.Len() <= maxInlineJSON {
		return multiline(escape(b.String()))
	}
	b.Reset()
	if json.Indent(&b, raw, "", "  ") != nil {
		return multiline(escape(string(raw)))
	}
	return escapeLines(b.String())
}

// field is a name and a value of any type: a column of a table, or one of several lines.
type field struct {
	name  string
	value any
}

// printFields prints the fields that are not empty, one below the other, with the values aligned.
func (s *Session) printFields(fields []field) error {
	width := 0
	texts := make([]string, len(fields))
	for i, f := range fields {
		if texts[i] = s.format(f.value, s.timeAndAge); texts[i] != "" {
			width = max(width, len(f.name))
		}
	}
	indent := "\n" + strings.Repeat(" ", width+2)
	for i, text := range texts {
		if text == "" {
			continue
		}
		text = strings.ReplaceAll(text, "\n", indent)
		if _, err := fmt.Fprintf(s.Stdout, "%-*s  %s\n", width, fields[i].name, text); err != nil {
			return err
		}
	}
	return nil
}

// cut returns a text, or its beginning with its length if it is much longer than [Session.maxText].
func (s *Session) cut(text string) string {
	if s.maxText == 0 || len(text) <= s.maxText+len("… (1234567890 bytes)") {
		return text
	}
	return strings.ToValidUTF8(text[:s.maxText], "") + fmt.Sprintf("… (%d bytes)", len(text))
}

const (
	// maxPageSize is the server's limit for a page.
	maxPageSize = 1000
	// defaultLimit is how many entries a list prints without --limit.
	defaultLimit = 100
)

// paging are the flags of lists.
type paging struct {
	Limit  int    `field:"-" placeholder:"N" help:"List at most this many entries; default 100."`
	All    bool   `field:"-" help:"List all entries."`
	Cursor string `field:"-" placeholder:"CURSOR" help:"Continue an earlier list at its cursor."`
	Order  string `field:"-" enum:",asc,desc" default:"" placeholder:"asc|desc" help:"asc lists the oldest first, desc the newest."`
}

// nonEmpty removes the empty parameters, those of flags that are not set.
func nonEmpty(query url.Values) url.Values {
	maps.DeleteFunc(query, func(_ string, values []string) bool { return strings.Join(values, "") == "" })
	return query
}

// page reads one page of a list.
func (s *Session) page(
	ctx context.Context, path string, query url.Values,
) (data []json.RawMessage, cursor string, err error) {
	var page api.Page[json.RawMessage]
	_, err = s.client.get(ctx, path, query, &page)
	return page.Data, page.Cursor, err
}

// pages reads a list page by page up to the limit, and prints a note if there are more entries.
func (s *Session) pages(
	ctx context.Context, path string, query url.Values, p paging, print func([]json.RawMessage) error,
) error {
	if p.Limit < 0 || p.All && p.Limit != 0 {
		return usageErrorf("--limit is %d; want at least 1, or --all", p.Limit)
	}
	params := nonEmpty(url.Values{"order": {p.Order}, "cursor": {p.Cursor}})
	maps.Copy(params, query)
	for left := cmp.Or(p.Limit, defaultLimit); ; {
		size := maxPageSize
		if !p.All {
			size = min(left, maxPageSize)
		}
		params.Set("limit", strconv.Itoa(size))
		data, cursor, err := s.page(ctx, path, params)
		if err != nil {
			return err
		}
		if err := print(data); err != nil {
			return err
		}
		left -= len(data)
		if cursor == "" {
			return nil
		}
		if !p.All && left <= 0 {
			s.note("more entries: use --all or --cursor %s", cursor)
			return nil
		}
		params.Set("cursor", cursor)
	}
}

// entries is pages for one entry at a time.
func (s *Session) entries(
	ctx context.Context, path string, query url.Values, p paging, print func(json.RawMessage) error,
) error {
	return s.pages(ctx, path, query, p, func(entries []json.RawMessage) error {
		for _, e := range entries {
			if err := print(e); err != nil {
				return err
			}
		}
		return nil
	})
}

// entryPrinter returns a function that prints an entry of a list or stream: as JSON, or decoded by the given function.
func entryPrinter[T any](s *Session, print func(T) error) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		if s.json {
			return s.printJSON(raw)
		}
		var entry T
		if err := s.client.decode(raw, &entry); err != nil {
			return err
		}
		return print(entry)
	}
}

// list prints a paged list.
func list[T row](ctx context.Context, s *Session, path string, query url.Values, p paging) error {
	out := tablePrinter[T]{Session: s, columns: T.columns}
	return s.pages(ctx, path, query, p, out.print)
}

// forEach calls do with each ID and joins the errors. It stops early only if the command is interrupted or the server
// is unreachable.
func forEach(ids []string, do func(id string) error) error {
	var failed []error
	for _, id := range ids {
		if err := do(id); err != nil {
			failed = append(failed, err)
			if code := ExitCode(err); code == ExitInterrupted || code == ExitUnreachable {
				break
			}
		}
	}
	return errors.Join(failed...)
}

// orZero returns what the answer has, or the zero value if it has nothing.
func orZero[T any](optional *T) (v T) {
	if optional != nil {
		v = *optional
	}
	return v
}

// counted returns a number of things: "1 fault" or "2 faults".
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
