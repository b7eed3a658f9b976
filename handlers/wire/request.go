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

// param returns a decoded path parameter (§1.6). Echo does not decode parameters if the encoding of the path is not the
// default one.
func param(c echo.Context, name string) (string, error) {
	value := c.Param(name)
	if c.Request().URL.RawPath != "" {
		decoded, err := url.PathUnescape(value)
		if err != nil {
			return "", entities.Invalid("path: %s is not URL-encoded correctly", name)
		}
		value = decoded
	}
	return clean(name, value)
}

// runParam returns the run ID in the path.
func runParam(c echo.Context) (entities.RunID, error) {
	id, err := param(c, "runId")
	return entities.RunID(id), err
}

// query returns a query parameter, or an empty string if it is missing.
func query(c echo.Context, name string) (string, error) {
	return clean(name, c.QueryParam(name))
}

// clean rejects text that cannot be a query parameter of Postgres.
func clean(name, value string) (string, error) {
	if !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) {
		return "", entities.Invalid("%s contains control characters or is not UTF-8", name)
	}
	return value, nil
}

// page parses limit, cursor and sortOrder (§2.4). A limit above the maximum is reduced to it.
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

// milliseconds parses a query parameter in milliseconds, or returns 0 if it is missing.
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

// listParams parses the parameters of lists with payloads: the page, and whether to include payloads.
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

// payloads parses remoteRefBehavior: whether the answer includes payloads.
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

// stableLine reports whether the client is of the stable line, which reads the end of lists differently (§2.4).
func stableLine(c echo.Context) bool {
	return strings.HasPrefix(c.Request().UserAgent(), "@workflow/world-vercel/4")
}
