package contract

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// Response is a workflow's response to a webhook request. Its JSON is the only chunk of the stream
// [webhook.ResponseStream].
type Response struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body"`
}

// respond responds to a waiting webhook request: one that a hook of the run has received or, without a hook, the one
// because of which a trigger has started the run. The first response to a request wins.
type respond struct {
	head

	Hook    string            `json:"hook"`
	Request string            `json:"request"`
	Status  *int              `json:"status"`
	Headers map[string]string `json:"headers"`
	// At most one of these is set: the body as a JSON value, as text, or as bytes.
	Body       json.RawMessage `json:"body"`
	Text       *string         `json:"text"`
	BodyBase64 []byte          `json:"bodyBase64"`
}

func (*respond) requests(Planner) ([]eventlog.Request, error) { return nil, nil }

// stream returns the stream that stores the response.
func (c *respond) stream(planner Planner) (eventlog.WholeStream, error) {
	r, err := c.response()
	if c.Hook != "" {
		err = cmp.Or(entities.ValidateID("hook", c.Hook), err)
	}
	if err = cmp.Or(entities.ValidateID("request", c.Request), err); err != nil {
		return eventlog.WholeStream{}, err
	}
	data, err := json.Marshal(r)
	return eventlog.WholeStream{
		Name: webhook.ResponseStream(planner.Run.ID, entities.HookID(c.Hook), c.Request), Data: data,
	}, err
}

// response validates the response and fills in the defaults.
func (c *respond) response() (Response, error) {
	r := Response{Status: http.StatusOK, Headers: map[string]string{}}
	if c.Status != nil {
		r.Status = *c.Status
	}
	if r.Status < 200 || r.Status > 599 {
		return r, entities.Invalid("status %d is not from 200 to 599", r.Status)
	}
	kind, err := c.content(&r)
	if err != nil {
		return r, err
	}
	if kind != "" {
		r.Headers["Content-Type"] = kind
	}
	for name, value := range c.Headers {
		if err := checkHeader(name, value); err != nil {
			return r, err
		}
		r.Headers[textproto.CanonicalMIMEHeaderKey(name)] = value
	}
	if r.Body != nil && (r.Status == http.StatusNoContent || r.Status == http.StatusNotModified) {
		return r, entities.Invalid("a response with status %d cannot have a body", r.Status)
	}
	return r, nil
}

// content sets the body and returns the default content type.
func (c *respond) content(r *Response) (kind string, err error) {
	given := 0
	if c.Body != nil {
		given, kind, r.Body = given+1, "application/json", c.Body
	}
	if c.Text != nil {
		given, kind, r.Body = given+1, "text/plain; charset=utf-8", []byte(*c.Text)
	}
	if c.BodyBase64 != nil {
		given, kind, r.Body = given+1, "application/octet-stream", c.BodyBase64
	}
	if given > 1 {
		return "", entities.Invalid(`want at most one of "body", "text" and "bodyBase64"`)
	}
	return kind, nil
}

// reserved are the headers that the server itself sets.
var reserved = map[string]bool{
	"Connection": true, "Content-Length": true, "Date": true, "Keep-Alive": true, "Proxy-Authenticate": true,
	"Proxy-Connection": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// checkHeader rejects headers that HTTP cannot carry unchanged, reserved headers, and those that affect more than the
// response.
func checkHeader(name, value string) error {
	if name == "" || strings.ContainsFunc(name, notInName) {
		return entities.Invalid("%q is not a valid header name", name)
	}
	if reserved[textproto.CanonicalMIMEHeaderKey(name)] || webhook.SharedHeader(name) {
		return entities.Invalid("header %s cannot be set by workflows", name)
	}
	if strings.ContainsFunc(value, notInValue) {
		return entities.Invalid("header %s contains characters other than printable ASCII", name)
	}
	return nil
}

// notInName reports whether a character is not allowed in a token (RFC 9110 §5.6.2).
func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
		!strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}
