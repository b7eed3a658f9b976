package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestClientsBehaveAlike checks that the lean client of the load generator behaves like the client of net/http.
func TestClientsBehaveAlike(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(*client) *client{
		"standard": func(c *client) *client { return c },
		"lean":     (*client).lean,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			stuck := make(chan struct{})
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				switch r.URL.Path {
				case "/refuse":
					w.WriteHeader(http.StatusConflict)
				case "/hang":
					<-stuck
				case "/break":
					panic(http.ErrAbortHandler)
				}
				body, _ := io.ReadAll(r.Body)
				_, _ = fmt.Fprintf(w, "%s %s %s %s", r.Method, r.RequestURI, r.Header, body)
			}))
			defer s.Close()
			defer close(stuck)
			c := of(newClient(s.URL, "key"))
			call := func(path string) (string, error) {
				got, err := c.call(t.Context(), http.MethodPost, path, http.Header{"X-Y": {"z"}}, []byte("hello"))
				return string(got), err
			}

			for range 2 { // the second on a reused connection
				got, err := call("/a%2Fb?c=d")
				for _, want := range []string{"POST /a%2Fb?c=d map[", "X-Y:[z]", "Authorization:[Bearer key]", "] hello"} {
					if err != nil || !strings.Contains(got, want) {
						t.Errorf("the server got %q (%v), want %q", got, err, want)
					}
				}
			}
			if _, err := call("/refuse"); !refused(err, http.StatusConflict) {
				t.Errorf("a refused request: got %v, want status 409", err)
			}
			requests.Store(0)
			if got, err := call("/break"); err == nil || requests.Load() != 1 {
				t.Errorf("a broken connection: %q, %v after %d requests; want an error after 1", got, err, requests.Load())
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if _, err := c.call(ctx, http.MethodPost, "/hang", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after the deadline: %v", err)
			}
			if _, err := c.call(ctx, http.MethodPost, "/", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("started after the deadline: %v", err)
			}
		})
	}
}
