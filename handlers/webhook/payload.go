package webhook

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/webhook/signature"
)

// payload is what the run gets of a request.
type payload struct {
	Request string `json:"request"`
	Method  string `json:"method"`
	// Query and Headers have a list for each name. Names of headers are in lower case.
	Query       map[string][]string `json:"query"`
	Headers     map[string][]string `json:"headers"`
	ContentType string              `json:"contentType,omitempty"`
	ReceivedAt  string              `json:"receivedAt"`
	// One of these has the body, unless it is empty: JSON that is said to be JSON, text, or anything else.
	Body       json.RawMessage `json:"body,omitempty"`
	Text       string          `json:"text,omitempty"`
	BodyBase64 []byte          `json:"bodyBase64,omitempty"`
}

// withheld are headers that are no part of what was sent, but of its way, or that would put a credential into the log.
var withheld = map[string]bool{
	"connection": true, "content-length": true, "keep-alive": true, "proxy-connection": true, "te": true,
	"trailer": true, "transfer-encoding": true, "upgrade": true,
	"authorization": true, "cookie": true, "proxy-authenticate": true, "proxy-authorization": true,
}

func newPayload(r call, id string) payload {
	request := r.Request()
	p := payload{
		Request: id, Method: request.Method, Query: request.URL.Query(), Headers: visibleHeaders(request.Header),
		ContentType: request.Header.Get("Content-Type"),
		ReceivedAt:  r.at.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	switch kind := mediaType(p.ContentType); {
	case len(r.body) == 0:
	case isJSON(kind) && utf8.Valid(r.body) && json.Valid(r.body):
		p.Body = r.body
	case isText(kind) && utf8.Valid(r.body):
		p.Text = string(r.body)
	default:
		p.BodyBase64 = r.body
	}
	return p
}

// encode is the payload as the log has it. JSON in it is as it came, but for white space.
func (p payload) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(p); err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// visibleHeaders are those that the run gets.
func visibleHeaders(h http.Header) map[string][]string {
	named := map[string]bool{}
	for _, list := range h.Values("Connection") {
		for name := range strings.SplitSeq(list, ",") {
			named[strings.ToLower(strings.TrimSpace(name))] = true
		}
	}
	visible := map[string][]string{}
	for name, values := range h {
		if name = strings.ToLower(name); !withheld[name] && !named[name] {
			visible[name] = values
		}
	}
	return visible
}

// mediaType is a content type without its parameters; empty when it is none.
func mediaType(contentType string) string {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	return kind
}

func isJSON(kind string) bool { return kind == "application/json" || strings.HasSuffix(kind, "+json") }

// isText reports whether a body of the kind is to be shown as text if it can be.
func isText(kind string) bool {
	return kind == "" || isJSON(kind) || strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "xml") ||
		kind == "application/x-www-form-urlencoded"
}

// jsonFields are the texts in a body that is a JSON object.
func jsonFields(body []byte) signature.Fields {
	var object map[string]json.RawMessage
	_ = json.Unmarshal(body, &object) // else there are none
	return func(name string) string {
		var text string
		_ = json.Unmarshal(object[name], &text)
		return text
	}
}

// requestID names a request to a hook. All requests of one key have the same one; without a key it is a new one.
func requestID(hook entities.Hook, key string) string {
	if key == "" {
		key = rand.Text()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", hook.RunID, hook.ID, key))
	return "hreq_" + ulid.ULID(sum[:16]).String()
}

func digestOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
