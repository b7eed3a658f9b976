package rest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/capacity/share"
	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/strictjson"
	"github.com/stepwell-dev/stepwell/eventlog/read"
	"github.com/stepwell-dev/stepwell/handlers/auth"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
	"github.com/stepwell-dev/stepwell/handlers/rest/api"
	"github.com/stepwell-dev/stepwell/pg"
)

// ErrUnsupportedMediaType is returned for a body whose Content-Type is not JSON.
var ErrUnsupportedMediaType = errors.New("the body is not JSON: send it with Content-Type: application/json")

// validationError is an [entities.ErrInvalid] that names the invalid field or parameter in its details.
type validationError struct {
	kind    string // "field" or "parameter"
	name    string
	message string
}

func (e *validationError) Error() string           { return e.message }
func (e *validationError) Is(target error) bool    { return target == entities.ErrInvalid }
func (e *validationError) Details() map[string]any { return map[string]any{e.kind: e.name} }

func badField(name, format string, args ...any) error {
	return &validationError{"field", name, name + ": " + fmt.Sprintf(format, args...)}
}

func badParam(name, format string, args ...any) error {
	return &validationError{"parameter", name, name + ": " + fmt.Sprintf(format, args...)}
}

// inField and inParam add the name of a field or parameter to an [entities.ErrInvalid]. Other errors stay as they are.
func inField(name string, err error) error { return locate("field", name, err) }
func inParam(name string, err error) error { return locate("parameter", name, err) }

func locate(kind, name string, err error) error {
	if !errors.Is(err, entities.ErrInvalid) {
		return err
	}
	return &validationError{kind, name, err.Error()}
}

// request reads the parameters and the body of one request. It keeps the first error, so handlers read all they need
// and then check err once. After an error the values it returns must not be used.
type request struct {
	echo.Context

	err        error
	reader     pg.Querier
	decoding   decoding
	pages      pages
	processors *share.Processors
	rows       int // at most as many are in the answer
}

func (r *request) ctx() context.Context { return r.Request().Context() }

func (r *request) project() entities.Project { return auth.Project(r) }

// payloads tells whether the client may see payloads.
func (r *request) payloads() read.Payloads {
	if auth.IdentityOf(r).SeesPayloads() {
		return read.WithPayloads
	}
	return read.WithoutPayloads
}

// fail records an error unless there is an earlier one. A nil error changes nothing.
func (r *request) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// setStatus sets the status of an answer that is no error.
func (r *request) setStatus(status int) { r.Response().Status = status }

// setCreated makes the status 201 if the request has created what it is about, and not replaced it.
func (r *request) setCreated(created bool) {
	if created {
		r.setStatus(http.StatusCreated)
	}
}

// setCreatedAt makes the status 201, with the path of what the request has created.
func (r *request) setCreatedAt(path string) {
	r.setStatus(http.StatusCreated)
	r.Response().Header().Set(echo.HeaderLocation, path)
}

// setCreatedSecret makes the status 201. Only this answer has the secret.
func (r *request) setCreatedSecret() {
	r.setStatus(http.StatusCreated)
	r.Response().Header().Set(echo.HeaderCacheControl, "no-store")
}

// pathText returns a decoded path parameter, which may be any text. The label names it in errors.
func (r *request) pathText(name, label string) string {
	value, err := incoming.PathParam(r, name)
	if err != nil {
		r.fail(badParam(name, "the %s is not URL-encoded correctly", label))
	}
	return value
}

// pathID returns a decoded path parameter that must be a valid ID. The label names it in errors.
func (r *request) pathID(name, label string) string {
	return r.pathAs(name, label, entities.ValidateID)
}

// pathAs returns a decoded path parameter that must be valid. The label names it in errors.
func (r *request) pathAs(name, label string, validate func(label, value string) error) string {
	value := r.pathText(name, label)
	r.fail(inParam(name, validate(label, value)))
	return value
}

func (r *request) runID() entities.RunID { return entities.RunID(r.pathID("id", "run ID")) }

// run returns the run whose ID is in the path.
func (r *request) run() entities.Run {
	id := r.runID()
	if r.err != nil {
		return entities.Run{}
	}
	run, err := r.findRun(id)
	r.fail(err)
	return run
}

// Pages of lists.
const (
	defaultPage = 100

	oldestFirst = "asc"
	newestFirst = "desc"
)

// page returns the limit, cursor and order parameters. The request's order overrides the given default.
func (r *request) page(order string) pg.Page {
	p := pg.Page{Limit: defaultPage, Cursor: r.QueryParam("cursor")}
	if s := r.QueryParam("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > pg.MaxPage {
			r.fail(badParam("limit", "%q is not a number from 1 to %d", s, pg.MaxPage))
		}
		p.Limit = n
	}
	r.rows = p.Limit
	order = cmp.Or(r.QueryParam("order"), order)
	if order != oldestFirst && order != newestFirst {
		r.fail(badParam("order", "%q is neither %s nor %s", order, oldestFirst, newestFirst))
	}
	p.Descending = order == newestFirst
	return p
}

// time returns a query parameter that is a time, or the zero time if it is missing.
func (r *request) time(name string) time.Time {
	s := r.QueryParam(name)
	if s == "" {
		return time.Time{}
	}
	t, err := api.ParseTime(s)
	if err != nil {
		r.fail(badParam(name, "%v", err))
	}
	return t
}

// duration returns a query parameter that is a duration of at most limit, or missing if there is none.
func (r *request) duration(name string, missing, limit time.Duration) time.Duration {
	s := r.QueryParam(name)
	if s == "" {
		return missing
	}
	d, err := parseDuration(s, limit)
	if err != nil {
		r.fail(badParam(name, "%v", err))
	}
	return d
}

// number parses the non-negative value of the parameter or header name; an empty text is 0. The label names the value
// in errors.
func (r *request) number(name, text, label string) int64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		r.fail(badParam(name, "%q is not %s", text, label))
	}
	return n
}

// flag returns a query parameter that is true or false, or missing if there is none.
func (r *request) flag(name string, missing bool) bool {
	switch text := r.QueryParam(name); text {
	case "":
		return missing
	case "true", "false":
		return text == "true"
	default:
		r.fail(badParam(name, "%q is neither true nor false", text))
		return false
	}
}

// after returns the position after which events are wanted.
func (r *request) after() int64 { return r.number("after", r.QueryParam("after"), eventPosition) }

// lastEventID returns the ID of the last server-sent event that a reconnecting client received.
func (r *request) lastEventID() string { return r.Request().Header.Get("Last-Event-ID") }

// body decodes the body, which must be one JSON object, strictly: see [strictjson.Decode].
func (r *request) body(into any) {
	data := r.rawBody()
	if r.err == nil && len(data) == 0 {
		r.err = entities.Invalid("the body is missing: want a JSON object")
	}
	if r.err == nil {
		r.err = r.processors.Use(r.ctx(), int64(len(data)), func() error { return strictjson.Decode(data, into) })
	}
}

// optionalBody is [request.body] where a missing body means an empty object.
func (r *request) optionalBody(into any) {
	if data := r.rawBody(); r.err == nil && len(data) > 0 {
		r.err = r.processors.Use(r.ctx(), int64(len(data)), func() error { return strictjson.Decode(data, into) })
	}
}

// rawBody returns the body without surrounding white space. It is empty or one JSON value.
func (r *request) rawBody() []byte {
	if r.err != nil {
		return nil
	}
	var body bytes.Buffer
	body.Grow(int(max(0, r.Request().ContentLength)) + bytes.MinRead) // large bodies would be copied several times
	if _, err := body.ReadFrom(r.Request().Body); err != nil {
		r.err = fmt.Errorf("read body: %w", err)
		return nil
	}
	data := bytes.TrimSpace(body.Bytes())
	r.err = r.processors.Use(r.ctx(), int64(len(data)), func() error {
		return checkJSON(data, r.Request().Header.Get(echo.HeaderContentType))
	})
	return data
}

// checkJSON accepts an empty body, and JSON in UTF-8 whose content type is JSON or missing.
func checkJSON(data []byte, contentType string) error {
	if len(data) == 0 {
		return nil
	}
	if contentType != "" {
		if kind, _, err := mime.ParseMediaType(contentType); err != nil || kind != echo.MIMEApplicationJSON {
			return ErrUnsupportedMediaType
		}
	}
	if !utf8.Valid(data) {
		return entities.Invalid("the body is not UTF-8")
	}
	if json.Valid(data) { // without a copy
		return nil
	}
	var value json.RawMessage
	return entities.Invalid("the body is not JSON: %v", json.Unmarshal(data, &value))
}

// instantOf returns a time of a body in milliseconds, as times are stored; nil if the field is missing.
func instantOf(i api.Instant) *time.Time {
	if i.IsZero() {
		return nil
	}
	return new(i.UTC().Truncate(time.Millisecond))
}

// durationField returns a duration in a field of a body; 0 if it is missing.
func durationField(name, s string, limit time.Duration) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := parseDuration(s, limit)
	if err != nil {
		return 0, badField(name, "%v", err)
	}
	return d, nil
}

// checkNameField and checkIDField check a name and an ID in a field of a body, which may be missing.
func checkNameField(name, s string) error { return checkField(name, s, entities.ValidateName) }
func checkIDField(name, s string) error   { return checkField(name, s, entities.ValidateID) }

func checkField(name, s string, validate func(what, s string) error) error {
	if s == "" {
		return nil
	}
	return inField(name, validate(name, s))
}

func parseDuration(s string, limit time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > limit {
		return 0, fmt.Errorf("%q is not a duration like 30s, 5m or 48h, from 0s to %s", s, limit)
	}
	return d, nil
}

// decodingFactor is the factor of [share.Pool] by which projects share the slots for decoding: one that is alone gets
// half of them.
const decodingFactor = 1

// decoding shares the processors among the requests that decode payloads, which can take most of a second each. It has
// slots for half of the processors. After each use a slot stays empty for as long as the use took. So a project keeps
// at most an eighth of the processors busy, or half of one.
type decoding struct {
	slots *share.Pool
	now   func() time.Time
}

func newDecoding(processors int, now func() time.Time) decoding {
	return decoding{share.NewPool(2 * max(1, int64(processors)/4)), now}
}

// do waits for a slot and calls decode. It fails with the error of the context if that ends first.
func (d decoding) do(ctx context.Context, project entities.Project, decode func()) error {
	if err := d.slots.Take(ctx, string(project), 1, decodingFactor); err != nil {
		return err
	}
	start := d.now()
	defer func() {
		time.AfterFunc(d.now().Sub(start), func() { d.slots.Release(string(project), 1) })
	}()
	decode()
	return nil
}

// decodeFor returns the result of a function that decodes payloads for the request. It waits for other decoding, and
// fails with the error of the request's context once the client has left.
func decodeFor[T any](r *request, decode func() T) (decoded T, err error) {
	if err := r.ctx().Err(); err != nil {
		return decoded, err
	}
	err = r.decoding.do(r.ctx(), r.project(), func() { decoded = decode() })
	return decoded, err
}
