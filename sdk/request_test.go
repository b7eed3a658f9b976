package stepwell

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// answers is a server that gives one answer after the other, and the last one again and again.
type answers struct {
	list []http.HandlerFunc
	n    atomic.Int64 // of requests; each connection has a goroutine of its own
}

func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := int(a.n.Add(1))
	a.list[min(n, len(a.list))-1](w, r)
}

func status(code int, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"error":{"code":"c","message":"m","requestId":"r"}}`))
	}
}

func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func success(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"ok":true}`)) }

func TestRequestsAreRepeated(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answers   []http.HandlerFunc
		sent      int
		status    int // of the error; 0 for none
		uncertain bool
	}{
		"a success":              {[]http.HandlerFunc{success}, 1, 0, false},
		"a lost answer":          {[]http.HandlerFunc{cut, success}, 2, 0, false},
		"busy":                   {[]http.HandlerFunc{status(503, "0"), status(429, ""), success}, 3, 0, false},
		"always down":            {[]http.HandlerFunc{status(503, "")}, requestAttempts, 503, false},
		"a proxy without answer": {[]http.HandlerFunc{status(504, ""), status(404, "")}, 2, 404, true},
		"a refusal":              {[]http.HandlerFunc{status(409, "")}, 1, 409, false},
		"a refusal after a loss": {[]http.HandlerFunc{cut, status(404, "")}, 2, 404, true},
		"tomorrow":               {[]http.HandlerFunc{status(429, "86400")}, 1, 429, false},
		"a redirect":             {[]http.HandlerFunc{status(302, "")}, 1, 302, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &answers{list: test.answers}
			c := newTestClient(t, a)
			var got struct{ OK bool }
			err := c.do(t.Context(), apiRequest{method: http.MethodPost, path: "/v1/x", body: map[string]int{}}, &got)
			if n := int(a.n.Load()); n != test.sent {
				t.Errorf("sent %d times, want %d", n, test.sent)
			}
			e := &APIError{}
			if errors.As(err, &e) != (test.status != 0) || e.Status != test.status || e.Uncertain != test.uncertain {
				t.Errorf("got %v", err)
			}
			if err == nil && !got.OK {
				t.Error("the answer was not decoded")
			}
		})
	}
}

// TestRequestsGoDirectly: no request is sent if there is a way without; if that fails, the request says what is wrong.
func TestRequestsGoDirectly(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		direct    error
		answer    http.HandlerFunc
		sent      int
		status    int
		uncertain bool
	}{
		"a success":             {nil, status(500, ""), 0, 0, false},
		"a failure":             {errors.New("not at hand"), success, 1, 0, false},
		"a failure and refusal": {errors.New("refused"), status(404, ""), 1, 404, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, called := &answers{list: []http.HandlerFunc{test.answer}}, 0
			var got struct{ OK bool }
			err := newTestClient(t, a).do(t.Context(), apiRequest{
				method: http.MethodPost, path: "/v1/x", body: map[string]int{"n": 1},
				direct: func(_ context.Context, body []byte) ([]byte, error) {
					if called++; string(body) != `{"n":1}` {
						t.Errorf("got the body %s", body)
					}
					return []byte(`{"ok":true}`), test.direct
				},
			}, &got)
			e := &APIError{}
			if errors.As(err, &e) != (test.status != 0) || e.Status != test.status || e.Uncertain != test.uncertain {
				t.Errorf("got %v", err)
			}
			if n := int(a.n.Load()); called != 1 || n != test.sent || (err == nil) != got.OK {
				t.Errorf("called %d times, sent %d, decoded %t", called, n, got.OK)
			}
		})
	}
}

// TestPausesRespectTheServer checks what the client waits for, without waiting.
func TestPausesRespectTheServer(t *testing.T) {
	t.Parallel()
	for failures := range 64 {
		longest := min(longestPause, firstPause<<min(failures, 10))
		if p := jittered(failures); p < longest/2 || p > longest {
			t.Errorf("pause %d is %s, want up to %s", failures, p, longest)
		}
	}
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	last := &APIError{Status: http.StatusServiceUnavailable, RetryAfter: time.Hour}
	err := newTestClient(t, nil).wait(ctx, 1, last)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, last) {
		t.Errorf("the pause ended with %v, want the end of the context and the last failure", err)
	}
}

func TestAddressesAreChecked(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "127.0.0.1:8788", "localhost", "ftp://x", "http://", "http://a b"} {
		if _, err := NewClient(ClientConfig{URL: address}); err == nil {
			t.Errorf("%q is accepted", address)
		}
	}
}

// newTestClient returns a client that makes no pauses of its own.
func newTestClient(t *testing.T, h http.Handler) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := NewClient(ClientConfig{URL: s.URL + "/", APIKey: "key", HTTP: s.Client()})
	if err != nil {
		t.Fatal(err)
	}
	c.pause = func(int) time.Duration { return 0 }
	return c
}

// TestAContextThatHasEndedIsNotTheServersFault waits for a server that is there.
func TestAContextThatHasEndedIsNotTheServersFault(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(server.Close)
	c, err := NewClient(ClientConfig{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err = c.do(ctx, apiRequest{method: http.MethodGet, path: "/v1/runs"}, nil)
	if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "is the server running") {
		t.Errorf("got %v", err)
	}
}

// TestTheErrorThatEndsAContextStays as it is: other requests have it as well, as in an errgroup.
func TestTheErrorThatEndsAContextStays(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	refused, requests := &APIError{Status: http.StatusConflict}, 0
	c := newTestClient(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if requests++; requests == 2 {
			cancel(refused)
		}
		panic(http.ErrAbortHandler)
	}))
	err := c.do(ctx, apiRequest{method: http.MethodGet, path: "/v1/runs"}, nil)
	if !errors.Is(err, refused) || refused.Uncertain {
		t.Errorf("got %v", err)
	}
}

// TestAnswersAreNotCompressed: a log is read while its run waits, so its time counts more than its bytes.
func TestAnswersAreNotCompressed(t *testing.T) {
	t.Parallel()
	var accepted string
	c := newTestClient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accepted = r.Header.Get("Accept-Encoding")
		success(w, r)
	}))
	if err := c.do(t.Context(), apiRequest{method: http.MethodGet, path: "/v1/runs/a"}, nil); err != nil {
		t.Fatal(err)
	}
	if accepted != "identity" {
		t.Errorf("the client accepts %q", accepted)
	}
}
