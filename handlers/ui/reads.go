package ui

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/stepwell-dev/stepwell/entities"
	"github.com/stepwell-dev/stepwell/handlers/incoming"
)

// maxReads is how many reads are one request.
const maxReads = 16

// errNoJSON ends a read whose answer is none for a line.
var errNoJSON = errors.New("what is no JSON is not read with others")

// answers are the answers of several reads, as they come: a line of JSON each, one after the other.
type answers struct {
	mu  sync.Mutex
	out http.ResponseWriter
	zip *gzip.Writer // nil for an answer that is not compressed
}

// head begins a line. The body follows.
type head struct {
	// N is the place of the read in the request.
	N      int `json:"n"`
	Status int `json:"status"`
	// RetryAfter is the header with this name.
	RetryAfter string `json:"retryAfter,omitempty"`
	// ReplicaLag is the header Stepwell-Replica-Lag.
	ReplicaLag string `json:"replicaLag,omitempty"`
}

// reads answers with several reads of a project's API in one request: ?read=/v1/runs&read=/v1/attention. Each is
// handled as the request by itself would be, with the same permission and limits, and answered as soon as it is ready:
//
//	{"n":1,"status":200,"body":{…}}
//
// The order is that in which they are ready.
func (s *Server) reads(e *echo.Echo) echo.HandlerFunc {
	return func(c echo.Context) error {
		requests, err := requestsOf(c)
		if err != nil {
			return err
		}
		h := c.Response().Header()
		apiHeaders(h)
		h.Set(echo.HeaderContentType, "application/x-ndjson")
		h.Add(echo.HeaderVary, echo.HeaderAcceptEncoding)
		all := &answers{out: c.Response()}
		if incoming.AcceptsGzip(c.Request()) {
			h.Set(echo.HeaderContentEncoding, "gzip")
			all.zip, _ = gzip.NewWriterLevel(c.Response(), gzip.BestSpeed) // a valid level
		}
		var readers sync.WaitGroup
		for n, r := range requests {
			readers.Go(func() { all.read(e, r, n) })
		}
		readers.Wait()
		if all.zip != nil {
			return all.zip.Close()
		}
		return nil
	}
}

// requestsOf returns the requests of which one consists. It fails with an *[entities.InvalidError].
func requestsOf(c echo.Context) (requests []*http.Request, err error) {
	paths := c.QueryParams()["read"]
	if len(paths) == 0 || len(paths) > maxReads {
		return nil, entities.Invalid("want 1 to %d parameters read", maxReads)
	}
	project, err := incoming.PathParam(c, "project")
	if err != nil {
		return nil, fmt.Errorf("project: %w", err)
	}
	for _, path := range paths {
		r := c.Request().Clone(c.Request().Context())
		r.URL, err = url.ParseRequestURI(Path + "/" + url.PathEscape(project) + path)
		if err != nil || !strings.HasPrefix(path, "/v1/") {
			return nil, entities.Invalid("read %q: want a path below /v1/", path)
		}
		r.Body, r.RequestURI = http.NoBody, r.URL.RequestURI()
		r.Header.Del(echo.HeaderAcceptEncoding) // the whole is compressed
		requests = append(requests, r)
	}
	return requests, nil
}

// read writes the answer of one of the requests.
func (a *answers) read(e *echo.Echo, r *http.Request, n int) {
	w := &answer{all: a, n: n, header: http.Header{}}
	defer w.end()
	defer func() {
		// A handler that panics aborts its connection, which is that of others here, too.
		if recover() != nil {
			w.WriteHeader(http.StatusBadGateway)
		}
	}()
	e.ServeHTTP(w, r)
}

// answer is the answer of one read. From its first byte to its last it has the connection for itself: so it needs no
// memory, and a slow client holds what it would hold with a request of its own.
type answer struct {
	all    *answers
	n      int
	header http.Header
	begun  bool
	empty  bool // nothing of the body was written yet
	failed error
}

func (w *answer) Header() http.Header { return w.header }

// WriteHeader begins the line. What is no JSON cannot be part of it.
func (w *answer) WriteHeader(status int) {
	if w.begun {
		return
	}
	w.begun, w.empty = true, true
	kind, _, _ := mime.ParseMediaType(w.header.Get(echo.HeaderContentType))
	if kind != echo.MIMEApplicationJSON && status != http.StatusNoContent {
		status, w.failed = max(status, http.StatusNotAcceptable), errNoJSON
	}
	line, _ := json.Marshal(head{
		w.n, status, w.header.Get(echo.HeaderRetryAfter), w.header.Get(incoming.ReplicaLag),
	}) // texts and numbers
	w.all.mu.Lock()
	w.write(append(bytes.TrimSuffix(line, []byte("}")), `,"body":`...))
}

// Write writes a part of the body. In JSON, a line ends only between values.
func (w *answer) Write(data []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.failed != nil {
		return 0, w.failed
	}
	w.empty = w.empty && len(data) == 0
	w.write(bytes.ReplaceAll(data, []byte("\n"), []byte(" ")))
	return len(data), w.failed
}

// Flush does nothing: the line is sent at its end.
func (w *answer) Flush() {}

func (w *answer) write(data []byte) {
	out := w.all.out.Write
	if w.all.zip != nil {
		out = w.all.zip.Write
	}
	if _, err := out(data); err != nil {
		w.failed = err
	}
}

// end ends the line, and sends it.
func (w *answer) end() {
	w.WriteHeader(http.StatusNoContent)
	defer w.all.mu.Unlock()
	if w.empty {
		w.write([]byte("null"))
	}
	w.write([]byte("}\n"))
	if w.all.zip != nil {
		_ = w.all.zip.Flush() // the next write fails as well
	}
	_ = http.NewResponseController(w.all.out).Flush()
}
