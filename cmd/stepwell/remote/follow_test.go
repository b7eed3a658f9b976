package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// eventServer sends the n-th text on the n-th connection and then breaks it. It answers later requests with 503.
type eventServer struct {
	connections []string
	lastIDs     []string // the Last-Event-IDs of the requests
}

func (e *eventServer) handle(w http.ResponseWriter, r *http.Request) {
	e.lastIDs = append(e.lastIDs, r.Header.Get("Last-Event-ID"))
	if len(e.lastIDs) > len(e.connections) {
		http.Error(w, "unavailable", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, e.connections[len(e.lastIDs)-1])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

const end = "event: end\ndata: {}\n\n"

func TestFollowResumesAfterDisconnects(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name             string
		connections      []string
		handled, lastIDs []string
		code             int
	}{
		{"one connection", []string{"id: 1\ndata: a\n\nid: 2\ndata: b\n\n" + end}, []string{"a", "b"}, []string{""}, 0},
		{
			"broken between events", []string{"id: 1\ndata: a\n\n", "id: 2\ndata: b\n\n" + end},
			[]string{"a", "b"},
			[]string{"", "1"}, 0,
		},
		{
			"broken within an event", []string{"id: 1\ndata: a\n\nid: 2\ndata: b\n", "id: 2\ndata: b\n\n" + end},
			[]string{"a", "b"},
			[]string{"", "1"}, 0,
		},
		{
			"ID of a comment", []string{": nothing new\nid: 7:x\n\n", "id: 8\ndata: a\n\n" + end},
			[]string{"a"},
			[]string{"", "7:x"}, 0,
		},
		{"broken before the first event", []string{"", end}, nil, []string{"", ""}, 0},
		{"server does not come back", []string{"id: 1\ndata: a\n\n"}, []string{"a"}, nil, ExitUnreachable},
		{"server never answered", nil, nil, []string{""}, ExitUnreachable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := &eventServer{connections: tt.connections}
			s, _, notes := newSession(t, server.handle)
			var handled []string
			err := s.follow(t.Context(), "/v1/x", nil, func(data json.RawMessage) error {
				handled = append(handled, string(data))
				return nil
			})
			if ExitCode(err) != tt.code {
				t.Errorf("got %v, want exit code %d", err, tt.code)
			}
			if !slices.Equal(handled, tt.handled) || tt.lastIDs != nil && !slices.Equal(server.lastIDs, tt.lastIDs) {
				t.Errorf("handled %v after %q, want %v after %q", handled, server.lastIDs, tt.handled, tt.lastIDs)
			}
			if want := min(1, len(server.lastIDs)-1); strings.Count(notes.String(), "retrying") != want {
				t.Errorf("printed %q, want %d notes about retrying", notes, want)
			}
		})
	}
}

func TestFollowDoesNotRetryPermanentErrors(t *testing.T) {
	t.Parallel()
	errFull := errors.New("disk full")
	ignore := func(json.RawMessage) error { return nil }
	for _, tt := range []struct {
		name   string
		handle http.HandlerFunc
		read   func(json.RawMessage) error
		want   func(error) bool
	}{
		{
			"reader fails", (&eventServer{connections: []string{"data: a\n\n"}}).handle,
			func(json.RawMessage) error { return errFull }, func(err error) bool { return errors.Is(err, errFull) },
		},
		{
			"not an event stream", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") },
			ignore, func(err error) bool { return strings.Contains(err.Error(), "is it a Stepwell server?") },
		},
		{
			"no such run", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) },
			ignore, func(err error) bool { return ExitCode(err) == ExitNotFound },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			requests := 0
			s, _, _ := newSession(t, func(w http.ResponseWriter, r *http.Request) {
				requests++
				tt.handle(w, r)
			})
			if err := s.follow(t.Context(), "/v1/x", nil, tt.read); err == nil || !tt.want(err) {
				t.Errorf("got %v", err)
			}
			if requests != 1 {
				t.Errorf("got %d requests, want 1", requests)
			}
		})
	}
}

func TestFollowIsInterrupted(t *testing.T) {
	t.Parallel()
	s, _, notes := newSession(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: a\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	err := s.follow(ctx, "/v1/x", nil, func(json.RawMessage) error { cancel(); return nil })
	if !errors.Is(err, ErrInterrupted) || ExitCode(err) != ExitInterrupted || notes.Len() > 0 {
		t.Errorf("got %v, printed %q", err, notes)
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	ended := func(status string) string {
		return fmt.Sprintf(`{"id":"wrun_1","status":%q,"completedAt":"2026-11-21T01:41:44.012Z"}`, status)
	}
	const running, broken = `{"id":"wrun_1","status":"running"}`, ""
	for _, tt := range []struct {
		name    string
		answers []string // the last one is repeated
		timeout time.Duration
		code    int
	}{
		{"completed", []string{running, ended("completed")}, 0, 0},
		{"failed", []string{ended("failed")}, 0, ExitFailed},
		{"cancelled", []string{ended("cancelled")}, 0, ExitCancelled},
		{"before the timeout", []string{running, running, ended("completed")}, time.Minute, 0},
		{"after the timeout", []string{running}, 20 * time.Millisecond, ExitTimeout},
		{"server restarted", []string{running, broken, broken, ended("completed")}, 0, 0},
		{"server does not come back", []string{running, broken}, 0, ExitUnreachable},
		{"server never answered", []string{broken, ended("completed")}, 0, ExitUnreachable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			requests := 0
			s, out, _ := newSession(t, func(w http.ResponseWriter, r *http.Request) {
				answer := tt.answers[min(requests, len(tt.answers)-1)]
				requests++
				if answer == broken {
					panic(http.ErrAbortHandler)
				}
				if _, err := time.ParseDuration(r.URL.Query().Get("timeout")); err != nil || r.URL.Path != "/v1/runs/wrun_1/wait" {
					t.Errorf("got a request for %s", r.URL)
				}
				_, _ = io.WriteString(w, answer)
			})
			err := waitRunCmd{ID: "wrun_1", Timeout: tt.timeout}.Run(t.Context(), s)
			if ExitCode(err) != tt.code {
				t.Errorf("got %v, want exit code %d", err, tt.code)
			}
			// A stopping server answers at once; the client must not poll it in a busy loop.
			if most := int(tt.timeout/s.retryInterval) + 2; tt.code == ExitTimeout && requests > most {
				t.Errorf("got %d requests, want at most %d", requests, most)
			}
			if (out.Len() > 0) != (tt.code != ExitUnreachable) {
				t.Errorf("printed %q", out)
			}
		})
	}
}

func TestJSONFlag(t *testing.T) {
	t.Parallel()
	s := &Session{Console: Console{Stdin: strings.NewReader(" [1] \n")}}
	if got, err := jsonFlag("-").read(s, "--input"); err != nil || string(got) != "[1]" {
		t.Errorf("standard input: got %s, %v", got, err)
	}
	for in, want := range map[jsonFlag]string{"": "", `{"a": 1}`: `{"a": 1}`, "7": "7", "null": "null"} {
		if got, err := in.read(s, "--input"); err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v", in, got, err)
		}
	}
	for _, in := range []jsonFlag{"teapot", "{", "@/no/such/file", "1 2"} {
		if _, err := in.read(s, "--input"); ExitCode(err) != ExitUsage || !strings.Contains(err.Error(), "--input") {
			t.Errorf("%s: got %v", in, err)
		}
	}
}

func TestPathSegmentsAreEscaped(t *testing.T) {
	t.Parallel()
	var requested string
	s, _, _ := newSession(t, func(w http.ResponseWriter, r *http.Request) {
		requested = r.URL.EscapedPath()
		_, _ = io.WriteString(w, `{}`)
	})
	if _, err := s.client.do(t.Context(), http.MethodGet, path("hooks", "a/../b?c#d%2F", "resume"), nil); err != nil {
		t.Fatal(err)
	}
	if requested != "/v1/hooks/a%2F..%2Fb%3Fc%23d%252F/resume" {
		t.Errorf("got a request for %s", requested)
	}
}
