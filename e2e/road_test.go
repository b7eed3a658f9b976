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

// functionCall is what a function is called with, as far as tests care.
type functionCall struct {
	Type       string
	Invocation string
	Run        struct{ ID string }
	Step       struct{ ID string }
	Events     []struct{ Type, CorrelationID string }
}

// has reports whether the log that came with the call has an event.
func (c functionCall) has(typ, id string) bool {
	return slices.ContainsFunc(c.Events, func(e struct{ Type, CorrelationID string }) bool {
		return e.Type == typ && e.CorrelationID == id
	})
}

// road is between the server and a function.
type road struct {
	*proxy
	mu    sync.Mutex
	calls []functionCall
	// twice: the function gets each call twice at the same time.
	twice bool
	// stop is what a call may run into.
	stop *stop
}

// stop holds the answer to one call back, when the function has given it, until it is let go.
type stop struct {
	at   func(functionCall) bool
	held chan struct{}
	// then gets whether the answer goes on, or is lost.
	then chan bool
}

// holdAnswer has the answer to the next call that is meant held back.
func (r *road) holdAnswer(at func(functionCall) bool) *stop {
	s := &stop{at: at, held: make(chan struct{}), then: make(chan bool, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop = s
	return s
}

func newRoad(t *testing.T, target string) *road {
	t.Helper()
	r := &road{}
	r.proxy = newProxy(t, target, func(forward http.Handler) http.HandlerFunc {
		forward.(*httputil.ReverseProxy).Transport = patient{}
		return func(w http.ResponseWriter, req *http.Request) { r.serve(w, req, forward) }
	})
	return r
}

// patient waits for somebody to listen, as platforms do that start functions. A function that is killed and comes back
// may take longer for that, on a busy machine, than all attempts of a step.
type patient struct{}

func (patient) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		resp, err := http.DefaultTransport.RoundTrip(r)
		if refused := (*net.OpError)(nil); !errors.As(err, &refused) || refused.Op != "dial" || r.Context().Err() != nil {
			return resp, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// note notes a call, and returns the stop it runs into, if it does.
func (r *road) note(c functionCall) *stop {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
	s := r.stop
	if s == nil || !s.at(c) {
		return nil
	}
	r.stop = nil
	return s
}

// invocations are the names of those of a run so far.
func (r *road) invocations(runID string) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		if c.Run.ID == runID && c.Type == "workflow" {
			names = append(names, c.Invocation)
		}
	}
	return names
}

func (r *road) serve(w http.ResponseWriter, req *http.Request, forward http.Handler) {
	body, err := io.ReadAll(req.Body)
	var c functionCall
	if err != nil || json.Unmarshal(body, &c) != nil {
		hangUp(w)
	}
	s := r.note(c)
	var answers [2]*httptest.ResponseRecorder
	var sending sync.WaitGroup
	for i := range answers {
		if i == 0 || r.twice {
			sending.Go(func() { answers[i] = passOn(req, body, forward) })
		}
	}
	sending.Wait()
	answer := answers[0]
	if s != nil {
		close(s.held)
		if !<-s.then {
			answer = nil
		}
	}
	if answer == nil {
		hangUp(w) // as the function did
	}
	w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // the server may be gone
}

// passOn sends a request on and returns the whole answer; nil when there was none.
func passOn(req *http.Request, body []byte, forward http.Handler) (answer *httptest.ResponseRecorder) {
	again := req.Clone(req.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	answer = httptest.NewRecorder()
	defer func() {
		if recover() != nil { // see hangUp
			answer = nil
		}
	}()
	forward.ServeHTTP(answer, again)
	return answer
}
