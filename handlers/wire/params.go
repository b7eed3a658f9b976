package wire

import (
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/pg"
	"github.com/stepwell-dev/stepwell/eventlog/read"
)

// param is a path parameter, decoded (§1.6). Echo hands it out encoded when the path was encoded in any
// way but the usual.
func param(c echo.Context, name string) (string, error) {
	value := c.Param(name)
	if c.Request().URL.RawPath != "" {
		decoded, err := url.PathUnescape(value)
		if err != nil {
			return "", entities.Invalid("path: %s is not URL-encoded as it should be", name)
		}
		value = decoded
	}
	return clean(name, value)
}

// runParam is the path's run ID.
func runParam(c echo.Context) (entities.RunID, error) {
	id, err := param(c, "runId")
	return entities.RunID(id), err
}

// query is a query parameter; empty when it is missing.
func query(c echo.Context, name string) (string, error) {
	return clean(name, c.QueryParam(name))
}

// clean refuses text that the database could not even be asked about.
func clean(name, value string) (string, error) {
	if !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) {
		return "", entities.Invalid("%s has control characters or is not UTF-8", name)
	}
	return value, nil
}

// page reads limit, cursor and sortOrder (§2.4). Limits beyond the maximum are cut to it.
func page(c echo.Context, limit int, order string) (pg.Page, error) {
	p := pg.Page{Limit: limit}
	var err error
	if p.Cursor, err = query(c, "cursor"); err != nil {
		return p, err
	}
	if s := c.QueryParam("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return p, entities.Invalid("limit %q is not a positive number", s)
		}
		p.Limit = min(n, pg.MaxPage)
	}
	if s := c.QueryParam("sortOrder"); s != "" {
		order = s
	}
	switch order {
	case "asc":
	case "desc":
		p.Descending = true
	default:
		return p, entities.Invalid("sortOrder %q is neither asc nor desc", order)
	}
	return p, nil
}

// milliseconds reads a query parameter that counts milliseconds; 0 when it is missing.
func milliseconds(c echo.Context, name string) (time.Duration, error) {
	s := c.QueryParam(name)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return 0, entities.Invalid("%s: %q is not a whole number of milliseconds", name, s)
	}
	return time.Duration(n) * time.Millisecond, nil
}

// listParams reads what every list of things with payloads may be asked: which page, and how.
func listParams(c echo.Context, limit int, order string) (pg.Page, read.Payloads, error) {
	p, err := page(c, limit, order)
	if err != nil {
		return p, false, err
	}
	with, err := payloads(c)
	return p, with, err
}

const (
	refsLazy    = "lazy"
	refsResolve = "resolve"
)

// payloads reads remoteRefBehavior: whether the answer should carry the users' data.
func payloads(c echo.Context) (read.Payloads, error) {
	return payloadsFor(c.QueryParam("remoteRefBehavior"))
}

func payloadsFor(behavior string) (read.Payloads, error) {
	switch behavior {
	case refsLazy:
		return read.WithoutPayloads, nil
	case refsResolve, "":
		return read.WithPayloads, nil
	default:
		return false, entities.Invalid("remoteRefBehavior %q is neither lazy nor resolve", behavior)
	}
}

// stableLine reports whether the caller is a client of the stable line, which reads lists in its own way.
func stableLine(c echo.Context) bool {
	return strings.HasPrefix(c.Request().UserAgent(), "@workflow/world-vercel/4")
}
