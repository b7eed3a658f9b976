package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"sync"
	"testing"
	"time"
)

// functionCall is the part of a call of a function that tests need.
type functionCall struct {
	Type       string
	Invocation string
	Run        struct{ ID, Workflow string }
	Step       struct{ ID string }
	Events     []struct{ Type, CorrelationID string }
}

// has reports whether the call's log contains the event.
func (c functionCall) has(typ, id string) bool {
	return slices.ContainsFunc(c.Events, func(e struct{ Type, CorrelationID string }) bool {
		return e.Type == typ && e.CorrelationID == id
	})
}

// functionProxy is a proxy between the server and a function. It records the calls, and can duplicate them or hold
// answers.
type functionProxy struct {
	*proxy
	mu    sync.Mutex
	calls []functionCall
	// twice makes the proxy forward each call twice at the same time.
	twice bool
	// hold is the next answer to hold back, if any.
	hold *heldAnswer
}

// heldAnswer holds back the function's answer to one call until the test releases or drops it.
type heldAnswer struct {
	matches func(functionCall) bool
	held    chan struct{}
	// release receives true to forward the answer, false to drop it.
	release chan bool
}

// holdAnswer holds back the answer to the next call that matches.
func (r *functionProxy) holdAnswer(matches func(functionCall) bool) *heldAnswer {
	s := &heldAnswer{matches: matches, held: make(chan struct{}), release: make(chan bool, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold = s
	return s
}

func newFunctionProxy(t *testing.T, target string) *functionProxy {
	t.Helper()
	r := &functionProxy{}
	r.proxy = newProxy(t, target, func(forward http.Handler) http.HandlerFunc {
		forward.(*httputil.ReverseProxy).Transport = dialRetrier{}
		return func(w http.ResponseWriter, req *http.Request) { r.serve(w, req, forward) }
	})
	return r
}

// dialRetrier retries until the function listens, as platforms do that start functions on demand. On a busy machine,
// the restart of a function may take longer than all attempts of a step.
type dialRetrier struct{}

func (dialRetrier) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		resp, err := http.DefaultTransport.RoundTrip(r)
		if refused := (*net.OpError)(nil); !errors.As(err, &refused) || refused.Op != "dial" || r.Context().Err() != nil {
			return resp, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// record records a call, and returns the hold that matches it, if any.
func (r *functionProxy) record(c functionCall) *heldAnswer {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
	s := r.hold
	if s == nil || !s.matches(c) {
		return nil
	}
	r.hold = nil
	return s
}

// invocations returns the IDs of the run's invocations so far.
func (r *functionProxy) invocations(runID string) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		if c.Run.ID == runID && c.Type == "workflow" {
			names = append(names, c.Invocation)
		}
	}
	return names
}

func (r *functionProxy) serve(w http.ResponseWriter, req *http.Request, forward http.Handler) {
	body, err := io.ReadAll(req.Body)
	var c functionCall
	if err != nil || json.Unmarshal(body, &c) != nil {
		hangUp(w)
	}
	s := r.record(c)
	var answers [2]*httptest.ResponseRecorder
	var sending sync.WaitGroup
	for i := range answers {
		if i == 0 || r.twice {
			sending.Go(func() { answers[i] = forwardOnce(req, body, forward) })
		}
	}
	sending.Wait()
	answer := answers[0]
	if s != nil {
		close(s.held)
		if !<-s.release {
			answer = nil
		}
	}
	if answer == nil {
		hangUp(w) // like the function
	}
	w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // the server may be gone
}

// forwardOnce forwards a request and returns the whole answer, or nil if there is none.
func forwardOnce(req *http.Request, body []byte, forward http.Handler) (answer *httptest.ResponseRecorder) {
	again := req.Clone(req.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	answer = httptest.NewRecorder()
	defer func() {
		if recover() != nil { // hangUp panics
			answer = nil
		}
	}()
	forward.ServeHTTP(answer, again)
	return answer
}
