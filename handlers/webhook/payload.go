package webhook

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities/strictjson"
	"github.com/stepwell-dev/stepwell/entities/webhook"
	"github.com/stepwell-dev/stepwell/handlers/webhook/signature"
)

// payload is the JSON form of a request that a run receives.
type payload struct {
	Request string `json:"request"`
	Method  string `json:"method"`
	// Query and Headers have a list of values per name. Header names are in lower case.
	Query       map[string][]string `json:"query"`
	Headers     map[string][]string `json:"headers"`
	ContentType string              `json:"contentType,omitempty"`
	ReceivedAt  string              `json:"receivedAt"`
	// At most one of these is set. An empty body sets none.
	Body       json.RawMessage `json:"body,omitempty"`
	Text       string          `json:"text,omitempty"`
	BodyBase64 []byte          `json:"bodyBase64,omitempty"`
}

// withheld are hop-by-hop headers, and headers whose credentials must not get into the log.
var withheld = map[string]bool{
	"connection": true, "content-length": true, "keep-alive": true, "proxy-connection": true, "te": true,
	"trailer": true, "transfer-encoding": true, "upgrade": true,
	"authorization": true, "cookie": true, "proxy-authenticate": true, "proxy-authorization": true,
}

// newPayload returns the payload of a request. It fails with a [strictjson.Refusal] if the body is JSON that not all
// that read it could decode.
func newPayload(r call, id string) (p payload, err error) {
	request := r.Request()
	p = payload{
		Request: id, Method: request.Method, Query: request.URL.Query(), Headers: visibleHeaders(request.Header),
		ContentType: request.Header.Get("Content-Type"),
		ReceivedAt:  r.at.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	switch kind := mediaType(p.ContentType); {
	case len(r.body) == 0:
	case isJSON(kind) && utf8.Valid(r.body) && json.Valid(r.body):
		p.Body = r.body
		return p, strictjson.Check(r.body)
	case isText(kind) && utf8.Valid(r.body):
		p.Text = string(r.body)
	default:
		p.BodyBase64 = r.body
	}
	return p, nil
}

// encodePayload returns the payload of a request for the log. A JSON body keeps its form, except for white space.
func encodePayload(r call, id string) ([]byte, error) {
	p, err := newPayload(r, id)
	if err != nil {
		return nil, fmt.Errorf("the body: %w", err)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(p); err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// visibleHeaders returns the headers that the run receives.
func visibleHeaders(h http.Header) map[string][]string {
	hopByHop := map[string]bool{}
	for _, list := range h.Values("Connection") {
		for name := range strings.SplitSeq(list, ",") {
			hopByHop[strings.ToLower(strings.TrimSpace(name))] = true
		}
	}
	visible := map[string][]string{}
	for name, values := range h {
		if name = strings.ToLower(name); !withheld[name] && !hopByHop[name] {
			visible[name] = values
		}
	}
	return visible
}

// mediaType returns a content type without its parameters; empty if it is invalid.
func mediaType(contentType string) string {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	return kind
}

func isJSON(kind string) bool { return kind == "application/json" || strings.HasSuffix(kind, "+json") }

// isText reports whether a body of the media type is passed as text if it is UTF-8.
func isText(kind string) bool {
	return kind == "" || isJSON(kind) || strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "xml") ||
		kind == "application/x-www-form-urlencoded"
}

// jsonFields returns the string fields of a body that is a JSON object.
func jsonFields(body []byte) signature.Fields {
	var object map[string]json.RawMessage
	_ = json.Unmarshal(body, &object) // other bodies have no fields
	return func(name string) string {
		var text string
		_ = json.Unmarshal(object[name], &text)
		return text
	}
}

// requestID returns the ID of a request to a webhook. Requests with the same key have the same ID; without a key, each
// request has a new one.
func requestID(to target, key string) string {
	if key == "" {
		key = rand.Text()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %q", to.identity(), key))
	return webhook.RequestPrefix + ulid.ULID(sum[:16]).String()
}
