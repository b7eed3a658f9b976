package contract

import (
	"encoding/json"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/eventlog"
)

// Response is what a workflow answers a webhook's request with. As JSON it is the one chunk of the stream
// [webhook.ResponseStream].
type Response struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body"`
}

// respond answers a webhook's request that waits. The first answer to a request counts.
type respond struct {
	head

	Hook    string            `json:"hook"`
	Request string            `json:"request"`
	Status  *int              `json:"status"`
	Headers map[string]string `json:"headers"`
	// At most one of these says what the body is: a JSON value, a text, or bytes.
	Body       json.RawMessage `json:"body"`
	Text       *string         `json:"text"`
	BodyBase64 []byte          `json:"bodyBase64"`
}

func (*respond) requests(Scene) ([]eventlog.Request, error) { return nil, nil }

// stream is the response as it is stored.
func (c *respond) stream(s Scene) (eventlog.WholeStream, error) {
	fail := func(err error) (eventlog.WholeStream, error) { return eventlog.WholeStream{}, err }
	if err := entities.ValidateID("hook", c.Hook); err != nil {
		return fail(err)
	}
	if err := entities.ValidateID("request", c.Request); err != nil {
		return fail(err)
	}
	r, err := c.response()
	if err != nil {
		return fail(err)
	}
	data, err := json.Marshal(r)
	return eventlog.WholeStream{
		Name: webhook.ResponseStream(s.Run.ID, entities.HookID(c.Hook), c.Request), Data: data,
	}, err
}

// response checks that it can be sent, and completes it.
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
		return r, entities.Invalid("an answer with status %d has no body", r.Status)
	}
	return r, nil
}

// content sets the body and returns what it is called if nothing else is said.
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

// reserved are headers that are the server's business, or that would mean something to all of its origin.
var reserved = map[string]bool{
	"Connection": true, "Content-Length": true, "Date": true, "Keep-Alive": true, "Proxy-Authenticate": true,
	"Proxy-Connection": true, "Set-Cookie": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Clear-Site-Data": true, "Strict-Transport-Security": true, "Public-Key-Pins": true, "Alt-Svc": true,
	"Service-Worker-Allowed": true,
}

// checkHeader refuses what HTTP would not carry as it is, and what is not for workflows to say.
func checkHeader(name, value string) error {
	if name == "" || strings.ContainsFunc(name, notInName) {
		return entities.Invalid("header %q is no name of one", name)
	}
	if reserved[textproto.CanonicalMIMEHeaderKey(name)] {
		return entities.Invalid("header %s is not the workflow's to set", name)
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f }) {
		return entities.Invalid("header %s has other than printable ASCII characters", name)
	}
	return nil
}

// notInName is about the names of headers, which are tokens of HTTP.
func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
		!strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}
