package rest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

// compressedFrom is from how many bytes on an answer is compressed: smaller ones fit into few packets.
const compressedFrom = 2 << 10

// encodeJSON returns v as a line of JSON.
func encodeJSON(v any) ([]byte, error) { return appendJSON(nil, v) }

// appendJSON appends v as a line of JSON. Texts have the characters that were stored: encoding/json escapes those that
// mean something in HTML, which nothing takes this for.
func appendJSON(dst []byte, v any) ([]byte, error) {
	if a, ok := v.(appender); ok {
		return a.appendJSON(dst)
	}
	b := bytes.NewBuffer(dst)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// appender is an answer that appends its line of JSON itself, faster than encoding/json does.
type appender interface {
	appendJSON(dst []byte) ([]byte, error)
}

// body is an encoded answer. Its memory is used again once it is sent.
type body struct {
	data    *[]byte
	gzipped bool
}

// keptBody is up to how many bytes of memory are kept for the next answer.
const keptBody = 1 << 20

var bodies = sync.Pool{New: func() any { return new([]byte) }}

// newBody encodes an answer, and compresses it if the client takes that and it is long enough.
func newBody(r *http.Request, v any) (b body, err error) {
	if b.data, err = fill(func(dst []byte) ([]byte, error) { return appendJSON(dst, v) }); err != nil {
		return body{}, err
	}
	if len(*b.data) < compressedFrom || !incoming.AcceptsGzip(r) {
		return b, nil
	}
	defer b.free()
	data, err := fill(func(dst []byte) ([]byte, error) { return compress(dst, *b.data), nil })
	return body{data, true}, err
}

// fill returns memory for a body that a function has filled.
func fill(add func(dst []byte) ([]byte, error)) (*[]byte, error) {
	data := bodies.Get().(*[]byte) //nolint:forcetypeassert // the pool has nothing else
	var err error
	*data, err = add((*data)[:0])
	return data, err
}

// free gives back the memory of the body, which must not be used any more.
func (b body) free() {
	if cap(*b.data) <= keptBody {
		bodies.Put(b.data)
	}
}

// compressors keeps the memory of compressors, which is far more than that of an answer.
var compressors = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // a valid level
	return z
}}

// compress appends the data, compressed.
func compress(dst, data []byte) []byte {
	z := compressors.Get().(*gzip.Writer) //nolint:forcetypeassert // the pool has nothing else
	defer compressors.Put(z)
	b := bytes.NewBuffer(dst)
	z.Reset(b)
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
	_, err := c.Response().Write(*b.data)
	b.free()
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
