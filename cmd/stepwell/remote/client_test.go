package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// newSession returns a session with a server that runs handle, and what the session prints.
func newSession(t *testing.T, handle http.HandlerFunc) (s *Session, out, notes *strings.Builder) {
	t.Helper()
	// Sequential requests may use different connections, whose order the race detector cannot see without the mutex.
	var order sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		order.Lock()
		order.Unlock() //nolint:staticcheck // happens after all earlier requests
		defer func() { order.Lock(); order.Unlock() }()
		handle(w, r)
	}))
	t.Cleanup(server.Close)
	return sessionAt(t, server.URL)
}

func sessionAt(t *testing.T, url string) (s *Session, out, notes *strings.Builder) {
	t.Helper()
	out, notes = new(strings.Builder), new(strings.Builder)
	commands := Commands{URL: url, Key: "secret"}
	s, err := commands.Session(Console{Stdin: strings.NewReader(""), Stdout: out, Stderr: notes, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	s.retryInterval, s.retryFor = time.Millisecond, 100*time.Millisecond
	return s, out, notes
}

func TestExitCodesAndErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status     int
		body, path string
		code       int
		want       string
	}{
		{200, `{}`, "/v1/runs", 0, ""},
		{204, ``, "/v1/runs", 0, ""},
		{200, `<html>`, "/v1/runs", ExitError, "is it a Stepwell server?"},
		{400, errorBody("invalid_request", "url is empty"), "/v1/deployments/a", ExitUsage, "url is empty (invalid_request)"},
		{413, errorBody("too_large", "too large"), "/v1/runs", ExitUsage, "too large (too_large)"},
		{
			401, errorBody("unauthorized", "wrong key"), "/v1/runs", ExitDenied,
			"wrong key: set the key with --api-key or STEPWELL_API_KEY (unauthorized)",
		},
		{403, errorBody("forbidden", "not permitted"), "/v1/runs", ExitDenied, "not permitted (forbidden)"},
		{
			404, errorBody("run_not_found", "read run: run not found"), "/v1/runs/wrun_7/steps", ExitNotFound,
			"no run wrun_7 in this project: stepwell runs list shows the runs (run_not_found)",
		},
		{
			404, errorBody("run_not_found", "no parent"), "/v1/runs", ExitNotFound,
			"no parent: stepwell runs list shows the runs (run_not_found)",
		},
		{404, errorBody("not_found", "no /v1/x"), "/v1/x", ExitNotFound, "is the server older than this command?"},
		{409, errorBody("key_taken", "taken"), "/v1/runs", ExitConflict, "taken (key_taken)"},
		{410, errorBody("run_ended", "ended"), "/v1/runs", ExitConflict, "ended (run_ended)"},
		{500, errorBody("internal", "internal error"), "/v1/runs", ExitError, "internal error (internal)"},
		{502, `<html>`, "/v1/runs", ExitUnreachable, "POST /v1/runs: 502 Bad Gateway"},
		{503, errorBody("overloaded", "full"), "/v1/runs", ExitUnreachable, "full (overloaded)"},
		{409, errorBody("conflict", "a\x1b[31m\nb"), "/v1/runs", ExitConflict, `a\x1b[31m\nb (conflict)`},
	} {
		t.Run(fmt.Sprint(tt.status, tt.body), func(t *testing.T) {
			t.Parallel()
			s, _, _ := newSession(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer secret" {
					t.Errorf("got the key %q", r.Header.Get("Authorization"))
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			_, err := s.client.do(t.Context(), http.MethodPost, tt.path, jsonBody{})
			if got := ExitCode(err); got != tt.code {
				t.Errorf("got exit code %d, want %d", got, tt.code)
			}
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func errorBody(code, message string) string {
	text, _ := json.Marshal(message)
	return fmt.Sprintf(`{"error":{"code":%q,"message":%s}}`, code, text)
}

func TestUnreachableServer(t *testing.T) {
	t.Parallel()
	s, _, _ := sessionAt(t, "http://user:pass@127.0.0.1:1/prefix/")
	_, err := s.client.do(t.Context(), http.MethodGet, "/v1/runs", nil)
	if ExitCode(err) != ExitUnreachable || !strings.HasPrefix(err.Error(),
		"no response from http://user:xxxxx@127.0.0.1:1/prefix: is the server running? set its address with --url") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.client.do(ctx, http.MethodGet, "/v1/runs", nil); !errors.Is(err, ErrInterrupted) {
		t.Errorf("interrupted: got %v", err)
	}
}

func TestInvalidServerAddressIsUsageError(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "127.0.0.1:8788", "localhost", "ftp://x", "http://", "http://a b"} {
		c := Commands{URL: url}
		if _, err := c.Session(Console{}); ExitCode(err) != ExitUsage {
			t.Errorf("%q: got %v, want a usage error", url, err)
		}
	}
}

func TestEveryExitCodeIsListed(t *testing.T) {
	t.Parallel()
	if got := ExitCode(errors.Join(errors.New("x"), fmt.Errorf("y: %w", usageErrorf("z")))); got != ExitUsage {
		t.Errorf("joined errors: got %d", got)
	}
	if got := ExitCode(errors.New("x")); got != ExitError {
		t.Errorf("other error: got %d", got)
	}
	seen := map[int]bool{}
	for _, e := range Exits {
		if seen[e.Code] || e.Meaning == "" {
			t.Errorf("exit code %d is listed twice or has no meaning", e.Code)
		}
		seen[e.Code] = true
	}
	for status := 400; status < 600; status++ {
		if code := exitOfStatus(status); !seen[code] || code == 0 {
			t.Errorf("status %d has exit code %d, which is not listed", status, code)
		}
	}
}

// TestForEachContinuesAfterFailures: a failure does not stop the others, but an interruption does.
func TestForEachContinuesAfterFailures(t *testing.T) {
	t.Parallel()
	gone := exitError{ExitNotFound, errors.New("gone")}
	var done []string
	err := forEach([]string{"a", "b", "c"}, func(id string) error {
		done = append(done, id)
		if id != "c" {
			return gone
		}
		return nil
	})
	if len(done) != 3 || ExitCode(err) != ExitNotFound || err.Error() != "gone\ngone" {
		t.Errorf("did %v, got %v", done, err)
	}
	done = nil
	err = forEach([]string{"a", "b"}, func(id string) error { done = append(done, id); return ErrInterrupted })
	if len(done) != 1 || !errors.Is(err, ErrInterrupted) {
		t.Errorf("interrupted: did %v, got %v", done, err)
	}
}

// TestRedirectsAreNotFollowed: following one could turn a write into a read, or send the key to another server.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere, _, _ := newSession(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was followed, with the key %q", r.Method, r.URL, r.Header.Get("Authorization"))
	})
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusPermanentRedirect} {
		s, _, _ := newSession(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.client.base.String()+r.URL.Path, status)
		})
		_, err := s.client.do(t.Context(), http.MethodPost, "/v1/runs", map[string]any{})
		if ExitCode(err) != ExitUsage || !strings.Contains(err.Error(), elsewhere.client.base.String()+"/v1/runs") ||
			!strings.Contains(err.Error(), "STEPWELL_URL") {
			t.Errorf("%d: got %v, code %d, want a usage error with the redirect's target", status, err, ExitCode(err))
		}
	}
}
