package rest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

// compressedFrom is from how many bytes on an answer is compressed: smaller ones fit into few packets.
const compressedFrom = 2 << 10

// encodeJSON returns v as a line of JSON. Texts have the characters that were stored: encoding/json escapes those that
// mean something in HTML, which nothing takes this for.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// body is an encoded answer.
type body struct {
	data    []byte
	gzipped bool
}

// newBody encodes an answer, and compresses it if the client takes that and it is long enough.
func newBody(r *http.Request, v any) (b body, err error) {
	if b.data, err = encodeJSON(v); err != nil {
		return body{}, err
	}
	if len(b.data) >= compressedFrom && incoming.AcceptsGzip(r) {
		b = body{compress(b.data), true}
	}
	return b, nil
}

// compressors keeps the memory of compressors, which is far more than that of an answer.
var compressors = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // a valid level
	return z
}}

func compress(data []byte) []byte {
	z := compressors.Get().(*gzip.Writer) //nolint:forcetypeassert // the pool has nothing else
	defer compressors.Put(z)
	var b bytes.Buffer
	z.Reset(&b)
	_, _ = z.Write(data) // a buffer
	_ = z.Close()
	return b.Bytes()
}

// send answers with the body and the status of the response.
func (b body) send(c echo.Context) error {
	h := c.Response().Header()
	h.Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	h.Add(echo.HeaderVary, echo.HeaderAcceptEncoding)
	if b.gzipped {
		h.Set(echo.HeaderContentEncoding, "gzip")
	}
	_, err := c.Response().Write(b.data)
	return err
}

// JSON writes all answers but those of the Workflow SDK's protocol, whose bytes are those of the service that it was
// made for. See [encodeJSON] and [newBody].
type JSON struct{ echo.DefaultJSONSerializer }

// Serialize implements [echo.JSONSerializer].
func (j JSON) Serialize(c echo.Context, v any, indent string) error {
	if strings.HasPrefix(c.Request().URL.Path, "/sdk/") {
		return j.DefaultJSONSerializer.Serialize(c, v, indent)
	}
	b, err := newBody(c.Request(), v)
	if err != nil {
		return err
	}
	return b.send(c)
}
