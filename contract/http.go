package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/stepwell-dev/stepwell/entities"
)

const (
	// maxURL limits the URL of an HTTP step, in bytes.
	maxURL = 8 << 10
	// maxHeaders limits the headers of an HTTP step, and maxHeader the value of each, in bytes.
	maxHeaders = 50
	maxHeader  = 8 << 10
	// MaxStatuses limits the lists of statuses.
	MaxStatuses = 50
)

// HTTPRequest is the request of a step that the server executes by itself. It is the input of the step in the log.
type HTTPRequest struct {
	// Method is GET, HEAD, POST, PUT, PATCH or DELETE. The default is POST if there is a body, else GET.
	Method  string                `json:"method"`
	URL     string                `json:"url"`
	Headers map[string]HTTPHeader `json:"headers,omitempty"`
	// Body is sent as JSON; nil for none.
	Body json.RawMessage `json:"body,omitempty"`
}

// HTTPHeader is the value of a header: a text, or a secret of the project after a prefix such as "Bearer ". In JSON it
// is a text, or {"secret": …, "prefix": …}.
type HTTPHeader struct {
	Text           string
	Secret, Prefix string
}

type secretHeader struct {
	Secret string `json:"secret"`
	Prefix string `json:"prefix,omitempty"`
}

// UnmarshalJSON implements [json.Unmarshaler].
func (h *HTTPHeader) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte(`"`)) {
		return json.Unmarshal(text, &h.Text)
	}
	var s secretHeader
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil || s.Secret == "" {
		return entities.Invalid(`a header is a text or {"secret": "NAME"}`)
	}
	h.Secret, h.Prefix = s.Secret, s.Prefix
	return nil
}

// MarshalJSON implements [json.Marshaler].
func (h HTTPHeader) MarshalJSON() ([]byte, error) {
	if h.Secret == "" {
		return json.Marshal(h.Text)
	}
	return json.Marshal(secretHeader{h.Secret, h.Prefix})
}

// methods are those that a step may use.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
}

// Complete fills in the method and validates the request. It fails with [entities.ErrInvalid].
func (r *HTTPRequest) Complete() error {
	if string(r.Body) == "null" {
		r.Body = nil
	}
	if r.Method == "" {
		r.Method = http.MethodGet
		if r.Body != nil {
			r.Method = http.MethodPost
		}
	}
	if !slices.Contains(methods, r.Method) {
		return entities.Invalid("method %q is none of %s", r.Method, strings.Join(methods, ", "))
	}
	if r.Body != nil && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return entities.Invalid("a %s has no body", r.Method)
	}
	if _, err := r.Origin(); err != nil {
		return err
	}
	if len(r.Headers) > maxHeaders {
		return entities.Invalid("%d headers; the limit is %d", len(r.Headers), maxHeaders)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		if err := r.Headers[name].validate(name); err != nil {
			return err
		}
	}
	return nil
}

// Origin returns the scheme, host and port of the URL, such as "https://mail.example.com". It fails with
// [entities.ErrInvalid] if the server could not send the request there.
func (r *HTTPRequest) Origin() (string, error) {
	if len(r.URL) > maxURL {
		return "", entities.Invalid("the URL has %d bytes; the limit is %d", len(r.URL), maxURL)
	}
	origin, err := entities.Origin(r.URL)
	if u, _ := url.Parse(r.URL); err == nil && u.User != nil {
		return "", entities.Invalid("a URL has no user name and password: use the header Authorization with a secret")
	}
	return origin, err
}

// credentials are the headers whose values must be secrets, since requests are kept in the log.
var credentials = []string{"Authorization", "Cookie", "Proxy-Authorization"}

// ownHeaders are the headers of requests that the server itself sets, beside those of every message.
var ownHeaders = []string{"Host", HeaderIdempotencyKey, "Expect", "Te", "Accept-Encoding"}

func (h HTTPHeader) validate(name string) error {
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	value := h.Text + h.Prefix
	switch {
	case name == "" || strings.ContainsFunc(name, notInName):
		return entities.Invalid("%q is not a valid header name", name)
	case reserved[canonical] || slices.Contains(ownHeaders, canonical):
		return entities.Invalid("header %s is set by the server", name)
	case h.Secret == "" && slices.Contains(credentials, canonical):
		return entities.Invalid(`header %s must be a secret: {"secret": "NAME", "prefix": "Bearer "}`, name)
	case len(value) > maxHeader:
		return entities.Invalid("header %s has %d bytes; the limit is %d", name, len(value), maxHeader)
	case strings.ContainsFunc(value, notInValue):
		return entities.Invalid("header %s contains characters other than printable ASCII", name)
	case h.Secret != "":
		return entities.ValidateID("secret", h.Secret)
	default:
		return nil
	}
}

// notInValue reports whether a character cannot be in the value of a header.
func notInValue(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f }

// httpOptions are the request of a runStep, and what its answer means.
type httpOptions struct {
	HTTPRequest

	// Success and RetryOn are lists of statuses, such as "404" and "5xx".
	Success []string `json:"success"`
	RetryOn []string `json:"retryOn"`
}

// HTTPStatus is the form of a status in the lists of an HTTP step.
var HTTPStatus = regexp.MustCompile(`^[1-5](xx|[0-9][0-9])$`)

// step returns the input of the step, and what its answer means.
func (o *httpOptions) step() (input []byte, spec *entities.HTTPSpec, err error) {
	if err := o.Complete(); err != nil {
		return nil, nil, fmt.Errorf("http: %w", err)
	}
	for _, list := range [][]string{o.Success, o.RetryOn} {
		if len(list) > MaxStatuses {
			return nil, nil, entities.Invalid("http: %d statuses; the limit is %d", len(list), MaxStatuses)
		}
		for _, status := range list {
			if !HTTPStatus.MatchString(status) {
				return nil, nil, entities.Invalid(`http: %q is not a status like "404" or "5xx"`, status)
			}
		}
	}
	input, err = json.Marshal(o.HTTPRequest)
	return input, &entities.HTTPSpec{Success: o.Success, Retry: o.RetryOn}, err
}
