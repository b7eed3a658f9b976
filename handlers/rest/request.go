package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/entities/strictjson"
)

// ErrMediaType says that a body is not said to be JSON.
var ErrMediaType = errors.New("the body is not JSON: send it with Content-Type: application/json")

// fault is an [entities.ErrInvalid] that says, for programs to read, where in a request something is wrong.
type fault struct {
	where  string // "field" or "parameter"
	name   string
	reason string // the whole sentence
}

func (f *fault) Error() string           { return f.reason }
func (f *fault) Is(target error) bool    { return target == entities.ErrInvalid }
func (f *fault) Details() map[string]any { return map[string]any{f.where: f.name} }
func badField(name, format string, args ...any) error {
	return &fault{"field", name, name + ": " + fmt.Sprintf(format, args...)}
}
func badParam(name, format string, args ...any) error {
	return &fault{"parameter", name, name + ": " + fmt.Sprintf(format, args...)}
}

// inField and inParam say where it is that an error from below is about; other errors than [entities.ErrInvalid] stay.
func inField(name string, err error) error { return in("field", name, err) }
func inParam(name string, err error) error { return in("parameter", name, err) }

func in(where, name string, err error) error {
	if !errors.Is(err, entities.ErrInvalid) {
		return err
	}
	return &fault{where, name, err.Error()}
}

// refuseUnknown lets requests through that have only the query parameters which the document says, each once
// unless it is a list. An empty one is refused, unless it is an attribute's value: it would count as a missing one, and
// a list would be of more than was meant.
func refuseUnknown(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		query, err := url.ParseQuery(c.Request().URL.RawQuery)
		if err != nil {
			return entities.Invalid("the query is not URL-encoded as it should be")
		}
		known, ok := described().accepted[c.Request().Method+" "+c.Path()]
		if !ok {
			return next(c)
		}
		for name, values := range query {
			i := slices.IndexFunc(known, func(p parameter) bool { return p.is(name) })
			if i < 0 {
				return badParam(name, "there is no such parameter here")
			}
			if len(values) > 1 && known[i].Schema.Type != "array" {
				return badParam(name, "it is given %d times", len(values))
			}
			for _, v := range values {
				if v == "" && known[i].Prefix == "" {
					return badParam(name, "it is empty: give a value, or leave it out")
				}
				if !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl) {
					return badParam(name, "it has control characters or is not UTF-8")
				}
			}
		}
		return next(c)
	}
}

// pathParam is a path parameter that is an ID, decoded: echo hands it out encoded when the path was encoded in any
// way but the usual. What is how errors call it.
func pathParam(c echo.Context, name, what string) (string, error) {
	value, err := pathText(c, name, what)
	if err != nil {
		return "", err
	}
	return value, inParam(name, entities.ValidateID(what, value))
}

// pathText is a path parameter that may be any text, decoded.
func pathText(c echo.Context, name, what string) (string, error) {
	value := c.Param(name)
	if c.Request().URL.RawPath == "" {
		return value, nil
	}
	decoded, err := url.PathUnescape(value)
	if err != nil {
		return "", badParam(name, "the %s is not URL-encoded as it should be", what)
	}
	return decoded, nil
}

// runParam is the path's run ID.
func runParam(c echo.Context) (entities.RunID, error) {
	id, err := pathParam(c, "id", "run ID")
	return entities.RunID(id), err
}

// Pages of lists.
const (
	defaultPage = 100

	oldestFirst = "asc"
	newestFirst = "desc"
)

// page reads limit, cursor and order, which is as given unless the request says.
func page(c echo.Context, order string) (pg.Page, error) {
	p := pg.Page{Limit: defaultPage, Cursor: c.QueryParam("cursor")}
	if s := c.QueryParam("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > pg.MaxPage {
			return p, badParam("limit", "%q is not a number from 1 to %d", s, pg.MaxPage)
		}
		p.Limit = n
	}
	if s := c.QueryParam("order"); s != "" {
		order = s
	}
	if order != oldestFirst && order != newestFirst {
		return p, badParam("order", "%q is neither %s nor %s", order, oldestFirst, newestFirst)
	}
	p.Descending = order == newestFirst
	return p, nil
}

// timeParam reads a query parameter that is a time; the zero time when it is missing.
func timeParam(c echo.Context, name string) (time.Time, error) {
	s := c.QueryParam(name)
	if s == "" {
		return time.Time{}, nil
	}
	t, err := parseTime(s)
	if err != nil {
		return time.Time{}, badParam(name, "%v", err)
	}
	return t, nil
}

func parseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.UTC().Year() < 1 || t.UTC().Year() > 9999 {
		return time.Time{}, fmt.Errorf("%q is not a time like 2026-11-21T01:41:43.197Z", s)
	}
	return t.UTC(), nil
}

// instant is a time in a body; the zero time when it is missing.
type instant time.Time

// UnmarshalJSON implements [json.Unmarshaler].
func (i *instant) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil || string(data) == "null" {
		return errors.New("want a time like \"2026-11-21T01:41:43.197Z\"")
	}
	t, err := parseTime(s)
	*i = instant(t)
	return err
}

// MarshalJSON implements [json.Marshaler].
func (i instant) MarshalJSON() ([]byte, error) { return time.Time(i).MarshalJSON() }

// durationParam reads a query parameter that is a duration of at most limit; missing stands for an absent one.
func durationParam(c echo.Context, name string, missing, limit time.Duration) (time.Duration, error) {
	s := c.QueryParam(name)
	if s == "" {
		return missing, nil
	}
	d, err := parseDuration(s, limit)
	if err != nil {
		return 0, badParam(name, "%v", err)
	}
	return d, nil
}

func parseDuration(s string, limit time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > limit {
		return 0, fmt.Errorf("%q is not a duration like 30s, 5m or 48h, from 0s to %s", s, limit)
	}
	return d, nil
}

// readBody reads a body that is one JSON object, strictly: see [strictjson.Decode].
func readBody(c echo.Context, into any) error {
	data, err := bodyOf(c)
	if err != nil {
		return err
	}
	if len(data) == 0 {
		return entities.Invalid("the body is missing: want a JSON object")
	}
	return strictjson.Decode(data, into)
}

// readOptionalBody is [readBody] where a missing body stands for an empty object.
func readOptionalBody(c echo.Context, into any) error {
	data, err := bodyOf(c)
	if err != nil || len(data) == 0 {
		return err
	}
	return strictjson.Decode(data, into)
}

func bodyOf(c echo.Context) ([]byte, error) {
	r := c.Request()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	data = bytes.TrimSpace(data)
	if given := r.Header.Get(echo.HeaderContentType); len(data) > 0 && given != "" {
		if kind, _, err := mime.ParseMediaType(given); err != nil || kind != echo.MIMEApplicationJSON {
			return nil, ErrMediaType
		}
	}
	if !utf8.Valid(data) {
		return nil, entities.Invalid("the body is not UTF-8")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); len(data) > 0 && err != nil {
		return nil, entities.Invalid("the body is not JSON: %v", err)
	}
	return data, nil
}
