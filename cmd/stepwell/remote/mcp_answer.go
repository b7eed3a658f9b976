package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// How much an answer takes of a model's context, in bytes of JSON; four are about a token.
const (
	// maxAnswer bounds an answer: its text, and its JSON.
	maxAnswer = 16 << 10
	// entryBudget is what an entry of a list should take, and objectBudget an object. A text full of characters that
	// JSON escapes may take six times maxText more.
	entryBudget, objectBudget = 4 << 10, 8 << 10
	// maxText bounds a text in an object.
	maxText = 1 << 10
	// maxToolError bounds the text of an error.
	maxToolError = 4 << 10

	defaultEntries, maxEntries = 20, 100
)

// answer is what a tool returns: a text for the model, and an object with the same. Neither is longer than maxAnswer.
type answer struct {
	text string
	data any
}

// toolHints say what a model can do, by error code, where the hints of commands name commands.
var toolHints = map[string]string{
	"run_not_found":   "list_runs shows the runs",
	"hook_not_found":  "list_hooks shows the open hooks",
	"event_not_found": "run_log shows the events",
	"run_ended":       "rerun_run and fork_run start another run",
	"unauthorized":    "ask the person who set this server up for a valid STEPWELL_API_KEY",
	"forbidden":       "whoami shows the role of the key; ask the person who set this server up for another key",
}

// toolError returns the error as an answer that the model sees: the message, what to do, and the code of the API.
func toolError(err error) *mcp.CallToolResult {
	text, data := err.Error(), map[string]any{}
	if failed, ok := errors.AsType[*serverError](err); ok {
		if hint := toolHints[failed.code]; hint != "" {
			text = fmt.Sprintf("%s: %s (%s)", failed.message, hint, failed.code)
		}
		data["status"], data["code"] = failed.status, failed.code
	}
	text = cutText(text, maxToolError)
	data["message"] = text
	return &mcp.CallToolResult{
		IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}, StructuredContent: data,
	}
}

// toolPage are the arguments of tools that list.
type toolPage struct {
	Limit  int    `json:"limit,omitempty" jsonschema:"At most this many entries: default 20, up to 100."`
	Cursor string `json:"cursor,omitempty" jsonschema:"The cursor of an earlier answer, to go on with it."`
}

// listAnswer answers with a page of a list, as text by print. If its entries are too long together, it asks for fewer,
// so that the cursor goes on right after the last that it returns.
func listAnswer[T any](
	ctx context.Context, s *Session, path string, query url.Values, p toolPage, print func(*Session, []T) string,
) (answer, error) {
	limit := defaultEntries
	if p.Limit > 0 {
		limit = min(p.Limit, maxEntries)
	}
	query = maps.Clone(query)
	if query == nil {
		query = url.Values{}
	}
	if p.Cursor != "" {
		query.Set("cursor", p.Cursor)
	}
	for {
		query.Set("limit", strconv.Itoa(limit))
		entries, cursor, err := s.page(ctx, path, query)
		if err != nil {
			return answer{}, err
		}
		kept, err := fitting(entries)
		if err != nil {
			return answer{}, err
		}
		text, err := entriesText(s, kept, print)
		if err != nil {
			return answer{}, err
		}
		fit := len(kept)
		if len(text) > maxAnswer {
			fit /= 2
		}
		if fit < len(entries) && limit > 1 {
			limit = max(1, min(limit-1, fit))
			continue
		}
		data, more := map[string]any{"data": kept}, ""
		if cursor != "" {
			data["cursor"], more = cursor, "more: call again with the cursor "+cursor
		}
		return answer{text: joinLines(cutText(text, maxAnswer), more), data: data}, nil
	}
}

// wholeListAnswer is listAnswer for a list that the API returns in one response. It says how many entries do not fit.
func wholeListAnswer[T any](
	ctx context.Context, s *Session, path string, query url.Values, print func(*Session, []T) string,
) (answer, error) {
	entries, _, err := s.page(ctx, path, query)
	if err != nil {
		return answer{}, err
	}
	kept, err := fitting(entries)
	if err != nil {
		return answer{}, err
	}
	text, err := entriesText(s, kept, print)
	data, more := map[string]any{"data": kept}, ""
	if n := len(entries) - len(kept); n > 0 {
		data["leftOut"], more = n, fmt.Sprintf("%d more are left out", n)
	}
	return answer{text: joinLines(cutText(text, maxAnswer), more), data: data}, err
}

// entriesText returns entries as text, or says that there are none.
func entriesText[T any](s *Session, entries []json.RawMessage, print func(*Session, []T) string) (string, error) {
	if len(entries) == 0 {
		return "none", nil
	}
	items := make([]T, len(entries))
	for i, raw := range entries {
		if err := s.client.decode(raw, &items[i]); err != nil {
			return "", err
		}
	}
	return print(s, items), nil
}

// joinLines puts what is not empty on lines of its own.
func joinLines(texts ...string) string {
	texts = slices.DeleteFunc(texts, func(text string) bool { return text == "" })
	for i, text := range texts {
		texts[i] = strings.TrimRight(text, "\n")
	}
	return strings.Join(texts, "\n")
}

// rows prints a table without alignment: spaces would take context.
func rows[T any](columns []column[T]) func(*Session, []T) string {
	return func(s *Session, items []T) string {
		var b strings.Builder
		for i, c := range columns {
			b.WriteString(separator(i) + c.head)
		}
		for _, item := range items {
			b.WriteByte('\n')
			for i, c := range columns {
				b.WriteString(separator(i) + s.formatCell(c.cell(item)))
			}
		}
		return b.String()
	}
}

func separator(i int) string {
	if i == 0 {
		return ""
	}
	return " | "
}

// fitting returns as many of the first entries as fit into an answer, shortened; at least one.
func fitting(entries []json.RawMessage) (kept []json.RawMessage, err error) {
	kept = []json.RawMessage{}
	used := 0
	for i, raw := range entries {
		short, err := shortened(raw, entryBudget)
		if err != nil {
			return nil, err
		}
		if used += len(short) + 1; used > maxAnswer && i > 0 {
			break
		}
		kept = append(kept, short)
	}
	return kept, nil
}

// objectAnswer answers with an object, as text by print.
func objectAnswer[T any](s *Session, raw json.RawMessage, print func(*Session, T) error) (answer, error) {
	short, err := shortened(raw, objectBudget)
	if err != nil {
		return answer{}, err
	}
	var object struct {
		Shortened bool `json:"shortened"`
	}
	var value T
	var b bytes.Buffer
	to := *s
	to.Stdout = &b
	if err := errors.Join(s.client.decode(short, &object), s.client.decode(short, &value)); err != nil {
		return answer{}, err
	}
	if err := print(&to, value); err != nil {
		return answer{}, err
	}
	note := ""
	if object.Shortened {
		note = "(shortened: run_log lists the events with the payloads, and read_payload reads one)"
	}
	return answer{text: cutText(joinLines(b.String(), note), maxAnswer), data: short}, nil
}

// shortened returns a JSON object in about budget bytes. Its field shortened says whether something is missing.
func shortened(raw json.RawMessage, budget int) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return nil, fmt.Errorf("unexpected response: %w", err)
	}
	var c shortener
	short, _ := c.object(object, budget)
	if c.missing {
		short["shortened"] = true
	}
	return json.Marshal(short)
}

// shortener makes JSON short: it cuts texts, and leaves out what is too much of lists and objects. So values keep their
// types.
type shortener struct{ missing bool }

// value returns what fits of a value, and its length.
func (c *shortener) value(v any, budget int) (short any, used int) {
	switch v := v.(type) {
	case string:
		text := cutText(v, max(0, min(maxText, budget)))
		c.missing = c.missing || text != v
		return text, encodedLen(text)
	case []any:
		return c.list(v, budget)
	case map[string]any:
		return c.object(v, budget)
	case json.Number:
		if len(v) > maxText {
			c.missing = true
			return nil, 4
		}
		return v, len(v)
	default:
		return v, 5
	}
}

func (c *shortener) list(list []any, budget int) (short []any, used int) {
	short, used = []any{}, 2
	for _, v := range list {
		if used >= budget {
			c.missing = true
			break
		}
		s, n := c.value(v, budget-used)
		short, used = append(short, s), used+n+1
	}
	return short, used
}

// object takes texts, numbers and the like first, and then gives each list and object half of what is left.
func (c *shortener) object(object map[string]any, budget int) (short map[string]any, used int) {
	short, used = make(map[string]any, min(len(object), budget)), 2
	for _, nested := range []bool{false, true} {
		for _, key := range slices.Sorted(maps.Keys(object)) {
			if isNested(object[key]) != nested {
				continue
			}
			left := budget - used - encodedLen(key) - 2
			if left <= 0 {
				c.missing = true
				continue
			}
			if nested {
				left /= 2
			}
			s, n := c.value(object[key], left)
			short[key], used = s, used+n+encodedLen(key)+2
		}
	}
	return short, used
}

func isNested(v any) bool {
	switch v.(type) {
	case []any, map[string]any:
		return true
	default:
		return false
	}
}

// encodedLen is how many bytes a text takes in JSON.
func encodedLen(text string) int {
	data, _ := json.Marshal(text) // a text can be encoded
	return len(data)
}

// cutText returns a text, or its beginning with its length if it has many more bytes than limit.
func cutText(text string, limit int) string {
	if len(text) <= limit+len("… (1234567890 bytes)") {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + fmt.Sprintf("… (%d bytes)", len(text))
}
