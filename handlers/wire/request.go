package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/codec"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/pg"
)

// request reads the parameters of one request. It keeps the first error, so handlers read all they need and then check
// err once. After an error the values it returns must not be used.
type request struct {
	echo.Context

	err error
}

func (r *request) ctx() context.Context { return r.Request().Context() }

func (r *request) project() entities.Project { return auth.Project(r) }

// fail records an error unless there is an earlier one. A nil error changes nothing.
func (r *request) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// param returns a decoded path parameter (§1.6).
func (r *request) param(name string) string {
	value, err := incoming.PathParam(r, name)
	if err != nil {
		r.fail(entities.Invalid("path: %s is not URL-encoded correctly", name))
	}
	r.fail(checkText(name, value))
	return value
}

// runID returns the run ID in the path.
func (r *request) runID() entities.RunID { return entities.RunID(r.param("runId")) }

// query returns a query parameter, or an empty string if it is missing.
func (r *request) query(name string) string {
	value := r.QueryParam(name)
	r.fail(checkText(name, value))
	return value
}

// required returns a query parameter that must not be empty.
func (r *request) required(name string) string {
	value := r.query(name)
	if value == "" {
		r.fail(entities.Invalid("%s is missing", name))
	}
	return value
}

// checkText rejects text that cannot be a query parameter of Postgres.
func checkText(name, value string) error {
	if !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) {
		return entities.Invalid("%s contains control characters or is not UTF-8", name)
	}
	return nil
}

const (
	oldestFirst = "asc"
	newestFirst = "desc"
)

// page returns the parameters limit, cursor and sortOrder (§2.4), with the given defaults. A limit above the maximum is
// reduced to it.
func (r *request) page(limit int, order string) pg.Page {
	p := pg.Page{Limit: limit, Cursor: r.query("cursor")}
	if s := r.QueryParam("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			r.fail(entities.Invalid("limit %q is not a positive number", s))
		}
		p.Limit = min(n, pg.MaxPage)
	}
	other := newestFirst
	if order == newestFirst {
		other = oldestFirst
	}
	p.Descending = r.oneOf("sortOrder", order, other) == newestFirst
	return p
}

// pageUpTo is [request.page], but rejects a limit above the maximum.
func (r *request) pageUpTo(most, limit int, order string) pg.Page {
	p := r.page(limit, order)
	if n, err := strconv.Atoi(r.QueryParam("limit")); err == nil && n > most {
		r.fail(entities.Invalid("limit %d exceeds the maximum of %d", n, most))
	}
	return p
}

// wholeUnits parses a whole number of units, such as seconds; an empty text is 0. The name is for errors.
func wholeUnits(name, text string, unit time.Duration, units string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, entities.Invalid("%s: %q is not a whole number of %s", name, text, units)
	}
	return time.Duration(n) * unit, nil
}

// ErrUnknownValue refuses a value of a query parameter that is none of those that it may have. Clients repeat the
// request without a value that only later servers know (§1.5).
var ErrUnknownValue = errors.New("unknown value")

// oneOf returns a query parameter that must have one of the values, or the first of them if it is missing.
func (r *request) oneOf(name string, values ...string) string {
	given := cmp.Or(r.QueryParam(name), values[0])
	if !slices.Contains(values, given) {
		r.fail(fmt.Errorf("%s: %w %q: use one of %s", name, ErrUnknownValue, given,
			strings.TrimPrefix(strings.Join(values, ", "), ", ")))
	}
	return given
}

// The values of remoteRefBehavior: which payloads an answer has.
const (
	allPayloads    = "resolve"
	noPayloads     = "lazy"
	skipStepInputs = "skip-step-inputs"
)

// payloads returns whether an answer about anything but a list of events includes payloads. An event or a step alone
// has its input always.
func (r *request) payloads() read.Payloads {
	if r.oneOf("remoteRefBehavior", allPayloads, noPayloads, skipStepInputs) == noPayloads {
		return read.WithoutPayloads
	}
	return read.WithPayloads
}

// eventPayloads returns which payloads a list of events includes.
func (r *request) eventPayloads() read.Payloads {
	return eventPayloads(r.oneOf("remoteRefBehavior", allPayloads, noPayloads, skipStepInputs))
}

// eventPayloads returns which payloads a list of events includes by a value that may be unknown.
func eventPayloads(behavior string) read.Payloads {
	switch behavior {
	case noPayloads:
		return read.WithoutPayloads
	case skipStepInputs:
		return read.WithoutStepInputs
	default:
		return read.WithPayloads
	}
}

// bytes returns the body.
func (r *request) bytes() []byte {
	if r.err != nil {
		return nil
	}
	data, err := io.ReadAll(r.Request().Body)
	if err != nil {
		r.err = fmt.Errorf("read body: %w", err)
	}
	return data
}

// body decodes the body, which must be one CBOR item.
func (r *request) body(into any) {
	if data := r.bytes(); r.err == nil {
		r.err = codec.Unmarshal(data, into)
	}
}

// stableLine reports whether the client is of the stable line, which reads the end of lists differently (§2.4).
func (r *request) stableLine() bool {
	return strings.HasPrefix(r.Request().UserAgent(), "@workflow/world-vercel/4")
}
