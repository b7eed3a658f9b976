package e2e

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/stepwell-dev/stepwell/e2e/record"
)

// recorder is a proxy in both directions between an app and a server. It records the traffic in the order in which the
// server processes it, and therefore forwards one request at a time. Requests that the server holds, long polls and
// live reads of streams, are forwarded concurrently and recorded when they end.
type recorder struct {
	*proxy // for the app's requests

	server *server
	mu     sync.Mutex // held while a request is at the server; guards the fields below
	record.Recording
	seen map[string]record.Answer // the latest answer to each GET
}

func newRecorder(t *testing.T, s *server) *recorder {
	t.Helper()
	r := &recorder{server: s, seen: map[string]record.Answer{}}
	r.proxy = newProxy(t, s.url(), func(forward http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) { r.serve(t, w, req, forward) }
	})
	return r
}

// deliveries starts a proxy for the server's requests to the app.
func (r *recorder) deliveries(t *testing.T, app string) *proxy {
	t.Helper()
	return newProxy(t, app, func(forward http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			r.noteDelivery(t, req.Header)
			forward.ServeHTTP(w, req)
		}
	})
}

func (r *recorder) noteDelivery(t *testing.T, h http.Header) {
	count, err := strconv.Atoi(h.Get("Ce-Vqsdeliverycount"))
	if err != nil {
		t.Errorf("a delivery has count %q", h.Get("Ce-Vqsdeliverycount"))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(record.Exchange{Clock: now(), Delivery: &record.Delivery{
		Topic: h.Get("Ce-Vqsqueuename"), Message: h.Get("Ce-Vqsmessageid"), Receipt: h.Get("Ce-Vqsreceipthandle"),
		Count: count,
	}})
}

func (r *recorder) serve(t *testing.T, w http.ResponseWriter, req *http.Request, forward http.Handler) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		hangUp(w)
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	request := record.Request{
		Method: req.Method, Path: req.URL.RequestURI(), Header: headerOf(req.Header), Body: body,
	}
	if isHeld(req) {
		r.serveHeld(w, req, forward, request)
		return
	}
	answer := httptest.NewRecorder()
	r.forward(t, answer, req, forward, request)
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // the app may have gone away
}

// forward forwards a request while no other is at the server, and records it.
func (r *recorder) forward(
	t *testing.T, answer *httptest.ResponseRecorder, req *http.Request, forward http.Handler, request record.Request,
) {
	r.mu.Lock()
	defer r.mu.Unlock()
	started := now()
	forward.ServeHTTP(answer, req)
	e := record.Exchange{Request: request, Answer: answerOf(request, answer.Code, answer.Header(), answer.Body.Bytes())}
	e.Clock = r.clock(t, started, e)
	r.note(e)
}

// serveHeld forwards an answer as it arrives, without buffering.
func (r *recorder) serveHeld(w http.ResponseWriter, req *http.Request, forward http.Handler, request record.Request) {
	c := &call{Request: req}
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		e := record.Exchange{
			Clock: now(), Request: request, Answer: answerOf(request, c.status, w.Header(), c.answer.Bytes()),
		}
		e.Answer.Cut = req.Context().Err() != nil
		if c.status != 0 {
			r.note(e)
		}
	}()
	forward.ServeHTTP(&capturingWriter{ResponseWriter: w, call: c}, req)
}

// isHeld reports whether the server may hold the request until something happens.
func isHeld(r *http.Request) bool {
	return r.Method == http.MethodGet && (strings.HasSuffix(r.URL.Path, "/status") || strings.Contains(r.URL.Path, "/stream/"))
}

// note adds an exchange to the recording, unless it repeats a GET with the same answer as before.
func (r *recorder) note(e record.Exchange) {
	if e.Request.Method == http.MethodGet {
		question := e.Request.Path + " " + e.Request.Header["Accept"]
		if last, again := r.seen[question]; again && reflect.DeepEqual(last, e.Answer) {
			return
		}
		r.seen[question] = e.Answer
	}
	r.Exchanges = append(r.Exchanges, e)
}

// droppedHeaders are the headers of the transport, headers without meaning to the server, and the API key.
var droppedHeaders = []string{
	"Accept-Encoding", "Accept-Language", "Authorization", "Baggage", "Connection", "Content-Length", "Date",
	"Sec-Fetch-Mode", "Traceparent", "Tracestate", "Transfer-Encoding", "Vqs-Client-Ts", "X-Request-Id", "X-Request-Time",
}

func headerOf(h http.Header) map[string]string {
	kept := map[string]string{}
	for name, values := range h {
		if !slices.Contains(droppedHeaders, name) && values[0] != "*/*" {
			kept[name] = strings.Join(values, ", ")
		}
	}
	return kept
}

func answerOf(request record.Request, status int, h http.Header, body []byte) record.Answer {
	return record.Answer{
		Status: status, Header: headerOf(h),
		Body: record.Value(request.Path, h.Get("Content-Type"), body),
	}
}

// now returns the time with the precision of the wire.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// clock returns the server's time for an exchange: the time of the event that it wrote or, if it wrote none, the start
// of the request. An answer with an older event wrote nothing.
func (r *recorder) clock(t *testing.T, started time.Time, e record.Exchange) time.Time {
	latest := started
	consider := func(at time.Time) {
		if at.After(latest) {
			latest = at
		}
	}
	switch path := e.Request.Path; {
	case e.Answer.Status != http.StatusOK || e.Request.Method != http.MethodPost:
	case strings.HasSuffix(path, "/events/batch"):
		for _, item := range items(e.Answer.Body, "results") {
			consider(dateOf(item, "event", "createdAt"))
		}
	case strings.Contains(path, "/events/"):
		at, err := time.Parse(time.RFC3339Nano, e.Answer.Header["X-Wf-Created-At"])
		if err != nil {
			t.Errorf("the answer to %s has no X-Wf-Created-At: %v", path, err)
		}
		consider(at)
	case strings.HasSuffix(path, "/attributes"):
		consider(r.lastChange(t, strings.Split(path, "/")[4]))
	case strings.HasSuffix(path, "/runs/cancel"):
		for _, id := range items(e.Request.Says(), "runIds") {
			consider(r.lastChange(t, fmt.Sprint(id)))
		}
	}
	return latest
}

// lastChange returns the time of the run's latest event.
func (r *recorder) lastChange(t *testing.T, runID string) time.Time {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		r.server.url()+"/sdk/v4/runs/"+runID+"/events?limit=1&sortOrder=desc", nil)
	if err != nil {
		t.Error(err)
		return time.Time{}
	}
	req.Header.Set("Authorization", "Bearer "+apiKey)
	resp, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return time.Time{}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	list, _, err := readFrames(body)
	if err != nil || len(list) == 0 {
		return time.Time{} // the run does not exist
	}
	return list[0].CreatedAt.Round(time.Millisecond)
}

// items returns the list at a key of an object.
func items(v any, key string) []any {
	fields, _ := v.(map[string]any)
	list, _ := fields[key].([]any)
	return list
}

// dateOf returns the date at a path of keys, or the zero time.
func dateOf(v any, keys ...string) (at time.Time) {
	for _, key := range append(keys, "$date") {
		fields, _ := v.(map[string]any)
		v = fields[key]
	}
	text, _ := v.(string)
	at, _ = time.Parse(time.RFC3339Nano, text)
	return at
}

// save writes the recording to a file in the folder, and checks that it reads back unchanged.
func (r *recorder) save(t *testing.T, dir string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var out bytes.Buffer
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	if out.Len() > largestRecording {
		t.Fatalf("%d exchanges are %d bytes: record less of %q", len(r.Exchanges), out.Len(), r.Case)
	}
	r.wantNoFolders(t, out.Bytes())
	back, err := record.Read(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Recording, back, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("the recording as it is read (-want +got):\n%s", diff)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	name := strings.NewReplacer(",", "", " ", "-").Replace(r.Case) + ".json"
	if err := os.WriteFile(filepath.Join(dir, name), out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// wantNoFolders checks that the recording contains no local paths.
func (r *recorder) wantNoFolders(t *testing.T, file []byte) {
	t.Helper()
	here, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range r.Exchanges {
		file = append(file, e.Request.Body...)
	}
	if at := bytes.Index(file, []byte(here)); at >= 0 {
		t.Fatalf("the recording contains a local path: …%q", file[max(0, at-100):min(len(file), at+100)])
	}
}
